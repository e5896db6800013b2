"""`make release` refuses a version or a wheel that does not fit."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools import release

ROOT = Path(__file__).resolve().parents[2]
METADATA = """Metadata-Version: 2.4
Name: millpond-heap
Version: 0.1.0

[Source](https://example.org)
"""


def wheel(folder, metadata=METADATA, license_file="licenses/LICENSE", package="millpond_heap"):
    """A wheel with one module."""
    path = folder / "millpond_heap-0.1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/__init__.py", "")
        archive.writestr("millpond_heap-0.1.0.dist-info/METADATA", metadata)
        archive.writestr(f"millpond_heap-0.1.0.dist-info/{license_file}", "")
    return path


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.1", "is not a version"),
        ("v0.1.0", "is not a version"),
        ("7.8.9", "require each other"),
        ("0.1.999", "CHANGELOG.md has no section"),
    ],
)
def test_a_version_that_does_not_fit_is_refused(version, reason):
    """It has three numbers, the minor version of the requirements, and a section in the changelog."""
    with pytest.raises(release.ReleaseError, match=reason):
        release.check_version(version)


def test_a_release_that_is_not_dated_is_not_tagged():
    """A tag needs a date in the changelog; a dry run does not."""
    with pytest.raises(release.ReleaseError, match="no date"):
        release.check_ready("0.1.0", "## 0.1.0 (not released yet)\n")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": METADATA.replace("0.1.0", "0.1.1")}, "has version 0.1.1"),
        ({"license_file": "COPYING"}, "has no license"),
        ({"package": "heap"}, "has the packages {'heap'}"),
        ({"metadata": METADATA.replace("https://example.org", "docs/start.md")}, "relative link"),
    ],
)
def test_a_wheel_is_checked(tmp_path, changes, reason):
    """Its version, license, packages and links."""
    assert release.check_wheel("0.1.0", wheel(tmp_path)) == "millpond-heap"
    with pytest.raises(release.ReleaseError, match=reason):
        release.check_wheel("0.1.0", wheel(tmp_path, **changes))


def test_a_release_without_version_is_refused():
    """The message shows how to call it; nothing is built before."""
    command = ["make", "--old-file=.venv/.ready", "--old-file=java", "release", "VERSION="]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "make release VERSION=0.1.0" in done.stderr


@pytest.mark.parametrize(
    ("version", "reason"),
    [("v0.1.0", "is not a version"), ("0.1.0", "make no-such-target failed")],
)
def test_a_wrong_version_is_refused_before_the_tests_run(version, reason):
    """The version is checked first, then the make targets; nothing is built if one fails."""
    command = [sys.executable, "tools/release.py", version, "--check", "no-such-target"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "building" not in done.stdout
