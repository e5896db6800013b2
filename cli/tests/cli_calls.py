"""Generated calls of the command line: every command, with odd values for each argument and option.

The commands themselves describe their parameters; this module has only directories and values. No
call starts Spark or runs the kit's clauses.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import attrs
import click
import millpond as mp
from click.testing import CliRunner
from millpond_cli.main import commands
from millpond_cli.terminal import safe
from rich.cells import cell_len

SECONDS = 5.0
WIDTH = 80
MODES = {
    "pipe": ({"TTY_COMPATIBLE": "0"}, "utf-8"),
    "terminal": ({"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": str(WIDTH)}, "utf-8"),
    "ascii": ({"TTY_COMPATIBLE": "0", "PYTHONIOENCODING": "ascii"}, "ascii"),
    "ascii terminal": ({"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": str(WIDTH)}, "ascii"),
}
WRITTEN = "below"
"""The file name that calls write into a directory with state."""
EVIL = "e\x1b[31m\u202e[bold]v\nil"
NUMBERS = ["", "x", "-1", "0", "1", "2", "3", "1.5", "1e3", "٣", "9" * 18, "9" * 25, " 1", "0x1"]
TEXTS = ["", " ", "no such", EVIL, "\udcff", "x" * 5000, "[/]", "..", "{}", "é", "--", "-x", "a/b"]
JSONS = ["", "{", "null", "1", "1.5", "-0", "1e999", "true", '"a"', "[]", "{}", "[1, 2]", "NaN"]
JSONS += ['"\\ud800"', "[" * 4000, "9" * 5000, '{"a": 1, "a": 2}', EVIL, '"2024-01-01"']

HOW = ("cut", "changed", "gone", "fifo", "folder")
DAMAGED = [f"{what} {how}" for what in ("snapshot", "metadata", "table") for how in HOW]
KEYS = ["k1", "2.9", '[1, "a"]', '[1.5, "a"]']
NAMES = ["total", "basket", "seen", "[bold]pair[/]", "totals", "q1/totals", "heap", "ttl"]


@attrs.frozen
class Ttl:
    """A class whose instances are values."""

    item: str
    count: int


@attrs.frozen
class Places:
    """Directories and files for commands, by a short name each."""

    root: Path
    paths: dict[str, str]

    def contents(self) -> set[tuple[Path, bytes]]:
        """Return all files in directories with state, which commands read and never change.

        A file that a call was asked to write there is left out.
        """
        return {
            (path, hashlib.sha256(path.read_bytes()).digest())
            for name in ("sound", "savepoint", *DAMAGED)
            for path in Path(self.paths[name]).rglob("*")
            if path.is_file() and path.name != WRITTEN
        }


def make_places(root: Path) -> Places:
    """Create intact, damaged and unrelated directories."""
    sound = root / "sound"
    _snapshots(sound)
    run(["savepoint", "create", str(sound), str(root / "savepoint"), "--snapshots", str(sound)])
    places = {"sound": sound, "savepoint": root / "savepoint", "missing": root / "missing"}
    places |= _damaged(sound, root / "savepoint", root)
    for name in ("empty", "latin-\udce9", f"name-{EVIL}", "with space #? %41"):
        (root / name).mkdir()
        places[name] = root / name
    (root / "file").write_text("text")
    os.mkfifo(root / "fifo")
    (root / "loop").symlink_to("loop")
    (root / "query" / "offsets").mkdir(parents=True)
    (root / "query" / "metadata").write_text("{}")
    (root / "query" / "offsets" / "0").write_text("{}")
    places |= {name: root / name for name in ("file", "fifo", "loop", "query")}
    (root / "targets").mkdir()
    words = {name: str(path) for name, path in places.items()}
    words |= {"below a file": str(root / "file" / "x"), "device": "/dev/null", "void": ""}
    words |= {"long": "/" + "y" * 5000, "deep": str(root) + "/z" * 3000, "scheme": "nope://a/b"}
    words |= {"uri": sound.as_uri(), "bad uri": "file://elsewhere/a", "colon": "a:b", "evil": EVIL}
    words |= {"memory": "memory:nothing", "percent": "file:///%00", "relative": "nothing/here"}
    return Places(root, words)


def _snapshots(folder: Path) -> None:
    """Write two checkpoints of an operator with odd names, and one of another operator."""
    storage = mp.checkpoint_storage(folder.as_uri())
    ttl = mp.StateTtlConfig(timedelta(days=1))
    with mp.open_keyed_backend("heap", key_type=str, place="q1/totals") as backend:
        total = backend.get_partitioned_state(mp.ValueStateDescriptor("total", int))
        pair = backend.get_partitioned_state(mp.ValueStateDescriptor("[bold]pair[/]", Ttl))
        basket = backend.get_partitioned_state(mp.MapStateDescriptor("basket", str, int))
        seen = mp.ListStateDescriptor("seen", float).enable_time_to_live(ttl)
        seen_state = backend.get_partitioned_state(seen)
        for number, key in enumerate(["k1", EVIL, "é" * 60]):
            backend.set_current_key(key)
            total.update(number)
            pair.update(Ttl(EVIL, number))
            basket.put(EVIL, number)
            seen_state.update([1.5])
        backend.snapshot(1, storage).result()
        total.update(2**70)
        backend.snapshot(2, storage).result()
    with mp.open_keyed_backend("heap", key_type=tuple[int, str], place="q1/other") as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("total", bytes))
        backend.set_current_key((1, "a"))
        state.update(b"\x1b")
        backend.snapshot(2, storage).result()


def _damaged(sound: Path, savepoint: Path, root: Path) -> dict[str, Path]:
    """Copy the directory with one file truncated, changed, deleted or replaced."""
    import shutil

    made = {}
    wanted = {"snapshot": (sound, "*.snapshot")}
    wanted |= {"metadata": (savepoint, "savepoint.json"), "table": (savepoint, "*.parquet")}
    for what, (source, pattern) in wanted.items():
        for how in HOW:
            copy = root / f"{what} {how}"
            shutil.copytree(source, copy)
            victim = max(copy.rglob(pattern))
            data = victim.read_bytes()
            victim.unlink()
            if how == "cut":
                victim.write_bytes(data[: len(data) // 2])
            elif how == "changed":
                victim.write_bytes(data[:9] + bytes([data[9] ^ 1]) + data[10:])
            elif how == "fifo":
                os.mkfifo(victim)
            elif how == "folder":
                victim.mkdir()
            made[copy.name] = copy
    return made


def make_files(root: Path) -> dict[str, str]:
    """Write files that are read as TOML, JSON or Python, most of them wrong."""
    texts = {
        "empty.toml": "",
        "binary.toml": "\udcff\udcfe",
        "deep.toml": "a = " + "[" * 3000 + "]" * 3000,
        "value.toml": "millpond = 3\nsource = 4\n[job]\n",
        "list.toml": "[[source]]\n[[millpond]]\n",
        "key.toml": f'[millpond]\n"{EVIL.encode("unicode_escape").decode()}" = 1\n'.replace(
            "\\x", "\\u00"
        ),
        "plugins.toml": '[millpond.plugins]\nblock = ["heap"]\n',
        "numbers.toml": "[millpond]\nparallelism = 1.5\n",
        "job.toml": _JOB.format(function="job.py:Job", key='"a"'),
        "empty-key.toml": _JOB.format(function="job.py:Job", key=""),
        "text.json": "text",
        "list.json": "[1]",
        "number.json": "7",
        "deep.json": "[" * 9000,
        "verdict.json": '{"verdict": "PASS", "results": 3}',
        "ledger.toml": "[[failure]]\nclause = 3\n",
        "ledger2.toml": "failure = 3\n",
        "bad_import.py": "import no_such_module_at_all\n",
        "bad_syntax.py": "def f(:\n",
        "bad_null.py": "x = 1\0\n",
        "raises.py": f"raise ValueError({EVIL!r})\n",
        "exits.py": "import sys\nsys.exit(0)\n",
        "deep.py": "def f():\n    return f()\nf()\n",
        "job.py": _FUNCTIONS,
    }
    for name, text in texts.items():
        (root / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    found = {name: str(root / name) for name in texts}
    job = root / "job.py"
    names = ("Job", "fails", "raises", "Opens", "number", "Needs", "nothing", "Plain", "")
    found |= {f"job:{name}": f"{job}:{name}" for name in names}
    found |= {f"{n}:x": f"{root / n}:x" for n in texts if n.endswith(".py")}
    return found


_JOB = """
[source]
format = "csv"
schema = "a string"
path = "input"
[job]
uid = "x"
function = "{function}"
key = [{key}]
output = "a string"
[sink]
format = "json"
checkpoint = "checkpoint"
"""
_FUNCTIONS = f"""
import millpond as mp
class Job(mp.KeyedProcessFunction):
    def open(self, context):
        context.get_state(mp.ValueStateDescriptor("total", int))
    def process_element(self, row, context):
        return None
class Opens(Job):
    def open(self, context):
        raise RuntimeError({EVIL!r})
class Needs(Job):
    def __init__(self, argument):
        pass
class Plain:
    pass
number = 7
def fails():
    return 7
def raises():
    raise KeyError
"""


@attrs.frozen
class Call:
    """Arguments of a call, and the odd one if there is only one."""

    arguments: tuple[str, ...]
    odd: str | None = None

    def shown(self) -> str:
        """Return the call as a failing test prints it."""
        return " ".join(ascii(each)[1:-1][:200] or "''" for each in self.arguments)


class Calls:
    """All calls of every command on some directories."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.files = make_files(places.root)
        self._numbered = 0

    def verbs(self) -> list[tuple[str, ...]]:
        """Return the names of all commands without groups."""
        return sorted(_verbs(commands, ()))

    def single(self, verb: tuple[str, ...]) -> Iterator[Call]:
        """Yield correct calls, and calls with one argument missing or odd."""
        parameters = _parameters(verb)
        yield self._call(verb, parameters, {})
        yield Call((*verb, "--help"))
        yield Call((*verb, "--no-such"), "--no-such")
        yield Call(verb)
        for each in parameters:
            if each.required:
                yield self._call(verb, [one for one in parameters if one is not each], {})
            for value in self.values(verb, each):
                yield self._call(verb, parameters, {each.name: value}, odd=value)

    def mixed(self, verb: tuple[str, ...], chance: random.Random, count: int) -> Iterator[Call]:
        """Yield calls with several odd arguments."""
        parameters = _parameters(verb)
        for _ in range(count):
            chosen = chance.sample(parameters, min(len(parameters), chance.randint(2, 4)))
            chosen = [each for each in chosen if self.values(verb, each)]
            values = {each.name: chance.choice(self.values(verb, each)) for each in chosen}
            yield self._call(verb, parameters, values)

    def values(self, verb: tuple[str, ...], parameter: click.Parameter) -> list[str | None]:
        """Return possible values of a parameter; None is the flag alone."""
        name = str(parameter.name)
        if isinstance(parameter, click.Option) and parameter.is_flag:
            return [] if name == "seal" else [None]
        if name == "target" or (verb[0], name) in (("new-backend", "directory"), _REPORTED):
            return list(self._targets())
        if isinstance(parameter.type, (click.types.IntParamType, click.IntRange)):
            return list(NUMBERS)
        if verb == ("plan",) and name != "backend":
            return [*NUMBERS, *JSONS, "1kb", "inf", "1e-300"]
        places, files = self.places.paths.values(), self.files.values()
        given = {word: [*places] for word in _READ_PLACES}
        given |= {word: [*files, *places] for word in _READ_FILES}
        given |= {word: [*JSONS, *TEXTS, *KEYS] for word in ("value", "map_key", "key")}
        given["against"] = [*files, *TEXTS, "os:getpid", "no_such:x", ":", "a..b:c", ".a:b"]
        return [*given.get(name, [*TEXTS, *NAMES])]

    def _targets(self) -> list[str]:
        self._numbered += 1
        new = self.places.root / "targets" / f"new-{self._numbered}"
        inside = f"{self.places.paths['sound']}/{WRITTEN}"
        odd = [*self.places.paths.values(), inside, f"{new}/a/b"]
        files = [f"{new}.{ending}" for ending in ("csv", "parquet", "arrow", "PARQUET", "txt", "")]
        return [str(new), *files, "/proc/no-such", *odd]

    def _call(
        self,
        verb: tuple[str, ...],
        parameters: list[click.Parameter],
        values: dict[str, str | None],
        odd: str | None = None,
    ) -> Call:
        """Return a call with the given values, and correct ones for other required parameters."""
        options: list[str] = []
        arguments: list[str] = []
        for each in parameters:
            if each.name in values:
                value = values[each.name]
            elif each.required or each.name in _ALWAYS.get(verb[0], ()):
                value = self._sound(verb, each)
            else:
                continue
            if isinstance(each, click.Option):
                options += [each.opts[0]] if value is None else [f"{each.opts[0]}={value}"]
            else:
                arguments.append(str(value))
        if verb == ("state", "edit") and not {"value", "remove"} & set(values):
            options.append("--set=7")
        return Call((*verb, *options, "--", *arguments), odd)

    def _sound(self, verb: tuple[str, ...], parameter: click.Parameter) -> str:
        name = str(parameter.name)
        if name == "target" and verb[-1] == "export":
            return self._targets()[1]
        if name in ("target", "directory") and (verb[0] == "new-backend" or name == "target"):
            return self._targets()[0]
        if verb[0] == "savepoint" and name == "path":
            return self.places.paths["savepoint"]
        sound = {"name": "total", "key": "k1", "operator": "totals", "first": "1", "second": "2"}
        sound |= {"rate": "1e3", "keys": "1e6", "bytes_per_key": "1kb", "batch": "10"}
        sound |= {"uid": "totals", "new_uid": "sums", "new_name": "amount"}
        sound |= {
            "max_parallelism": "64",
            "parallelism": "2",
            "against": self.files["job:Job"],
            "backend": "heap",
        }
        sound |= {"clauses": "no such clause", "file": self.files["job.toml"]}
        sound |= dict.fromkeys(("before", "after", "reports"), _REPORT)
        return sound.get(name, self.places.paths["sound"])


_REPORTED = ("conformance", "report")
_READ_PLACES = ("path", "directory", "checkpoint", "snapshots")
_READ_FILES = ("file", "config", "ledger", "before", "after", "reports")
_REPORT = str(
    Path(__file__).resolve().parents[2] / "docs" / "quality" / "conformance" / "heap.json"
)
_ALWAYS = {
    **dict.fromkeys(("state", "checkpoint", "savepoint"), ("operator",)),
    "conformance": ("clauses",),
}


def _verbs(group: click.Group, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _verbs(command, (*above, name))
        else:
            yield (*above, name)


def _parameters(verb: tuple[str, ...]) -> list[click.Parameter]:
    command: click.Command = commands
    for name in verb:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return [each for each in command.params if each.name != "help"]


def run(arguments: list[str] | tuple[str, ...], mode: str = "pipe") -> object:
    """Run the command line in this process."""
    environment, charset = MODES[mode]
    return CliRunner(charset=charset).invoke(commands, list(arguments), env=environment)


@contextmanager
def _alarm() -> Iterator[None]:
    """Fail a call that waits for something."""

    def ring(*_: object) -> None:
        raise TimeoutError("the call hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 12 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def faults(call: Call, mode: str) -> tuple[int, list[str]]:
    """Return the status of a call, and the faults of its end."""
    started = time.process_time()
    with _alarm():
        result = run(call.arguments, mode)
    spent = time.process_time() - started
    found = []
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        found.append(f"{type(result.exception).__name__}: {result.exception}")
    if "Traceback (most recent call last)" in result.output:
        found.append("a traceback is printed")
    if result.exit_code not in (0, 1, 2):
        found.append(f"status {result.exit_code}")
    if spent > SECONDS:
        found.append(f"{spent:.1f} s of CPU time")
    if result.exit_code and not found:
        found += _message_faults(call, result.stderr)
    wide = "terminal" not in mode or "--json" in call.arguments or "dump" in call.arguments[:2]
    found += _terminal_faults(result.output, wide=wide)
    return result.exit_code, found


def _message_faults(call: Call, stderr: str) -> list[str]:
    """Check that a refusal is on standard error and names the odd value."""
    if not stderr.strip():
        return ["refused without a word"]
    if call.odd is None:
        return []
    said = "".join(stderr.split())
    names = [call.odd, " ".join(call.odd.split()), Path(call.odd).name, ascii(call.odd)[1:-1]]
    if call.odd.strip().isdecimal() and len(call.odd) < 100:
        names.append(str(int(call.odd)))
    if any(word in " ".join(stderr.split()) for word in _OTHER_REASONS):
        return []
    wanted = ["".join(safe(name).split())[:40] for name in names]
    if any(want and want in said for want in wanted) or not wanted[0]:
        return []
    parameter = next((a for a in call.arguments if a.endswith(f"={call.odd}")), "").partition("=")[
        0
    ]
    return [] if parameter and parameter in said else [f"{call.odd[:60]!r} is not named"]


_OTHER_REASONS = (
    "no such clause",
    "pip install 'millpond[spark]'",
    "not the checkpointLocation",
    "state 'total':",
)
"""Reasons for which an otherwise correct call may be refused."""


def _terminal_faults(output: str, *, wide: bool) -> list[str]:
    found = [
        f"{letter!r} reaches the terminal"
        for letter in sorted(set(output))
        if not letter.isprintable() and letter != "\n"
    ]
    if not wide:
        # A word that is too long for a line, such as a path, is on a line of its own.
        long = [line for line in output.splitlines() if cell_len(line) > WIDTH]
        found += [f"wide: {line[:120]}" for line in long if len(line.split()) > 1]
    return found


def check_calls(calls: list[Call], seed: int) -> tuple[Counter[int], list[str]]:
    """Run calls; return their statuses and faults."""
    chance = random.Random(seed)
    statuses: Counter[int] = Counter()
    wrong = []
    for call in calls:
        mode = chance.choice(list(MODES))
        status, found = faults(call, mode)
        statuses[status] += 1
        wrong += [f"[{mode}] millpond {call.shown()}: {fault}" for fault in found]
    return statuses, wrong
