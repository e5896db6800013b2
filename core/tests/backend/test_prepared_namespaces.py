"""Encoded namespaces are cached by object, unless the object can change."""

import attrs
import millpond as mp
import pytest

from core.tests.memory_store import open_memory


@attrs.frozen
class Part:
    """A namespace that contains bytes."""

    name: bytes


TYPES = {
    "bytes": (bytes, lambda name: name, bytes),
    "tuple": (tuple[bytes, int], lambda name: (name, 1), lambda name: (bytes(name), 1)),
    "class": (Part, Part, lambda name: Part(bytes(name))),
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_bytearray_that_has_changed_is_another_namespace(tmp_path, kind):
    """After a bytearray has changed, states and timers use its new content as the namespace."""
    declared, made, plain = TYPES[kind]
    name = bytearray(b"x")
    namespace = made(name)
    with open_memory(tmp_path) as backend:
        backend.set_current_key("k")
        descriptor = mp.ValueStateDescriptor("v", int)
        state = backend.get_partitioned_state(descriptor, plain(b"-"), declared)
        queue = backend.timer_queue("event-time", declared)
        for number, now in enumerate((b"x", b"y")):
            name[:] = now
            state.set_current_namespace(namespace)
            state.update(number)
            queue.register(number, namespace)
        found = []
        for now in (b"x", b"y"):
            state.set_current_namespace(plain(now))
            found.append(state.value())
        assert found == [0, 1]
        due = [timer.namespace for timer in queue.due(5)]
        assert due == [plain(b"x"), plain(b"y")]


def test_more_namespaces_than_are_remembered(tmp_path):
    """Thousands of namespaces each keep their value, for the same object and for equal ones."""
    with open_memory(tmp_path) as backend:
        backend.set_current_key("k")
        descriptor = mp.ValueStateDescriptor("v", int)
        state = backend.get_partitioned_state(descriptor, 0, int)
        names = [1_000_000 + number for number in range(2500)]
        for name in names:
            state.set_current_namespace(name)
            state.update(name)
        for name in (*names, *(int(str(name)) for name in names)):
            state.set_current_namespace(name)
            assert state.value() == name
