"""The names of states, and the scopes within which a name is unique."""

from __future__ import annotations

import unicodedata
from typing import Any, Literal

from millpond.arguments import check_text
from millpond.errors import ArgumentValueError, StateNameError, brief

Scope = Literal["keyed", "list", "broadcast"]
"""A scope in which names are unique: keyed states, the operator's lists, broadcast states."""

_MAX_NAME_BYTES = 255
_RESERVED = {"default": "it is the name of the column family that every store already has"}
_RESERVED_PREFIX = "_millpond"


def check_state_name(name: Any) -> str:
    """Return a usable state name.

    Raises:
        StateNameError: it is empty, too long, reserved, or holds control characters.
    """
    if not isinstance(name, str) or not name:
        raise StateNameError(name if name == "" else brief(name), "expected a non-empty string")
    if name in _RESERVED:
        raise StateNameError(name, _RESERVED[name])
    if name.startswith(_RESERVED_PREFIX):
        raise StateNameError(
            name, f"names that begin with {_RESERVED_PREFIX!r} are reserved for Millpond"
        )
    reason = name_fault(name)
    if reason:
        raise StateNameError(name, reason)
    return name


def check_label(argument: str, name: str) -> None:
    """Raise ArgumentValueError for a name that a log, a terminal or a column cannot show."""
    check_text(argument, name)
    reason = name_fault(name) if name else "it is empty"
    if reason:
        raise ArgumentValueError(argument, "a name", f"{brief(name)}: {reason}")


def name_fault(name: str) -> str:
    """Return why a store cannot use a name; empty if it can."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return "it holds a control character"
    too_long = len(name.encode()) > _MAX_NAME_BYTES
    return f"it is longer than {_MAX_NAME_BYTES} bytes" if too_long else ""
