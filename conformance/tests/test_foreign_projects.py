"""The installed kit does not affect projects that do not use it."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

FOREIGN = {
    "conftest.py": """
        import pytest

        def pytest_addoption(parser):
            parser.addoption("--backend", default="theirs")

        def pytest_configure(config):
            config.addinivalue_line("markers", "clause(text): theirs")

        @pytest.fixture(params=["one", "two"])
        def backend_name(request):
            return request.param

        @pytest.fixture
        def storage():
            return "theirs"
        """,
    "test_theirs.py": """
        import sys

        import pytest

        @pytest.mark.clause("not a number")
        def test_theirs(backend_name, storage, pytestconfig, request):
            assert backend_name in ("one", "two")
            assert storage == "theirs"
            assert pytestconfig.getoption("--backend") == "theirs"
            assert not any(name.startswith("millpond.") for name in sys.modules)
        """,
}


def run(folder, *arguments):
    """Run pytest in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_foreign_project_keeps_its_names(tmp_path):
    """A project may define a fixture `backend_name`, an option `--backend` and a marker `clause`."""
    for name, text in FOREIGN.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_only_two_names_are_registered(tmp_path):
    """If unused, the kit registers one option and one ini key, but no fixture and no marker."""
    shown = run(tmp_path, "--help").stdout
    assert shown.count("--millpond-backend") == 1
    assert shown.count("millpond_conformance") >= 1
    assert "--conformance" not in shown
    assert "open_backend" not in run(tmp_path, "--fixtures").stdout
    assert "switches_ttl" not in run(tmp_path, "--markers").stdout
