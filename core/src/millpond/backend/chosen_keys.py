"""The keys that one bulk call works on, and those of the frame of rows that is being processed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

from millpond.backend.current_key import CurrentKey
from millpond.errors import BulkCallError, KeyGroupRangeError, NullValueError, brief
from millpond.types.listed import listed

__all__ = ["Frame", "SubtaskKeys", "checked_key", "checked_keys"]


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


class Frame(SubtaskKeys):
    """The distinct keys of a frame of rows; while it lasts, bulk calls take no others.

    Attributes:
        column: the keys as the function sees them.
    """

    def __init__(
        self, current: CurrentKey, keys: list[Any], groups: list[int], column: Any
    ) -> None:
        super().__init__(current, keys, groups)
        self.column = column
        self.distinct = True
        for key, group in zip(keys, groups, strict=True):
            if group not in current.group_prefixes:
                current.select(key, group)  # raises the error that says which key it is

    @cached_property
    def _places(self) -> dict[Any, int]:
        codec = self.current.codec
        names = self.keys if codec.exact else map(codec.encode, self.keys)
        return {name: index for index, name in enumerate(names)}

    def index_of(self, key: Any) -> int:
        """Where a key stands in the frame.

        Raises:
            BulkCallError: it is none of the frame's keys.
        """
        codec = self.current.codec
        checked = codec.check(_given(self.current, key))
        place = self._places.get(checked if codec.exact else codec.encode(checked))
        if place is None:
            reason = f"key {brief(key)} is none of this frame's keys: take them of context.keys"
            raise BulkCallError("", reason)
        return place

    def among(self, keys: list[Any]) -> SubtaskKeys:
        """Some of the frame's keys."""
        return self.only(list(map(self.index_of, keys)))


def _given(current: CurrentKey, key: Any) -> Any:
    if key is None:
        raise NullValueError("a key", str(current.operator))
    return key


def checked_key(current: CurrentKey, key: Any) -> tuple[Any, int]:
    """A key in its canonical form, and its key group."""
    return current.codec.placed(_given(current, key), current.max_parallelism)


def checked_keys(current: CurrentKey, given: Any) -> SubtaskKeys:
    """The keys that a caller gave: a frame's where there is one, else any of the subtask's.

    Raises:
        NullValueError, StateTypeError, BulkCallError, KeyGroupRangeError: one cannot be.
    """
    frame = current.frame
    if isinstance(frame, Frame):
        return frame if given is frame.column else frame.among(listed(given, "keys"))
    keys = listed(given, "keys")
    pairs = [checked_key(current, key) for key in keys]
    made = SubtaskKeys(current, [key for key, _ in pairs], [group for _, group in pairs])
    for key, group in pairs:
        if group not in current.group_prefixes:
            raise KeyGroupRangeError(current.foreign(key, group))
        current.check_reach(key)
    return made
