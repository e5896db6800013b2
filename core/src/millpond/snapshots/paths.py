"""Paths of files in a checkpoint directory, relative to its root.

::

    <query>/<uid>/kg-<first>-<last>/<checkpoint id>-<attempt>.snapshot    a subtask's snapshot
    <query>/<uid>/kg-<first>-<last>/<checkpoint id>-<attempt>_<name>      RocksDB's own files
    <query>/<uid>/layout/<number>.json                                    layouts, on Spark
    <query>/<uid>/layout/<number>.kg-<first>-<last>                       subtasks' records
    <query>/<uid>/layout/settings                                         the query's settings
    <query>/<uid>/layout/batch.json                                       running batch, on Connect

``<query>/<uid>`` is the operator's folder. Outside of Spark it is the argument ``place``.
"""

from __future__ import annotations

import re
import uuid
from typing import Self

import attrs

from millpond.keygroups import MAX_KEY_GROUPS, KeyGroupRange
from millpond.operator_id import OperatorId

BUNDLE_ENDING = "snapshot"
"""The file name ending of a bundle: a file that holds the parts of a snapshot and its metadata."""

_OPERATOR = r"(?P<operator>(?:[^/]+/)?[^/]+)"
_GROUPS = r"kg-(?P<first>\d{1,5})-(?P<last>\d{1,5})"
_NUMBER = r"(?P<number>[0-9]{8,18})"
_SNAPSHOT = re.compile(
    rf"(?P<folder>(?:{_OPERATOR}/)?{_GROUPS})/(?P<id>\d{{1,18}})-[0-9a-f]{{32}}[._][^/]*"
)
_LAYOUT = re.compile(rf"{_OPERATOR}/layout/{_NUMBER}\.json")
_RECORD = re.compile(rf"{_OPERATOR}/layout/{_NUMBER}\.{_GROUPS}")


@attrs.frozen
class SnapshotPath:
    """The parsed path of a file that belongs to a snapshot."""

    folder: str
    operator: OperatorId
    key_group_range: KeyGroupRange
    checkpoint_id: int

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """Return the parsed `path`, or None if no snapshot has a file of such a path."""
        match = _SNAPSHOT.fullmatch(path)
        if match is None:
            return None
        first, last = int(match["first"]), int(match["last"])
        if not first <= last < MAX_KEY_GROUPS:
            return None
        operator = OperatorId.from_text(match["operator"] or "")
        return cls(match["folder"], operator, KeyGroupRange(first, last), int(match["id"]))


def snapshot_folder(operator: OperatorId, groups: KeyGroupRange) -> str:
    """Return the folder of all snapshots of the subtask with the key groups `groups`."""
    return f"{operator.folder}/kg-{groups.start}-{groups.end}"


def new_snapshot_path(folder: str, checkpoint_id: int, ending: str) -> str:
    """Return the path of a new file in `folder`. No other attempt of the task uses this path."""
    return f"{folder}/{checkpoint_id}-{uuid.uuid4().hex}.{ending}"


def owner_of(path: str) -> OperatorId:
    """Return the operator to which the file of a snapshot or layout belongs."""
    return OperatorId.from_text(path.rpartition("/")[0].rpartition("/")[0])


def layout_folder(operator: OperatorId) -> str:
    """Return the folder that holds an operator's layouts."""
    return f"{operator.folder}/layout"


def layout_path(operator: OperatorId, number: int) -> str:
    """Return the path of the operator's layout file with this `number`."""
    return f"{layout_folder(operator)}/{number:08d}.json"


def batch_path(operator: OperatorId) -> str:
    """Return the path of the file in which a query over Spark Connect names its running batch."""
    return f"{layout_folder(operator)}/batch.json"


def parse_layout_path(path: str) -> tuple[OperatorId, int] | None:
    """Return the operator and the number of the layout file `path`; None for other files."""
    match = _LAYOUT.fullmatch(path)
    return (
        None if match is None else (OperatorId.from_text(match["operator"]), int(match["number"]))
    )


def record_path(operator: OperatorId, number: int, groups: KeyGroupRange) -> str:
    """Return the path of a subtask's record: the file that shows that it has run under a layout."""
    return f"{layout_folder(operator)}/{number:08d}.kg-{groups.start}-{groups.end}"


def parse_record_path(path: str) -> tuple[OperatorId, int, KeyGroupRange] | None:
    """Return the operator, the layout number and the subtask's key groups of the record `path`.

    Return None for other files.
    """
    match = _RECORD.fullmatch(path)
    if match is None or not int(match["first"]) <= int(match["last"]) < MAX_KEY_GROUPS:
        return None
    groups = KeyGroupRange(int(match["first"]), int(match["last"]))
    return OperatorId.from_text(match["operator"]), int(match["number"]), groups


def settings_path(operator: OperatorId) -> str:
    """Return the path of the file with an operator's `OperatorSettings`."""
    return f"{layout_folder(operator)}/settings"
