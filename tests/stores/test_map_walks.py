"""Generated programs that change a map during iterations, compared with a dictionary."""

import millpond as mp
import pytest
from millpond_conformance.call_counts import count_calls
from millpond_conformance.map_walks import WalkedMap


def walks(backend, tmp_path, seeds, *, stored):
    """Run many iterations over maps that change before and during them."""
    with mp.open_keyed_backend(backend, key_type=int, directory=tmp_path) as opened:
        state = opened.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        for seed in range(seeds):
            opened.set_current_key(seed)
            program = WalkedMap(state, seed)
            for _ in range(program.rng.randrange(10)):
                program.change()
            if stored:
                opened.flush()
                opened.set_current_key(seed)
                for _ in range(4):
                    program.change()
            for _ in range(4):
                yield program.walk()
            assert dict(state.items()) == program.model


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_a_walk_gives_each_entry_that_stays_once(backend, tmp_path, stored):
    """No entry is returned twice, and each one that is not removed is returned."""
    for before, seen, removed, ended in walks(backend, tmp_path, 200, stored=stored):
        assert len(seen) == len(set(seen))
        assert not ended or before - removed <= set(seen)


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_a_map_that_was_cleared_is_not_walked_again(backend, tmp_path):
    """Clearing and refilling a small map of a large stored one costs the same each time."""

    def rebuilt(count):
        opened.set_current_key(count)
        state.put_all(dict.fromkeys(range(count), 0))
        opened.flush()
        opened.set_current_key(count)

        def rebuild():
            for number in range(count):
                state.clear()
                state.put(number, 1)
                assert list(state.keys()) == [number]

        return count_calls(rebuild)

    with mp.open_keyed_backend(backend, key_type=int, directory=tmp_path) as opened:
        state = opened.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        assert rebuilt(400) < 3 * rebuilt(200)
