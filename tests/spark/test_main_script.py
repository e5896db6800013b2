"""Classes and functions of a script, which workers cannot import by module."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("main_script.py")


def run(folder, number, n):
    """Run the script in its own process, with one more row to read."""
    (folder / "input").mkdir(exist_ok=True)
    (folder / "input" / f"{number}.json").write_text(json.dumps({"k": "a", "n": n}))
    command = [sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.long
@pytest.mark.sample(3, of="Spark processes")
@pytest.mark.spark
def test_classes_of_main_are_found_again(tmp_path):
    """A second process continues with the state of the first one's classes."""
    run(tmp_path, 1, 5)
    run(tmp_path, 2, 2)
    written = [path.read_text() for path in (tmp_path / "output").glob("*.json")]
    said = sorted(json.loads(line)["said"] for text in written for line in text.splitlines())
    assert said == [
        "Totals(count=5, level=<Level.LOW: 'low'>) 5",
        "Totals(count=7, level=<Level.HIGH: 'high'>) 5",
    ]
