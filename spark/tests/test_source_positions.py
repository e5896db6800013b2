"""The positions of sources, from the offset logs of Spark's queries."""

import json

import millpond as mp
import pytest
from millpond import errors
from millpond_spark.driver.source_positions import read_positions

KAFKA = '{"clicks":{"0":12,"1":7}}'
DELTA = {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 5, "isStartingVersion": False}


def checkpoint(folder, *offsets, header='v1\n{"batchWatermarkMs":7,"conf":{}}', planned=3):
    """Return the storage of a query's checkpoint with two committed batches."""
    for batch in range(planned):
        (folder / "offsets").mkdir(parents=True, exist_ok=True)
        (folder / "offsets" / str(batch)).write_text("\n".join([header, *offsets]))
    (folder / "commits").mkdir()
    for batch in (0, 1):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return mp.checkpoint_storage(folder.as_uri())


def log(folder, name, *entries):
    """Write a file of a file source's log."""
    (folder / "sources/0").mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": at}) for path, at in entries]
    (folder / "sources/0" / name).write_text("\n".join(["v1", *lines]))


def test_kafka_and_delta(tmp_path):
    """Kafka's offsets and Delta's whole versions become options; other offsets are given as is."""
    whole, within = json.dumps({**DELTA, "index": -1}), json.dumps({**DELTA, "index": 3})
    found = read_positions(checkpoint(tmp_path, KAFKA, whole, within, "12", "-"))
    assert [source.options for source in found.sources] == [
        {"startingOffsets": KAFKA},
        {"startingVersion": "5"},
        *({}, {}, {}),
    ]
    assert "within a version" in found.sources[2].advice
    assert found.sources[3].advice == "start at the offset 12"
    assert (found.batch_id, found.watermark_ms, found.uncommitted) == (1, 7, True)
    assert "batch 2 has begun" in str(found)


def test_files(tmp_path):
    """The files of the log up to the committed entry count as read, from compacted files too."""
    log(tmp_path, "9.compact", ("file:///in/a", 8), ("file:///in/b", 9))
    log(tmp_path, "10", ("file:///in/c", 10))
    log(tmp_path, "11", ("file:///in/d", 11))
    found = read_positions(checkpoint(tmp_path, '{"logOffset":10}', planned=2))
    assert found.sources[0].files == ("file:///in/a", "file:///in/b", "file:///in/c")
    assert not found.uncommitted


def test_files_of_a_later_compact_entry(tmp_path):
    """A batch that is not committed may have compacted the log."""
    log(tmp_path, "9.compact", ("file:///in/a", 8), ("file:///in/b", 9))
    found = read_positions(checkpoint(tmp_path, '{"logOffset":8}'))
    assert found.sources[0].files == ("file:///in/a",)


@pytest.mark.parametrize(("damaged", "text"), [("10", None), ("9.compact", None), ("10", "")])
def test_damaged_logs_of_files(tmp_path, damaged, text):
    """Without an entry of its log, a source would read files again, so it is refused."""
    for name in ("9.compact", "10", "11"):
        log(tmp_path, name, (f"file:///in/{name}", int(name[:2].rstrip("."))))
    path = tmp_path / "sources/0" / damaged
    path.unlink() if text is None else path.write_text(text)
    missing = "0" if damaged == "9.compact" else "10"
    with pytest.raises(errors.CorruptSnapshotError, match=f"sources/0/{missing}'"):
        read_positions(checkpoint(tmp_path, '{"logOffset":11}'))


@pytest.mark.parametrize(
    "header", ["v2\n{}", "", "v1", "v1\n[]", "v1\n{{", 'v1\n{"batchWatermarkMs":"soon"}']
)
def test_damaged_logs(tmp_path, header):
    """An offset log of another version or without JSON is refused with its place."""
    with pytest.raises(errors.CorruptSnapshotError, match=r"file:/.*offsets/1"):
        read_positions(checkpoint(tmp_path, KAFKA, header=header))


@pytest.mark.parametrize(
    "offset", ["", '{"logOffset":null}', '{"logOffset":', '{"reservoirVersion":1,"index":"x"}']
)
def test_damaged_offsets(tmp_path, offset):
    """The offset of a source that is not what its source writes is refused with its place."""
    with pytest.raises(errors.CorruptSnapshotError, match=r"file:/.*offsets/1"):
        read_positions(checkpoint(tmp_path, offset))


@pytest.mark.parametrize(
    "entry",
    [b"{}", b'{"path":7,"batchId":0}', b'{"path":"file:///a","batchId":"0"}', b"[]", b"{", b"\xff"],
)
def test_damaged_entries_of_files(tmp_path, entry):
    """An entry that was edited by hand is refused with its file."""
    log(tmp_path, "0")
    (tmp_path / "sources/0/0").write_bytes(b"v1\n" + entry)
    with pytest.raises(errors.CorruptSnapshotError, match=r"file:/.*sources/0/0.*a log of files"):
        read_positions(checkpoint(tmp_path, '{"logOffset":0}'))


def test_no_batch(tmp_path):
    """A query that has not committed a batch is refused."""
    (tmp_path / "commits").mkdir()
    with pytest.raises(errors.RestoreError, match="not committed a batch"):
        read_positions(mp.checkpoint_storage(tmp_path.as_uri()))
