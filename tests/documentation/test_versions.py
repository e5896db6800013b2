"""The declared requirements, `make matrix` and docs/reference/versions.md agree."""

import re
import tomllib
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyspark
import pytest
from millpond import errors
from millpond.spark import configure
from millpond_spark.session.session import (
    HIGHEST_PANDAS,
    LOWEST_PYSPARK,
    require_pyspark,
    spark_configuration,
)
from pyspark.sql import SparkSession

from tools import matrix

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "versions.md").read_text()
BACKENDS = (
    ROOT / "conformance/src/millpond_conformance/template/pyproject.toml.txt",
    ROOT / "examples/sqlite-backend/pyproject.toml",
)
"""Backends that the template and the example contain."""


def rows(title):
    """Return the rows of a section's table, each a list of cells."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def bounds(requirements):
    """Return the lowest version of each requirement, by name."""
    found = {}
    for requirement in requirements:
        name, lowest = matrix.name_of(requirement), re.search(r">=([\d.]+)", requirement)
        if not name.startswith("millpond"):
            assert lowest, f"{requirement} has no lowest version"
            assert found.setdefault(name, lowest[1]) == lowest[1], f"{name} has several"
    return found


EXACT = matrix.workspace()["tool"]["uv"]["constraint-dependencies"]
PINNED = {matrix.name_of(each): each.split("==")[1] for each in EXACT}
"""The pinned versions of the development environment, by name."""


def all_bounds():
    """Return the lowest versions that all distributions declare, by name."""
    return {
        name: lowest
        for each in matrix.DISTRIBUTIONS
        for name, lowest in bounds(matrix.declared(each)).items()
    }


@pytest.mark.parametrize("distribution", matrix.DISTRIBUTIONS)
def test_distributions_ask_for_the_same(distribution):
    """If several distributions need a library, they declare the same lowest version."""
    ours = bounds(matrix.declared(distribution))
    assert ours == {name: all_bounds()[name] for name in ours}


@pytest.mark.parametrize("path", BACKENDS, ids=lambda path: path.parent.name)
def test_backends_of_others_ask_for_the_same(path):
    """The template's and the example's backends declare the same lowest versions too."""
    (line,) = re.findall(r"^dependencies = .*$", path.read_text(), re.MULTILINE)
    theirs = bounds(tomllib.loads(line)["dependencies"])
    assert theirs == {name: all_bounds()[name] for name in theirs}


def test_the_matrix_has_every_distribution():
    """The environment with the lowest versions contains all distributions of the workspace."""
    members = matrix.workspace()["tool"]["uv"]["workspace"]["members"]
    found = {path for member in members for path in ROOT.glob(member) if path.is_dir()}
    assert {ROOT / each for each in matrix.DISTRIBUTIONS} == found


def test_the_page_has_every_dependency():
    """The page's table contains each declared lowest version and the pinned one."""
    expected = [[name, lowest, PINNED[name]] for name, lowest in sorted(all_bounds().items())]
    assert rows("Dependencies") == expected


def test_the_page_has_every_version_of_spark():
    """The page's table contains the versions of the matrix, from the lowest declared one to the newest."""
    newest, lowest = PINNED["pyspark"], all_bounds()["pyspark"]
    assert newest.startswith(f"{matrix.NEWEST}.")
    assert lowest == min(matrix.PYSPARK)
    exact = {**matrix.PYSPARK, matrix.NEWEST: newest}
    exact[lowest] = f"{lowest}.0, {exact[lowest]}"
    assert [row[:2] for row in rows("Spark")] == [list(pair) for pair in sorted(exact.items())]
    assert all(version.startswith(series) for series, version in matrix.PYSPARK.items())


def test_only_pyspark_differs_between_versions():
    """Except for PySpark, the environments use the pinned versions; the lowest one pins only tools."""
    for series, version in matrix.PYSPARK.items():
        assert set(EXACT) ^ set(matrix.pins(series)) == {
            f"pyspark=={PINNED['pyspark']}", f"pyspark=={version}"
        }  # fmt: skip
    lowest = {matrix.name_of(each) for each in matrix.pins(matrix.LOWEST)}
    assert lowest == set(PINNED) - set(all_bounds())


def test_the_page_has_every_python():
    """The page's table contains the Python versions of the matrix."""
    assert [python for python, _ in rows("Python and pandas")] == list(matrix.PYTHONS)


def test_nothing_but_python_differs_between_pythons():
    """The environments of a Python have the pins to develop with."""
    assert all(matrix.pins(each) == EXACT for each in matrix.NEWEST_ON)


def test_a_newer_pandas_is_refused(monkeypatch):
    """The error says why, and what to install; the requirement does not admit it either."""
    monkeypatch.setattr(pd, "__version__", "3.1.1")
    for call in (
        lambda: configure(SparkSession.builder, parallelism=1),
        lambda: spark_configuration(None),
    ):
        with pytest.raises(
            errors.ConfigError, match=r"pandas: version 3\.1\.1.*Install 'pandas<3'"
        ):
            call()
    assert f"pandas>=2.2,<{HIGHEST_PANDAS + 1}" in matrix.declared("spark")


@pytest.mark.parametrize(("spark", "arrow"), [("4.0.0", "26.0.0"), ("4.0.0", "27.1.0.dev2")])
def test_a_pyarrow_with_which_streams_fail_is_refused(monkeypatch, spark, arrow):
    """The error names both versions and the remedy; an older pyarrow or a newer PySpark is accepted."""
    monkeypatch.setattr(pyspark, "__version__", spark)
    monkeypatch.setattr(pa, "__version__", "25.0.0")
    require_pyspark()
    monkeypatch.setattr(pa, "__version__", arrow)
    for fixed in ("4.0.5", "4.0.5.dev1", "4.1.4"):
        monkeypatch.setattr(pyspark, "__version__", fixed)
        require_pyspark()
    monkeypatch.setattr(pyspark, "__version__", spark)
    with pytest.raises(errors.ConfigError, match=rf"pyarrow: version {arrow}.*PySpark {spark}"):
        configure(SparkSession.builder, parallelism=1)


@pytest.mark.parametrize("version", ["3.5.9", "3.10.0.dev1"])
def test_an_older_pyspark_is_refused(monkeypatch, version):
    """An older PySpark is refused; the error names the installed and the required version."""
    assert ".".join(map(str, LOWEST_PYSPARK)) == all_bounds()["pyspark"]
    monkeypatch.setattr(pyspark, "__version__", version)
    for call in (
        lambda: configure(SparkSession.builder, parallelism=1),
        lambda: spark_configuration(None),
    ):
        with pytest.raises(
            errors.ConfigError, match=f"pyspark: version {version}.* needs 4.0 or later"
        ):
            call()
