"""Decoding of untrusted files and stores: for any failure, the error names the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cattrs

from millpond.errors import CorruptSnapshotError, KeyGroupRangeError, MillpondError

_MAX_KEY = 40
_MAX_REASON = 300


@contextmanager
def decoding(path: str, what: str) -> Iterator[None]:
    """Turn any exception in a ``with`` block that decodes a file into CorruptSnapshotError.

    Millpond's own errors and MemoryError pass unchanged, except for KeyGroupRangeError: here its
    numbers come from the file.

    Args:
        path: the file, or the place of the state, for the error.
        what: the reason in the error, such as "it is not a savepoint".

    Raises:
        CorruptSnapshotError: the block raised another exception.
    """
    try:
        yield
    except Exception as error:
        if _passes(error):
            raise
        raise CorruptSnapshotError(path, f"{what}: {_reason(error)}") from error


def unreadable(place: str, state: str, key: bytes, error: Exception) -> Exception:
    """Return the error for a stored key or value that cannot be decoded.

    Errors that ``decoding`` lets pass are returned unchanged. Loops over rows call this function,
    because a ``with`` block for each row would cost more than the decoding.

    Args:
        place: the backend's ``place`` argument, for the error.
        state: the state's name; empty if it is not known.
        key: the physical key, or the start of it.
        error: the decoder's error.
    """
    if _passes(error):
        return error
    shown = key[:_MAX_KEY].hex() + ("…" if len(key) > _MAX_KEY else "")
    known = (f"state {state!r}" if state else "", f"stored key {shown}" if key else "")
    where = ", ".join(filter(None, known)) or "a row"
    reason = f"{where}: its key or value cannot be decoded: {_reason(error)}"
    return CorruptSnapshotError(place or "keyed state", reason)


def _passes(error: Exception) -> bool:
    """Return whether an exception is not a fault of the decoded bytes."""
    named = isinstance(error, MillpondError) and not isinstance(error, KeyGroupRangeError)
    return named or isinstance(error, MemoryError)


def _reason(error: Exception) -> str:
    """Return the message of a decoder's exception, of limited length."""
    if isinstance(error, cattrs.BaseValidationError):
        text = "; ".join(cattrs.transform_error(error))
    elif isinstance(error, RecursionError):
        text = "it is nested too deeply"
    else:
        text = f"{error}" or type(error).__name__
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError for strings with halves of surrogate pairs.

    Such a string may be a name, and no file system accepts it.
    """
    tree = json.loads(text)
    marks = (b"\\ud", b"\\uD") if isinstance(text, bytes) else ("\\ud", "\\uD")
    if any(mark in text for mark in marks):  # type: ignore[operator]
        json.dumps(tree, ensure_ascii=False).encode()
    return tree


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a string: it has no halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def exact_bool(value: Any, _: Any) -> bool:
    """Return a bool; raise ValueError for any other value. A structure hook of cattrs."""
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def exact_text(value: Any, _: Any) -> str:
    """Return a string; raise ValueError for any other value. A structure hook of cattrs."""
    if type(value) is not str:
        raise ValueError("expected a text")
    return value


def exact_int(value: Any, _: Any) -> int:
    """Return an int of at most 64 bits; raise ValueError for any other value.

    A structure hook of cattrs.
    """
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError("expected a whole number of 64 bits")
    return value
