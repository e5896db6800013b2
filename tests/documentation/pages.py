"""Pages of the docs whose blocks run in a session of Spark, where they say which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def text(page):
    """What a page says."""
    return (DOCS / page).read_text()


def run(page, kind, space):
    """Run a page's blocks of a kind, one after the other; what is refused must say what it shows."""
    block = re.compile(rf"```python {kind}\n(.*?)```\n(?:```refused\n(.*?)\n```)?", re.DOTALL)
    blocks = block.findall(text(page))
    assert len(blocks) == text(page).count(f"```python {kind}") > 0
    for code, refusal in blocks:
        compiled = compile(code, page, "exec")
        if not refusal:
            exec(compiled, space)
            continue
        with pytest.raises(Exception, match=re.escape(refusal)):
            exec(compiled, space)


def sections(content):
    """The sections of a page, each by the name that links have for it."""
    for section in content.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        yield re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"), body


def links(content):
    """Where a page's links lead."""
    return re.findall(r"\]\(([^)]+)\)", content)
