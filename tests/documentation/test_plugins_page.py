"""The page on plugins names each hook as it is specified."""

import inspect
import re

import pytest
from millpond.spi import hooks as hookspecs

from tests.documentation.pages import text

HOOKS = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("millpond_")}


def test_the_page_has_every_hook():
    """Its table has the hooks that there are, with their arguments, and no others."""
    rows = re.findall(
        r"^\| `(millpond_\w+)\(([^)]*)\)`", text("reference/plugins.md"), re.MULTILINE
    )
    assert dict(rows) == {
        name: ", ".join(inspect.signature(hook).parameters) for name, hook in HOOKS.items()
    }


@pytest.mark.parametrize("name", HOOKS)
def test_the_page_says_of_how_many_plugins_a_hook_is(name):
    """It says "the first" of hooks of which one result counts, and of no others."""
    (row,) = re.findall(rf"^\| `{name}\(.*$", text("reference/plugins.md"), re.MULTILINE)
    first = bool(HOOKS[name].millpond_spec["firstresult"])
    assert row.rstrip("| ").rpartition("|")[2].strip().startswith("the first that") == first
