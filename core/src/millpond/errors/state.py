"""Errors of keys, states and backends."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError


@attrs.define(eq=False, slots=False)
class NullValueError(MillpondError, ValueError):
    """None was given where a value is needed."""

    what: str
    place: str = ""

    @override
    def sentence(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.what} must not be None. Nothing was changed."


@attrs.define(eq=False, slots=False)
class NullKeyError(NullValueError):
    """A row of a keyed stream has a null key."""

    operator_uid: str = ""
    columns: tuple[str, ...] = ()
    row: str = ""

    @override
    def sentence(self) -> str:
        return (
            f"Operator {self.operator_uid!r}: the key ({', '.join(self.columns)}) of this row is "
            f"null: {self.row}. Filter such rows, or choose null_keys='drop' or 'aside'."
        )


@attrs.define(eq=False, slots=False)
class StateTypeError(MillpondError, TypeError):
    """A value does not fit the declared type of its state."""

    expected: str
    value: str
    place: str = ""
    reason: str = ""

    @override
    def sentence(self) -> str:
        where = f"{self.place}: " if self.place else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{where}expected {self.expected}, got {self.value}{why}. Nothing was changed."


@attrs.define(eq=False, slots=False)
class SerializerResultError(MillpondError, TypeError):
    """A serializer of a user or a plugin returned a result that cannot be stored.

    Attributes:
        serializer: the name of its class.
        method: the method that returned it.
        expected: the expected result.
        found: the result.
        place: the state; empty if it is a key, or unknown.
    """

    serializer: str
    method: str
    expected: str
    found: str
    place: str = ""

    @override
    def sentence(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return (
            f"{where}{self.serializer}.{self.method} returned {self.found}; expected "
            f"{self.expected}. Correct the serializer."
        )


@attrs.define(eq=False, slots=False)
class BulkCallError(MillpondError, ValueError):
    """A call for many keys at once was given what does not fit together, or a key not its own.

    Attributes:
        state: its name; empty where the call concerns no single state.
    """

    state: str
    reason: str

    @override
    def sentence(self) -> str:
        where = f"state {self.state!r}: " if self.state else ""
        return f"{where}{self.reason}. Nothing was changed."


@attrs.define(eq=False, slots=False)
class StateNameError(MillpondError, ValueError):
    """A state name is empty or reserved."""

    name: str
    reason: str

    @override
    def sentence(self) -> str:
        return f"The state name {self.name!r} is refused: {self.reason}. Choose another name."


@attrs.define(eq=False, slots=False)
class StateConflictError(MillpondError):
    """One state name is used in two ways."""

    name: str
    registered: str
    requested: str

    @override
    def sentence(self) -> str:
        return (
            f"The state {self.name!r} is registered as {self.registered} and was requested as "
            f"{self.requested}. Use one name for one kind of state."
        )


@attrs.define(eq=False, slots=False)
class StateMigrationError(MillpondError):
    """Stored state has another type than the one declared, and cannot be brought to it.

    ``part`` is ``value``, ``map key``, ``namespace`` or ``key``; ``field`` names the field of a
    structured type that is the reason.
    """

    state: str
    part: str
    stored: str
    declared: str
    field: str = ""
    reason: str = ""

    @override
    def sentence(self) -> str:
        where = f", field {self.field!r}" if self.field else ""
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"State {self.state!r}: its {self.part} type is stored as {self.stored}, declared is "
            f"{self.declared}{where}{why}. The stored data is unchanged: declare the stored type, "
            "or one it can become."
        )


@attrs.define(eq=False, slots=False)
class NoCurrentKeyError(MillpondError):
    """Keyed state was accessed without a current key."""

    backend: str

    @override
    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} has no current key: call set_current_key() first, or in "
            "a vectorized function at(key) of the state."
        )


@attrs.define(eq=False, slots=False)
class BackendClosedError(MillpondError):
    """A backend was used after it was closed."""

    backend: str

    @override
    def sentence(self) -> str:
        return f"The backend {self.backend!r} is closed. Open it again to go on."


@attrs.define(eq=False, slots=False)
class LateChangeError(MillpondError):
    """Operator state was to be changed in ``close``, after the last snapshot."""

    state: str

    @override
    def sentence(self) -> str:
        return (
            f"Operator state {self.state!r} cannot be changed in close: it comes after the last "
            "snapshot, so the change would be lost. Change it in snapshot_state, or before."
        )


@attrs.define(eq=False, slots=False)
class BackendFailedError(MillpondError):
    """A backend may hold half of a change, and refuses everything but to be closed."""

    backend: str
    cause: str
    place: str = ""

    @override
    def sentence(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return (
            f"{where}the backend {self.backend!r} has failed for good: {self.cause}. What it holds "
            "may be incomplete: close it, and restore the last snapshot into another one."
        )


@attrs.define(eq=False, slots=False)
class KeyGroupRangeError(MillpondError, ValueError):
    """A key group, a parallelism or a range is out of bounds."""

    reason: str

    @override
    def sentence(self) -> str:
        return f"{self.reason}."


@attrs.define(eq=False, slots=False)
class MaxParallelismError(MillpondError):
    """A snapshot was taken with another number of key groups."""

    stored: int
    requested: int

    @override
    def sentence(self) -> str:
        return (
            f"The snapshot has max-parallelism {self.stored}, {self.requested} was requested. It "
            f"is fixed for the life of the state: set max-parallelism = {self.stored}, and at most "
            "that parallelism."
        )
