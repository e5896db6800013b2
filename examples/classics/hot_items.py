"""Hot items: rank the items that each country bought most, in windows of a day every six hours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import millpond as mp

TITLE = "Hot items per sliding window"
OUTPUT = "country string, window_end bigint, rank int, item string, lines bigint"
HOUR = 3_600_000
SIZE, SLIDE = 24 * HOUR, 6 * HOUR


def window_ends(ms: int) -> range:
    """Return the ends of all windows that contain a time."""
    first = ms - ms % SLIDE + SLIDE
    return range(first, ms + SIZE + 1, SLIDE)


class HotItems(mp.KeyedProcessFunction):
    """A function that counts items per window; a timer at the window's end ranks them."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Get the counts."""
        descriptor = mp.MapStateDescriptor("counts", tuple[int, str], int)
        self.counts = context.get_map_state(descriptor)

    def process_element(self, row: Any, context: mp.Context) -> None:
        """Count the row in all its windows."""
        for end in window_ends(row.ms):
            self.counts[end, row.item] = self.counts.get((end, row.item), 0) + 1
            context.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, context: mp.Context) -> Iterable[Any]:
        """Yield the three most bought items (ties by name) and clear the counts."""
        mine = [(item, n) for (end, item), n in self.counts.items() if end == timestamp]
        mine.sort(key=lambda pair: (-pair[1], pair[0]))
        for rank, (item, lines) in enumerate(mine[:3], 1):
            yield context.current_key, timestamp, rank, item, lines
        for item, _ in mine:
            self.counts.remove((timestamp, item))


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    return mp.local.run(HotItems(), rows, key="country", event_time="ms")


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job over a DataFrame with a watermark."""
    return key_by(lines, "country").process(HotItems(), output=OUTPUT, uid="hot-items")


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the result by counting everything first."""
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for row in rows:
        for end in window_ends(row["ms"]):
            items = counts.setdefault((row["country"], end), {})
            items[row["item"]] = items.get(row["item"], 0) + 1
    return [
        (country, end, rank, item, lines)
        for (country, end), items in counts.items()
        for rank, (item, lines) in enumerate(
            sorted(items.items(), key=lambda pair: (-pair[1], pair[0]))[:3], 1
        )
    ]


def draw(axis: Any, result: list[Any]) -> None:
    """Draw the lines of the hottest item over time, by country."""
    begin = min(each[1] for each in result)
    most = {country: max(r[4] for r in result if r[0] == country) for country, *_ in result}
    for country in sorted(most, key=lambda country: -most[country])[:5]:
        first = sorted((end, n) for c, end, rank, _, n in result if c == country and rank == 1)
        hours = [(end - begin) / HOUR for end, _ in first]
        axis.plot(hours, [n for _, n in first], marker="o", label=country)
    axis.set(xlabel="hours", ylabel="lines of the hottest item", title="hot items of a day")
    axis.set_yscale("log")
    axis.legend()
