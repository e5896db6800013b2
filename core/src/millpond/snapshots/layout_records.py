"""Small files next to the layouts: records of subtasks, and the settings of queries.

Spark's pointers say which subtasks have run under a layout, but only Spark can read them. Each
subtask therefore writes a record: at its first snapshot under a layout, and again once Spark has
handed it a committed pointer of that layout. From then on the subtask restores nothing from before
the layout. A record or settings file that cannot be read counts as unknown, never as proof.
"""

from __future__ import annotations

import json

import attrs

from millpond.errors import MillpondError
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding, parse_json
from millpond.snapshots.bundle import read_sealed, write_sealed
from millpond.snapshots.handles import snapshot_converter
from millpond.snapshots.paths import record_path, settings_path
from millpond.storage.checkpoint_storage import CheckpointStorage

_CONVERTER = snapshot_converter()


@attrs.frozen
class SubtaskRecord:
    """The checkpoints of a subtask that are known to belong to a layout.

    Attributes:
        first: the checkpoint of the first snapshot, which may be that of a lost attempt.
        committed: a checkpoint that Spark has committed under the layout; None if none is known.
    """

    first: int | None = None
    committed: int | None = None


@attrs.frozen
class OperatorSettings:
    """The settings of an operator's query at its last start.

    Attributes:
        retained: its ``checkpoint.retained``.
        checkpoint: the URI of its ``checkpointLocation``; empty if unknown, as over Spark Connect.
    """

    retained: int = attrs.field(validator=attrs.validators.ge(1))
    checkpoint: str = ""


def record_first(
    storage: CheckpointStorage,
    operator: OperatorId,
    number: int,
    groups: KeyGroupRange,
    checkpoint_id: int,
) -> None:
    """Record the first snapshot of a subtask under the layout of that number."""
    path = record_path(operator, number, groups)
    _write(storage, path, SubtaskRecord(checkpoint_id))


def record_commit(
    storage: CheckpointStorage,
    operator: OperatorId,
    number: int,
    groups: KeyGroupRange,
    checkpoint_id: int,
) -> None:
    """Record that Spark has committed a checkpoint of a subtask, unless an earlier one is known."""
    path = record_path(operator, number, groups)
    known = read_record(storage, path)
    if known.committed is None:
        _write(storage, path, attrs.evolve(known, committed=checkpoint_id))


def _write(storage: CheckpointStorage, path: str, record: SubtaskRecord) -> None:
    write_sealed(storage, path, json.dumps(attrs.asdict(record)))


def read_record(storage: CheckpointStorage, path: str) -> SubtaskRecord:
    """Read a record; an empty one if the file is missing or cannot be read."""
    try:
        with decoding(path, "it is not a subtask's record"):
            return _CONVERTER.structure(parse_json(read_sealed(storage, path)), SubtaskRecord)
    except MillpondError:
        return SubtaskRecord()


def note_settings(
    storage: CheckpointStorage, operator: OperatorId, retained: int, checkpoint: str = ""
) -> None:
    """Write the settings of an operator's query if they have changed since its last start."""
    known = read_settings(storage, operator)
    if not checkpoint and known is not None:
        checkpoint = known.checkpoint
    settings = OperatorSettings(retained, checkpoint)
    if settings != known:
        write_sealed(storage, settings_path(operator), json.dumps(attrs.asdict(settings)))


def read_settings(storage: CheckpointStorage, operator: OperatorId) -> OperatorSettings | None:
    """Read the settings of an operator's query; None if there are none, or they cannot be read."""
    path = settings_path(operator)
    try:
        with decoding(path, "it does not hold the settings of a query"):
            return _CONVERTER.structure(parse_json(read_sealed(storage, path)), OperatorSettings)
    except MillpondError:
        return None
