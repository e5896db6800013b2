"""Clauses: states remain separate with long names, in reopened stores, after refused flushes."""

import millpond as mp
import pytest
from millpond.plugins import get_registry
from millpond.spi import Capability

from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.opening import open_at
from millpond_conformance.processes import in_a_child

BEGIN = "customer/" * 27
ALIKE = [
    *(BEGIN[:length] + end for length in (24, 60, 100, 120, 200, 243) for end in ("a", "b", "A")),
    *(BEGIN, BEGIN + "0123456789ab", BEGIN + "0123456789aB"),
    *("\u00e9" * 127, "\u00e9" * 126 + "e\u0301"[:1], "\u00e9" * 126 + "\u00ea"),
]
"""Names of states with up to 255 bytes that differ only at their end."""
ORDER = ("z", "a", "m", "B", "b", "_", "A", "aa")


def texts(backend, names):
    """Return the values of the states `names` under the key `k`."""
    backend.set_current_key("k")
    states = [backend.get_partitioned_state(mp.ValueStateDescriptor(n, str)) for n in names]
    return [state.value() for state in states]


def set_texts(backend, names, more=""):
    """Set each of the states `names`, under the key `k`, to its name followed by `more`."""
    backend.set_current_key("k")
    for name in names:
        backend.get_partitioned_state(mp.ValueStateDescriptor(name, str)).update(name + more)


@pytest.mark.clause("V26")
def test_long_names_that_begin_alike(open_backend: BackendOpener, storage):
    """The backend distinguishes states whose long names differ only at their end."""
    backend = open_backend()
    set_texts(backend, ALIKE)
    backend.flush()
    assert texts(backend, ALIKE) == ALIKE
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    assert texts(restored, ALIKE) == ALIKE
    assert restored.num_state_entries() == len(ALIKE)


@pytest.mark.clause("R21")
def test_a_store_opened_again_tells_states_apart(backend_name, tmp_path):
    """If a backend reopens its directory at a version, each state is unchanged.

    This holds for any order of requests, and for states that were added after an earlier reopening.
    Without the capability local-copy the backend opens empty.
    """
    declared = get_registry().load(get_registry().resolve(backend_name)).capabilities
    names: list[str] = []
    for number in range(len(ORDER) // 2):
        with open_at(backend_name, tmp_path, (f"v{number}",)) as backend:
            kept = backend.version is not None
            assert kept is (number > 0 and Capability.LOCAL_COPY in declared)
            assert texts(backend, names) == (names if kept else [None] * len(names))
            assert backend.timer_queue("event").earliest() == (number if kept else None)
            names = [*ORDER[2 * number : 2 * number + 2], *names]
            set_texts(backend, names)
            backend.timer_queue("event").register(number + 1, mp.VOID_NAMESPACE)
            backend.timer_queue("event").delete(number, mp.VOID_NAMESPACE)
            backend.flush(f"v{number + 1}")


REFUSED = """
import random, resource, sys
from pathlib import Path
from millpond.errors import MillpondError
from millpond_conformance.clauses.test_apart import set_texts, texts
from millpond_conformance.opening import open_at
names, blob = ["a", "b", "c"], random.Random(1).randbytes(3 << 20).hex()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

def refused(place, more):
    backend = open_at(sys.argv[1], place)
    set_texts(backend, names)
    backend.flush("v0")
    for state, added in zip(names, more):
        set_texts(backend, [state], added)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512 << 10, hard))
    for step in (lambda: backend.flush("v1"), backend.close):
        try:
            step()
        except MillpondError as error:
            print(f"refused: {error}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

for large in range(3):
    place, more = Path(sys.argv[2]) / str(large), ["1"] * 3
    more[large] = blob
    refused(place, more)
    with open_at(sys.argv[1], place, {"v0", "v1"}) as again:
        changed = [state + added for state, added in zip(names, more)]
        expected = {"v0": names, "v1": changed, None: [None] * 3}[again.version]
        found = texts(again, names)
        assert found == expected, (again.version, [str(text)[:20] for text in found])
print("fine")
"""


@pytest.mark.clause("D8")
def test_a_refused_flush_of_several_states(backend_name, tmp_path):
    """After a refused flush, the directory has all changes of the flush, none, or opens empty."""
    done = in_a_child(REFUSED, backend_name, str(tmp_path))
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert done.stdout.endswith("fine\n")
