"""Build and check the files of a release, and write its notes. Nothing is uploaded.

`make release VERSION=0.1.0` runs this; docs/releasing.md explains it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from email import message_from_string
from functools import partial
from pathlib import Path
from zipfile import ZipFile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools import matrix

ROOT = matrix.ROOT
PACKAGES = {
    # The command answers an interrupt while the package `millpond` is imported.
    "millpond": {"millpond", "millpond_command"},
    # Spark finds data sources by top-level modules called `pyspark_*`.
    "millpond-cli": {"millpond_cli", "pyspark_millpond"},
}
"""The distributions with two top-level packages; each other one has a single package."""
ALONE = "millpond: the command needs millpond-cli: pip install 'millpond[cli]'"
"""The answer of `millpond --help` if only the core is installed."""
BACKENDS = ("heap", "rocksdb", "lmdb")
KIT = ("millpond", "conformance", "run", "--profile", "quick")
EVERYTHING = (
    *("millpond[spark,cli]", "millpond-conformance"),
    *(f"millpond-{backend}" for backend in BACKENDS),
)
OURS = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV")
QUICK_START = """
import json, pathlib, tempfile
FOLDER = pathlib.Path(tempfile.mkdtemp(dir="."))
(FOLDER / "input").mkdir()
ROWS = [("ann", 2, 1.5), ("ann", 1, 4.0)]
lines = [json.dumps(dict(zip(("customer", "quantity", "price"), row))) for row in ROWS]
(FOLDER / "input" / "rows.json").write_text("\\n".join(lines))
INPUT, OUTPUT, CHECKPOINT = (str(FOLDER / each) for each in ("input", "output", "checkpoint"))
SNAPSHOTS = (FOLDER / "snapshots").absolute().as_uri()
@blocks@
written = [json.loads(line) for path in (FOLDER / "output").glob("*.json") for line in path.open()]
assert sorted(row["spent"] for row in written) == [3.0, 7.0], written
spark.stop()
"""
"""A program around the Python blocks of the README."""


class ReleaseError(Exception):
    """A reason not to release, in a sentence for the maintainer."""


# ---------------------------------------------------------------- the version


def check_version(version: str) -> str:
    """Return the section of the changelog if the version fits the repository."""
    match = re.fullmatch(r"(\d+\.\d+)\.\d+(rc\d+)?", version)
    if match is None:
        raise ReleaseError(f"{version} is not a version such as 0.1.0 or 0.2.0rc1")
    required = set(
        re.findall(r"==([\d.]+)\.\*", str(list(map(matrix.declared, matrix.DISTRIBUTIONS))))
    )
    if required != {match[1]}:
        raise ReleaseError(f"the distributions require each other at {required}, not {match[1]}")
    text = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(
        rf"^## {re.escape(version)} \(.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    if section is None:
        raise ReleaseError(f"CHANGELOG.md has no section {version}; see docs/releasing.md")
    return section[0]


def check_ready(version: str, notes: str) -> None:
    """Refuse to tag if files are changed or the changelog has no date."""
    if "not released" in notes.partition("\n")[0]:
        raise ReleaseError(f"CHANGELOG.md has no date for {version}")
    if run("git", "status", "--porcelain", cwd=ROOT):
        raise ReleaseError("files are not committed: git status")


def check_targets(targets: list[str]) -> None:
    """Run make targets, such as the tests; their output remains visible."""
    if targets and subprocess.run(["make", *targets], cwd=ROOT, check=False).returncode:  # noqa: S603, S607 - ours
        raise ReleaseError(f"make {' '.join(targets)} failed")


# ---------------------------------------------------------------- the files


def build(version: str, folder: Path) -> list[Path]:
    """Build an sdist and a wheel of each distribution; return the wheels."""
    for old in folder.glob("*"):
        old.unlink()
    pretend = {"SETUPTOOLS_SCM_PRETEND_VERSION": version}
    command = ("build", "--quiet", "--all-packages", "--sdist", "--wheel", "--out-dir", folder)
    run(ROOT / "tools" / "uv", *command, cwd=ROOT, env=pretend)
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if not len(wheels) == len(sdists) == len(matrix.DISTRIBUTIONS):
        raise ReleaseError(f"{len(wheels)} wheels and {len(sdists)} sdists were built")
    return wheels


def check_files(version: str, folder: Path, wheels: list[Path]) -> None:
    """Check the built files with the tools of the index and by our own rules."""
    tool(
        "twine",
        "check",
        "--strict",
        *sorted(folder.glob("*.whl")),
        *sorted(folder.glob("*.tar.gz")),
    )
    for wheel in wheels:
        name = check_wheel(version, wheel)
        ignored = ("--ignore", "W009") if name in PACKAGES else ()
        tool("check-wheel-contents", *ignored, wheel)


def check_wheel(version: str, wheel: Path) -> str:
    """Check the version, license and packages of a wheel; return the distribution's name."""
    with ZipFile(wheel) as archive:
        files = archive.namelist()
        (metadata,) = (each for each in files if each.endswith(".dist-info/METADATA"))
        found = message_from_string(archive.read(metadata).decode())
    name = found["Name"]
    packages = {each.partition("/")[0] for each in files if ".dist-info/" not in each}
    links = re.findall(r"\]\(([^)]*)\)", found.get_payload())
    problems = {
        f"has version {found['Version']}": found["Version"] != version,
        "has no license": metadata.replace("METADATA", "licenses/LICENSE") not in files,
        f"has the packages {packages}": packages != PACKAGES.get(name, {name.replace("-", "_")}),
        "has a relative link": not all(link.startswith("https://") for link in links),
    }
    for problem, applies in problems.items():
        if applies:
            raise ReleaseError(f"{wheel.name} {problem}")
    return str(name)


def tool(name: str, *words: str | Path) -> None:
    """Run a tool in the version that the workspace pins."""
    pins = matrix.workspace()["tool"]["uv"]["constraint-dependencies"]
    (pin,) = (each for each in pins if matrix.name_of(each) == name)
    run(
        ROOT / "tools" / "uv",
        "tool",
        "run",
        "--quiet",
        "--from",
        pin,
        name,
        *words,
        cwd=ROOT.anchor,
    )


# ---------------------------------------------------------------- fresh environments


def try_wheels(version: str, python: str, folder: Path, place: Path) -> list[str]:
    """Use the wheels in fresh environments of one Python; return a line for each check."""
    lines = []
    bare, full = Environment(python, place / "bare"), Environment(python, place / "full")
    bare.install(folder, f"millpond=={version}")
    began = time.monotonic()
    answer = bare.call("millpond", "--help", status=1)
    if ALONE not in answer:
        raise ReleaseError(f"millpond --help without millpond-cli printed {answer!r}")
    lines.append(took("millpond --help without millpond-cli", began))
    began = time.monotonic()
    full.install(folder, *(f"{each}=={version}" for each in EVERYTHING))
    lines.append(took("installation of all wheels", began))
    checks = {
        "versions": partial(check_versions, version, full),
        "quick start": partial(quick_start, full),
        "backends": partial(check_backends, full),
        **{f"kit on {each}": partial(run_kit, full, each) for each in BACKENDS},
        "new backend": partial(new_backend, folder, full),
    }
    for name, check in checks.items():
        began = time.monotonic()
        check()
        lines.append(took(name, began))
    return lines


class Environment:
    """A fresh environment, and an empty folder in which commands run."""

    def __init__(self, python: str, place: Path) -> None:
        self.place = place
        self.work = place / "work"
        run(ROOT / "tools" / "uv", "venv", "--quiet", "--python", python, place, cwd=ROOT.anchor)
        self.work.mkdir()

    def install(self, folder: Path, *requirements: str) -> None:
        """Install from the built wheels, and the dependencies from the index."""
        python = self.place / "bin" / "python"
        command = ("pip", "install", "--quiet", "--python", python, "--find-links", folder)
        run(ROOT / "tools" / "uv", *command, *requirements, cwd=ROOT.anchor)

    def call(self, name: str, *words: str | Path, status: int = 0) -> str:
        """Run a command of the environment; return its output."""
        python = str(self.place / "bin" / "python")
        spark = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        command = self.place / "bin" / name
        return run(command, *words, cwd=self.work, env=spark, status=status)


def check_versions(version: str, environment: Environment) -> None:
    """Check that the command and the package have the version of the release."""
    command = environment.call("millpond", "--version").split()[-1]
    package = environment.call("python", "-c", "import millpond; print(millpond.__version__)")
    if not command == package.strip() == version:
        raise ReleaseError(f"the command has version {command}, the package {package}")


def quick_start(environment: Environment) -> None:
    """Run the Python blocks of the README as a program."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = environment.work / "quick_start.py"
    program.write_text(QUICK_START.replace("@blocks@", "\n".join(blocks)))
    environment.call("python", program)


def check_backends(environment: Environment) -> None:
    """Check that the three backends are listed and can be loaded."""
    listing = environment.call("millpond", "backends")
    if missing := [each for each in BACKENDS if not re.search(rf"\b{each}\b.*\bok\b", listing)]:
        raise ReleaseError(f"millpond backends does not list {missing}:\n{listing}")


def run_kit(environment: Environment, backend: str) -> None:
    """Run all clauses of the kit on a backend, with files that are those of its seal."""
    report = environment.call(*KIT, backend)
    if "NOT THE RELEASED KIT" in report:
        raise ReleaseError(f"the kit is not sealed (see CONTRIBUTING.md):\n{report}")


def new_backend(folder: Path, environment: Environment) -> None:
    """Write a backend with the kit, install it, and run its tests."""
    environment.call("millpond", "new-backend", "trial")
    environment.install(folder, str(environment.work / "millpond-trial"))
    environment.call("python", "-m", "pytest", "-q", environment.work / "millpond-trial" / "tests")


# ---------------------------------------------------------------- the whole


def run(
    *words: str | Path, cwd: str | Path, env: dict[str, str] | None = None, status: int = 0
) -> str:
    """Run a command without our variables; return its output if its status is the expected one."""
    clean = {key: value for key, value in os.environ.items() if key not in OURS}
    done = subprocess.run(  # noqa: S603 - ours
        [str(word) for word in words],
        cwd=cwd,
        env=clean | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != status:
        command = " ".join(map(str, words))
        raise ReleaseError(
            f"status {done.returncode} instead of {status}: {command}\n{done.stdout}"
        )
    return done.stdout


def took(name: str, began: float) -> str:
    """Print and return a check with its duration."""
    line = f"{name}: {time.monotonic() - began:.0f} s"
    print(f"   {line}", flush=True)
    return line


def try_pythons(version: str, pythons: list[str], folder: Path) -> list[str]:
    """Use the wheels on each Python that can be found; return a line for each Python."""
    lines = []
    for wanted in pythons:
        python = matrix.find_python(wanted)
        if python is None:
            lines.append(f"Python {wanted}: not tested, neither installed nor to be downloaded")
        else:
            print(f"== Python {wanted}", flush=True)
            with tempfile.TemporaryDirectory(prefix="millpond-release-") as place:
                checks = try_wheels(version, python, folder, Path(place))
            lines.append(f"Python {wanted}: {', '.join(checks)}")
    return lines


def write_notes(notes: str, lines: list[str], folder: Path) -> None:
    """Write the notes of the release, and the digests of its files."""
    files = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    digests = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}" for each in files]
    (folder.parent / "SHA256SUMS").write_text("\n".join(digests) + "\n")
    checks = "\n".join(f"- {line}" for line in lines)
    (folder.parent / "notes.md").write_text(
        f"{notes.strip()}\n\n### Checks of the wheels\n\n{checks}\n"
    )


def main() -> int:
    """Build and check a release; return the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", metavar="VERSION")
    parser.add_argument(
        "--check", action="append", default=[], metavar="TARGET", help="run this make target first"
    )
    parser.add_argument("--python", action="append", choices=matrix.PYTHONS, help="all by default")
    parser.add_argument("--tag", action="store_true", help="tag the commit if all checks pass")
    asked = parser.parse_args()
    folder = ROOT / "out" / "release" / "dist"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        notes = check_version(asked.version)
        if asked.tag:
            check_ready(asked.version, notes)
        check_targets(asked.check)
        print(f"== building {asked.version}", flush=True)
        wheels = build(asked.version, folder)
        check_files(asked.version, folder, wheels)
        lines = try_pythons(asked.version, asked.python or list(matrix.PYTHONS), folder)
        write_notes(notes, lines, folder)
        if asked.tag:
            tag = ("git", "tag", "--annotate", f"v{asked.version}")
            run(*tag, "--message", f"Millpond {asked.version}", cwd=ROOT)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    print(
        f"{'tagged' if asked.tag else 'dry run'}: {folder.relative_to(ROOT)}; nothing was uploaded"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
