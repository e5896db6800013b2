"""Keys: their physical form, the current key, and the keys of a bulk call."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
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
    """Return the least key that is after all keys with `prefix`; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class Address(NamedTuple):
    """Key and namespace of a physical key, and the position at which each ends."""

    key: Any
    key_end: int
    namespace: Any
    namespace_end: int


class KeyLayout:
    """The layout of an operator's physical keys, for its number of key groups.

    Attributes:
        group_bytes: the number of leading bytes for the key group: 1 up to 128 groups, else 2.
    """

    def __init__(self, max_parallelism: int) -> None:
        self.group_bytes = key_group_prefix_bytes(max_parallelism)

    def group_prefix(self, key_group: int) -> bytes:
        """Return the prefix of a key group's physical keys."""
        return key_group.to_bytes(self.group_bytes, "big")

    def end_of_group(self, key_group: int) -> bytes | None:
        """Return the least physical key after a key group; None if no key can follow it."""
        return end_of_prefix(self.group_prefix(key_group))

    def group_of(self, physical: bytes) -> int:
        """Return the key group of a physical key."""
        return int.from_bytes(physical[: self.group_bytes], "big")

    def parse(
        self, physical: bytes, keys: KeyCodec, namespaces: KeyCodec, skip: int = 0
    ) -> Address:
        """Decode key and namespace of a physical key, with ``skip`` other bytes before the key."""
        key, key_end = keys.decode(physical, self.group_bytes + skip)
        namespace, namespace_end = namespaces.decode(physical, key_end)
        return Address(key, key_end, namespace, namespace_end)

    def addresses(
        self, physical: Iterable[bytes], keys: KeyCodec, namespaces: KeyCodec
    ) -> Iterator[tuple[Any, Any]]:
        """Iterate over the key and namespace of physical keys; entries of one map yield one pair.

        Raises:
            CorruptSnapshotError: a key cannot be decoded.
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
    """The key that all states of a backend work on, or the reason why none is set.

    A backend derives its own class if its tables need the key in another form. ``select`` and
    ``_choose`` run for every key of a frame; everything else is rare.

    Attributes:
        backend: the backend's name.
        operator: the operator that owns the state.
        pickles: whether pickled bytes may be decoded.
        codec: the codec that encodes, checks and hashes keys.
        layout: the layout of physical keys.
        key_group_range: the groups of this subtask.
        group_prefixes: the prefixes of these groups.
        key_or_none: the current key; None if no key is set.
        key_group: the key group of the current key; None if no key is set.
        address: the key in the form that tables look up, by default the key; None if none is set.
        prepares: whether ``_choose`` has work to do when a key is selected.
        max_parallelism: the number of key groups of the whole operator.
        frame: the keys of the frame of rows that is being processed, if one is.
        closed: whether every use raises an error.
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
        self.frame: Any = None  # a ``Frame``, which knows of this class
        self._failure: BaseException | None = None
        self.closed = False

    def expect_outside_bytes(self) -> None:
        """Stop trusting pickles: bytes of a snapshot, savepoint or other process come in.

        Raises:
            ConfigError: the keys are pickled, and the configuration does not allow it.
        """
        self.pickles.outside = True
        self.codec = self.codec.bind(self.pickles)

    # ---------------------------------------------------------------- the key

    def select(self, key: Any, key_group: int) -> None:
        """Make a key the current one. The caller has checked it, and knows its key group.

        Raises:
            KeyGroupRangeError: the group belongs to another subtask.
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
        """Prepare for accesses to a key: set the address. If this raises, no key is current."""

    def prefetch(self, keys: Sequence[Any], groups: Sequence[int]) -> None:
        """Prepare for the checked keys of the next rows, in their order, with their key groups.

        Only a hint: ``select`` accepts any key. Override it if encoding the keys, or reading their
        entries, is faster for many keys together.
        """

    def foreign_key_message(self, key: Any, key_group: int) -> str:
        """Return the message for a key whose group belongs to another subtask."""
        return (
            f"{str(self.operator) or self.backend}: key {brief(key)} has key group "
            f"{key_group}, this subtask owns {self.key_group_range}"
        )

    def addresses(self, keys: list[Any], groups: list[int]) -> list[Any]:
        """Return the addresses of checked keys: by default their encoded form, as in rows.

        Distinct keys have distinct addresses.
        """
        prefixes = map(self.group_prefixes.__getitem__, groups)
        return list(map(operator.add, prefixes, self.codec.encode_many(keys)))

    def forget(self) -> None:
        """Unset the current key."""
        self.key_or_none = self.address = self.key_group = None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Allow other keys inside the ``with`` block; restore the current key at its end.

        Afterwards there is no current key if there was none, or if the backend was closed.
        """
        before, group = self.key_or_none, self.key_group
        try:
            yield
        finally:
            if self.key_or_none is not before:
                self.return_to(before, group)

    def return_to(self, before: Any, group: int | None) -> None:
        """Make `before`, a key of `group`, the current key again; if it is None, unset the key."""
        if before is None or group is None or self.closed:
            self.forget()
        else:
            self.select(before, group)

    @property
    def key(self) -> Any:
        """The current key; NoCurrentKeyError if none is set."""
        if self.key_or_none is None:
            raise self.no_key_error()
        return self.key_or_none

    def check_reach(self, key: Any) -> None:
        """Raise if a bulk call cannot use the state of `key`, which need not be the current key.

        Raises:
            BulkCallError: the backend holds the state of one key only, and `key` is another one.
        """

    def encoded(self) -> tuple[int, bytes]:
        """Return the key group and the bytes of the current key; NoCurrentKeyError without one."""
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
        """Raise BackendClosedError once the backend is closed, BackendFailedError if it failed."""
        if self.closed:
            raise self.refusal()

    def fail(self, cause: BaseException) -> None:
        """Make every further use raise an error: the state may hold half of a change."""
        if self._failure is None:
            self._failure = cause
        self.close()

    def close(self) -> None:
        """Make every further use raise an error."""
        self.closed = True
        self.forget()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Let every use in the ``with`` block raise an error, as if the backend were closed."""
        before = self.closed
        self.close()
        try:
            yield
        finally:
            self.closed = before or self.failed

    def refusal(self) -> MillpondError:
        """Return the error that any use of a closed or failed backend raises."""
        cause = self._failure
        if cause is None:
            return BackendClosedError(self.backend)
        what = f"{type(cause).__name__}: {cause}".rstrip(".")
        error = BackendFailedError(self.backend, what, str(self.operator))
        error.__cause__ = cause
        return error


class SubtaskKeys:
    """Keys of this subtask that are used together, checked and in the caller's order.

    Attributes:
        keys: the keys.
        groups: the key group of each.
    """

    def __init__(self, current: CurrentKey, keys: list[Any], groups: list[int]) -> None:
        self.current = current
        self.keys = keys
        self.groups = groups

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        """Make each key the current one in turn; restore the current key at the end.

        After a ``break`` or an error the caller must restore the current key: a generator may end
        much later, when the traceback that refers to it is freed.
        """
        current = self.current
        before, group = current.key_or_none, current.key_group
        for key, key_group in zip(self.keys, self.groups, strict=True):
            current.select(key, key_group)
            yield key
        current.return_to(before, group)

    @cached_property
    def addresses(self) -> list[Any]:
        """The addresses of the keys in the backend's tables."""
        self.current.require_open()
        return self.current.addresses(self.keys, self.groups)

    @cached_property
    def distinct(self) -> bool:
        """Whether no key occurs twice."""
        return len(set(self.addresses)) == len(self.keys)

    @cached_property
    def runs(self) -> list[tuple[int, int, int]]:
        """The runs of keys of one group: tuples of the group, the run's start and its end."""
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
