"""The base of the raw states: checks of types, the isolation rule, the current namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from millpond.backend.prepared_namespaces import PreparedNamespaces
from millpond.backend.tables import CellTable, MapTable
from millpond.errors import NullValueError, StateTypeError
from millpond.state.descriptor_base import StateDescriptor
from millpond.state.interfaces import State
from millpond.types import KeyCodec

__all__ = ["RawState"]


class RawState(State):
    """The base of the raw states."""

    _table: CellTable | MapTable

    def __init__(
        self, descriptor: StateDescriptor, namespace_codec: KeyCodec, table: CellTable | MapTable
    ) -> None:
        self._place = f"state {descriptor.name!r}"
        self._namespace_codec = namespace_codec
        self._table = table
        self._serializer = descriptor.value_serializer()
        self._trusted = self._serializer.trusted_type
        self._immutable = self._serializer.immutable
        self._copy = self._serializer.copy
        self._expires = descriptor.ttl_config is not None
        self._namespace: Any = None
        self._prepared = PreparedNamespaces(namespace_codec, self._prepare)

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        self._namespace = self._prepared.of(namespace)

    def _prepare(self, namespace: Any) -> Any:
        if namespace is None:
            raise NullValueError("the namespace", self._place)
        return self._table.prepare_namespace(self._checked(self._namespace_codec.check, namespace))

    def _checked(self, check: Callable[[Any], Any], value: Any) -> Any:
        try:
            return check(value)
        except StateTypeError as error:
            error.place = self._place
            raise

    def _check(self, value: Any, what: str = "an element") -> Any:
        if type(value) is self._trusted:
            return value
        if self._is_null(value):
            raise NullValueError(what, self._place)
        made = self._checked(self._serializer.check, value)
        if self._is_null(made):  # it was pandas' NaT or NA
            raise NullValueError(what, self._place)
        return made

    def _is_null(self, value: Any) -> bool:
        """Return whether a value is None; with TTL, values carry a stamp."""
        return value is None or (self._expires and value[0] is None)

    @override
    def clear(self) -> None:
        if isinstance(self._table, MapTable):
            self._table.clear(self._namespace)
        else:
            self._table.remove(self._namespace)
