"""When a layout was written, and what follows for a start after some batch."""

from __future__ import annotations

from millpond.backend.key_migration import checked_change
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import RestoreError
from millpond.types import SerializerSnapshot
from millpond.types.key_columns import codec_from_snapshot

from millpond_spark.plan.layout import Layout


def is_fresh(layout: Layout, now: int) -> bool:
    """Whether no batch has been committed since the operator began with a layout.

    Args:
        layout: the one in force.
        now: the last committed batch, -1 before the first.
    """
    return now < 0 or (layout.restore is not None and layout.settled_after == now)


def has_other_keys(layout: Layout, key: SerializerSnapshot, now: int) -> bool:
    """Whether an operator that has no state yet is to have keys of another type.

    Args:
        layout: the one in force.
        key: the type that is declared now.
        now: the last committed batch, -1 before the first.
    """
    return layout.key not in (None, key) and is_fresh(layout, now)


def require_its_keys(layout: Layout, uid: str, key: SerializerSnapshot) -> None:
    """Raise where the keys of an operator's state cannot become those that are declared now.

    A subtask without any state cannot tell, and would begin anew beside those that have some.

    Raises:
        StateMigrationError: they cannot.
    """
    if layout.key != key:
        checked_change(uid, "key", layout.key, codec_from_snapshot(key))


def begins_otherwise(layout: Layout, restore: str, now: int) -> bool:
    """Whether the operator is to begin anew, with another ``checkpoint.restore``.

    One that is named no longer changes nothing: sessions name it for one start, and take it back.

    Args:
        layout: the one in force.
        restore: what is named now; empty where nothing is.
        now: the last committed batch, -1 before the first.
    """
    return restore not in ("", layout.restore) and is_fresh(layout, now)


def require_its_past(layout: Layout, uid: str, now: int) -> None:
    """Raise where a checkpointLocation is of a time before an operator's layout.

    What the layout names as sources would be later state than that of the batches to come.

    Args:
        layout: the one in force.
        uid: whose it is.
        now: the last committed batch, -1 before the first.

    Raises:
        RestoreError: it is.
    """
    after = layout.settled_after
    if after is None or after <= now:
        return
    ends = f"ends with batch {now}" if now >= 0 else "has no committed batch"
    cause = (
        f"the checkpointLocation {ends}, but the state was divided anew after batch {after}: it is "
        f"an older copy, or was put back. Go on with the one that has batch {after}, or begin a "
        "new one"
    )
    if now >= 0:
        cause += f" with {SPARK_PREFIX}checkpoint.restore = CHECKPOINT_LOCATION@{now}"
    raise RestoreError(f"operator {uid!r}", (cause,))
