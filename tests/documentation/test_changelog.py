"""The names of changelog fragments contain topic and type, and a release gathers them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def draft(tmp_path):
    """Return a function that drafts a changelog from fragments with the given names."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "changelog").mkdir()
    shutil.copy(ROOT / "changelog" / "template.md.j2", tmp_path / "changelog")

    def make(*names):
        for name in names:
            (tmp_path / "changelog" / name).write_text(f"What {name} says.\n")
        command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return make


def test_a_release_gathers_fragments_by_type(draft):
    """Additions come before fixes, and each fragment is an entry."""
    done = draft("states.fixed.md", "states.added.md", "states.added.2.md")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("##", "-"))]
    assert lines[0].startswith("## 9.9 (")
    assert lines[1:] == [
        "### Added",
        "- What states.added.2.md says.",
        "- What states.added.md says.",
        "### Fixed",
        "- What states.fixed.md says.",
    ]


@pytest.mark.parametrize("name", ["states.md", "states.feature.md", "added.md"])
def test_a_fragment_without_type_is_refused(draft, name):
    """A fragment's name without a known type fails the draft, and so `make lint`."""
    done = draft(name)
    assert done.returncode == 1
    assert name in done.stderr + done.stdout
