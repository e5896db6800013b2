"""Several attempts at one snapshot, as after an abort: each is of its own time; and savepoints."""

import gc
import threading
import weakref

import millpond as mp
import pytest
from millpond.storage.memory import MemoryStorage
from typing_extensions import override

ITEMS = mp.ListStateDescriptor("items", int)


class Gate(MemoryStorage):
    """Holds back all writes until its gate opens."""

    @override
    def open_writer(self, path):
        assert self.gate.wait(10)
        return super().open_writer(path)


@pytest.mark.parametrize("strategy", ["full", "changelog"])
@pytest.mark.parametrize("aborted", [0, 1])
def test_attempts_under_one_number(strategy, aborted):
    """An attempt that still runs, aborted or not, takes no operator state from the next one."""
    storage = Gate.private()
    storage.gate = threading.Event()
    settings = {"state.snapshot.strategy": strategy, "checkpoint.inline-threshold": 0}
    with mp.open_keyed_backend("heap", key_type=str, config=mp.Config(settings)) as backend:
        backend.operator_state = mp.open_operator_backend()
        items = backend.operator_state.get_list_state(ITEMS)
        backend.set_current_key("k")
        value = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        attempts = []
        for number in (1, 2):
            items.add(number)
            value.update(number)
            attempts.append(backend.snapshot(5, storage))
            if number == aborted:
                backend.notify_checkpoint_aborted(5)
        storage.gate.set()
        for made, held in [*zip(attempts, ([1], [1, 2]), strict=True)][aborted:]:
            states = made.result().handle.operator_state
            with mp.open_operator_backend(restore=states) as restored:
                assert restored.get_list_state(ITEMS).get() == held


def test_a_written_savepoint_is_forgotten():
    """Nobody confirms savepoints, so the next one has the backend keep nothing of it."""
    storage = MemoryStorage.private()
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        first = weakref.ref(backend.savepoint(1, storage).result().handle)
        backend.savepoint(2, storage).result()
        gc.collect()
        assert first() is None
