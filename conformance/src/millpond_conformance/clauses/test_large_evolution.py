"""Clauses: declared types that change, with more entries than a store handles in one step."""

import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.clauses.test_evolution import Place, Shop
from millpond_conformance.comparing import assert_same, by_key
from millpond_conformance.fixtures import BackendOpener
from millpond_conformance.processes import fresh_processes
from millpond_conformance.refused import half_migrated

COUNT = 3000


def values(backend, declared, fill=None):
    """Return the value under each of many keys; set the values first if `fill` is true."""
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("values", declared))
    found = {}
    for number in range(COUNT):
        backend.set_current_key(f"k{number}")
        if fill is not None:
            state.update(fill(number))
        else:
            found[number] = state.value()
    return found


def lists(backend, declared, fill=None):
    """Return a short list in each of many namespaces; add the elements first if `fill` is true."""
    descriptor = mp.ListStateDescriptor("lists", declared)
    backend.set_current_key("k")
    state = backend.get_partitioned_state(descriptor, namespace=0)
    found = {}
    for number in range(COUNT):
        state.set_current_namespace(number)
        if fill is not None:
            state.add(fill(number))
        else:
            found[number] = state.get()[0]
    return found


def entries(backend, declared, fill=None):
    """Return many entries of one map; put them first if `fill` is true."""
    backend.set_current_key("k")
    state = backend.get_partitioned_state(mp.MapStateDescriptor("entries", int, declared))
    if fill is not None:
        state.put_all({number: fill(number) for number in range(COUNT)})
    return {number: state.get(number) for number in range(COUNT)}


FORMS = {"values": values, "lists": lists, "entries": entries}


@pytest.mark.clause("E8")
@pytest.mark.parametrize("form", FORMS)
def test_every_one_of_many_entries_migrates(open_backend: BackendOpener, storage, form):
    """A migration changes all entries of a state to the new type, or none, even if there are many.

    This applies to values under many keys, lists in many namespaces and the entries of a large map.
    It holds in the backend that migrates, and in a backend that restores its next snapshot.
    """
    show = FORMS[form]
    backend = open_backend()
    show(backend, int, lambda number: number)
    handle = backend.snapshot(1, storage).result().handle
    for number in (2, 3):
        backend = open_backend(restore=[handle])
        found = show(backend, float)
        assert_same(by_key(found), by_key({n: float(n) for n in range(COUNT)}))
        handle = backend.snapshot(number, storage).result().handle
    large = open_backend()
    show(large, int, lambda number: 2**53 + 1 if number == COUNT - 1 else 0)
    refused = open_backend(restore=[large.snapshot(4, storage).result().handle])
    with pytest.raises(errors.StateMigrationError):
        show(refused, float)
    assert show(refused, int) == show(large, int)


@pytest.mark.clause("E9")
def test_every_one_of_many_addresses_grows(open_backend: BackendOpener, storage):
    """Namespaces and map keys of many entries may get a further field.

    The entries are then found only with this field.
    """
    spaced, backend = mp.ValueStateDescriptor("spaced", int), open_backend()
    for number in range(COUNT):
        backend.set_current_key(f"k{number % 7}")
        backend.get_partitioned_state(spaced, namespace=Place(str(number))).update(number)
        mapped = mp.MapStateDescriptor("mapped", Place, int)
        backend.get_partitioned_state(mapped).put(Place(str(number)), number)
    handle = backend.snapshot(1, storage).result().handle
    for snapshot in (2, 3):
        backend = open_backend(restore=[handle])
        grown = mp.MapStateDescriptor("mapped", Shop, int)
        for number in range(COUNT):
            backend.set_current_key(f"k{number % 7}")
            assert backend.get_partitioned_state(spaced, Shop(str(number))).value() == number
            assert backend.get_partitioned_state(grown).get(Shop(str(number))) == number
        assert backend.num_state_entries() == 2 * COUNT
        handle = backend.snapshot(snapshot, storage).result().handle


@pytest.mark.clause("D9")
def test_a_disk_that_is_full_amid_a_migration(backend_name, tmp_path):
    """If the system refuses the writes of a migration, no value is migrated twice or skipped.

    A later request finds all values in the old type, or all in the new type, or the backend refuses
    every call.
    """
    place = str(tmp_path)
    assert fresh_processes(backend_name).call(half_migrated, backend_name, place) == []
