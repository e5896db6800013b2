"""Where the sampled figures of one backend are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import attrs

__all__ = ["Histogram", "MetricRegistry"]


@attrs.define
class Histogram:
    """A sliding window of the last samples, and how many there were in all."""

    size: int
    count: int = 0
    _window: deque[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._window = deque(maxlen=self.size)

    def update(self, sample: int) -> None:
        """Add a sample."""
        self.count += 1
        self._window.append(sample)

    def quantile(self, q: float) -> int:
        """The nearest-rank quantile of the window, 0 where it is empty."""
        ordered = sorted(self._window)
        return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0


class MetricRegistry:
    """Histograms by state and operation, for instance ``spent.value_ns``."""

    def __init__(self) -> None:
        self._histograms: dict[str, Histogram] = {}

    def histogram(self, name: str, size: int) -> Histogram:
        """The histogram of a name, made at its first use."""
        return self._histograms.setdefault(name, Histogram(size))

    def histograms(self) -> Mapping[str, Histogram]:
        """All histograms so far."""
        return dict(self._histograms)
