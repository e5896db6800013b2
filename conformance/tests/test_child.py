"""The clauses run in a child process, on which the caller's environment has no influence."""

import textwrap

import pytest
from millpond.errors import ConfigError
from millpond_conformance import Verdict, run
from millpond_conformance.errors import UnopenableBackendError

from conformance.research.mutants import sabotage  # noqa: F401 - a mutant is named below

pytestmark = pytest.mark.slow

BACKENDS = """
    import os
    from millpond_heap import HeapStateBackend

    class Leaves(HeapStateBackend):
        MILLPOND_API = 1
        name = "leaves"
        opened = 0

        def create_keyed_backend(self, parameters):
            Leaves.opened += 1
            if Leaves.opened > 2:  # the first two are opened before any clause
                os._exit(0)
            return super().create_keyed_backend(parameters)

    class Broken(HeapStateBackend):
        MILLPOND_API = 1
        name = "broken"

        def create_keyed_backend(self, parameters):
            raise RuntimeError("the library is the wrong way round")

    class Undisturbed(HeapStateBackend):
        MILLPOND_API = 1
        name = "undisturbed"

        def create_keyed_backend(self, parameters):
            assert not {"CI", "BUILD_NUMBER"} & {*os.environ}
            return super().create_keyed_backend(parameters)

    class Bare(HeapStateBackend):
        MILLPOND_API = 1
        name = "bare"

        def create_keyed_backend(self, parameters):
            import a_store_that_nobody_has
    """
CHEAT = """
    import pytest

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(item, call):
        outcome = yield
        report = outcome.get_result()
        report.outcome, report.longrepr = "passed", None
    """


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """A folder of modules that the child finds too."""
    (tmp_path / "strange_backends.py").write_text(textwrap.dedent(BACKENDS))
    (tmp_path / "strange_cheat.py").write_text(textwrap.dedent(CHEAT))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("strange")
def test_a_process_that_leaves_has_failed():
    """If the process ends with status 0 during a clause, that clause has failed."""
    found = run("strange_backends:Leaves", "quick", ["V1", "V2"])
    verdicts = {result.number: result.verdict for result in found.results}
    assert verdicts == {"V1": Verdict.FAIL, "V2": Verdict.INCOMPLETE}
    assert "ended with status 0" in found.results[0].message


@pytest.mark.usefixtures("strange")
def test_two_processes_share_the_clauses():
    """Each process takes the next free clause; if one process ends, only its own clause has failed."""
    found = run("strange_backends:Leaves", "quick", ["V1", "V2", "V3"], processes=2)
    verdicts = {result.number: result.verdict for result in found.results}
    assert verdicts == {"V1": Verdict.FAIL, "V2": Verdict.FAIL, "V3": Verdict.INCOMPLETE}


@pytest.mark.long
def test_shared_clauses_run_once():
    """Two processes together run each case of one process exactly once."""
    once, shared = (
        [
            (result.number, result.verdict, result.cases)
            for result in run("heap", "quick", ["M", "G1"], processes=processes).results
        ]
        for processes in (1, 2)
    )
    assert once == shared
    assert {verdict for _, verdict, _ in once} == {Verdict.PASS}


def test_no_process_is_an_error():
    """Zero processes are refused."""
    with pytest.raises(ConfigError, match="processes: expected 1 or more, got 0"):
        run("heap", "quick", ["V1"], processes=0)


@pytest.mark.usefixtures("strange")
def test_a_backend_that_cannot_be_opened_says_why():
    """The error about a backend that cannot be opened names class, message and place of the cause."""
    said = r"RuntimeError: the library is the wrong way round \(.*strange_backends\.py:21\)$"
    with pytest.raises(UnopenableBackendError, match=said):
        run("strange_backends:Broken", "quick", ["V1"])


@pytest.mark.usefixtures("strange")
def test_a_build_server_changes_nothing(monkeypatch):
    """A build server's variables would make pytest print differences of megabytes; the child ignores them."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("BUILD_NUMBER", "7")
    (result,) = run("strange_backends:Undisturbed", "quick", ["V1"]).results
    assert result.verdict is Verdict.PASS


@pytest.mark.usefixtures("strange")
def test_a_library_that_is_missing_is_asked_for():
    """If a backend's library is missing, the error names the library and where to install it."""
    cure = "Install a_store_that_nobody_has, and name it among the dependencies"
    with pytest.raises(UnopenableBackendError, match=cure):
        run("strange_backends:Bare", "quick", ["V1"])


@pytest.mark.usefixtures("strange")
def test_variables_cannot_answer_for_the_tests(monkeypatch):
    """Variables with pytest options or plugins, and Python without asserts, change no verdict."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("PYTEST_PLUGINS", "strange_cheat")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    (result,) = run(
        "conformance.research.mutants.sabotage:m_one_key_for_all", "quick", ["V1"]
    ).results
    assert result.verdict is Verdict.FAIL
    assert "assert" in result.message


@pytest.mark.usefixtures("strange")
def test_a_wheel_cannot_answer_for_the_tests(tmp_path):
    """A pytest plugin of an installed distribution is not loaded."""
    found = tmp_path / "strange-1.0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (found / "entry_points.txt").write_text("[pytest11]\nstrange = strange_cheat\n")
    (result,) = run(
        "conformance.research.mutants.sabotage:m_one_key_for_all", "quick", ["V1"]
    ).results
    assert result.verdict is Verdict.FAIL


@pytest.mark.long
def test_a_backend_named_by_its_target_passes():
    """A backend named module:attr passes clauses that depend on its name: options, other processes."""
    found = run("millpond_heap:HeapStateBackend", "quick", ["X", "W", "R3", "F5"])
    assert {result.verdict for result in found.results} == {Verdict.PASS}
