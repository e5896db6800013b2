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
    """The first key after all keys with a prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class Address(NamedTuple):
    """Key and namespace of a physical key, and the position where each ends in it."""

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
        """The prefix of a key group's physical keys."""
        return key_group.to_bytes(self.group_bytes, "big")

    def end_of_group(self, key_group: int) -> bytes | None:
        """The first physical key after those of a key group; None if there can be none."""
        return end_of_prefix(self.group_prefix(key_group))

    def group_of(self, physical: bytes) -> int:
        """The key group of a physical key."""
        return int.from_bytes(physical[: self.group_bytes], "big")

    def parse(
        self, physical: bytes, keys: KeyCodec, namespaces: KeyCodec, skip: int = 0
    ) -> Address:
        """Key and namespace of a physical key, with ``skip`` other bytes before the key."""
        key, key_end = keys.decode(physical, self.group_bytes + skip)
        namespace, namespace_end = namespaces.decode(physical, key_end)
        return Address(key, key_end, namespace, namespace_end)

    def addresses(
        self, physical: Iterable[bytes], keys: KeyCodec, namespaces: KeyCodec
    ) -> Iterator[tuple[Any, Any]]:
        """Key and namespace of physical keys; adjacent entries of one map yield one pair.

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
        codec: how keys are encoded, checked and hashed.
        layout: the physical keys.
        key_group_range: the groups of this subtask.
        group_prefixes: the prefixes of these groups.
        key_or_none: the current key; None if no key is set.
        key_group: that of the current key; None if no key is set.
        address: the key in the form that tables look it up in, here as it is; None if none is set.
        prepares: whether choosing a key takes more than to note it, which ``_choose`` then does.
        max_parallelism: the number of key groups of the whole operator.
        frame: the keys of the frame of rows that is being processed, if one is.
        closed: whether every use is refused.
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
        """Choose a key that the caller has checked, with its key group.

        Raises:
            KeyGroupRangeError: the group belongs to another subtask.
        """
        if self.closed:
            raise self.refusal()
        if key_group not in self.group_prefixes:
            raise KeyGroupRangeError(self.foreign(key, key_group))
        self.key_or_none = self.address = key
        self.key_group = key_group
        if self.prepares:
            try:
                self._choose(key, key_group)
            except BaseException:
                self.forget()
                raise

    def _choose(self, key: Any, key_group: int) -> None:
        """Prepare for accesses to a key: set the address. Where it raises, there is no key."""

    def expect(self, keys: Sequence[Any], groups: Sequence[int]) -> None:
        """Checked keys of rows that come next, in their order, with their key groups.

        A hint: ``select`` takes any key as before. Override it where keys can be prepared, or their
        entries read, for less together than one by one.
        """

    def foreign(self, key: Any, key_group: int) -> str:
        """Why a key cannot be chosen: its group belongs to another subtask."""
        return (
            f"{str(self.operator) or self.backend}: key {brief(key)} has key group "
            f"{key_group}, this subtask owns {self.key_group_range}"
        )

    def addresses(self, keys: list[Any], groups: list[int]) -> list[Any]:
        """Many checked keys in the form in which tables find them: by default encoded, as in rows.

        Distinct keys have distinct ones.
        """
        prefixes = map(self.group_prefixes.__getitem__, groups)
        return list(map(operator.add, prefixes, self.codec.encode_many(keys)))

    def forget(self) -> None:
        """Unset the current key."""
        self.key_or_none = self.address = self.key_group = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Choose other keys inside the ``with`` block; at its end the one before is current again.

        There is none where there was none, and none once the backend is closed or has failed.
        """
        before, group = self.key_or_none, self.key_group
        try:
            yield
        finally:
            if self.key_or_none is not before:
                self.return_to(before, group)

    def return_to(self, before: Any, group: int | None) -> None:
        """Choose the key that was current before, with its group; None for none."""
        if before is None or group is None or self.closed:
            self.forget()
        else:
            self.select(before, group)

    @property
    def key(self) -> Any:
        """The current key; NoCurrentKeyError if none is set."""
        if self.key_or_none is None:
            raise self.missing()
        return self.key_or_none

    def check_reach(self, key: Any) -> None:
        """Refuse a checked key whose state cannot be had while other keys are worked on.

        Raises:
            BulkCallError: the backend holds the state of one key alone, and of another one.
        """

    def encoded(self) -> tuple[int, bytes]:
        """Key group and encoded current key; NoCurrentKeyError if none is set."""
        encoded = self.codec.encode(self.key)
        assert self.key_group is not None
        return self.key_group, encoded

    def missing(self) -> MillpondError:
        """The error that says why there is no current key."""
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
        """Refuse everything from now on: the state may hold half of a change."""
        if self._failure is None:
            self._failure = cause
        self.close()

    def close(self) -> None:
        """Refuse everything from now on."""
        self.closed = True
        self.forget()

    @contextmanager
    def withheld(self) -> Iterator[None]:
        """Refuse everything for a while, as if the backend were closed."""
        before = self.closed
        self.close()
        try:
            yield
        finally:
            self.closed = before or self.failed

    def refusal(self) -> MillpondError:
        """The error that any use of a closed or failed backend raises."""
        cause = self._failure
        if cause is None:
            return BackendClosedError(self.backend)
        what = f"{type(cause).__name__}: {cause}".rstrip(".")
        error = BackendFailedError(self.backend, what, str(self.operator))
        error.__cause__ = cause
        return error


class SubtaskKeys:
    """Checked keys of the subtask, with their key groups, in a caller's order.

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
        """Make each the current key in turn; at the end the one before is current again.

        A loop that is left before that leaves its key, which is up to the caller: the end of a
        generator comes whenever the traceback that holds it goes.
        """
        current = self.current
        before, group = current.key_or_none, current.key_group
        for key, key_group in zip(self.keys, self.groups, strict=True):
            current.select(key, key_group)
            yield key
        current.return_to(before, group)

    @cached_property
    def addresses(self) -> list[Any]:
        """The keys in the form that the backend's tables use."""
        self.current.require_open()
        return self.current.addresses(self.keys, self.groups)

    @cached_property
    def distinct(self) -> bool:
        """Whether no key comes twice."""
        return len(set(self.addresses)) == len(self.keys)

    @cached_property
    def runs(self) -> list[tuple[int, int, int]]:
        """Key groups, each with where its keys begin and end; a group may come again."""
        ends = [0]
        groups = []
        for group, run in groupby(self.groups):
            groups.append(group)
            ends.append(ends[-1] + sum(1 for _ in run))
        return list(zip(groups, ends[:-1], ends[1:], strict=True))

    def only(self, indices: Sequence[int]) -> SubtaskKeys:
        """Those at some indices; an index may come again."""
        if not indices:
            return SubtaskKeys(self.current, [], [])
        pick = itemgetter(*indices) if len(indices) > 1 else lambda column: (column[indices[0]],)
        made = SubtaskKeys(self.current, list(pick(self.keys)), list(pick(self.groups)))
        if "addresses" in vars(self):
            made.addresses = list(pick(self.addresses))
        return made
