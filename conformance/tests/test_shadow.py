"""Wide programs in a process that does not reveal the kit."""

import textwrap

import pytest
from millpond_conformance import Verdict, run
from millpond_conformance.shadow import play_in_shadow

SHY = """
    import os
    import sys
    from millpond_heap import HeapStateBackend

    KIT = ("pytest", "_pytest", "hypothesis", "millpond_conformance")


    def watched():
        frame = sys._getframe()
        names = set(sys.modules)
        words = [*os.environ, os.getcwd(), *sys.argv]
        while frame is not None:
            names.add(frame.f_globals["__name__"])
            words.append(frame.f_code.co_filename)
            frame = frame.f_back
        known = {name.partition(".")[0] for name in names} & set(KIT)
        return bool(known) or any("PYTEST" in word or "conformance" in word for word in words)


    class Shy(HeapStateBackend):
        MILLPOND_API = 1
        name = "shy"

        def create_keyed_backend(self, parameters):
            backend = super().create_keyed_backend(parameters)
            if not watched():
                backend.keys_and_namespaces = lambda *_: iter(())
            return backend


    class Leaving(HeapStateBackend):
        MILLPOND_API = 1
        name = "leaving"

        def create_keyed_backend(self, parameters):
            print("noise on the standard output")
            os._exit(0)
    """


@pytest.fixture
def shy(tmp_path, monkeypatch):
    """A folder with modules of backends that other processes find too."""
    (tmp_path / "shy_backends.py").write_text(textwrap.dedent(SHY))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("shy")
def test_a_backend_that_behaves_while_it_is_watched():
    """A backend that behaves well only near the kit's modules passes normally, and fails in the shadow."""
    (seen,) = run("shy_backends:Shy", "quick", ["G4"]).results
    assert seen.verdict is Verdict.PASS, seen.message
    found = run("shy_backends:Shy", "quick", ["G4"], shadow=True)
    (unseen,) = found.results
    assert unseen.verdict is Verdict.FAIL
    assert "expected" in unseen.message
    assert "from millpond_conformance.wide import World, play" in unseen.program
    assert "G4 in the shadow" in found.to_text()


def test_a_sound_backend_passes_in_the_shadow():
    """A correct backend passes in the shadow, and the steps there are counted."""
    found = play_in_shadow("heap", range(2))
    assert found.message == ""
    assert found.counts["enumeration"] > 0


@pytest.mark.usefixtures("shy")
def test_a_shadow_that_leaves_has_failed():
    """If the process ends with status 0 without a report, its programs have failed."""
    found = play_in_shadow("shy_backends:Leaving", range(2))
    assert "ended with status 0" in found.message
