"""The base class of all errors, and the form of values in messages."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
from typing_extensions import dataclass_transform, override

_LONGEST = 20_000
"""Messages repeat names and values of users and files, which may have any length."""


@dataclass_transform(eq_default=False, field_specifiers=(attrs.field,))
@attrs.define(eq=False, slots=False)
class MillpondError(Exception):
    """The base class of all errors that Millpond raises on purpose.

    A subclass declares its data as annotated fields. attrs makes them the arguments of its
    constructor, so the error can be pickled. The message is the template ``message``, filled with
    the fields, or the result of ``sentence``.
    """

    message: ClassVar[str] = "Millpond failed."

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        attrs.define(cls, eq=False, slots=False)

    made_at = ""
    """The user's file and line that made the failed operator, if the error names no other line of
    the user; else empty."""

    @override
    def __str__(self) -> str:
        text = self.sentence()
        text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        return printable(
            f"{text} (the operator is made at {self.made_at})" if self.made_at else text
        )

    def sentence(self) -> str:
        """Return the message, built from the fields."""
        return self.message.format_map(vars(self))


def prefix(place: str) -> str:
    """Return the beginning of a message about a place; empty without a place."""
    return f"{place}: " if place else ""


def aside(reason: str) -> str:
    """Return a reason in parentheses, after a space; empty without a reason."""
    return f" ({reason})" if reason else ""


def hint(suggestion: str | None) -> str:
    """Return the question whether a name was misspelled; empty without a suggestion."""
    return f" Did you mean {suggestion!r}?" if suggestion else ""


def printable(text: str) -> str:
    """Return text with control and invisible characters escaped, so that a terminal ignores them.

    Names in files are untrusted. Line ends and tabs remain.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text
    )


def brief(value: Any, limit: int = 120) -> str:
    """Return a short, safe representation of a value for an error message, with its type."""
    return f"{type(value).__name__} {shown(value, limit)}"


def shown(value: Any, limit: int = 120) -> str:
    """Return the representation of a value, cut to a length."""
    try:
        text = f"{value!r}"
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may do anything
        text = f"<repr failed: {said(error)}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def said(error: BaseException) -> str:
    """Return the message of an exception, also if its ``__str__`` fails."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<str failed: {type(failure).__name__}>"
