"""The value of `checkpoint.restore`: a savepoint or another query's checkpoint."""

import pytest
from millpond_spark.plan.pointer import RetainedCheckpoint


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, None),
        ("/saved/totals", None),
        ("s3://user@host/saved", None),
        ("/queries/a@b/saved", None),
        ("/q@-1", None),
        ("@4", None),
        ("/queries/totals@0", ("/queries/totals", 0)),
        ("s3a://b/a@1/checkpoint@41", ("s3a://b/a@1/checkpoint", 41)),
    ],
)
def test_a_batch_stands_behind_the_last_at_sign(text, found):
    """Only digits after the last @ are a batch number; the rest is the location."""
    named = RetainedCheckpoint.from_config(text)
    assert (named and (named.location, named.batch_id)) == found
