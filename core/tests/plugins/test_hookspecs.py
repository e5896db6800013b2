"""Every hook has a complete docstring and a test."""

import inspect
from pathlib import Path

import pytest
from millpond.spi import hooks as hookspecs

HOOKS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("millpond_")}
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", HOOKS)
def test_documentation(name):
    """The docstring names the time of the call, the result, which results are used, errors and an example."""
    spec = HOOKS[name]
    text = inspect.getdoc(spec)
    for part in ("When called:", "Result:", "First result only:", "Errors:", "Example::"):
        assert part in text, part
    if inspect.signature(spec).parameters:
        assert "Arguments:" in text
    assert f"def {name}(" in text.split("Example::")[1]
    first = spec.millpond_spec["firstresult"]
    assert ("First result only: yes" in text) == bool(first)


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_a_test(name):
    """Some test implements each hook."""
    places = ("core/tests", "spark/tests", "cli/tests", "tests", "conformance/tests")
    tests = [path for place in places for path in (REPOSITORY / place).rglob("test_*.py")]
    own = Path(__file__)
    assert any(f"def {name}(" in path.read_text() for path in tests if path != own)
