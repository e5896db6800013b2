"""Snapshots that earlier versions have written are read back by every backend."""

import sys
from pathlib import Path

import millpond as mp
import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def corpus():
    """The module that has written the corpus."""
    sys.path.insert(0, str(GOLDEN))
    try:
        import make

        yield make
    finally:
        sys.path.remove(str(GOLDEN))


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize("kind", ["changelog", "incremental", "savepoint"])
@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.glob("v*")))
def test_golden_snapshots(corpus, tmp_path, version, kind, backend):
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
        assert corpus.contents(opened) == corpus.expected()
