"""A retained checkpoint of another query, which the operators of a new one may start from.

``checkpoint.restore`` names it as ``<checkpointLocation>@<batch>``. Nothing is copied beforehand:
the first layouts name the snapshots of that batch as their sources, as after a rescale. The new
query's first snapshots are whole, so from then on it does without the other's files.
"""

from __future__ import annotations

import re
from typing import Self

import attrs
from millpond.inspection.spark_checkpoint import is_spark_checkpoint
from millpond.storage.checkpoint_storage import CheckpointStorage
from typing_extensions import override

_NAMED = re.compile(r"(?P<location>.+)@(?P<batch>[0-9]{1,18})", re.DOTALL)
_ENDING = re.compile(r"@[^/@]*$")
"""The end of what names a checkpoint, without a number."""


@attrs.frozen
class RetainedCheckpoint:
    """A batch of a query that Spark still has.

    Attributes:
        location: the query's ``checkpointLocation``.
        batch_id: the batch.
    """

    location: str
    batch_id: int

    @classmethod
    def named(cls, restore: str | None) -> Self | None:
        """What ``checkpoint.restore`` names; None where that is a savepoint, or nothing."""
        found = _NAMED.fullmatch(restore or "")
        return cls(found["location"], int(found["batch"])) if found else None

    @override
    def __str__(self) -> str:
        return f"{self.location}@{self.batch_id}"


def names_checkpoint(restore: str, storage: CheckpointStorage) -> bool:
    """Whether a place that is no savepoint seems meant as a query's checkpoint, without a batch."""
    return _ENDING.search(restore) is not None or is_spark_checkpoint(storage)


def without_batch(restore: str) -> str:
    """The part of what configuration names that may be a query's ``checkpointLocation``."""
    return _ENDING.sub("", restore)
