"""A query whose checkpoint directory is on a full disk."""

import pytest
from millpond.spark import key_by
from pyspark.errors import StreamingQueryException

from tests.crash.crash_faults import fill_up, make_room, small_disk
from tests.spark.streaming import RUNNING, Running, output, run

pytestmark = pytest.mark.spark


def go_on(files, tmp_path):
    """Run the operator over new input."""
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="running")
    run(out, tmp_path)


@pytest.mark.long
def test_a_full_checkpoint_directory_and_room_again(spark, job_conf, files, tmp_path):
    """If a start, batch or rescale finds no space, file and cure are named; with space, the result is exact."""
    disk = tmp_path / "disk"
    with small_disk(disk):
        if not disk.is_mount():
            pytest.skip("mounting is not allowed here")
        job_conf(state_backend="lmdb", parallelism=1, checkpoint_dir=(disk / "s").as_uri())
        for number, (parallelism, named) in enumerate(
            [(1, r"checkpoint\.dir"), (1, r"kg-0-127/2-\w+"), (2, r"checkpoint\.dir")]
        ):
            job_conf(parallelism=parallelism)
            files.add(("a", 1), ("b", 2))
            fill_up(disk)
            with pytest.raises(StreamingQueryException) as info:
                go_on(files, tmp_path)
            assert info.match(named + r"(?s:.*)No space left on device\. Make room on that disk")
            make_room(disk)
            go_on(files, tmp_path)
            expected = [
                (k, n, n * by) for k, by in (("a", 1), ("b", 2)) for n in range(1, number + 2)
            ]
            assert output(spark, tmp_path) == expected
