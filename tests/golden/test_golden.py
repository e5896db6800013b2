"""Every backend reads snapshots that earlier versions have written."""

from pathlib import Path

import millpond as mp
import pytest

from tests.golden import make as corpus

GOLDEN = Path(__file__).parent


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize(
    ("version", "kind"),
    [
        (folder.name, kind)
        for folder in sorted(GOLDEN.glob("v[0-9]*"))
        for kind in (*corpus.WRITTEN, "savepoint")
    ],
)
def test_golden_snapshots(tmp_path, version, kind, backend):
    """Each value of each type and kind is the written one."""
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


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.glob("v[0-9]*")))
def test_golden_operator_states(version):
    """A list and a broadcast state of the same name are restored."""
    storage = mp.checkpoint_storage((GOLDEN / version).as_uri())
    text = (GOLDEN / version / "operator_state.json").read_text()
    handle = mp.OperatorStateHandle.from_json(text, storage)
    with mp.open_operator_backend(restore=[handle]) as backend:
        assert backend.get_list_state(corpus.ITEMS).get() == [1, 2]
        assert dict(backend.get_broadcast_state(corpus.RULES).items()) == {"a": 1}
