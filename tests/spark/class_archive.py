"""Writes Spark's classes to a file, as Java has them in memory: class_archive.py.

A third of what a JVM costs until its first result is the reading of classes from jars.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from quick import ARCHIVE, SHORT_LIVED

SCRIPT = Path(__file__).with_name("main_script.py")


def main():
    """Run a streaming job once, whose JVM leaves the classes that it has loaded."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "input").mkdir()
        (folder / "input" / "1.json").write_text(json.dumps({"k": "a", "n": 5}))
        made = folder / "classes.jsa"
        options = f"{SHORT_LIVED} -Xlog:disable -XX:ArchiveClassesAtExit={made}"
        # The JVM has the output open as long as it lives, which is longer than the script.
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(folder)], cwd=folder, capture_output=True,
            text=True, check=False, env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        )  # fmt: skip
        ARCHIVE.unlink(missing_ok=True)  # Java has made the one before it read-only
        ARCHIVE.write_bytes(made.read_bytes() if made.exists() else b"")
    if not ARCHIVE.stat().st_size:
        sys.stderr.write(f"No archive of classes; the tests run without one.\n{done.stderr}\n")


if __name__ == "__main__":
    main()
