"""The boundary to stored bytes: whatever decoding makes of them, the error names state and key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import CorruptSnapshotError, MillpondError

__all__ = ["stored_bytes", "unreadable"]

_MAX_KEY = 40
_MAX_REASON = 200


def unreadable(place: str, state: str, key: bytes, error: Exception) -> Exception:
    """The error for a key or value that cannot be decoded; Millpond's own errors stay.

    Args:
        place: the backend's, for the error.
        state: the state's name.
        key: the physical key, or the start of it.
        error: what decoding has raised.
    """
    if isinstance(error, (MillpondError, MemoryError)):
        return error
    shown = key[:_MAX_KEY].hex() + ("…" if len(key) > _MAX_KEY else "")
    why = f"{error}"[:_MAX_REASON] or type(error).__name__
    where = f"state {state!r}, stored key {shown}" if state else f"stored key {shown}"
    reason = f"{where}: its key or value cannot be decoded: {why}"
    return CorruptSnapshotError(place or "keyed state", reason)


@contextmanager
def stored_bytes(place: str, state: str) -> Iterator[None]:
    """Inside of this, decoding what is stored of a state fails by one error."""
    try:
        yield
    except Exception as error:
        raise unreadable(place, state, b"", error) from error
