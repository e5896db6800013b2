"""A batch that two attempts have written, read by the data source, which cannot ask Spark."""

import millpond as mp
import pytest
from millpond import errors
from millpond_cli.datasource import MillpondDataSource

TOTAL = mp.ValueStateDescriptor("total", float)


def test_a_batch_of_two_attempts_is_refused_by_the_data_source(tmp_path):
    """The data source refuses the batch with an alternative, and reads the batch before."""
    query, state = tmp_path / "query", tmp_path / "state"
    (query / "commits").mkdir(parents=True)
    (query / "metadata").write_text('{"id": "shop"}')
    storage = mp.checkpoint_storage(state.as_uri())
    with mp.open_keyed_backend("heap", key_type=str, place="shop/totals") as backend:
        backend.set_current_key("k")
        for checkpoint_id in (1, 2, 2):
            backend.get_partitioned_state(TOTAL).update(1.5)
            backend.snapshot(checkpoint_id, storage).result()
            (query / "commits" / str(checkpoint_id - 1)).touch()
    both = {"state": "total", "path": str(query), "snapshots": state.as_uri()}
    for options in (both, {"state": "total", "path": str(state)}):
        with pytest.raises(errors.RestoreError, match="2 attempts .* create a savepoint"):
            MillpondDataSource(options).schema()
    assert MillpondDataSource({**both, "batchId": "0"}).schema().names[-1] == "value"
