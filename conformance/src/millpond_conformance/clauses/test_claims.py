"""Clauses: ownership of a restored snapshot, and code in stored bytes."""

import millpond as mp
import pytest
from millpond import errors
from typing_extensions import override

from millpond_conformance.clauses.test_snapshots import STRATEGIES, config, contents, expected, fill
from millpond_conformance.fixtures import BackendOpener


@pytest.mark.clause("F8")
@STRATEGIES
def test_a_claimed_snapshot_belongs_to_its_heir(open_backend: BackendOpener, storage, strategy):
    """A snapshot that a backend restores with checkpoint.claim belongs to this backend.

    Snapshots of the backend may build on the restored snapshot. The backend deletes the restored
    snapshot once no retained snapshot needs it. Without checkpoint.claim the restored snapshot
    remains complete, and no later snapshot refers to its files.
    """
    origin = open_backend(config=config(strategy))
    fill(origin, 0, 200)
    handle = origin.snapshot(1, storage).result().handle
    for claim in (False, True):
        options = {"checkpoint.claim": claim, "checkpoint.retained": 1}
        chosen = mp.Config({"state.snapshot.strategy": strategy, **options})
        heir = open_backend(restore=[handle], config=chosen)
        heir.set_current_key("k7")
        heir.get_partitioned_state(mp.ValueStateDescriptor("total", int)).update(-7)
        result = heir.snapshot(2, storage).result()
        heir.notify_checkpoint_complete(2)
        builds = claim and strategy == "changelog"
        assert bool(handle.paths & result.handle.paths) is builds
        assert (result.rows_written == 1) is builds
        assert (handle.paths <= set(storage.list(""))) is (builds or not claim)
        found = contents(open_backend(restore=[result.handle]))
        assert found == {**expected(range(200)), "k7": (-7, {"item": 7})}
        if not claim:
            assert contents(open_backend(restore=[handle])) == expected(range(200))


SPRUNG: list[int] = []


def spring():
    """Record that a `Trap` was unpickled, and return another one."""
    SPRUNG.append(1)
    return Trap()


class Trap:
    """An object whose unpickling calls `spring`."""

    @override
    def __reduce__(self):
        return spring, ()


@pytest.mark.clause("R22")
@STRATEGIES
def test_no_code_runs_from_stored_bytes(open_backend: BackendOpener, storage, strategy):
    """Unless pickle is allowed, no code from stored bytes runs in a restore or in later calls.

    The later calls count entries, list keys, flush, take a snapshot, and request a pickled state.
    The request is refused.
    """
    pickled = mp.PickleSerializer()
    value = mp.ValueStateDescriptor("value", pickled)
    mapped = mp.MapStateDescriptor("mapped", str, pickled)
    listed = mp.ListStateDescriptor("listed", pickled)
    backend = open_backend(config=config(strategy))
    for key in ("a", "b"):
        backend.set_current_key(key)
        backend.get_partitioned_state(value).update(Trap())
        backend.get_partitioned_state(mapped).put("x", Trap())
        backend.get_partitioned_state(listed).add(Trap())
    handle = backend.snapshot(1, storage).result().handle
    SPRUNG.clear()
    for number in (2, 3):
        restored = open_backend(config=config(strategy), restore=[handle])
        assert restored.num_state_entries() == 6
        assert [sorted(restored.keys(name)) for name in ("value", "mapped", "listed")] == [
            ["a", "b"]
        ] * 3
        restored.set_current_key("a")
        for descriptor in (value, mapped, listed):
            with pytest.raises(errors.ConfigError, match="allow-pickle"):
                restored.get_partitioned_state(descriptor)
        restored.flush()
        handle = restored.snapshot(number, storage).result().handle
    assert SPRUNG == []
