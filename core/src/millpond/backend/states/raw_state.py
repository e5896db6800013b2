"""The base of the raw states: type checks, isolation, the current namespace, merging."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any

from typing_extensions import override

from millpond.arguments import check_elements, check_type
from millpond.errors import NullValueError, StateTypeError
from millpond.spi.tables import CellTable, MapTable
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import MergingState, State
from millpond.types import KeyCodec, VoidNamespace
from millpond.types.key_codecs import TupleKeyCodec

_MOST = 1000
_LONGEST = 100
_SHORT = frozenset({bool, int, float, date, datetime, type(None), VoidNamespace})
_LASTING = _SHORT | {str, bytes}


class PreparedNamespaces:
    """A cache of prepared namespaces, by the namespace object.

    Row after row comes with the same window objects: checking and encoding one takes 2 µs, this
    look-up 0.08. Objects that can change are not cached.

    Args:
        codec: the codec of the namespaces.
        prepare: makes the prepared form.
    """

    def __init__(self, codec: KeyCodec, prepare: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._prepare = prepare
        # The namespaces are held, so that no other object gets the identity of one.
        self._made: dict[int, tuple[Any, Any]] = {}

    def prepared(self, namespace: Any) -> Any:
        """Return the prepared form of a namespace; raise the errors of ``prepare``."""
        found = self._made.get(id(namespace))
        if found is not None:
            return found[1]
        made = self._prepare(namespace)
        if _lasts(self._codec, namespace):
            if len(self._made) >= _MOST:
                self._made.clear()
            self._made[id(namespace)] = namespace, made
        return made


def _lasts(codec: KeyCodec, value: Any) -> bool:
    """Return whether a value may be cached: it is short, and cannot change as a bytearray can."""
    if isinstance(codec, TupleKeyCodec):  # a tuple, or of a class that is frozen
        parts = codec.split(value)
        return _SHORT.issuperset(map(type, parts)) or all(map(_lasts, codec.parts, parts))
    return type(value) in _LASTING and not (
        isinstance(value, (str, bytes)) and len(value) > _LONGEST
    )


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
        self._namespace = self._prepared.prepared(namespace)

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


class MergesNamespaces(MergingState[Any, Any]):
    """The merging of namespaces by combining stored values; a mixin for ``RawState``."""

    _table: CellTable
    _place: str
    _prepare: Callable[[Any], Any]

    def _combine(self, stored: list[Any]) -> Any:
        """Combine stored values into one; None if, with TTL, all of them have expired.

        The table owns the values, and a running snapshot may read them. Users' functions may
        change both their arguments, so they get copies.
        """
        raise NotImplementedError

    def _moved(self, stored: Any) -> Any:
        """Return a stored value in the form for another namespace."""
        return stored

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge namespaces; change nothing before the users' functions have returned."""
        if sources is None:
            raise NullValueError("the source namespaces", self._place)
        check_type("sources", sources, Iterable)
        check_elements("sources", sources)
        table, into = self._table, self._prepare(target)
        places = dict.fromkeys((into, *[self._prepare(source) for source in sources]))
        found = {place: each for place in places if (each := table.get(place)) is not None}
        if found.keys() <= {into}:
            return
        held = list(found.values())
        merged = self._moved(held[0]) if len(held) == 1 else self._combine(held)
        for place in found:
            table.remove(place)
        if merged is not None:
            table.put(into, merged)
