"""The boundary to what files say: whatever a decoder makes of it, the error names the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cattrs

from millpond.errors import CorruptSnapshotError, MillpondError

__all__ = ["decoding", "exact_bool", "exact_int", "exact_text", "parse_json"]

_MAX_REASON = 300


@contextmanager
def decoding(path: str, what: str) -> Iterator[None]:
    """Decode untrusted bytes inside of this; every failure becomes one that names the file.

    Args:
        path: the file.
        what: what is wrong with it where decoding fails, as in "it is no savepoint".

    Raises:
        CorruptSnapshotError: the decoder raised something. Millpond's own errors pass, and so
            does a lack of memory.
    """
    try:
        yield
    except (MillpondError, MemoryError):
        raise
    except Exception as error:
        raise CorruptSnapshotError(path, f"{what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, cattrs.BaseValidationError):
        text = "; ".join(cattrs.transform_error(error))
    elif isinstance(error, RecursionError):
        text = "it is nested too deeply"
    else:
        text = f"{error}" or type(error).__name__
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def parse_json(text: str | bytes) -> Any:
    """JSON without lone surrogates, which no file system takes; ValueError names them."""
    tree = json.loads(text)
    marks = (b"\\ud", b"\\uD") if isinstance(text, bytes) else ("\\ud", "\\uD")
    if any(mark in text for mark in marks):  # type: ignore[operator]
        json.dumps(tree, ensure_ascii=False).encode()
    return tree


def exact_bool(value: Any, _: Any) -> bool:
    """True or false, not something that counts as such."""
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def exact_text(value: Any, _: Any) -> str:
    """A text, not something that can be shown as one."""
    if type(value) is not str:
        raise ValueError("expected a text")
    return value


def exact_int(value: Any, _: Any) -> int:
    """A whole number of 64 bits, which is what sizes, counts and positions are."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError("expected a whole number of 64 bits")
    return value
