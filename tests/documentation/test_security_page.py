"""Each promise of the page on security names tests that exist."""

import re
from pathlib import Path

import millpond as mp

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def promises():
    """Return the text of each promise by its first words."""
    part = PAGE.partition("## Promises")[2].partition("## Limits")[0]
    pieces = re.split(r"\n\*\*(.+?)\*\*", part)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def test_each_promise_names_tests():
    """Each promise names at least one test."""
    assert len(promises()) >= 7
    assert [name for name, text in promises().items() if not NAMED.search(text)] == []


def test_the_named_tests_exist():
    """Each named test exists in the named file."""
    assert len(NAMED.findall(PAGE)) == PAGE.count("::")
    missing = [
        f"{file}::{name}"
        for file, name in NAMED.findall(PAGE)
        if f"\ndef {name}(" not in (ROOT / file).read_text()
    ]
    assert missing == []


def test_the_limits_are_those_of_the_configuration():
    """The options that the page names exist."""
    named = set(re.findall(r"`((?:restore|serialization)\.[a-z.-]+)`", PAGE))
    assert named >= {"restore.max-states", "serialization.allow-pickle"}
    assert named <= set(mp.Config.known_keys())


def test_the_readme_leads_there():
    """The README links to the page."""
    assert "docs/explanation/security.md" in (ROOT / "README.md").read_text()
