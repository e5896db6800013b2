"""Windows of user-defined types whose `==` differs from the equality of their bytes."""

import attrs
from millpond import windows


class Stretch:
    """Base of merging windows from ``start`` to ``end``; windows that touch merge."""

    def max_timestamp(self):
        return self.end - 1

    def intersects(self, other):
        return self.start <= other.end and self.end >= other.start

    def cover(self, other):
        return type(self)(min(self.start, other.start), max(self.end, other.end))


@attrs.frozen
class Coarse(Stretch):
    """Windows that `==` compares only by their starts."""

    start: int
    end: int = attrs.field(eq=False)


@attrs.frozen(eq=False)
class Fine(Stretch):
    """Windows that are never equal in Python."""

    start: int
    end: int


@attrs.frozen
class Unequal(Stretch):
    """Windows with a NaN, which is not equal to itself."""

    start: int
    end: int
    part: float = attrs.field(factory=lambda: float("nan"))


@attrs.frozen
class Listed(Stretch):
    """Windows with a mutable part, which Python cannot hash."""

    start: int
    end: int
    part: bytes = attrs.field(factory=lambda: bytearray(b"x"))


STRETCHES = (Coarse, Fine, Unequal, Listed)


class OfKind(windows.WindowAssigner):
    """Assigner that returns another assigner's windows as a type of its own."""

    def __init__(self, inner, kind):
        self.inner, self.window_type = inner, kind
        self.is_event_time, self.is_merging = inner.is_event_time, inner.is_merging

    def __repr__(self):
        return f"{self.inner} of {self.window_type.__name__}"

    def assign_windows(self, element, timestamp):
        given = self.inner.assign_windows(element, timestamp)
        return [self.window_type(window.start, window.end) for window in given]
