"""Each distribution builds a wheel that can be installed, and a job runs from the wheels."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
UV = str(ROOT / "tools" / "uv")
JOB = """
import millpond as mp
class Count(mp.KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))
    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        yield row["k"] if isinstance(row, dict) else row.k, self.count.value()
print(mp.__file__)
print(mp.local.run(Count(), [{"k": "a"}, {"k": "b"}, {"k": "a"}], key="k", backend="NAME"))
"""


OURS = ("PYTHONPATH", "PYTHONPYCACHEPREFIX")
CLEAN = {key: value for key, value in os.environ.items() if key not in OURS}


def run(*command, **options):
    """Run a command outside of the tests' environment; return its output, or fail with its error."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=CLEAN, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels of all distributions of the workspace."""
    folder = tmp_path_factory.mktemp("wheels")
    run(UV, "build", "--all-packages", "--wheel", "--quiet", "--out-dir", str(folder), cwd=ROOT)
    return folder


def test_every_distribution_builds(wheels):
    """Each distribution has a wheel, each of whose packages has the py.typed marker."""
    names = {path.name.partition("-")[0] for path in wheels.glob("*.whl")}
    assert names == {
        "millpond", "millpond_spark", "millpond_cli", "millpond_heap", "millpond_rocksdb", "millpond_lmdb", "millpond_conformance",
    }  # fmt: skip
    for wheel in wheels.glob("*.whl"):
        files = {Path(name) for name in ZipFile(wheel).namelist()}
        assert any(path.name == "LICENSE" and path.parent.name == "licenses" for path in files)
        packages = {
            path.parent for path in files if path.name == "__init__.py" and len(path.parts) == 2
        }
        assert packages
        assert {package / "py.typed" for package in packages} <= files


@pytest.mark.parametrize("name", ["heap", "rocksdb", "lmdb"])
def test_it_runs_from_the_wheels_alone(wheels, tmp_path, name):
    """In an empty environment, the wheels of the core and one backend suffice for a local job."""
    environment = tmp_path / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / "bin" / "python")
    run(UV, "pip", "install", "--quiet", "--python", python, "--find-links", str(wheels),
        f"millpond-{name}")  # fmt: skip
    out = run(python, "-c", JOB.replace("NAME", name), cwd=tmp_path)
    where, result = out.strip().splitlines()
    assert where.startswith(str(environment))
    assert result == "[('a', 1), ('b', 1), ('a', 2)]"


@pytest.mark.long
def test_the_kit_runs_from_the_wheels_alone(wheels, tmp_path):
    """The wheels of the kit and one backend suffice for the contract tests."""
    environment = tmp_path / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / "bin" / "python")
    install = [UV, "pip", "install", "--quiet", "--python", python, "--find-links", str(wheels)]
    run(*install, "millpond-conformance", "millpond-heap")
    chapters = [f"millpond_conformance.clauses.test_{name}" for name in ("kinds", "process")]
    pytest_command = [python, "-m", "pytest", "--pyargs", *chapters, "-q"]
    out = run(
        *pytest_command,
        "--millpond-backend",
        "heap",
        "-o",
        "millpond_conformance=profile=quick",
        cwd=tmp_path,
    )
    assert " passed" in out
    assert "skipped" not in out


def test_the_core_alone_explains_what_is_missing(wheels, tmp_path):
    """Without any backend, an error says what to install."""
    environment = tmp_path / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / "bin" / "python")
    install = [UV, "pip", "install", "--quiet", "--python", python, "--find-links", str(wheels)]
    run(*install, "millpond")
    command = [str(environment / "bin" / "millpond"), "--help"]
    bare = subprocess.run(command, capture_output=True, text=True, check=False, env=CLEAN)
    assert bare.returncode == 1
    assert bare.stderr == "millpond: the command needs millpond-cli: pip install 'millpond[cli]'\n"
    run(*install, "millpond[cli]")
    done = subprocess.run(
        [python, "-c", JOB.replace("NAME", "rocksdb")],
        capture_output=True,
        text=True,
        check=False,
        env=CLEAN,
    )
    assert "pip install millpond-rocksdb" in done.stderr
    listing = run(str(environment / "bin" / "millpond"), "backends")
    assert "No state backend is installed" in listing
    run(*install, "--no-deps", "millpond-rocksdb")
    listing = run(str(environment / "bin" / "millpond"), "backends", "--json")
    assert '"status": "broken"' in listing
    assert "No module named 'rocksdict'" in listing
