"""Savepoints with correct digests but hostile content, and directories that only look like savepoints."""

import logging
import re
import uuid

import millpond as mp
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.config import RestoreConfig
from millpond.savepoints.table_files import read_table
from millpond.storage.memory import MemoryStorage
from millpond_cli.main import commands

from tests.checkpoint.stored import reseal

BLOB = mp.ValueStateDescriptor("blob", bytes)
SCHEMA = pa.schema([("value", pa.binary())])
SMALL = RestoreConfig(max_unpacked_bytes=1 << 20)


def save(folder, values, kind=BLOB):
    """Save values by key in a directory or a storage."""
    storage = mp.checkpoint_storage(folder if isinstance(folder, MemoryStorage) else str(folder))
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        state = backend.get_partitioned_state(kind)
        for key, value in values.items():
            backend.set_current_key(key)
            state.update(value)
        strategy = backend.strategy("savepoint")
        strategy.save(1, storage, "").result()


def load(folder, kind=BLOB):
    """Return the values of a savepoint."""
    with mp.open_keyed_backend("heap", key_type=str, place="job", restore=[folder]) as backend:
        state = backend.get_partitioned_state(kind)
        found = {}
        for key in list(backend.keys(kind.name)):
            backend.set_current_key(key)
            found[key] = state.get() if kind is not BLOB else state.value()
        return found


@pytest.mark.parametrize(
    "sizes", [[1 << 20] * 50, [40 << 20], [10] * 1000 + [20 << 20, 9 << 20, 10]]
)
def test_own_savepoints_are_read_however_well_they_compress(tmp_path, sizes):
    """Many and large values of zeros, which compress well, are read without any setting."""
    values = {f"k{n}": b"\1" + b"\0" * (size - 1) for n, size in enumerate(sizes)}
    save(tmp_path / "s", values)
    assert load(tmp_path / "s") == values


def test_a_large_key_group_takes_several_files(tmp_path):
    """A large key group is written as several files, and read completely."""
    keys = [key for key in map(str, range(3000)) if mp.assign_to_key_group(key, 128) == 7][:6]
    values = {key: bytes([number]) * (12 << 20) for number, key in enumerate(keys)}
    save(tmp_path / "s", values)
    assert len(list((tmp_path / "s/job/blob").iterdir())) > 1
    assert load(tmp_path / "s") == values


def test_long_lists_come_back(tmp_path):
    """Long lists are divided by their elements into row groups."""
    items = mp.ListStateDescriptor("items", int)
    values = {f"k{n}": [7] * 100_000 for n in range(6)}
    save(tmp_path / "s", values, items)
    assert load(tmp_path / "s", items) == values


def parquet(table, **options):
    """Return a table as Parquet bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue().to_pybytes()


def repeated(value, times):
    """Return a column with one value often, encoded as a dictionary."""
    indices = pa.array([0] * times, pa.int32())
    return pa.table({"value": pa.DictionaryArray.from_arrays(indices, pa.array([value]))})


def numbers(count):
    """Return one row with a list of zeros."""
    items = pa.array([0], pa.int8()).take(pa.array([0] * count, pa.int32()))
    return pa.table({"value": pa.ListArray.from_arrays([0, count], items.cast(pa.int64()))})


BOMBS = {
    "a value": (parquet(pa.table({"value": [b"\0" * (16 << 20)]}), use_dictionary=False), SCHEMA),
    "a dictionary": (parquet(pa.table({"value": [b"\0" * (16 << 20)]})), SCHEMA),
    "a dictionary's entry, often": (parquet(repeated(b"\0" * 500_000, 50_000)), SCHEMA),
    "a list": (parquet(numbers(3_000_000)), pa.schema([("value", pa.list_(pa.int64()))])),
}


@pytest.mark.parametrize(("data", "schema"), BOMBS.values(), ids=BOMBS)
def test_a_small_table_does_not_unpack_without_bound(data, schema):
    """Large pages, dictionaries and lists are refused with the option that allows more."""
    assert len(data) < 100_000
    before = pa.total_allocated_bytes()
    used = []

    def read():
        batches = read_table("x", data, schema, SMALL)
        used.extend(pa.total_allocated_bytes() - before for _ in batches)

    with pytest.raises(errors.CorruptSnapshotError, match=r"restore\.max-unpacked-bytes"):
        read()
    assert max(used, default=0) < 8 << 20


def test_tables_of_others_are_read_in_parts():
    """A table with large dictionary entries is read completely, a few rows at a time."""
    table = repeated(b"\0" * 100_000, 60)
    batches = list(read_table("x", parquet(table), SCHEMA, RestoreConfig(0, 4 << 20)))
    assert len(batches) > 1
    assert (
        pa.Table.from_batches(batches)
        .column("value")
        .combine_chunks()
        .equals(table.column("value").combine_chunks().dictionary_decode())
    )


def test_delta_encoded_texts_are_refused():
    """Delta-encoded strings are refused, because a few bits can repeat any prefix unnoticed."""
    table = pa.table({"value": [b"x" * 1000] * 1000})
    data = parquet(table, use_dictionary=False, column_encoding={"value": "DELTA_BYTE_ARRAY"})
    with pytest.raises(errors.CorruptSnapshotError, match="write them plain"):
        list(read_table("x", data, SCHEMA))


@pytest.mark.parametrize("cut", [0, 4, 100, -1, -8])
def test_damaged_tables_are_named(cut):
    """A table that is truncated, empty or not Parquet is refused as damaged."""
    data = parquet(pa.table({"value": [b"x"]}))[:cut]
    with pytest.raises(errors.CorruptSnapshotError, match="'x'"):
        list(read_table("x", data, SCHEMA))


def add_operator_state(subtasks):
    """Return a change that adds an empty operator state."""
    value = {"id": "int", "version": 1, "payload": None}
    meta = {"name": "o", "mode": "split", "value": value, "map_key": None}

    def change(body):
        state = {"meta": meta, "subtasks": subtasks, "file": None, "exact": False}
        body["operators"][0]["operator_states"] = [state]

    return change


def deep(levels):
    """Return a nested list."""
    made = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize(
    "change",
    [
        add_operator_state(10**9),
        add_operator_state(-1),
        add_operator_state(float("inf")),
        lambda body: body["operators"].append(body["operators"][0]),
        lambda body: body["operators"][0].update(max_parallelism=10**9),
        lambda body: body["operators"][0].update(max_parallelism=64),
        lambda body: body["operators"][0].update(max_parallelism=1 << 80),
        lambda body: body["operators"][0].update(uid="\ud800"),
        lambda body: body["operators"][0]["key"].update(payload=deep(100)),
        lambda body: body["operators"][0]["key"].update(id="tuple"),
        lambda body: body["operators"][0]["key"].update(id="nullable", payload=7),
        lambda body: body["operators"][0]["states"][0]["meta"].update(kind="map"),
        lambda body: body["operators"][0]["states"][0]["meta"].update(name=""),
        lambda body: body["operators"][0]["states"][0]["meta"].update(ttl_ms=-5),
        lambda body: body["operators"][0]["states"][0]["meta"]["value"].update(
            id="structured", payload={"kind": "?"}
        ),
    ],
)
def test_metadata_without_sense_is_refused(tmp_path, change):
    """Huge numbers, floats and invalid types in the metadata each give one clear error."""
    save(tmp_path / "s", {"k": b"v"})
    reseal(tmp_path / "s", change)
    with pytest.raises(errors.MillpondError):
        load(tmp_path / "s")


@pytest.mark.parametrize("number", [-1, 0, 64, 10**9])
def test_key_groups_of_a_savepoint_that_do_not_exist(tmp_path, number):
    """Key groups beyond an operator's max-parallelism are damage, and the file is named."""
    save(tmp_path / "s", {"k": b"v"})
    reseal(tmp_path / "s", lambda body: body["operators"][0].update(max_parallelism=number))
    with pytest.raises(errors.CorruptSnapshotError, match="savepoint.*max-parallelism"):
        load(tmp_path / "s")


def test_a_savepoint_needs_a_directory_of_its_own(tmp_path):
    """Every way to write a savepoint refuses a directory with files, and leaves it unchanged."""
    save(tmp_path / "s", {"k": b"v"})
    save(tmp_path / "other", {"k": b"w"})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ways = (
        lambda: save(tmp_path / "s", {"x": b"y"}),
        lambda: mp.rekey_savepoint(str(tmp_path / "other"), str(tmp_path / "s"), 256),
    )
    for way in ways:
        with pytest.raises(errors.DirectoryNotEmptyError, match=r"savepoint\.json"):
            way()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


class Shared(MemoryStorage):
    """Storage in which another process writes a savepoint before the n-th listing or write."""

    def __init__(self, at):
        super().__init__(f"memory:shared-{uuid.uuid4().hex}")
        self.steps, self.refused = at, None

    def step(self):
        """Count a step; at the chosen one, let the other process write."""
        self.steps -= 1
        if self.steps == 0:
            try:
                save(self, {"k": b"other"})
            except errors.DirectoryNotEmptyError as error:
                self.refused = error

    def list(self, folder):
        """Count after listing."""
        found = super().list(folder)
        self.step()
        return found

    def open_writer(self, path):
        """Count before writing."""
        self.step()
        return super().open_writer(path)


@pytest.mark.parametrize("at", range(1, 6))
def test_of_two_writers_of_a_savepoint_one_is_refused(at):
    """Whenever a second writer comes, exactly one of the two is refused, and the other savepoint is complete."""
    storage = Shared(at)
    try:
        save(storage, {"k": b"own"})
        kept = b"own"
    except errors.DirectoryNotEmptyError:
        kept = b"other"
    assert storage.steps <= 0
    assert (kept == b"own") == (storage.refused is not None)
    assert load(mp.SavepointHandle(1, "", storage)) == {"k": kept}
    assert not [path for path in storage.list("") if path.endswith(".writing")]


def test_what_a_dead_writer_has_left_is_told_with_its_cure(tmp_path):
    """Writers, readers and tools name the marker of a killed writer and the cure."""
    place = tmp_path / "s"
    save(place, {"k": b"v"})
    (place / "job/0123.writing").touch()
    (place / "savepoint.json").rename(tmp_path / "metadata")
    with pytest.raises(errors.DirectoryNotEmptyError, match="name a new directory"):
        save(place, {"k": b"w"})
    (place / "job/0123.writing").rename(place / "0123.writing")
    told = "is not finished, as 0123.writing says: wait .* delete the directory"
    with pytest.raises(errors.DirectoryNotEmptyError, match=told) as info:
        save(place, {"k": b"w"})
    assert info.value.found[0] == "0123.writing"
    for way in (load, lambda path: mp.seal_savepoint(str(path))):
        with pytest.raises(errors.CorruptSnapshotError, match=told):
            way(place)
    save(tmp_path / "whole", {"k": b"v"})
    rekey = ["savepoint", "rekey", "--max-parallelism", "64", str(tmp_path / "whole")]
    for call in (["state", "list"], rekey):
        result = CliRunner().invoke(commands, [*call, str(place)])
        assert result.exit_code == 1
        assert re.search(told, result.output.replace("\n", " "))
    (tmp_path / "metadata").rename(place / "savepoint.json")
    assert load(place) == {"k": b"v"}


def test_the_folder_above_savepoints_names_them(tmp_path):
    """A backend writes its savepoints below the storage's root; the error for the root says where they are."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(1)
        folders = [backend.savepoint(n, storage).result().handle.folder for n in (1, 2)]
    told = f"expected a savepoint here; found savepoints in {', '.join(sorted(folders))}"
    for way in (load, lambda path: mp.seal_savepoint(str(path))):
        with pytest.raises(errors.CorruptSnapshotError, match=told):
            way(tmp_path)
    said = CliRunner().invoke(commands, ["state", "list", str(tmp_path)])
    assert said.exit_code == 1
    assert told in said.output.replace("\n", " ")
    for number in range(3, 8):
        save(tmp_path / f"z{number}", {"k": b"v"})
    with pytest.raises(errors.CorruptSnapshotError, match="z5 and 2 more"):
        load(tmp_path)


def test_sealing_takes_what_the_metadata_names(tmp_path, caplog):
    """Sealing names a foreign table, and includes it only if `added=True`."""
    save(tmp_path / "s", {"k": b"v"})
    folder = tmp_path / "s/job/blob"
    (own,) = folder.iterdir()
    extra = pd.DataFrame({"key_group": [0], "key": ["old"], "value": [b"of before"]})
    extra.to_parquet(folder / "old.parquet")
    with caplog.at_level(logging.WARNING):
        mp.seal_savepoint(str(tmp_path / "s"))
    assert "job/blob/old.parquet is not part of the savepoint" in caplog.text
    assert load(tmp_path / "s") == {"k": b"v"}
    mp.seal_savepoint(str(tmp_path / "s"), added=True)
    assert load(tmp_path / "s") == {"k": b"v", "old": b"of before"}
    own.rename(tmp_path / "elsewhere")
    with pytest.raises(errors.CorruptSnapshotError, match="it is missing"):
        mp.seal_savepoint(str(tmp_path / "s"))


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 20, reason="it knows no such statistics")
def test_statistics_that_do_not_fit_the_schema_are_refused():
    """A column with statistics that contradict its schema is refused instead of ending the process."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": pa.array([1, None, 3])}), sink)
    sound = sink.getvalue().to_pybytes()
    forged = sound.replace(b"\x25\x02\x18\x05value", b"\x25\x00\x18\x05value")
    assert forged != sound
    schema = pa.schema([("value", pa.int64())])
    assert [batch.num_rows for batch in read_table("sound", sound, schema)] == [3]
    with pytest.raises(errors.CorruptSnapshotError, match="not a table of this state"):
        list(read_table("forged", forged, schema))
