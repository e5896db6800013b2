"""Modules have no import cycles, including imports for types and in functions."""

from pathlib import Path

from core.tests.import_graph import circles, graph_of, modules_below

HERE = Path(__file__).resolve().parents[2]
SOURCES = (
    "core/src",
    "spark/src",
    "cli/src",
    "plugins/heap/src",
    "plugins/rocksdb/src",
    "plugins/lmdb/src",
    "conformance/src",
)


def test_no_module_needs_itself():
    """In the core, the plugins and the kit together, imports contain no cycle."""
    modules = {}
    for source in SOURCES:
        modules |= modules_below(HERE / source)
    assert len(modules) > 300
    found = circles(graph_of(modules))
    assert not found, "\n".join(f"a circle: {', '.join(circle)}" for circle in found)


def test_a_circle_is_told_with_its_names(tmp_path):
    """A cycle by an import for types and one in a function is reported with its modules only."""
    package = tmp_path / "pond"
    package.mkdir()
    written = {
        "__init__": "",
        "water": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pond.mill import Mill",
        "mill": "def turn():\n    from pond import wheel",
        "wheel": "import pond.water",
        "town": "from pond.mill import turn",
    }
    for name, text in written.items():
        (package / f"{name}.py").write_text(text)
    assert circles(graph_of(modules_below(tmp_path))) == [["pond.mill", "pond.water", "pond.wheel"]]
