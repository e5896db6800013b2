"""Type checkers infer the type of a state from its descriptor."""

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import millpond
import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CHECKED = HERE / "states.py"
CACHE = HERE / ".mypy_cache"


def marked():
    """Return the codes of the marks, by line."""
    found = defaultdict(set)
    for number, line in enumerate(CHECKED.read_text().splitlines(), 1):
        if mark := re.search(r"(.*)# E: (.+)$", line):
            found[number + (not mark[1].strip())] |= set(mark[2].split())
    return found


def output_of(*command, cwd=HERE):
    """Return a checker's output; fail if the checker could not work."""
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def by_mypy():
    """Return the codes of mypy's errors by line, with --strict."""
    options = ["--strict", "--config-file=", f"--cache-dir={CACHE}", "--output=json"]
    found = defaultdict(set)
    for line in output_of("mypy", *options, CHECKED.name).splitlines():
        error = json.loads(line)
        found[error["line"]].add(error["code"])
    return found


def by_pyright(folder=HERE):
    """Return the rules of pyright's errors by line."""
    options = ["--pythonpath", sys.executable, "--level", "error", "--outputjson"]
    found = defaultdict(set)
    for error in json.loads(output_of("basedpyright", *options, cwd=folder))["generalDiagnostics"]:
        found[error["range"]["start"]["line"] + 1].add(error["rule"])
    return found


def expected(*, pyright):
    """Return the expected codes of one checker; pyright's rules begin with "report"."""
    codes = {
        line: {code for code in marks if code.startswith("report") is pyright}
        for line, marks in marked().items()
    }
    assert all(codes.values()), "each mark names codes of both"
    return codes


def test_mypy_knows_the_types_of_states():
    """Mypy --strict infers every asserted type, and reports exactly the marked errors."""
    assert by_mypy() == expected(pyright=False)


def test_pyright_knows_the_types_of_states():
    """Pyright infers the same types, and reports exactly the marked errors."""
    assert by_pyright() == expected(pyright=True)


def test_a_descriptor_that_loses_its_parameter_is_noticed(tmp_path):
    """If any kind of descriptor loses its type parameter, an assertion fails."""
    shutil.copytree(Path(millpond.__file__).parent, tmp_path / "millpond")
    shutil.copy(CHECKED, tmp_path)
    config = {"include": [CHECKED.name], "typeCheckingMode": "standard", "extraPaths": ["."]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    module = tmp_path / "millpond" / "state" / "descriptors.py"
    forgetful, count = re.subn(
        r"StateDescriptor\[(\w+)\[(.+?)\](, K, V)?\](, Generic\[.+?\])?\)",
        lambda found: (
            f"StateDescriptor[{found[1]}{found[3] or ''}]{found[4] or f', Generic[{found[2]}]'})"
        ),
        module.read_text(),
    )
    module.write_text(forgetful)
    failed = by_pyright(tmp_path)
    lines = CHECKED.read_text().splitlines()
    kinds = {
        kind
        for kind in ("Value", "List", "Map", "SortedMap", "Reducing", "Aggregating", "Folding")
        for line, rules in failed.items()
        if "reportAssertTypeFailure" in rules and f"{kind}State[" in lines[line - 1]
    }
    assert count == len(kinds) == 7
