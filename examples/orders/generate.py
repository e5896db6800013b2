"""Generate a stream of shop orders: deterministic by seed, and untidy like real data.

One file per day. A tenth of the lines have no customer, some are cancellations (negative
quantities), prices may be 0, names hold quotes, commas and umlauts, the orders of a day
interleave, and a few customers buy much more than the others.
"""

from __future__ import annotations

import argparse
import csv
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

__all__ = ["SCHEMA", "generate"]

SCHEMA = (
    "order_no string, line int, customer string, item string, quantity int, "
    "price_cents bigint, ordered_at timestamp"
)
ITEMS = [
    'mug "Good Morning"',
    "tea, green",
    "Käsemesser",
    "lamp",
    "paper chain kit",
    "t-light holder",
    "crème brûlée set",
    "bag, red retrospot",
    "jam jar",
    "clock",
    "doormat",
    "ribbon reel",
]
START = datetime(2024, 3, 1, 8, tzinfo=UTC)


def _customer(source: random.Random) -> str | None:
    if source.random() < 0.1:
        return None
    return f"C{int(source.paretovariate(0.6)) % 1500:04d}"


def _day(day: int, lines: int, source: random.Random) -> list[list[object]]:
    rows: list[list[object]] = []
    order = 0
    while len(rows) < lines:
        order += 1
        customer = _customer(source)
        cancelled = source.random() < 0.03
        number = f"{'X' if cancelled else ''}{day:02d}-{order:06d}"
        at = START + timedelta(days=day, seconds=source.randrange(36_000))
        for line in range(source.randint(1, 6)):
            quantity = source.randint(1, 12) * (-1 if cancelled else 1)
            price = 0 if source.random() < 0.01 else source.randint(50, 9999)
            moment = at.isoformat(timespec="seconds")
            item = source.choice(ITEMS)
            rows.append([number, line, customer, item, quantity, price, moment])
    source.shuffle(rows)
    return rows


def generate(folder: Path, days: int = 6, lines: int = 20_000, seed: int = 42) -> int:
    """Write one CSV file per day into a folder and return the number of lines."""
    folder.mkdir(parents=True, exist_ok=True)
    total = 0
    for day in range(days):
        rows = _day(day, lines, random.Random(seed * 1000 + day))
        with (folder / f"day-{day:02d}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        total += len(rows)
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--lines", type=int, default=20_000, help="lines a day")
    options = parser.parse_args()
    count = generate(options.folder, options.days, options.lines)
    print(f"{count} order lines in {options.days} files under {options.folder}")
