"""Wide programs are repeatable and counted, and a failing one is shown as code."""

import pytest
from millpond_conformance import Verdict, run
from millpond_conformance.report import read_report
from millpond_conformance.wide import FLOORS, Coverage, World, generate, play, shrunk

from conformance.research.mutants import sabotage  # noqa: F401 - a mutant is named below

pytestmark = pytest.mark.slow

MUTANT = "conformance.research.mutants.sabotage:m_merges_take_three"


def test_a_seed_decides_a_program():
    """Two worlds of the same seed have the same states and steps; other seeds differ."""
    assert generate(World(7)) == generate(World(7))
    assert World(7).states == World(7).states
    assert generate(World(7)) != generate(World(8))


def test_a_program_is_made_shorter():
    """Shrinking removes the steps that the failure does not need; without time it removes none."""
    steps = [(name, 0) for name in "abcdefgh"]
    wanted = {("c", 0), ("g", 0)}
    assert set(shrunk(steps, lambda left: wanted <= set(left))) == wanted
    assert shrunk(steps, lambda left: wanted <= set(left), seconds=0) == steps


def test_what_programs_do_is_counted():
    """Each step is counted under a name with a minimum; other names are refused."""
    coverage = Coverage()
    play("heap", World(2), coverage=coverage)
    assert sum(coverage.counts().values()) > 0
    assert set(coverage.counts()) == set(FLOORS)
    with pytest.raises(LookupError):
        coverage.note("nothing of the kind")


@pytest.mark.long
def test_a_failure_explains_itself(tmp_path):
    """A report shows both values, and a program that fails in the same way when it is run."""
    found = run(MUTANT, "quick", ["G4"])
    (result,) = found.results
    assert result.verdict is Verdict.FAIL
    assert "expected" in result.message
    assert "got" in result.message
    assert result.program in found.to_json().encode().decode("unicode_escape")
    assert (
        "play('conformance.research.mutants.sabotage:m_merges_take_three', World("
        in found.to_text()
    )
    with pytest.raises(AssertionError, match="expected"):
        exec(result.program, {})
    (tmp_path / "report.json").write_text(found.to_json())
    assert read_report(tmp_path / "report.json") == found
