"""The page on tests names existing methods of the harness."""

import re

import millpond as mp

from tests.documentation.pages import text

HARNESS = mp.testing.KeyedOperatorHarness


def test_the_harness_has_what_the_page_names():
    """Each method that the page calls exists in the harness, and the page names `metrics`."""
    prose = re.sub(r"```.*?```", "", text("how-to/testing.md"), flags=re.DOTALL)
    called = re.findall(r"`(\w+)\([^`]*\)`", prose)
    assert {"process_batch", "snapshot", "savepoint"} <= set(called)
    assert [name for name in called if not callable(getattr(HARNESS, name, None))] == []
    assert "`metrics`" in prose
