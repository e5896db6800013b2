"""The examples in the docs run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_examples_run(page, tmp_path):
    """Every Python block of a page, one after the other; blocks that need Spark say no-run."""
    space = {"SAVEPOINT": str(tmp_path / "savepoint"), "Path": Path}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        exec(compile(block, page, "exec"), space)
