"""Checks of the names of states, side outputs and metrics."""

from __future__ import annotations

import unicodedata
from typing import Any, Literal

from millpond.arguments import check_text
from millpond.errors import ArgumentValueError, StateNameError, brief

Scope = Literal["keyed", "list", "broadcast"]
"""A kind of state within which names are unique: keyed, operator list or broadcast."""

_MAX_NAME_BYTES = 255
_RESERVED_PREFIX = "_millpond"


def check_state_name(name: Any) -> str:
    """Return `name`; raise an error if it cannot be the name of a state.

    Raises:
        StateNameError: the name is empty, too long, reserved, or has control characters.
    """
    if not isinstance(name, str) or not name:
        raise StateNameError(name if name == "" else brief(name), "expected a non-empty string")
    if name == "default":
        raise StateNameError(name, "it is the name of the column family that every store has")
    if name.startswith(_RESERVED_PREFIX):
        raise StateNameError(
            name, f"names that begin with {_RESERVED_PREFIX!r} are reserved for Millpond"
        )
    reason = name_fault(name)
    if reason:
        raise StateNameError(name, reason)
    return name


def check_label(argument: str, name: str) -> None:
    """Raise ArgumentValueError if `name` is empty, too long, or has control characters.

    `argument` is the name of the argument, for the error.
    """
    check_text(argument, name)
    reason = name_fault(name) if name else "it is empty"
    if reason:
        raise ArgumentValueError(argument, "a name", f"{brief(name)}: {reason}")


def name_fault(name: str) -> str:
    """Return the reason why a state cannot have this name, or '' if it can."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return "it has a control character"
    too_long = len(name.encode()) > _MAX_NAME_BYTES
    return f"it is longer than {_MAX_NAME_BYTES} bytes" if too_long else ""
