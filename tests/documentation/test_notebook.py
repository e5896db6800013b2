"""The example notebook runs, and its stored output is current."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.spark.retail_runs import PATIENCE_S

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "totals.ipynb"


def said(notebook):
    """Return the output of each cell, and the message of its error.

    Spark's heading before the message is omitted, because it differs between versions.
    """
    found = []
    for cell in notebook.cells:
        for each in cell.get("outputs", ()):
            if each.output_type == "error":
                found += re.findall(r"^millpond\.errors\..*", each.evalue, re.MULTILINE)
            elif each.get("name") == "stdout":
                found.append(each.text)
    return found


@pytest.mark.long
@pytest.mark.sample(3, of="Spark processes")
@pytest.mark.spark
def test_the_notebook_runs(tmp_path):
    """Classes in cells, a class that is changed between two runs, and a displayed error work."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    expected = said(notebook)
    patience = {"timeout": PATIENCE_S, "startup_timeout": PATIENCE_S}
    client = NotebookClient(notebook, kernel_name="python3", **patience)
    client.execute(cwd=str(tmp_path))
    assert said(notebook) == expected
    (drawn,) = [
        re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(each.traceback))
        for cell in notebook.cells
        for each in cell.get("outputs", ())
        if each.output_type == "error"
    ]
    assert drawn.index("Cell In") < drawn.index("Operator 'misspelt'") < drawn.index("Behind it")
