"""The layouts in force, as a directory shows them, and what killed drivers have left of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import attrs

from millpond.checkpoint.handles import KeyedStateHandle
from millpond.checkpoint.inspection.subtask import reason_of
from millpond.checkpoint.paths import parse_layout_path
from millpond.checkpoint.sealed_metadata import read_sealed
from millpond.errors import MillpondError
from millpond.operator_id import OperatorId
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import LocalStorage, begun_path
from millpond.untrusted import decoding, parse_json

__all__ = ["StoredLayouts", "read_layouts"]

_CUT_OFF = (
    "it is not written to its end: wait for the query's driver or, where that has died, delete it, "
    "for nothing has begun under it"
)
_BEGINNING = re.compile(rb'\{"sha256": "[0-9a-f]{64}", "content": "(?:[^"\\]|\\.)*\\?"?', re.DOTALL)
"""What there is of a sealed text until all of it is written, but for its first bytes alone."""
_FIRST = b'{"sha256": "%064d", "content": "' % 0


@attrs.define
class StoredLayouts:
    """The layouts of all operators.

    Attributes:
        in_force: the files of each operator's newest layout, with the paths that its sources need.
        broken: those that cannot be read, with the reason.
        cut_off: those of them that no driver can have gone on from, for it has not written them
            to their end; the one before counts as in force, too.
        outdated: files that a driver has begun and not renamed, though that layout is there by now.
    """

    in_force: dict[str, frozenset[str]] = attrs.field(factory=dict)
    broken: dict[str, str] = attrs.field(factory=dict)
    cut_off: set[str] = attrs.field(factory=set)
    outdated: list[str] = attrs.field(factory=list)


def read_layouts(storage: CheckpointStorage, paths: Iterable[str]) -> StoredLayouts:
    """The layouts among some files."""
    found = StoredLayouts()
    by_operator: dict[OperatorId, list[tuple[int, str]]] = {}
    begun = dict[str, tuple[OperatorId, int]]()
    for path in paths:
        if layout := parse_layout_path(path):
            by_operator.setdefault(layout[0], []).append((layout[1], path))
        elif layout := parse_layout_path(begun_path(path)):
            begun[path] = layout
    newest = {operator: _read(storage, mine, found) for operator, mine in by_operator.items()}
    found.outdated += [
        path for path, (operator, number) in begun.items() if number <= newest.get(operator, -1)
    ]
    return found


def _read(
    storage: CheckpointStorage, layouts: Iterable[tuple[int, str]], found: StoredLayouts
) -> int:
    """Read an operator's newest layout, and those before it that are cut off; its number, or -1.

    One that cannot be read needs nothing that is known.
    """
    for number, path in sorted(layouts, reverse=True):
        try:
            found.in_force[path] = frozenset(_source_paths(storage, path))
        except MillpondError as error:
            found.in_force[path] = frozenset()
            if not _is_cut_off(storage, path):
                found.broken[path] = reason_of(error)
                break
            found.broken[path] = _CUT_OFF
            found.cut_off.add(path)
        else:
            return number
    return -1


def _source_paths(storage: CheckpointStorage, layout: str) -> Iterator[str]:
    with decoding(layout, "it is not a layout"):
        for text in parse_json(read_sealed(storage, layout))["sources"]:
            yield from KeyedStateHandle.from_json(text, storage).all_paths


def _is_cut_off(storage: CheckpointStorage, path: str) -> bool:
    """Whether a driver cannot have written more of a layout; where files are renamed, it has."""
    if isinstance(storage, LocalStorage):
        return False
    try:
        found = storage.read_all(path)
        return _BEGINNING.fullmatch(found + _FIRST[len(found) :]) is not None
    except MillpondError:
        return False
