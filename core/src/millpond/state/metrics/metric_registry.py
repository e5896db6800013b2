"""The metrics of one backend: histograms of samples, and counters of calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import attrs

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


@attrs.define
class Histogram:
    """The last ``size`` samples, and the number of all samples so far."""

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
        """Return the quantile `q` (0 to 1) of the last samples by nearest rank, or 0 if none."""
        ordered = sorted(self._window)
        return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0


class MetricRegistry:
    """The histograms and call counters of one backend, by name, for example ``spent.value_ns``."""

    def __init__(self) -> None:
        self._histograms: dict[str, Histogram] = {}
        self._calls: dict[str, Callable[[], int]] = {}

    def histogram(self, name: str, size: int) -> Histogram:
        """Return the histogram `name`. The first call creates it for the last `size` samples."""
        if name not in self._histograms:
            self._histograms[name] = Histogram(size)
        return self._histograms[name]

    def histograms(self) -> Mapping[str, Histogram]:
        """Return all histograms."""
        return dict(self._histograms)

    def count_calls(self, name: str, read: Callable[[], int]) -> None:
        """Register `read`, which returns the number of calls of the operation `name`."""
        self._calls[name] = read

    def calls(self) -> dict[str, int]:
        """Return the number of calls of each operation by name, for example ``spent.value``."""
        return {name: read() for name, read in self._calls.items()}

    def quantiles(self) -> dict[str, float]:
        """Return the quantiles of all histograms by name, for example ``spent.value_ns.p99``."""
        return {
            f"{name}.{label}": float(histogram.quantile(q))
            for name, histogram in self._histograms.items()
            for label, q in QUANTILES.items()
        }
