"""Operator state: lists and broadcast maps of a subtask, and their redistribution at a rescale."""

from itertools import chain

import attrs
import millpond as mp
import pytest
from millpond import errors

ITEMS = mp.ListStateDescriptor("items", int)
MORE = mp.ListStateDescriptor("more", int)
RULES = mp.MapStateDescriptor("rules", str, list[int])


@pytest.fixture
def storage(tmp_path):
    """A storage in files."""
    return mp.checkpoint_storage(tmp_path.as_uri())


def snapshot(storage, *, split=(), more=None, union=(), rules=None, restore=()):
    """Return the handle of a subtask with the given elements."""
    with mp.open_operator_backend(restore=restore) as backend:
        backend.get_list_state(ITEMS).update(split)
        if more is not None:
            backend.get_list_state(MORE).update(more)
        backend.get_union_list_state(mp.ListStateDescriptor("all", int)).update(union)
        if rules is not None:
            backend.get_broadcast_state(RULES).put_all(rules)
        handle = backend.snapshot(1, storage).result().handle
    return mp.OperatorStateHandle.from_json(handle.to_json(), storage)


def items(handles, descriptor=ITEMS):
    """Return a subtask's split list."""
    with mp.open_operator_backend(restore=handles) as backend:
        return backend.get_list_state(descriptor).get()


def test_lists_keep_order_and_isolation():
    """Lists keep their order, and changing a given or returned object does not change the list."""
    with mp.open_operator_backend() as backend:
        state = backend.get_list_state(mp.ListStateDescriptor("lists", list[int]))
        assert state.get() == []
        value = [1]
        state.add(value)
        value.append(2)
        state.get()[0].append(3)
        state.add_all([[4], [5]])
        assert list(state) == [[1], [4], [5]]
        with pytest.raises(errors.NullValueError):
            state.add_all([[6], None])
        with pytest.raises(errors.NullValueError):
            state.update(None)
        assert state.get() == [[1], [4], [5]]
        state.clear()
        assert state.get() == []


def test_broadcast_state_is_a_map():
    """Entries are put, overwritten, removed and listed, and share no objects with the caller."""
    with mp.open_operator_backend() as backend:
        rules = backend.get_broadcast_state(RULES)
        rules.put("a", [1])
        rules["b"] = [2]
        rules["a"].append(9)
        assert dict(rules.items()) == {"a": [1], "b": [2]}
        del rules["b"]
        assert "b" not in rules
        assert rules.get("b", "none") == "none"
        for key in rules:
            rules.remove(key)
        assert rules.is_empty()
        with pytest.raises(errors.NullValueError):
            rules.put(None, [1])


def test_names_modes_and_types_are_checked(storage):
    """A name can be used in one mode; the stored type must fit or be migrated."""
    with mp.open_operator_backend() as backend:
        first = backend.get_list_state(ITEMS)
        assert backend.get_list_state(mp.ListStateDescriptor("items", int)) is first
        with pytest.raises(errors.StateConflictError):
            backend.get_union_list_state(ITEMS)
        backend.get_broadcast_state(RULES)
        assert backend.get_registered_state_names() == {"items"}
        assert backend.get_registered_broadcast_state_names() == {"rules"}
        first.add(1)
        handle = backend.snapshot(1, storage).result().handle
    with mp.open_operator_backend(restore=[handle]) as backend:
        assert backend.get_registered_state_names() == {"items"}
        assert backend.get_registered_broadcast_state_names() == {"rules"}
        with pytest.raises(errors.StateMigrationError, match="'items'"):
            backend.get_list_state(mp.ListStateDescriptor("items", str))
        assert backend.get_list_state(mp.ListStateDescriptor("items", float)).get() == [1.0]
    with pytest.raises(errors.BackendClosedError):
        backend.get_list_state(ITEMS)


def test_no_state_gives_no_handle(storage):
    """Without a registered state the handle is None; an empty list has a handle; None restores nothing."""
    with mp.open_operator_backend(restore=[None]) as backend:
        assert backend.snapshot(1, storage).result().handle is None
        backend.get_list_state(ITEMS)
        handle = backend.snapshot(2, storage).result().handle
    with mp.open_operator_backend(restore=[handle, None]) as backend:
        assert backend.get_registered_state_names() == {"items"}
        assert backend.get_registered_broadcast_state_names() == frozenset()
        assert backend.get_list_state(ITEMS).get() == []


def test_what_nobody_asked_for_survives(storage):
    """A restored state that is never requested is in the next snapshot."""
    handle = snapshot(storage, split=[1, 2], rules={"a": [1]})
    with mp.open_operator_backend(restore=[handle]) as backend:
        again = backend.snapshot(2, storage).result().handle
    assert items([again]) == [1, 2]


def test_a_snapshot_is_not_changed_afterwards(storage):
    """Elements added after a snapshot was taken are not in it."""
    with mp.open_operator_backend() as backend:
        state = backend.get_list_state(ITEMS)
        state.add(1)
        future = backend.snapshot(1, storage)
        state.add(2)
        assert items([future.result().handle]) == [1]


def test_the_same_parallelism_keeps_lists_where_they_were(storage):
    """With the same parallelism each subtask keeps its list, even if lengths differ."""
    handles = [snapshot(storage, split=[1, 2, 3, 4]), None, snapshot(storage, split=[5])]
    given = mp.redistribute_operator_state(handles, 3)
    assert [items(each) for each in given] == [[1, 2, 3, 4], [], [5]]


@pytest.mark.parametrize("parallelism", [1, 2, 4, 7])
def test_split_lists_are_cut_into_consecutive_chunks(storage, parallelism):
    """Split lists are divided in order of the old subtasks; sizes differ by one at most."""
    handles = [
        snapshot(storage, split=[1, 2, 3, 4], more=[10]),
        snapshot(storage, split=[5], more=[11, 12]),
        snapshot(storage, split=[], more=[13]),
    ]
    given = mp.redistribute_operator_state(handles, parallelism)
    chunks = [items(each) for each in given]
    assert sorted(chain(*chunks)) == [1, 2, 3, 4, 5]
    assert max(map(len, chunks)) - min(map(len, chunks)) <= 1
    assert all(chunk == sorted(chunk) for chunk in chunks)
    more = [items(each, MORE) for each in given]
    assert sorted(chain(*more)) == [10, 11, 12, 13]
    assert max(map(len, more)) - min(map(len, more)) <= 1


def test_the_first_of_uneven_chunks_rotates(storage):
    """Two states with one element each go to two different subtasks."""
    given = mp.redistribute_operator_state([snapshot(storage, split=[1], more=[2])], 2)
    assert sorted(len(items(each)) + len(items(each, MORE)) for each in given) == [1, 1]


def test_union_and_broadcast_go_to_all(storage):
    """Each new subtask gets all elements of a union list, and one copy of a broadcast map."""
    rules = {"a": [1], "b": [2, 3]}
    handles = [snapshot(storage, union=[n], rules=rules) for n in (1, 2)]
    for each in mp.redistribute_operator_state(handles, 3):
        with mp.open_operator_backend(restore=each) as backend:
            assert backend.get_union_list_state(mp.ListStateDescriptor("all", int)).get() == [1, 2]
            assert dict(backend.get_broadcast_state(RULES).items()) == rules


def test_damaged_files_are_named(storage, tmp_path):
    """A changed byte, hostile offsets and paths are refused by name."""
    handle = snapshot(storage, split=[1, 2])
    hostile = handle.to_json().replace(handle.file.path, "../../etc/passwd")
    with pytest.raises(errors.CorruptSnapshotError, match="leaves the checkpoint directory"):
        mp.OperatorStateHandle.from_json(hostile, storage)
    with pytest.raises(errors.CorruptSnapshotError, match="cannot be read"):
        mp.OperatorStateHandle.from_json("{}", storage)
    path = tmp_path / handle.file.path
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.CorruptSnapshotError, match=path.name):
        items([handle])


def test_a_file_without_partitions_is_damage(storage):
    """A handle with a file but without its partitions is refused by name."""
    with mp.open_operator_backend() as backend:
        backend.get_list_state(mp.ListStateDescriptor("items", int)).add(1)
        handle = backend.snapshot(1, storage).result().handle
    bare = attrs.evolve(handle, offsets=())
    with pytest.raises(errors.CorruptSnapshotError, match="it has no partition 0"):
        mp.open_operator_backend(restore=[bare])


@pytest.mark.parametrize(("kind", "values"), [(str, [""]), (str, ["", ""]), (bytes, [b""] * 3)])
@pytest.mark.parametrize("way", ["get_list_state", "get_union_list_state"])
def test_elements_without_bytes_come_back(storage, kind, values, way):
    """A list of empty strings, which has no bytes, is restored and rescaled."""
    descriptor = mp.ListStateDescriptor("texts", kind)
    with mp.open_operator_backend() as backend:
        getattr(backend, way)(descriptor).update(values)
        made = backend.snapshot(1, storage).result().handle
    handle = mp.OperatorStateHandle.from_json(made.to_json(), storage)
    found = []
    for part in [[handle], *mp.redistribute_operator_state([handle], 2)]:
        with mp.open_operator_backend(restore=part) as backend:
            found.append(getattr(backend, way)(descriptor).get())
    whole, first, second = found
    assert whole == values
    shared = way == "get_union_list_state"
    assert (first == second == values) if shared else (first + second == values)
