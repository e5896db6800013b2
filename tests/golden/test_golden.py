"""Snapshots that earlier versions have written are read back by every backend."""

from pathlib import Path

import make as corpus
import millpond as mp
import pytest

GOLDEN = Path(__file__).parent


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize(
    ("version", "kind"),
    [
        (folder.name, kind)
        for folder in sorted(GOLDEN.glob("v[0-9]*"))
        for kind in (*sorted(path.stem for path in folder.glob("*.json")), "savepoint")
    ],
)
def test_golden_snapshots(tmp_path, version, kind, backend):
    """Every value of every type and kind is what was written."""
    folder = GOLDEN / version
    storage = mp.checkpoint_storage(folder.as_uri())
    if kind == "savepoint":
        handle = folder / "savepoint"
    else:
        handle = mp.KeyedStateHandle.from_json((folder / f"{kind}.json").read_text(), storage)
    with mp.open_keyed_backend(
        backend,
        key_type=str,
        directory=tmp_path,
        clock=mp.ManualClock(0),
        restore=[handle],
        place="changelog",
    ) as opened:
        number = int(version[1:])
        assert corpus.contents(opened, number) == corpus.expected(number)
