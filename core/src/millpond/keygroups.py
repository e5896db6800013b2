"""Key groups: the unit in which keyed state is distributed over subtasks.

A key belongs to the key group ``pmod(xxhash64(key), max_parallelism)``. A subtask owns a
contiguous, inclusive range of key groups. The arithmetic is Flink's
(``KeyGroupRangeAssignment``), the hash is Spark's, so that the JVM can compute the group.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from typing_extensions import override

from millpond.arguments import check_type, checked
from millpond.errors import KeyGroupRangeError, brief

MAX_KEY_GROUPS = 1 << 15
SPREAD = 2**6 * 3**2 * 5**2 * 7
"""On Spark, subtasks are evenly spread over *n* partitions if *n* divides this number."""

_DEFAULT_LOWER_BOUND = 128


def key_group_of_hash(digest: int, max_parallelism: int) -> int:
    """Return the key group of a key, given the unsigned 64-bit digest of ``KeyCodec.hash``.

    As in Spark, the digest counts as a signed number.
    """
    return (digest - (1 << 64) if digest >= 1 << 63 else digest) % max_parallelism


@attrs.frozen
class KeyGroupRange:
    """An inclusive range of key groups; ``KeyGroupRange(0, 127)`` holds 128 groups.

    Raises:
        KeyGroupRangeError: a bound is negative or too large, or the start is above the end.
    """

    start: int
    end: int

    def __attrs_post_init__(self) -> None:
        for name in ("start", "end"):
            check_type(name, getattr(self, name), int)
        if not 0 <= self.start <= self.end < MAX_KEY_GROUPS:
            extent = f"{brief(self.start)} to {brief(self.end)}"
            raise KeyGroupRangeError(f"start to end, {extent}, is not a range of key groups")

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.start <= key_group <= self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end + 1))

    def __len__(self) -> int:
        return self.end - self.start + 1

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange | None:
        """Return the key groups that both ranges contain; None if there are none."""
        check_type("other", other, KeyGroupRange)
        start, end = max(self.start, other.start), min(self.end, other.end)
        return KeyGroupRange(start, end) if start <= end else None

    @override
    def __str__(self) -> str:
        return f"{self.start}..{self.end}"


def check_parallelism(max_parallelism: int, parallelism: int = 1) -> None:
    """Raise KeyGroupRangeError unless ``1 <= parallelism <= max_parallelism <= 32768``."""
    for name, number in (("max-parallelism", max_parallelism), ("parallelism", parallelism)):
        check_type(name, number, int)
        if not 1 <= number <= MAX_KEY_GROUPS:
            reason = f"{name} must be within 1..{MAX_KEY_GROUPS}, not {brief(number)}"
            raise KeyGroupRangeError(reason)
    if parallelism > max_parallelism:
        raise KeyGroupRangeError(
            f"parallelism {parallelism} is larger than max-parallelism {max_parallelism}"
        )


def check_range(groups: KeyGroupRange, max_parallelism: int) -> None:
    """Raise KeyGroupRangeError unless all key groups are below ``max_parallelism``."""
    check_parallelism(max_parallelism)
    if groups.end >= max_parallelism:
        raise KeyGroupRangeError(
            f"key groups {groups} do not exist: max-parallelism is {max_parallelism}, so they are "
            f"0..{max_parallelism - 1}"
        )


@checked
def key_group_range(max_parallelism: int, parallelism: int, index: int) -> KeyGroupRange:
    """Return the key groups of subtask ``index`` (0-based) out of ``parallelism``.

    Raises:
        KeyGroupRangeError: a number is out of bounds.
    """
    check_parallelism(max_parallelism, parallelism)
    if not 0 <= index < parallelism:
        raise KeyGroupRangeError(f"subtask {brief(index)} is not within 0..{parallelism - 1}")
    start = (index * max_parallelism + parallelism - 1) // parallelism
    end = ((index + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def default_max_parallelism(parallelism: int) -> int:
    """Return Flink's default: the power of two above 1.5 times the parallelism, at least 128."""
    check_parallelism(MAX_KEY_GROUPS, parallelism)
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 0).bit_length()
    return min(max(power, _DEFAULT_LOWER_BOUND), MAX_KEY_GROUPS)


def key_group_prefix_bytes(max_parallelism: int) -> int:
    """Return how many bytes at the start of a stored key contain the key group.

    The number is 1 for up to 128 key groups, else 2.
    """
    return 1 if max_parallelism <= 128 else 2  # noqa: PLR2004 - the number is the rule itself


def spreading(count: int) -> int:
    """Return the least number of partitions with which each of `count` subtasks has its own.

    This is the least divisor of SPREAD that is at least `count`.
    """
    return next(n for n in range(count, SPREAD + 1) if SPREAD % n == 0)
