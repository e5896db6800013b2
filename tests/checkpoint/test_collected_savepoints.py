"""Savepoints that are collected from the snapshots of an operator, part by part."""

import millpond as mp
import pyarrow.parquet as pq
import pytest
from millpond.plugins import get_registry
from millpond.savepoints import collect, table_files
from millpond.savepoints.collect import collect_savepoint

COUNT = mp.ValueStateDescriptor("count", int)
KEYS = [f"key-{number}" for number in range(500)]


def snapshots(folder, backend, strategy, wide=None):
    """Return the snapshots of two subtasks, with deltas; the count of the key `wide` is very large."""
    storage, config = (
        mp.checkpoint_storage(folder.as_uri()),
        mp.Config({"state.snapshot.strategy": strategy}),
    )
    handles = []
    for index in range(2):
        groups = mp.key_group_range(128, 2, index)
        with mp.open_keyed_backend(
            backend, key_type=str, max_parallelism=128, key_group_range=groups, config=config,
            directory=folder / f"job-{index}", place="op",
        ) as opened:  # fmt: skip
            state = opened.get_partitioned_state(COUNT)
            for number in (1, 2):
                for key in KEYS[: 500 // number]:
                    if mp.assign_to_key_group(key, 128) in groups:
                        opened.set_current_key(key)
                        state.update(1 << 80 if key == wide else number)
                handle = opened.snapshot(number, storage).result().handle
                opened.notify_checkpoint_complete(number)
            handles.append(handle)
    return handles


@pytest.mark.parametrize("wide", [None, KEYS[0], KEYS[-1]])
@pytest.mark.parametrize(
    ("backend", "strategy"),
    [("heap", "changelog"), ("heap", "full"), ("rocksdb", "incremental")],
)
def test_parts_make_the_whole(tmp_path, monkeypatch, backend, strategy, wide):
    """A savepoint that is collected in many parts holds the same state, and reports each part."""
    handles = snapshots(tmp_path / "job", backend, strategy, wide)
    monkeypatch.setattr(collect, "_SLICE_BYTES", max(handle.size for handle in handles) // 10)
    registry = get_registry()
    target, reported = registry.savepoint(tmp_path / "saved"), []
    collect_savepoint({"op": handles}, target, registry, lambda *each: reported.append(each))
    total = reported[-1][-1]
    assert total > 10
    assert [done for _, done, _ in reported if done == total] == [total]
    with mp.open_keyed_backend("heap", key_type=str, restore=[target], place="op") as opened:
        state, found = opened.get_partitioned_state(COUNT), {}
        for key in opened.keys("count"):
            opened.set_current_key(key)
            found[key] = state.value()
    expected = {key: 2 if number < 250 else 1 for number, key in enumerate(KEYS)}
    assert found == expected | ({wide: 1 << 80} if wide else {})


def test_tables_of_an_earlier_attempt_are_deleted(tmp_path, monkeypatch):
    """If a late integer needs the exact form, the folder has no table of the attempt before it."""
    monkeypatch.setattr(table_files, "_FILE_BYTES", 1 << 18)
    samples = mp.ValueStateDescriptor("samples", list[int])
    last = max(KEYS, key=lambda key: mp.assign_to_key_group(key, 128))
    with mp.open_keyed_backend("heap", key_type=str, max_parallelism=128, place="op") as opened:
        state = opened.get_partitioned_state(samples)
        for key in KEYS:
            opened.set_current_key(key)
            state.update([1 << 80 if key == last else 1 << 62] * 100)
        storage = mp.checkpoint_storage(str(tmp_path))
        place = tmp_path / opened.savepoint(1, storage).result().handle.folder
    assert sorted(pq.read_table(place / "op" / "samples")["key"].to_pylist()) == sorted(KEYS)
