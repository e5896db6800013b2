"""The drawing of the layers agrees with the import contract."""

import itertools
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def names(line):
    """Return the packages in one box, or in one line of the contract."""
    return {name.strip().removeprefix("millpond.") for name in re.split("[|:]", line)}


def drawing():
    """Return the boxes by id, and the pairs that arrows connect."""
    (text,) = re.findall(r"```mermaid\nflowchart TD\n(.*?)```", PAGE, re.DOTALL)
    boxes = re.findall(r'^ +(\w+)\(?\["([^"]+?)<br/>[^"]+"\]\)?$', text, re.MULTILINE)
    arrows = []
    for line in re.findall(r"^ +(\w+(?: --> \w+)+)$", text, re.MULTILINE):
        chain = line.split(" --> ")
        arrows += itertools.pairwise(chain)
    return {box: names(text) for box, text in boxes}, arrows


def test_the_layers_drawn_are_those_of_the_contract():
    """The boxes are the contract's layers from top to bottom, with the same packages in each."""
    contract = LINTER["contracts"][0]
    boxes, arrows = drawing()
    below = dict(arrows)
    assert len(below) == len(arrows)
    (at,) = set(below) - set(below.values())
    found = [boxes[at]]
    while at in below:
        at = below[at]
        found.append(boxes[at])
    assert found == [names(line) for line in contract["layers"]]
    assert LINTER["exclude_type_checking_imports"] is False


def test_every_module_of_the_core_has_a_layer():
    """A new package must be added to the contract."""
    core = ROOT / "core" / "src" / "millpond"
    there = {
        path.stem
        for path in core.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    contract = LINTER["contracts"][0]
    assert there - {"__init__"} == set.union(*(names(line) for line in contract["layers"]))


def test_all_distributions_are_drawn():
    """Each distribution whose imports are checked is in a box."""
    boxes, _ = drawing()
    assert set(LINTER["root_packages"]) - {"millpond"} <= set.union(*boxes.values())
