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
        path: the file, or the operator of the state, for the error.
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
    """Return the error to raise for a stored key or value that cannot be decoded.

    If ``decoding`` would let ``error`` pass, ``error`` is returned unchanged. Loops over rows call
    this function, because a ``with`` block for each row would take longer than the decoding.

    Args:
        place: the backend's ``place`` argument, for the error.
        state: the state's name; empty if it is not known.
        key: the stored key, or the start of the stored key.
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
    """Return whether an exception has another cause than the decoded bytes."""
    named = isinstance(error, MillpondError) and not isinstance(error, KeyGroupRangeError)
    return named or isinstance(error, MemoryError)


def _reason(error: Exception) -> str:
    """Return the message of a decoder's exception, cut to a limited length."""
    if isinstance(error, cattrs.BaseValidationError):
        text = "; ".join(cattrs.transform_error(error))
    elif isinstance(error, RecursionError):
        text = "it is nested too deeply"
    else:
        text = f"{error}" or type(error).__name__
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if a string has half a surrogate pair.

    Strings may become file names, and no file system accepts half a surrogate pair.
    """
    tree = json.loads(text)
    marks = (b"\\ud", b"\\uD") if isinstance(text, bytes) else ("\\ud", "\\uD")
    if any(mark in text for mark in marks):  # type: ignore[operator]
        json.dumps(tree, ensure_ascii=False).encode()
    return tree


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode ``text``, i.e. it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def exact_bool(value: Any, _: Any) -> bool:
    """Return ``value``; raise ValueError if it is not a bool. cattrs calls this as a hook."""
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def exact_text(value: Any, _: Any) -> str:
    """Return ``value``; raise ValueError if it is not a string. cattrs calls this as a hook."""
    if type(value) is not str:
        raise ValueError("expected a text")
    return value


def exact_int(value: Any, _: Any) -> int:
    """Return ``value``; raise ValueError if it is not an int of at most 64 bits.

    cattrs calls this function as a hook.
    """
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError("expected a whole number of 64 bits")
    return value
