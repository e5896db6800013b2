"""All distributions have one version, and the metadata that an index shows to strangers."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import millpond as mp
import pytest

from tools import matrix

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = {
    each: tomllib.loads((ROOT / each / "pyproject.toml").read_text())
    for each in matrix.DISTRIBUTIONS
}
FOR_AUTHORS = (
    "conformance/src/millpond_conformance/template/pyproject.toml.txt",
    "examples/sqlite-backend/pyproject.toml",
)
"""Projects of backends by others, which require a minor version too."""


def minor_version():
    """The minor version that the distributions fall back to."""
    (fallback,) = {
        each["tool"]["hatch"]["version"]["fallback-version"] for each in PROJECTS.values()
    }
    return fallback.rpartition(".0.dev0")[0]


def test_the_command_and_the_package_agree():
    """`millpond --version`, `mp.__version__` and the metadata have the same version."""
    command = [str(Path(sys.executable).with_name("millpond")), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == f"millpond, version {mp.__version__}\n"
    assert mp.__version__ == metadata.version("millpond")
    assert mp.__version__.startswith(f"{minor_version()}.")


@pytest.mark.parametrize("distribution", PROJECTS)
def test_versions_come_from_git(distribution):
    """A distribution finds the repository above its folder."""
    project = PROJECTS[distribution]
    assert project["project"]["dynamic"] == ["version"]
    root = project["tool"]["hatch"]["version"]["raw-options"]["root"]
    assert (ROOT / distribution / root).resolve() == ROOT


@pytest.mark.parametrize("path", [*(f"{each}/pyproject.toml" for each in PROJECTS), *FOR_AUTHORS])
def test_distributions_require_each_other_at_one_minor_version(path):
    """A requirement of another distribution of ours accepts one minor version."""
    required = re.findall(r'"millpond[\w\[\]-]*([=<>~!][^"]*)"', (ROOT / path).read_text())
    assert set(required) <= {f"=={minor_version()}.*"}


@pytest.mark.parametrize("distribution", PROJECTS)
def test_a_stranger_finds_license_and_source(distribution):
    """Each distribution has the license, authors, addresses, and absolute links in its description."""
    project = PROJECTS[distribution]["project"]
    assert project["license-files"] == ["LICENSE"]
    assert (ROOT / distribution / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert project["authors"]
    assert project["keywords"]
    assert set(project["urls"]) == {"Documentation", "Source", "Issues", "Changelog"}
    links = re.findall(r"\]\(([^)]*)\)", (ROOT / distribution / project["readme"]).read_text())
    assert links
    for link in links:
        assert link.startswith(project["urls"]["Source"])
        page = link.removeprefix(project["urls"]["Source"]).removeprefix("/blob/main/")
        assert not page or (ROOT / page).is_file()


def test_classifiers_name_the_pythons_that_passed_all_tests():
    """The Python versions of the classifiers are those with the whole suite on the page of versions."""
    page = (ROOT / "docs/reference/versions.md").read_text()
    passed = re.findall(r"^\| (3\.\d+) \| the whole suite \|$", page, re.MULTILINE)
    assert passed
    for project in PROJECTS.values():
        named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["project"]["classifiers"]))
        assert named == passed
        assert project["project"]["requires-python"] == f">={matrix.PYTHONS[0]}"


def test_the_description_of_the_core_runs():
    """The example that an index shows for `millpond` runs as it is printed."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "core/README.md").read_text(), re.DOTALL)
    exec(compile(code, "core/README.md", "exec"), {})
