"""The physical keys of stored entries, the current key, and the keys of a bulk call.

The physical key of an entry consists of the key group, the key, the namespace and, for a map, the
map key.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from millpond.errors import (
    BackendClosedError,
    BackendFailedError,
    KeyGroupRangeError,
    MillpondError,
    NoCurrentKeyError,
    brief,
)
from millpond.keygroups import key_group_prefix_bytes
from millpond.safe_decoding import unreadable
from millpond.spi.parameters import KeyedBackendParameters
from millpond.types import KeyCodec, PicklePermission


def end_of_prefix(prefix: bytes) -> bytes | None:
    """Return the least bytes that sort after all bytes with this prefix; None if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class Address(NamedTuple):
    """The key and the namespace in a physical key, and the position after each."""

    key: Any
    key_end: int
    namespace: Any
    namespace_end: int


class KeyLayout:
    """The form of an operator's physical keys, which depends on the number of key groups.

    Attributes:
        group_bytes: the number of leading bytes that contain the key group: 1 for up to 128 key
            groups, else 2.
    """

    def __init__(self, max_parallelism: int) -> None:
        self.group_bytes = key_group_prefix_bytes(max_parallelism)

    def group_prefix(self, key_group: int) -> bytes:
        """Return the bytes with which all physical keys of a key group begin."""
        return key_group.to_bytes(self.group_bytes, "big")

    def end_of_group(self, key_group: int) -> bytes | None:
        """Return the least bytes that sort after all physical keys of a key group, or None."""
        return end_of_prefix(self.group_prefix(key_group))

    def group_of(self, physical: bytes) -> int:
        """Return the key group of a physical key."""
        return int.from_bytes(physical[: self.group_bytes], "big")

    def parse(
        self, physical: bytes, keys: KeyCodec, namespaces: KeyCodec, skip: int = 0
    ) -> Address:
        """Return the key and the namespace in the physical key `physical`.

        Args:
            physical: the physical key.
            keys: the codec of the keys.
            namespaces: the codec of the namespaces.
            skip: the number of bytes between the key group and the key. Timers have a timestamp
                there.
        """
        key, key_end = keys.decode(physical, self.group_bytes + skip)
        namespace, namespace_end = namespaces.decode(physical, key_end)
        return Address(key, key_end, namespace, namespace_end)

    def addresses(
        self, physical: Iterable[bytes], keys: KeyCodec, namespaces: KeyCodec
    ) -> Iterator[tuple[Any, Any]]:
        """Iterate over the pairs of key and namespace in physical keys.

        Adjacent physical keys with the same key and namespace, such as the entries of one map,
        yield one pair.

        Raises:
            CorruptSnapshotError: a physical key cannot be decoded.
        """
        last = None
        for row in physical:
            try:
                address = self.parse(row, keys, namespaces)
            except Exception as error:
                raise unreadable("", "", row, error) from error
            if row[: address.namespace_end] != last:
                last = row[: address.namespace_end]
                yield address.key, address.namespace


class CurrentKey:
    """The current key of a backend, which all states read and write.

    If there is no current key, the object knows the reason. A backend derives its own class if its
    tables need the key in another form. ``select`` and ``_choose`` run for every key in a frame of
    rows. All other methods run rarely.

    Attributes:
        backend: the name of the backend.
        operator: the operator that owns the state.
        pickles: the permission to decode pickled bytes.
        codec: the codec that encodes, checks and hashes keys.
        layout: the form of physical keys.
        key_group_range: the key groups of this subtask.
        group_prefixes: for each key group of this subtask, the bytes with which its physical keys
            begin.
        key_or_none: the current key; None if there is none.
        key_group: the key group of the current key; None if there is no current key.
        address: the current key in the form that the backend's tables use, by default the key
            itself; None if there is no current key.
        prepares: whether ``select`` must call ``_choose``.
        max_parallelism: the number of key groups of the whole operator.
        frame: the keys of the frame of rows that is being processed; None outside a frame.
        closed: whether every use of the backend raises an error.
    """

    def __init__(self, backend: str, parameters: KeyedBackendParameters) -> None:
        self.backend = backend
        self.operator = parameters.operator
        self.pickles = PicklePermission(
            parameters.config.serialization.allow_pickle, outside=bool(parameters.reuse_versions)
        )
        self.codec = parameters.key_codec.bind(self.pickles)
        self.layout = KeyLayout(parameters.max_parallelism)
        self.key_group_range = parameters.key_group_range
        self.group_prefixes = {
            group: self.layout.group_prefix(group) for group in self.key_group_range
        }
        self.key_or_none: Any = None
        self.key_group: int | None = None
        self.address: Any = None
        own, plain = type(self), CurrentKey
        self.prepares = own._choose is not plain._choose or own.select is not plain.select  # noqa: SLF001 - its own
        self.max_parallelism = parameters.max_parallelism
        self.frame: Any = None  # a ``Frame``, whose module imports this one
        self._failure: BaseException | None = None
        self._reason: Callable[[], MillpondError] | None = None
        self.closed = False

    def expect_outside_bytes(self) -> None:
        """Decode pickles only if the configuration allows it, because bytes from outside follow.

        Such bytes come from a snapshot, a savepoint or another process.

        Raises:
            ConfigError: the keys are pickled, and the configuration does not allow pickle.
        """
        self.pickles.outside = True
        self.codec = self.codec.bind(self.pickles)

    # ---------------------------------------------------------------- the key

    def select(self, key: Any, key_group: int) -> None:
        """Make `key` the current key. The caller must have checked it and computed its key group.

        Raises:
            KeyGroupRangeError: the key group belongs to another subtask.
        """
        if self.closed:
            raise self.refusal()
        if key_group not in self.group_prefixes:
            raise KeyGroupRangeError(self.foreign_key_message(key, key_group))
        self.key_or_none = self.address = key
        self.key_group = key_group
        if self.prepares:
            try:
                self._choose(key, key_group)
            except BaseException:
                self.forget()
                raise

    def _choose(self, key: Any, key_group: int) -> None:
        """Prepare for reads and writes of `key`: set the attribute ``address``.

        If this raises an error, there is no current key afterwards.
        """

    def prefetch(self, keys: Sequence[Any], groups: Sequence[int]) -> None:
        """Prepare for the keys of the next rows.

        This is only a hint: ``select`` accepts any key. Override this method if encoding many keys
        together, or reading their entries together, is faster.

        Args:
            keys: the checked keys, in the order of the rows.
            groups: the key group of each key.
        """

    def foreign_key_message(self, key: Any, key_group: int) -> str:
        """Return the error message for a key whose key group belongs to another subtask."""
        return (
            f"{str(self.operator) or self.backend}: key {brief(key)} has key group "
            f"{key_group}, this subtask owns {self.key_group_range}"
        )

    def addresses(self, keys: list[Any], groups: list[int]) -> list[Any]:
        """Return each key in the form that the backend's tables use; see the attribute ``address``.

        By default this is the encoded key with the prefix of its key group. Different keys must
        have different addresses.

        Args:
            keys: the checked keys.
            groups: the key group of each key.
        """
        prefixes = map(self.group_prefixes.__getitem__, groups)
        return list(map(operator.add, prefixes, self.codec.encode_many(keys)))

    def forget(self) -> None:
        """Unset the current key."""
        self.key_or_none = self.address = self.key_group = None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Restore the current key at the end of the ``with`` block, which may select other keys.

        If there was no current key before, or if the backend was closed, there is none afterwards.
        """
        before, group = self.key_or_none, self.key_group
        try:
            yield
        finally:
            if self.key_or_none is not before:
                self.return_to(before, group)

    def return_to(self, before: Any, group: int | None) -> None:
        """Make the earlier key `before`, with key group `group`, the current key again.

        If `before` or `group` is None, unset the current key.
        """
        if before is None or group is None or self.closed:
            self.forget()
        else:
            self.select(before, group)

    @property
    def key(self) -> Any:
        """The current key; raises NoCurrentKeyError if there is none."""
        if self.key_or_none is None:
            raise self.no_key_error()
        return self.key_or_none

    def check_reach(self, key: Any) -> None:
        """Raise an error if a bulk call cannot access the state of `key`. By default do nothing.

        Raises:
            BulkCallError: the backend stores the state of one key at a time, and `key` is another
                key.
        """

    def encoded(self) -> tuple[int, bytes]:
        """Return the key group and the encoded bytes of the current key.

        Raises:
            NoCurrentKeyError: there is no current key.
        """
        encoded = self.codec.encode(self.key)
        assert self.key_group is not None
        return self.key_group, encoded

    def no_key_error(self) -> MillpondError:
        """Return the error that says why there is no current key."""
        return self.refusal() if self.closed else NoCurrentKeyError(self.backend)

    # ---------------------------------------------------------------- open, failed or closed

    @property
    def failed(self) -> bool:
        """Whether the backend has failed."""
        return self._failure is not None

    def require_open(self) -> None:
        """Raise BackendClosedError if the backend is closed, BackendFailedError if it failed."""
        if self.closed:
            raise self.refusal()

    def fail(self, cause: BaseException) -> None:
        """Let every later use of the backend raise an error, because a change may be incomplete."""
        if self._failure is None:
            self._failure = cause
        self.close()

    def close(self) -> None:
        """Let every later use of the backend raise an error."""
        self.closed = True
        self.forget()

    @contextmanager
    def refusing(self, reason: Callable[[], MillpondError] | None = None) -> Iterator[None]:
        """Let every use of the backend in the ``with`` block raise an error.

        Args:
            reason: returns the error; by default it is BackendClosedError.
        """
        before = self.closed
        self.close()
        self._reason = reason
        try:
            yield
        finally:
            self.closed = before or self.failed
            self._reason = None

    def refusal(self) -> MillpondError:
        """Return the error that any use of the closed or failed backend must raise."""
        cause = self._failure
        if cause is None and self._reason is not None:
            return self._reason()
        if cause is None:
            return BackendClosedError(self.backend)
        what = f"{type(cause).__name__}: {cause}".rstrip(".")
        error = BackendFailedError(self.backend, what, str(self.operator))
        error.__cause__ = cause
        return error


class SubtaskKeys:
    """Several keys of this subtask, checked and in the caller's order.

    Attributes:
        keys: the keys.
        groups: the key group of each key.
    """

    def __init__(self, current: CurrentKey, keys: list[Any], groups: list[int]) -> None:
        self.current = current
        self.keys = keys
        self.groups = groups

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        """Make each key the current key in turn, and restore the earlier current key at the end.

        A key that follows itself is not selected again: with 30 map entries for each key,
        ``put_many`` then takes a quarter less time.

        After a ``break`` or an error, the caller must restore the current key.
        """
        current = self.current
        before, group = current.key_or_none, current.key_group
        last: Any = None
        for key, key_group in zip(self.keys, self.groups, strict=True):
            if key is not last:
                current.select(key, key_group)
                last = key
            yield key
        # Not in a ``finally`` block: Python may close a generator much later, when it frees a
        # traceback that refers to the generator.
        current.return_to(before, group)

    @cached_property
    def addresses(self) -> list[Any]:
        """Each key in the form that the backend's tables use; see ``CurrentKey.address``."""
        self.current.require_open()
        return self.current.addresses(self.keys, self.groups)

    @cached_property
    def distinct(self) -> bool:
        """Whether no key occurs twice."""
        return len(set(self.addresses)) == len(self.keys)

    @cached_property
    def runs(self) -> list[tuple[int, int, int]]:
        """The runs of adjacent keys with the same key group, as tuples of group, start and end."""
        ends = [0]
        groups = []
        for group, run in groupby(self.groups):
            groups.append(group)
            ends.append(ends[-1] + sum(1 for _ in run))
        return list(zip(groups, ends[:-1], ends[1:], strict=True))

    def only(self, indices: Sequence[int]) -> SubtaskKeys:
        """Return the keys at `indices`, in that order. An index may occur several times."""
        if not indices:
            return SubtaskKeys(self.current, [], [])
        pick = itemgetter(*indices) if len(indices) > 1 else lambda column: (column[indices[0]],)
        made = SubtaskKeys(self.current, list(pick(self.keys)), list(pick(self.groups)))
        if "addresses" in vars(self):
            made.addresses = list(pick(self.addresses))
        return made
