"""A retained checkpoint of another query, which the operators of a new one may start from.

``checkpoint.restore`` names it as ``<checkpointLocation>@<batch>``. Nothing is copied beforehand:
the first layouts name the snapshots of that batch as their sources, as after a rescale. The new
query's first snapshots are whole, so from then on it does without the other's files.
"""

from __future__ import annotations

import re
from typing import Self

import attrs
from typing_extensions import override

__all__ = ["RetainedCheckpoint"]

_NAMED = re.compile(r"(?P<location>.+)@(?P<batch>[0-9]{1,18})", re.DOTALL)


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
