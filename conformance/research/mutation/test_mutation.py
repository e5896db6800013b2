"""Tests of the tool for automatic mutants."""

import ast
import json
import os
import subprocess
import sys

import pytest

from conformance.research.mutation import mutation
from conformance.research.mutation.mutate import mutated, mutations

ROOT = mutation.HERE.parents[2]

SOURCE = """
def f(a: int = 1) -> int | None:
    b: int | None = a
    if a < 2 and not a:
        g(a)
    return a + 1
"""


def test_every_kind_of_place_is_changed():
    """Comparisons, connectives, conditions, calls, returns, operators and constants are changed, one at a time."""
    texts = {(each.before, each.after) for each in mutations(SOURCE)}
    assert ("a < 2", "a <= 2") in texts
    assert ("a < 2 and (not a)", "a < 2 or not a") in texts
    assert ("g(a)", "nothing") in texts
    assert ("a + 1", "a - 1") in texts
    assert ("return a + 1", "return None") in texts
    assert ("1", "2") in texts
    assert not [each for each in mutations(SOURCE) if "None" in each.before]
    whole = ast.unparse(ast.parse(SOURCE))
    changed = {ast.unparse(mutated(SOURCE, each.place)) for each in mutations(SOURCE)}
    assert len(changed) == len(list(mutations(SOURCE)))
    assert whole not in changed


@pytest.mark.parametrize("target", [*mutation.TARGETS])
def test_a_sample_is_of_a_seed(target, monkeypatch):
    """The same seed gives the same mutants, all in the target's modules."""
    monkeypatch.syspath_prepend(mutation.EXAMPLE)
    chosen = mutation.sample(target, 20, 1)
    assert chosen == mutation.sample(target, 20, 1)
    assert chosen != mutation.sample(target, 20, 2)
    assert {module for module, _ in chosen} <= set(mutation.TARGETS[target][1])


def test_a_process_imports_the_mutant(tmp_path):
    """With the variable set, a process imports the changed module; other processes import the original."""
    (tmp_path / "victim.py").write_text("def answer():\n    return 41 + 1\n")
    path = os.pathsep.join([str(mutation.HERE), str(ROOT), str(tmp_path)])
    for variable, expected in (("", "42"), ("victim:1", "40")):
        done = subprocess.run(
            [sys.executable, "-c", "import victim; print(victim.answer())"],
            env={**os.environ, "PYTHONPATH": path, "MILLPOND_MUTANT": variable},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_forks_have_the_change():
    """The kit kills a mutant that never removes anything, and passes the unchanged backend."""
    wanted = ("millpond_heap.tables", "if by_key is None: return None")
    known = mutation.places("heap")
    (place, *_) = [each.place for module, each in known if (module, each.before) == wanted]
    code = "from conformance.research.mutation import judge; import sys; print([judge.killed_by('heap', ('K1',), m) for m in sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", code, f"{wanted[0]}:{place}", ""],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['K1', '']\n"


def test_a_run_goes_on_where_the_last_one_has_ended(tmp_path, monkeypatch):
    """Mutants in the report are not judged again; if a mutant has two lines, the later one counts."""
    report = tmp_path / "report.jsonl"
    monkeypatch.syspath_prepend(mutation.EXAMPLE)
    ((module, chosen),) = mutation.sample("sqlite", 1, 1)
    row = {"module": module, "place": chosen.place, "before": chosen.before, "after": chosen.after}
    lines = [{**row, "survived": 1, "killed by": ""}, {**row, "survived": 1, "killed by": "G4"}]
    report.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            mutation.__name__,
            "--target",
            "sqlite",
            "--sample",
            "1",
            "--report",
            report,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "sqlite: of 1 1 killed, 0 survived\n"
