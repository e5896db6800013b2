"""What fields of attrs classes and dataclasses were called before."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import attrs

from millpond.arguments import check_type

_RENAMED_FROM = "millpond.renamed_from"


def renamed_from(old_name: str) -> Mapping[str, str]:
    """Metadata for an attrs or dataclass field that used to have another name.

    ``total: float = attrs.field(default=0.0, metadata=mp.renamed_from("sum"))``
    """
    check_type("old_name", old_name, str)
    return {_RENAMED_FROM: old_name}


def renames_of(declared: Any) -> dict[str, str]:
    """Old names by new ones."""
    if attrs.has(declared):
        fields: list[Any] = list(attrs.fields(declared))
    elif dataclasses.is_dataclass(declared):
        fields = list(dataclasses.fields(declared))
    else:
        return {}
    old_names = {field.name: field.metadata.get(_RENAMED_FROM, field.name) for field in fields}
    return {name: old for name, old in old_names.items() if old != name}


def exchanged_names(declared: Any) -> list[str]:
    """Fields that pass their names around in a circle; none in most classes.

    What was stored before and after looks alike, so which name is meant cannot be known.
    """
    renames = renames_of(declared)
    for start in renames:
        passed = [start]
        while (old := renames.get(passed[-1])) is not None and old not in passed:
            passed.append(old)
        if old == start:
            return passed
    return []
