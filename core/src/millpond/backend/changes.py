"""Portable rows: the one form in which entries leave a backend and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

__all__ = ["Change", "ChangeListener"]

Change = tuple[bytes, bytes | None]
"""A portable row: physical key and serialized value, None where the entry was removed."""

ChangeListener = Callable[[Mapping[str, Sequence[Change]]], None]
"""Called at each flush with the changed rows by state name."""
