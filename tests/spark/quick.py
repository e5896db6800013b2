"""What saves the tests' sessions processor time; all other sessions are as Spark makes them.

Those are the sessions of scripts, of job files, of the notebook and of the plugins' rules.
"""

QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=4 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of Java for processes that live for seconds.

Half of what short queries cost is the second compiler, for code that then runs a few times. A fifth
of what a JVM costs until its first result is the proof that the classes of the jars are well-formed.
The first compiler waits for four times as many calls: five files of tests with Spark took 95 and 96
s of processor time, without that 102, 127 and 130.
"""


def quick_files():
    """Small files without a process for each.

    Spark starts readlink eight times for each small file of a checkpoint that it renames, and
    chmod for each that it writes, checksums beside them.
    """
    from millpond_spark.session.internals import FILE_MANAGER, quick_file_manager

    return {
        FILE_MANAGER: quick_file_manager(),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }


def quick_settings():
    """Such files, and workers that come loaded."""
    return {**quick_files(), "spark.python.daemon.module": "tests.spark.warm_daemon"}
