"""The examples in the docs run as printed."""

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = ("core", "spark", "cli", "plugins", "conformance", "tests", "tools", "benchmarks")


def install_plugin(site, name, module, monkeypatch):
    """Install a page's plugin as a distribution that this test's registry finds."""
    info = site / f"{name}_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}_plugin.py").write_text(module)
    (info / "METADATA").write_text(f"Name: {name}-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[millpond.plugins]\n{name} = {name}_plugin\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, f"{name}_plugin", raising=False)
    monkeypatch.setenv("MILLPOND_PLUGINS_BLOCK", f"none-of-{name}")  # a registry of its own


@pytest.mark.parametrize("page", sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")))
def test_examples_run(page, tmp_path, monkeypatch):
    """The Python blocks of a page run in order, except those marked `no-run` or for Spark."""
    plugins = re.compile(r"```python plugin (\w+)\n(.*?)```", re.DOTALL)
    for name, module in plugins.findall((DOCS / page).read_text()):
        install_plugin(tmp_path / "site", name, module, monkeypatch)
    space = {"SAVEPOINT": str(tmp_path / "savepoint"), "Path": Path}
    blocks = re.findall(
        r"```python\n(.*?)```(?:\n+```output\n(.*?)```)?", (DOCS / page).read_text(), re.DOTALL
    )
    for code, output in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), space)
        assert not output or printed.getvalue() == output


@pytest.mark.parametrize("page", ["explanation/architecture.md", "how-to/write-a-backend.md"])
def test_named_files_exist(page):
    """Each Python file that a page about the code names exists in the repository."""
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([\w/.-]+\.py)`", text))
    sources = [path.as_posix() for root in SOURCES for path in (ROOT / root).rglob("*.py")]
    missing = {name for name in named if not any(s.endswith(f"/{name}") for s in sources)}
    assert missing == set()
