"""Errors of keys, states and backends."""

from __future__ import annotations

from typing_extensions import override

from millpond.errors.base import MillpondError, aside, prefix


class NullValueError(MillpondError, ValueError):
    """None was given instead of a value."""

    what: str
    place: str = ""

    @override
    def sentence(self) -> str:
        return f"{prefix(self.place)}{self.what} must not be None. Nothing was changed."


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


class StateTypeError(MillpondError, TypeError):
    """A value does not fit the declared type of its state."""

    expected: str
    value: str
    place: str = ""
    reason: str = ""

    @override
    def sentence(self) -> str:
        found = f"expected {self.expected}, got {self.value}{aside(self.reason)}"
        return f"{prefix(self.place)}{found}. Nothing was changed."


class SerializerResultError(MillpondError, TypeError):
    """A serializer of a user or a plugin returned an invalid result.

    Attributes:
        serializer: the name of its class.
        method: the method that returned the result.
        expected: the expected result.
        found: the result.
        place: the state; empty for keys, or if unknown.
    """

    serializer: str
    method: str
    expected: str
    found: str
    place: str = ""

    @override
    def sentence(self) -> str:
        return (
            f"{prefix(self.place)}{self.serializer}.{self.method} returned {self.found}; expected "
            f"{self.expected}. Correct the serializer."
        )


class BulkCallError(MillpondError, ValueError):
    """A bulk call got arguments that do not fit together, or a key that it must not use.

    Attributes:
        state: the state's name; empty if the call concerns no single state.
    """

    state: str
    reason: str

    @override
    def sentence(self) -> str:
        return (
            f"{prefix(self.state and f'state {self.state!r}')}{self.reason}. Nothing was changed."
        )


class StateNameError(MillpondError, ValueError):
    """A state name is empty or reserved."""

    message = "The state name {name!r} is refused: {reason}. Choose another name."

    name: str
    reason: str


class StateConflictError(MillpondError):
    """One state name is used in two ways."""

    message = (
        "The state {name!r} is registered as {registered} and was requested as "
        "{requested}. Use one name for one kind of state."
    )

    name: str
    registered: str
    requested: str


class StateMigrationError(MillpondError):
    """Stored state has another type than declared, and cannot be converted to it.

    Attributes:
        part: ``value``, ``map key``, ``namespace`` or ``key``.
        field: the incompatible field of a structured type; empty if there is none.
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
        return (
            f"State {self.state!r}: its {self.part} type is stored as {self.stored}, declared is "
            f"{self.declared}{where}{aside(self.reason)}. The stored data is unchanged: declare "
            "the stored type, or one it can become."
        )


class NoCurrentKeyError(MillpondError):
    """Keyed state was accessed without a current key."""

    message = (
        "The backend {backend!r} has no current key: call set_current_key() first, or in "
        "a vectorized function at(key) of the state."
    )

    backend: str


class BackendClosedError(MillpondError):
    """A backend was used after it was closed."""

    message = "The backend {backend!r} is closed. Open it again to go on."

    backend: str


class LateChangeError(MillpondError):
    """Operator state was changed in ``close``, after the last snapshot."""

    message = (
        "Operator state {state!r} cannot be changed in close: it comes after the last "
        "snapshot, so the change would be lost. Change it in snapshot_state, or before."
    )

    state: str


class BackendFailedError(MillpondError):
    """A backend may hold half of a change, and can only be closed."""

    backend: str
    cause: str
    place: str = ""

    @override
    def sentence(self) -> str:
        return (
            f"{prefix(self.place)}the backend {self.backend!r} has failed for good: {self.cause}. "
            "Its state may be incomplete: close it, and restore the last snapshot into another one."
        )


class KeyGroupRangeError(MillpondError, ValueError):
    """A key group, a parallelism or a range is out of bounds."""

    message = "{reason}."

    reason: str


class MaxParallelismError(MillpondError):
    """A snapshot was taken with another number of key groups."""

    message = (
        "The snapshot has max-parallelism {stored}, {requested} was requested. It "
        "is fixed for the life of the state: set max-parallelism = {stored}, and at most "
        "that parallelism."
    )

    stored: int
    requested: int
