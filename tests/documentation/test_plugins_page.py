"""The page on plugins describes each hook as specified."""

import inspect
import re

import pytest
from millpond.spi import hooks as hookspecs

from tests.documentation.pages import text

HOOKS = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("millpond_")}


def test_the_page_has_every_hook():
    """The table contains exactly the existing hooks, with their arguments."""
    rows = re.findall(
        r"^\| `(millpond_\w+)\(([^)]*)\)`", text("reference/plugins.md"), re.MULTILINE
    )
    assert dict(rows) == {
        name: ", ".join(inspect.signature(hook).parameters) for name, hook in HOOKS.items()
    }


@pytest.mark.parametrize("name", HOOKS)
def test_the_page_says_of_how_many_plugins_a_hook_is(name):
    """The last column says "the first that" exactly for hooks of which only one result is used."""
    (row,) = re.findall(rf"^\| `{name}\(.*$", text("reference/plugins.md"), re.MULTILINE)
    first = bool(HOOKS[name].millpond_spec["firstresult"])
    assert row.rstrip("| ").rpartition("|")[2].strip().startswith("the first that") == first
