"""Settings that save processor time in the tests' sessions.

Sessions of scripts, job files, the notebook and the plugin rules do not use them.
"""

QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=4 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Java options for processes that live for seconds.

The second compiler takes half of the time of short queries, for code that then runs a few times.
The verification of classes takes a fifth of a JVM's start. The first compiler waits for four times
as many calls: five files of tests with Spark took 95 and 96 s of processor time, without it 102,
127 and 130 s.
"""


def quick_files():
    """Write small files without starting processes.

    Spark starts readlink eight times for each small file of a checkpoint that it renames, and chmod
    for each file that it writes, including checksums.
    """
    from millpond_spark.session.internals import FILE_MANAGER, quick_file_manager

    return {
        FILE_MANAGER: quick_file_manager(),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }


def quick_settings():
    """Return settings with quick files, and workers with preloaded modules."""
    return {**quick_files(), "spark.python.daemon.module": "tests.spark.warm_daemon"}
