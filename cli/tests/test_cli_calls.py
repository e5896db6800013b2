"""The command line with generated calls, and on real terminals and pipes."""

import builtins
import fcntl
import json
import os
import pty
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest

from cli.tests.cli_calls import Calls, check_calls, make_places, run

pytestmark = pytest.mark.slow

SEED = 20261121
BUDGET = 240
MIXED = 150


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """All directories, and the calls on them."""
    return Calls(make_places(tmp_path_factory.mktemp("cli")))


@pytest.fixture(autouse=True)
def no_spark(monkeypatch, tmp_path):
    """Pretend that PySpark is not installed, in a working directory of the test."""
    real = builtins.__import__

    def without_spark(name, *arguments, **options):
        if name.partition(".")[0] == "pyspark":
            raise ImportError("No module named 'pyspark'")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_spark)
    monkeypatch.chdir(tmp_path)


def writes(verb):
    """Return whether a command changes its directory."""
    return verb[-1] in ("gc", "seal")


def test_a_sample_of_all_calls(calls):
    """A sample of calls: no traceback, no hang, no control characters, and each refusal names its reason."""
    chance = random.Random(SEED)
    every = [call for verb in calls.verbs() if not writes(verb) for call in calls.single(verb)]
    before = calls.places.contents()
    _, wrong = check_calls(chance.sample(every, BUDGET), SEED)
    assert not wrong, "\n".join(wrong)
    assert before <= calls.places.contents()


@pytest.mark.soak
@pytest.mark.parametrize("which", range(40))
def test_all_calls_of_a_verb(calls, which):
    """All odd values of every argument of a command, alone and combined, have no fault."""
    verbs = calls.verbs()
    if which >= len(verbs):
        assert len(verbs) < 40
        return
    verb = verbs[which]
    before = calls.places.contents()
    every = [*calls.single(verb), *calls.mixed(verb, random.Random(SEED), MIXED)]
    _, wrong = check_calls(every, SEED)
    assert not wrong, "\n".join(wrong)
    assert writes(verb) or before <= calls.places.contents()


def test_a_directory_that_may_not_be_read(calls):
    """Without permission to read or write, a command names the directory."""
    run(["checkpoint", "list", calls.places.paths["sound"]])  # import while it can be read
    set_user = os.seteuid if os.geteuid() == 0 else None
    place = tempfile.mkdtemp()
    try:
        shutil.copytree(calls.places.paths["sound"], f"{place}/closed")
        Path(place).chmod(0o755)
        Path(place, "closed").chmod(0o000)
        if set_user:
            set_user(65534)
        for verb in (["checkpoint", "list"], ["checkpoint", "verify"], ["state", "list"]):
            result = run([*verb, f"{place}/closed"])
            assert (result.exit_code, result.stdout) == (1, ""), result.output
            assert "cannot be listed: Permission denied" in result.stderr
        source = f"{place}/closed"
        result = run(["savepoint", "create", source, f"{place}/new", "--snapshots", source])
        assert result.exit_code == 1
        assert "Permission denied" in result.stderr
    finally:
        if set_user:
            set_user(0)
        Path(place, "closed").chmod(0o755)
        shutil.rmtree(place)


def in_a_process(arguments, *, stdout=subprocess.PIPE, **environment):
    """Run the command as users do."""
    code = "from millpond_cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    )


def on_a_terminal(arguments, columns):
    """Return the output of a command on a terminal of some width, and its status."""
    code = "from millpond_cli.main import main; main()"
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**environment, "TERM": "xterm"},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            data = os.read(leader, 1 << 16)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(leader)
    return process.wait(timeout=120), shown.decode()


def test_a_real_terminal_shows_progress_and_tables_of_its_width(calls):
    """Progress is drawn and removed again; the remaining table fits the terminal."""
    status, shown = on_a_terminal(["checkpoint", "verify", calls.places.paths["sound"]], 80)
    assert status == 0
    assert "verifying" in shown
    assert "\x1b[?25h" in shown  # the cursor is visible again
    table = shown.rpartition("\x1b[2K")[2].replace("\x1b[0m", "").replace("\x1b[1m", "")
    lines = table.replace("\r", "").splitlines()
    assert any(line.startswith("operator q1/totals") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in table


def test_into_a_pipe_go_whole_lines_and_no_progress(calls):
    """In a pipe each row is one line, without boxes, colours or wrapping."""
    done = in_a_process(["checkpoint", "verify", calls.places.paths["sound"]], COLUMNS="40")
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines[0].split() == ["operator", "file", "bytes", "verdict"]
    assert all(line.split()[-1] == "ok" for line in lines[1:])
    assert "\x1b" not in done.stdout.decode()


def test_an_ascii_terminal(calls):
    """Characters outside of the terminal's encoding are written as escapes."""
    where = calls.places.paths["sound"]
    call = ["state", "get", where, "total", "é" * 60, "--operator", "totals"]
    done = in_a_process(call, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert done.returncode == 0, done.stderr
    assert b"\\xe9\\xe9" in done.stdout
    done = in_a_process(call, LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 1, "in this locale the key on the command line is another one"
    assert done.stderr.isascii()
    assert b"Traceback" not in done.stderr
    assert json.loads(in_a_process([*call, "--json"]).stdout)[0]["key"] == "é" * 60


def test_output_that_cannot_be_written(calls):
    """A full disk is reported; a closed reader is not; neither shows a traceback."""
    call = ["state", "dump", calls.places.paths["sound"], "total", "--operator", "totals"]
    with Path("/dev/full").open("wb") as full:
        done = in_a_process(call, stdout=full)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"standard output: No space left on device" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = in_a_process(call, stdout=gone)
    assert (done.returncode, done.stderr) == (141, b"")
