"""The states and timers of one subtask, for functions, operators and wrappers of states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from typing_extensions import TypeVar, override

from millpond.arguments import check_type, unstarted_kind
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


class StatesOfKeys(Protocol):
    """The states and timers that functions reach by their contexts."""

    @property
    def current(self) -> CurrentKey:
        """The current key, in the form that the tables take."""

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = ...,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """Return the state of a descriptor, set to a namespace; make it at the first request."""

    def timer_queue(self, domain: str, namespace_type: DeclaredKeyType[Any] = ...) -> TimerQueue:
        """Return the timers of a time domain; make the queue at the first request."""

    def has_timers(self, domain: str) -> bool:
        """Return whether there is a queue of a domain, requested or restored."""

    def apply_to_all_keys(
        self, descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
    ) -> None:
        """Call ``function(key, state)``, which may change it, for every key."""


class SubtaskStates(Closeable, TableSource):
    """The states and timers of one subtask; a context manager.

    A ``KeyedStateBackend`` adds snapshots and restores. A ``SingleKeyBackend``, for input that is
    sorted by key, has none.

    Args:
        rows: the store of restored states until they are requested; None if nothing is restored.

    Attributes:
        parameters: the parameters of its opening.
        max_parallelism: the number of key groups of the whole operator.
        key_group_range: the key groups of this subtask.
        current: the current key, in the form that the tables use.
        states: the registered and restored states.
        sweeper: removes expired entries.
        metrics: the metrics of the states.
        operator_state: the subtask's operator state, if it has any.
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
        self.sweeper = Sweeper(parameters.clock)
        self.states = StateRegistry(parameters, current, self.sweeper, self, rows)
        self.metrics = MetricRegistry()
        self.operator_state: OperatorStateBackend | None = None

    def set_current_key(self, key: Any) -> None:
        """Choose the key that all states work on.

        Raises:
            NullValueError: the key is None.
            StateTypeError: it is not of the declared key type.
            KeyGroupRangeError: its key group belongs to another subtask.
        """
        if key is None:
            raise NullValueError("the key", str(self.parameters.operator))
        current = self.current
        checked, key_group = current.codec.check_with_group(key, self.max_parallelism)
        current.select(checked, key_group)

    @property
    def current_key(self) -> Any:
        """The current key; NoCurrentKeyError if none is set."""
        return self.current.key

    def require_open(self) -> None:
        """Raise BackendClosedError once the backend is closed, BackendFailedError if it failed."""
        self.current.require_open()

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = VOID_NAMESPACE,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """Return the state of a descriptor, set to a namespace; make it at the first request.

        An equal descriptor gives the same object again. Another descriptor of the same types gives
        an object with its functions, over the same entries.

        Raises:
            StateConflictError: the name is used for another kind of state.
            StateMigrationError: stored state has another type.
            NullValueError: the namespace is None.
        """
        self.current.require_open()
        return self.states.state(descriptor, namespace, namespace_type)

    def timer_queue(
        self, domain: str, namespace_type: DeclaredKeyType[Any] = VoidNamespace
    ) -> TimerQueue:
        """Return the timers of a time domain, which are part of every snapshot.

        ``namespace_type`` is the type of the timers' namespaces, the same at each request.

        Raises:
            StateMigrationError: the timers were stored in another form.
        """
        self.current.require_open()
        return self.states.timer_queue(domain, namespace_type)

    def has_timers(self, domain: str) -> bool:
        """Return whether there is a queue of a domain, requested or restored."""
        return self.states.has_timers(domain)

    def table_of(self, name: str) -> Any:
        """Return the table of a state under registration; for ``millpond_create_state``."""
        return self.states.exposed_table(name)

    def keep_journal(self) -> Journal:
        """Return the journal of the rows. Call it before the first state is requested."""
        self.states.journal = self.states.journal or Journal(self.current)
        return self.states.journal

    @override
    def make_state(self, registered: RegisteredState) -> Any:
        return self.parameters.registry.make_state(self, registered)

    # ---------------------------------------------------------------- enumeration

    def keys(self, state_name: str, namespace: Any = VOID_NAMESPACE) -> Iterator[Any]:
        """Iterate over the keys that have an entry in a state and namespace, in any order.

        Keys whose entries have expired are among them until the entries are cleaned up. In a
        namespace of another type than the state's there are no keys.
        """
        codec = self._namespaces(state_name)
        if codec is None:
            return
        try:
            wanted = codec.check(namespace)
        except (StateTypeError, NullValueError):
            return  # Python may call a namespace of another type equal
        same = _sameness(codec, wanted)
        for key, found in self.addresses(state_name, codec):
            if same(found):
                yield key

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """Iterate over all pairs of key and namespace that have an entry in a state, as ``keys``.

        In a state that is restored and not requested yet, namespaces of attrs classes are tuples.
        """
        codec = self._namespaces(state_name)
        if codec is not None:
            yield from self.addresses(state_name, codec)

    def _namespaces(self, state_name: str) -> KeyCodec | None:
        """Return the codec of a state's namespaces; None if there is no such state."""
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
        """Call ``function(key, state)``, which may change it, for every key of a namespace.

        Raises:
            ArgumentTypeError: the function has a ``yield``, so the call did not run it.
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
        """Count the entries: one per state, key and namespace; map entries singly.

        Expired entries count until they are cleaned up.
        """
        self.current.require_open()
        return self.count_entries()


def _sameness(codec: KeyCodec, wanted: Any) -> Callable[[Any], bool]:
    """Return a function that compares a checked namespace with the wanted one, by their bytes."""
    if codec.exact:
        return lambda found: bool(found is wanted or found == wanted)  # NaN is not equal to itself
    encoded = codec.encode(wanted)
    return lambda found: codec.encode(found) == encoded
