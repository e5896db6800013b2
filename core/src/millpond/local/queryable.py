"""The queryable-state client: a read-only view of the committed state of a job."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

import attrs
from typing_extensions import override

from millpond.arguments import INT64, check_type, check_within, checked
from millpond.backend import KeyedStateBackend
from millpond.closeable import Closeable
from millpond.config import Config
from millpond.errors import (
    BackendClosedError,
    IncompleteCheckpointError,
    MillpondError,
    RestoreError,
    StateNameError,
)
from millpond.operator.opening import open_keyed_backend
from millpond.plugins import get_registry
from millpond.snapshots.catalog import (
    OperatorCheckpoint,
    only_operator,
    operator_named,
    read_checkpoints,
)
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.restore import catch_up, newest_states
from millpond.snapshots.spark_checkpoint import last_batch, query_id
from millpond.spi.byte_store import named
from millpond.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import public_uri
from millpond.types import VOID_NAMESPACE, SerializerSnapshot, TypeSerializer
from millpond.types.key_columns import codec_from_snapshot
from millpond.types.value_columns import column_form


class StoredValue(TypeSerializer[Any]):
    """A serializer that only reads: it returns plain Python values, without the job's classes."""

    immutable = True
    type_name = "stored"

    def __init__(self, snapshot: SerializerSnapshot) -> None:
        self._snapshot = snapshot
        self._decode = column_form(snapshot, exact=False).to_column
        self._decode_exactly = column_form(snapshot, exact=True).to_column

    @override
    def check(self, value: Any) -> Any:
        return value

    @override
    def serialize(self, value: Any) -> bytes:
        """Raise an error, because the client never writes state."""
        raise NotImplementedError

    @override
    def deserialize(self, data: bytes) -> Any:
        """Decode a value to plain Python values.

        If that fails, decode it in the exact form, in which numbers are strings of digits, for
        example an int beyond 64 bits.
        """
        try:
            return self._decode(data)
        except Exception:  # noqa: BLE001 - as in tables, the exact form is the second attempt
            return self._decode_exactly(data)

    @override
    def snapshot(self) -> SerializerSnapshot:
        return self._snapshot


class _Accumulator(AggregateFunction[Any, Any, Any]):
    """An aggregate function for reading, whose result is the accumulator itself."""

    @override
    def create_accumulator(self) -> Any:
        return None

    @override
    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator

    @override
    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    @override
    def merge(self, a: Any, b: Any) -> Any:
        return a


def _second(a: Any, b: Any) -> Any:  # noqa: ARG001 - the shape of a fold
    return b


def stored_descriptor(meta: StateMeta) -> StateDescriptor:
    """Return a descriptor that reads the stored state that ``meta`` describes."""
    values = StoredValue(meta.value)
    if meta.kind is StateKind.MAP:
        assert meta.map_key is not None
        return MapStateDescriptor(meta.name, codec_from_snapshot(meta.map_key), values)
    match meta.kind:
        case StateKind.VALUE:
            return ValueStateDescriptor(meta.name, values)
        case StateKind.LIST:
            return ListStateDescriptor(meta.name, values)
        case StateKind.REDUCING:
            return ReducingStateDescriptor(meta.name, _second, values)
        case StateKind.AGGREGATING:
            return AggregatingStateDescriptor(meta.name, _Accumulator(), values)
        case _:
            return FoldingStateDescriptor(meta.name, 0, _second, values)


@attrs.define
class _Replica:
    """A copy of one subtask's state: a backend with a directory and a restored snapshot."""

    handle: KeyedStateHandle
    backend: KeyedStateBackend
    directory: Path

    def close(self) -> None:
        """Close the backend and delete its files."""
        self.backend.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def follow(self, handle: KeyedStateHandle) -> bool:
        """Apply the changes up to the later snapshot ``handle``.

        Return False if the snapshot must be restored as a whole instead.
        """
        if handle.key_group_range != self.handle.key_group_range:
            return False
        try:
            done = catch_up(self.backend, handle)
        except MillpondError:
            return False
        if done:
            self.handle = handle
        return done


class QueryableStateClient(Closeable):
    """A context manager that answers queries by key from the last committed state of a job.

    Args:
        snapshots: the job's ``checkpoint.dir``.
        checkpoint: the query's ``checkpointLocation``, which records Spark's commits. Without this
            argument the newest snapshots count as committed.
        operator: the operator's uid. It may be omitted if there is only one operator.
        backend: the name of the backend that holds the client's copy of the state.
        directory: the directory of that copy; a temporary one by default.
        refresh_after_ms: the age in ms of the last refresh from which a query refreshes first.
        config: further configuration.

    Raises:
        RestoreError, CorruptSnapshotError: no snapshot is committed yet, or a snapshot cannot be
            read.
    """

    @checked
    def __init__(
        self,
        snapshots: str | PathLike[str],
        *,
        checkpoint: str | PathLike[str] | None = None,
        operator: str | None = None,
        backend: str = "heap",
        directory: str | PathLike[str] | None = None,
        refresh_after_ms: int = 1000,
        config: Config | None = None,
    ) -> None:
        self._config = config or Config()
        registry = get_registry(self._config.plugins)
        self._snapshots = registry.savepoint(snapshots, self._config).storage
        self._checkpoint = (
            None if checkpoint is None else registry.savepoint(checkpoint, self._config).storage
        )
        self._uid = operator
        self._backend_name = backend
        check_within("refresh_after_ms", refresh_after_ms, 0, INT64[1])
        self._refresh_after = refresh_after_ms / 1000
        self._resources = ExitStack()
        if directory is None:
            with named(backend, "the directory for temporary files (TMPDIR)"):
                # A failure to delete the directory must not hide an earlier error.
                made = tempfile.TemporaryDirectory(prefix="millpond-", ignore_cleanup_errors=True)
                directory = self._resources.enter_context(made)
        self._folder = Path(directory)
        self._replicas: list[_Replica] = []
        self._states: dict[str, StateMeta] = {}
        self._opened = 0
        self._closed = False
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    @override
    def close(self) -> None:
        """Close the client's copies of the state and delete their files; may be called twice."""
        self._closed = True
        _close(self._replicas)
        self._replicas = []
        self._resources.close()

    # ---------------------------------------------------------------- versions

    def refresh(self) -> int:
        """Advance the client's copy of the state to the last committed version.

        Returns:
            The checkpoint id of that version; on Spark the batch id plus one.

        Raises:
            BackendClosedError: the client is closed.
            RestoreError, CorruptSnapshotError: the version cannot be read. The next query may then
                have to restore the whole state.
        """
        self._check_open()
        handles = [replica.handle for replica in self._replicas]
        try:
            found = self._committed()
            parts, states = found.parts, newest_states(found.operator.label, found.parts)
        except IncompleteCheckpointError:
            if not handles or self._checkpoint is not None:
                raise
            # Without Spark's commits, an unfinished snapshot looks like a damaged snapshot.
            parts, states = handles, self._states
        if handles != parts:
            self._advance(parts)
        self._states, self._looked = states, time.monotonic()
        return parts[0].checkpoint_id

    def _check_open(self) -> None:
        if self._closed:
            raise BackendClosedError("the client of queryable state")

    def _advance(self, handles: list[KeyedStateHandle]) -> None:
        """Replace the replicas by replicas of the snapshots ``handles``.

        If this fails for a snapshot, close all replicas.
        """
        known = {replica.handle.key_group_range: replica for replica in self._replicas}
        self._replicas = []
        advanced: list[_Replica] = []
        try:
            for handle in handles:
                advanced.append(self._at(handle, known))  # noqa: PERF401 - a failure closes them
        except BaseException:
            _close(advanced)
            raise
        finally:
            _close(known.values())
        self._replicas = advanced

    def _committed(self) -> OperatorCheckpoint:
        """Return the operator's last committed checkpoint."""
        where = public_uri(self._snapshots.uri)
        query = last = None
        if self._checkpoint is not None:
            query, last = query_id(self._checkpoint), last_batch(self._checkpoint) + 1
        wanted = operator_named(self._uid, query)
        found = {each.operator: each for each in read_checkpoints(self._snapshots, last, wanted)}
        if not found:
            raise RestoreError(where, ("it holds no snapshots",))
        return found[only_operator(found, self._uid, where)]

    def _at(self, handle: KeyedStateHandle, known: dict[Any, _Replica]) -> _Replica:
        """Advance a known replica of the same key groups to a snapshot, or open a new replica.

        Args:
            handle: the snapshot.
            known: the replicas by key-group range. A replica that is advanced is removed from this
                dict.
        """
        replica = known.get(handle.key_group_range)
        if replica is not None and replica.follow(handle):
            return known.pop(handle.key_group_range)
        self._opened += 1
        directory = self._folder / str(self._opened)
        opened = open_keyed_backend(
            self._backend_name,
            key_type=codec_from_snapshot(handle.key),
            max_parallelism=handle.max_parallelism,
            key_group_range=handle.key_group_range,
            directory=directory,
            restore=[handle],
            config=self._config,
            place="queryable-state",
        )
        made = _Replica(handle, opened, directory)
        try:
            opened.flush(handle.version)
        except BaseException:
            made.close()
            raise
        return made

    # ---------------------------------------------------------------- queries

    def names(self) -> list[str]:
        """Return the query names of all published states."""
        return sorted({meta.query_name for meta in self._states.values() if meta.query_name})

    def get(self, query_name: str, key: Any, namespace: Any = VOID_NAMESPACE) -> Any:
        """Return the state of ``key`` as plain Python values.

        Structured values are dictionaries by field. A map state is returned as a dictionary, a list
        state as a list, an aggregating state as its accumulator.

        Args:
            query_name: the name that the job has passed to ``set_queryable``.
            key: the key; a tuple for several key columns.
            namespace: the namespace, if the state has namespaces.

        Returns:
            The state; None, ``[]`` or ``{}`` if the key has no state.

        Raises:
            StateNameError: no state is published under that name, or several are.
            StateTypeError: the key or namespace is not of the state's type.
            NullValueError: the key or namespace is None.
            BackendClosedError: the client is closed.
            RestoreError, CorruptSnapshotError: a newer version cannot be read; see ``refresh``.
        """
        check_type("query_name", query_name, str)
        self._check_open()
        if not self._replicas or time.monotonic() - self._looked > self._refresh_after:
            self.refresh()
        meta = self._published(query_name)
        handle = self._replicas[0].handle
        codec = codec_from_snapshot(handle.key)
        checked, group = codec.check_with_group(key, handle.max_parallelism)
        fitting = (each for each in self._replicas if group in each.handle.key_group_range)
        replica = next(fitting, None)
        if replica is None or meta.name not in {m.name for m in replica.backend.state_metas()}:
            return {StateKind.MAP: {}, StateKind.LIST: []}.get(meta.kind)
        replica.backend.set_current_key(checked)
        state = replica.backend.get_partitioned_state(
            stored_descriptor(meta), namespace, codec_from_snapshot(meta.namespace)
        )
        if meta.kind is StateKind.MAP:
            return dict(state.items())
        return state.value() if meta.kind is StateKind.VALUE else state.get()

    def _published(self, query_name: str) -> StateMeta:
        """Return the state that is published as ``query_name``.

        Raises:
            StateNameError: no state is published under that name, or several are.
        """
        found = [
            meta for meta in self._states.values() if query_name and meta.query_name == query_name
        ]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(repr(meta.name) for meta in found)
            raise StateNameError(query_name, f"the states {names} are all published under it")
        known = ", ".join(self.names()) or "none"
        raise StateNameError(query_name, f"no state is published under it; there are: {known}")


def _close(replicas: Iterable[_Replica]) -> None:
    for replica in replicas:
        replica.close()
