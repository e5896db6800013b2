"""The states and timers of one subtask, as functions, operators and wrappers use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from typing_extensions import TypeVar, override

from millpond.arguments import check_type, moment_ms, unstarted_kind
from millpond.backend.bulk_keys import checked_key
from millpond.backend.journal import Journal
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.state_registry import StateRegistry
from millpond.backend.timer_queue import TimerQueue
from millpond.backend.ttl_sweep import Sweeper
from millpond.closeable import Closeable
from millpond.errors import ArgumentTypeError, NullValueError, StateTypeError, brief
from millpond.spi.backend import EntryStore, RegisteredState, TableSource
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import KeyedBackendParameters
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.interfaces import State
from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.types import VOID_NAMESPACE, DeclaredKeyType, KeyCodec, VoidNamespace
from millpond.types.key_columns import codec_from_snapshot

S = TypeVar("S", bound=State, default=Any)


class SubtaskStates(Closeable, TableSource):
    """The states and timers of one subtask. It is a context manager.

    ``KeyedStateBackend`` adds snapshots and restores. ``SingleKeyBackend``, for input that is
    sorted by key, has neither.

    Args:
        rows: the backend that contains the rows of restored states; None if it cannot restore
            states.

    Attributes:
        parameters: the parameters with which the backend was opened.
        max_parallelism: the number of key groups of the whole operator.
        key_group_range: the key groups of this subtask.
        current: the current key.
        states: the requested and restored states.
        sweeper: removes expired entries.
        metrics: the metrics of the states' operations.
        operator_state: the subtask's operator state, or None.
    """

    def __init__(
        self,
        parameters: KeyedBackendParameters,
        current: CurrentKey,
        rows: EntryStore | None = None,
    ) -> None:
        self.parameters = parameters
        self.max_parallelism = parameters.max_parallelism
        self.key_group_range = parameters.key_group_range
        self.current = current
        self.sweeper = Sweeper()
        self.states = StateRegistry(parameters, current, self.sweeper, self, rows)
        self.metrics = MetricRegistry()
        self.operator_state: OperatorStateBackend | None = None

    def set_current_key(self, key: Any) -> None:
        """Make `key` the current key, which all states read and write.

        Raises:
            NullValueError: `key` is None.
            StateTypeError: `key` is not of the declared key type.
            KeyGroupRangeError: the key group of `key` belongs to another subtask.
        """
        if key is None:
            raise NullValueError("the key", str(self.parameters.operator))
        current = self.current
        checked, key_group = current.codec.check_with_group(key, self.max_parallelism)
        current.select(checked, key_group)

    def advance_watermark(self, ms: int) -> None:
        """Raise the watermark to `ms`, by which states with ``TtlTime.EVENT_TIME`` expire.

        Ignore a lower watermark. Operators call this method themselves. If you open a backend
        without an operator, call it to let such entries expire. Timers do not fire.
        """
        self.require_open()
        self.parameters.event_time.advance(moment_ms("ms", ms))

    @property
    def current_key(self) -> Any:
        """The current key; raises NoCurrentKeyError if there is none."""
        return self.current.key

    def require_open(self) -> None:
        """Raise BackendClosedError if the backend is closed, BackendFailedError if it failed."""
        self.current.require_open()

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = VOID_NAMESPACE,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """Return the state of a descriptor, with `namespace` as its current namespace.

        The first request creates the state. A request with an equal descriptor returns the same
        object. If the descriptor has other functions but the same types, the result is another
        object with these functions, over the same entries.

        Raises:
            StateConflictError: the name is used for another kind of state.
            StateMigrationError: the stored state is of another type.
            NullValueError: `namespace` is None.
        """
        self.current.require_open()
        return self.states.state(descriptor, namespace, namespace_type)

    def timer_queue(
        self, domain: str, namespace_type: DeclaredKeyType[Any] = VoidNamespace
    ) -> TimerQueue:
        """Return the timers of a time domain, which are part of every snapshot.

        Args:
            domain: the time domain.
            namespace_type: the type of the timers' namespaces, which must be the same in each
                request.

        Raises:
            StateMigrationError: the stored timers have another type of namespace.
        """
        self.current.require_open()
        return self.states.timer_queue(domain, namespace_type)

    def has_timers(self, domain: str) -> bool:
        """Return whether the time domain `domain` has a timer queue.

        This includes a restored queue that no function has requested.
        """
        return self.states.has_timers(domain)

    def table_of(self, name: str) -> Any:
        """Return the table that a plugin's new state must use, in ``millpond_create_state``.

        `name` is the name of the state.
        """
        return self.states.exposed_table(name)

    def keep_journal(self) -> Journal:
        """Return the journal, which undoes the changes of a row.

        This must be called before the first state is requested.
        """
        self.states.journal = self.states.journal or Journal(self.current)
        return self.states.journal

    @override
    def make_state(self, registered: RegisteredState) -> Any:
        return self.parameters.registry.make_state(self, registered)

    # ---------------------------------------------------------------- enumeration

    def keys(self, state_name: str, namespace: Any = VOID_NAMESPACE) -> Iterator[Any]:
        """Iterate, in any order, over the keys with an entry in this state and namespace.

        A key whose entries have expired is included until the entries are removed. If `namespace`
        is not of the state's namespace type, there are no keys.
        """
        codec = self._namespaces(state_name)
        if codec is None:
            return
        try:
            wanted = codec.check(namespace)
        except (StateTypeError, NullValueError):
            return  # without this check, Python could find a namespace of another type equal
        same = _sameness(codec, wanted)
        for key, found in self.addresses(state_name, codec):
            if same(found):
                yield key

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """Iterate over the pairs of key and namespace with an entry in this state.

        A pair whose entries have expired is included until the entries are removed. If the state
        was restored but no function has requested it, namespaces of attrs classes are returned as
        tuples.
        """
        codec = self._namespaces(state_name)
        if codec is not None:
            yield from self.addresses(state_name, codec)

    def _namespaces(self, state_name: str) -> KeyCodec | None:
        """Return the codec of a state's namespaces, or None if there is no such state."""
        self.current.require_open()
        check_type("state_name", state_name, str)
        registered = self.states.known(state_name)
        if registered is not None:
            return registered.namespace_codec
        stored = self.states.restored.get(state_name)
        if stored is None or stored.kind is StateKind.TIMER:
            return None
        return codec_from_snapshot(stored.namespace)

    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor[S],
        function: Callable[[Any, S], None],
        namespace: Any = VOID_NAMESPACE,
    ) -> None:
        """Call ``function(key, state)`` for every key of a namespace.

        The function may change the state.

        Raises:
            ArgumentTypeError: `function` contains a ``yield``, so that a call would not run it.
        """
        check_type("function", function, Callable)
        state = self.get_partitioned_state(descriptor, namespace)
        with self.current.restoring():
            for key in list(self.keys(descriptor.name, namespace)):
                self.current.select(*checked_key(self.current, key))
                state.set_current_namespace(namespace)
                given: Any = function(key, state)  # type: ignore[func-returns-value]
                if unstarted_kind(given):
                    expected = "a function that runs when it is called, with no yield in it"
                    raise ArgumentTypeError("function", expected, brief(given))

    def num_state_entries(self) -> int:
        """Return the number of entries of all states. Each entry of a map counts as one.

        Expired entries count until they are removed.
        """
        self.current.require_open()
        return self.count_entries()


def _sameness(codec: KeyCodec, wanted: Any) -> Callable[[Any], bool]:
    """Return a function that compares a checked namespace with `wanted` by their bytes."""
    if codec.exact:
        return lambda found: bool(found is wanted or found == wanted)  # NaN is not equal to itself
    encoded = codec.encode(wanted)
    return lambda found: codec.encode(found) == encoded
