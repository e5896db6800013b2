"""Windows of types of one's own that Python takes for equal, or unequal, where they are not."""

import attrs
from millpond import windows


class Stretch:
    """What a merging window from ``start`` to ``end`` has in common; windows that touch merge."""

    def max_timestamp(self):
        return self.end - 1

    def intersects(self, other):
        return self.start <= other.end and self.end >= other.start

    def cover(self, other):
        return type(self)(min(self.start, other.start), max(self.end, other.end))


@attrs.frozen
class Coarse(Stretch):
    """Python compares the starts alone."""

    start: int
    end: int = attrs.field(eq=False)


@attrs.frozen(eq=False)
class Fine(Stretch):
    """Python takes each object for another."""

    start: int
    end: int


@attrs.frozen
class Unequal(Stretch):
    """A part is NaN, which Python takes for unequal to itself."""

    start: int
    end: int
    part: float = attrs.field(factory=lambda: float("nan"))


@attrs.frozen
class Listed(Stretch):
    """A part can be changed, so Python cannot hash it."""

    start: int
    end: int
    part: bytes = attrs.field(factory=lambda: bytearray(b"x"))


STRETCHES = (Coarse, Fine, Unequal, Listed)


class OfKind(windows.WindowAssigner):
    """Another assigner's windows, of a type of one's own."""

    def __init__(self, inner, kind):
        self.inner, self.window_type = inner, kind
        self.is_event_time, self.is_merging = inner.is_event_time, inner.is_merging

    def __repr__(self):
        return f"{self.inner} of {self.window_type.__name__}"

    def assign_windows(self, element, timestamp):
        given = self.inner.assign_windows(element, timestamp)
        return [self.window_type(window.start, window.end) for window in given]
