"""Run the tests on every version of PySpark and Python, and on the lowest versions.

uv makes each environment under `.matrix/`, and again if its requirements change. The newest
version of PySpark is tested in the development environment `.venv`. A Python that is neither
installed nor can be downloaded is reported as missing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".matrix"
DISTRIBUTIONS = (
    "core",
    "spark",
    "cli",
    "plugins/heap",
    "plugins/lmdb",
    "plugins/rocksdb",
    "conformance",
)

LOWEST = "lowest"
NEWEST = "4.3"
PYSPARK = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1"}
"""The versions other than the newest; the lowest environment has the lowest declared one."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python that are tested, from the lowest."""
NEWEST_ON = {f"python{version}": version for version in PYTHONS}
"""Environments with the development versions on another Python."""
ENVIRONMENTS = (LOWEST, *PYSPARK, NEWEST, *NEWEST_ON)

PARALLEL = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
WITH_SPARK = ("-m", "spark and not soak", *PARALLEL, "tests")
ALL = ("-m", "not soak and (spark or not slow)", *PARALLEL)
SHORT = (
    *PARALLEL,
    # Reading pointers first: it must work in a session that has started no query.
    "tests/arguments/test_spark_arguments.py::test_good_arguments[subtask_metrics]",
    "tests/functions/test_broadcast.py::test_rules_of_a_query[rocksdb]",
    "tests/spark/test_internals.py",
    "tests/spark/test_other_versions.py",
    "tests/spark/test_spark_checks.py",
    "tests/spark/test_types.py::test_every_type_passes_unchanged_in_a_stream",
    "tests/spark/test_uids.py",
    "tests/tools/test_cli.py",
)
"""The tests that show most about a version in about a minute."""


# ---------------------------------------------------------------- environments


def workspace() -> dict[str, Any]:
    """Return the workspace's pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def name_of(requirement: str) -> str:
    """Return the normalized name of a required distribution."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def project_of(distribution: str) -> dict[str, Any]:
    """Return the project table of one of our distributions."""
    path = ROOT / distribution / "pyproject.toml"
    project: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return project


def extras_of(distribution: str) -> dict[str, list[str]]:
    """Return the requirements of a project's extras, by name."""
    extras: dict[str, list[str]] = project_of(distribution).get("optional-dependencies", {})
    return extras


def declared(distribution: str) -> list[str]:
    """Return the requirements of one of our distributions, extras included."""
    extras = extras_of(distribution).values()
    return [
        *project_of(distribution)["dependencies"],
        *(each for extra in extras for each in extra),
    ]


def pins(environment: str) -> list[str]:
    """Return the exact versions of an environment: the development versions with one exception.

    The lowest environment pins only the tests' tools; uv resolves the lowest declared versions.
    """
    exact = workspace()["tool"]["uv"]["constraint-dependencies"]
    ours = {name_of(each) for distribution in DISTRIBUTIONS for each in declared(distribution)}
    if environment == LOWEST:
        return [each for each in exact if name_of(each) not in ours]
    if environment in NEWEST_ON:
        return list(exact)
    others = [each for each in exact if name_of(each) != "pyspark"]
    return [*others, f"pyspark=={PYSPARK[environment]}"]


def python_of(environment: str) -> Path:
    """Return the interpreter of an environment."""
    place = ROOT / ".venv" if environment == NEWEST else FOLDER / environment
    return place / "bin" / "python"


def find_python(version: str) -> str | None:
    """Return an interpreter of a Python version, downloaded by uv if it can be, or None."""
    ask = (str(ROOT / "tools" / "uv"), "python", "find", "--no-project", version)
    for prepare in (None, "install"):
        if prepare:
            pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
            if found := sorted(pyenv.glob(f"versions/{version}.*/bin/python")):
                return str(found[-1])
            subprocess.run([*ask[:2], prepare, version], cwd="/", capture_output=True, check=False)  # noqa: S603 - ours
        asked = subprocess.run(ask, cwd="/", capture_output=True, text=True, check=False)  # noqa: S603 - ours
        if asked.returncode == 0:
            return asked.stdout.strip()
    return None


def build(environment: str) -> bool:
    """Make an environment unless its requirements are unchanged; return whether it can be made."""
    if environment == NEWEST:
        return True
    interpreter = str(python_of(NEWEST))
    if environment in NEWEST_ON:
        found = find_python(NEWEST_ON[environment])
        if found is None:
            return False
        interpreter = found
    projects = [(ROOT / each / "pyproject.toml").read_text() for each in DISTRIBUTIONS]
    groups = workspace()["dependency-groups"]
    source = repr([interpreter, pins(environment), groups["tests"], projects])
    digest = hashlib.sha256(source.encode()).hexdigest()
    stamp = FOLDER / environment / "made-from"
    if stamp.is_file() and stamp.read_text() == digest:
        return True
    constraints = FOLDER / f"{environment}.txt"
    FOLDER.mkdir(exist_ok=True)
    constraints.write_text("\n".join(pins(environment)) + "\n")
    uv("venv", "--quiet", "--clear", f"--python={interpreter}", str(FOLDER / environment))
    uv(
        *("pip", "install", "--quiet", f"--python={python_of(environment)}"),
        f"--resolution={'lowest-direct' if environment == LOWEST else 'highest'}",
        f"--constraint={constraints}",
        f"--group={ROOT / 'pyproject.toml'}:tests",
        *(f"--editable={ROOT / each}[{','.join(extras_of(each))}]" for each in DISTRIBUTIONS),
    )
    stamp.write_text(digest)
    return True


def uv(*words: str) -> None:
    """Run uv outside of the workspace, so that its pins do not apply."""
    subprocess.run([ROOT / "tools" / "uv", *words], cwd=ROOT.anchor, check=True)  # noqa: S603 - ours


# ---------------------------------------------------------------- tests


def run(environment: str, tests: tuple[str, ...]) -> dict[str, str]:
    """Run tests in an environment; return a row of the table."""
    python, report = str(python_of(environment)), ROOT / "out" / "matrix" / f"{environment}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    began = time.monotonic()
    options = ("-q", "-p", "no:cacheprovider", f"--junitxml={report}")
    subprocess.run(  # noqa: S603 - ours
        [python, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env={
            **os.environ,
            "TEST_SAMPLE": "all",
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        },
        check=False,
    )
    minutes = f"{(time.monotonic() - began) / 60:.1f}"
    return described(environment) | counts(report) | {"minutes": minutes}


def described(environment: str) -> dict[str, str]:
    """Return the first cells of an environment's row: its versions."""
    python = str(python_of(environment))
    versions = {name: version_of(name, python) for name in ("pyspark", "pandas")}
    asked = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    version = asked.stdout.split()[1]
    return {"environment": environment, "python": version, **versions}


def counts(report: Path) -> dict[str, str]:
    """Return the number of tests by outcome; a run without a report counts as failed."""
    if not report.is_file():
        return {"passed": "0", "failed": "all", "skipped": "0"}
    suite = next(ET.parse(report).iter("testsuite"))  # noqa: S314 - pytest wrote it
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    skipped = int(suite.attrib["skipped"])
    passed = int(suite.attrib["tests"]) - failed - skipped
    return {"passed": str(passed), "failed": str(failed), "skipped": str(skipped)}


def version_of(distribution: str, python: str) -> str:
    """Return the version of a distribution in an environment."""
    program = f"from importlib.metadata import version; print(version({distribution!r}))"
    asked = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    return asked.stdout.strip()


def table(rows: list[dict[str, str]]) -> str:
    """Return the rows as an aligned table."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def main() -> int:
    """Build and run the requested environments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environments", nargs="*", metavar="ENVIRONMENT", help="all by default")
    parser.add_argument("--short", action="store_true", help="a few telling tests alone")
    parser.add_argument("--build", action="store_true", help="build the environments, run nothing")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.environments) - set(ENVIRONMENTS)):
        parser.error(f"{unknown[0]} is not one of {', '.join(ENVIRONMENTS)}")
    rows: list[dict[str, str]] = []
    missing: list[str] = []
    for environment in asked.environments or ENVIRONMENTS:
        print(f"== {environment}: building", flush=True)
        if not build(environment):
            missing.append(NEWEST_ON[environment])
        elif not asked.build:
            print(f"== {environment}: testing", flush=True)
            full = WITH_SPARK if environment in (*PYSPARK, NEWEST) else ALL
            rows.append(run(environment, SHORT if asked.short else full))
    if rows:
        print(table(rows))
    for version in missing:
        print(f"not tested: Python {version} is neither installed nor can be downloaded")
    return int(any(row["failed"] != "0" or row["passed"] == "0" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
