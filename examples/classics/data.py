"""Order lines of a shop: the Online Retail data if available, or generated from a seed."""

from __future__ import annotations

import csv
import gzip
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["END", "SCHEMA", "Row", "made_up", "retail"]

Row = dict[str, Any]
SCHEMA = "customer string, item string, country string, ms bigint, cents bigint, line string"
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
START = 1_700_000_000_000

END: Row = {
    "customer": "~end",
    "item": "",
    "country": "~end",
    "ms": 4_000_000_000_000,
    "cents": 0,
    "line": "~end",
}
"""A last row far in the future: it moves the watermark past all others."""


def made_up(count: int = 1500, days: int = 3, seed: int = 11) -> list[Row]:
    """Generate customers who come in bursts, in three countries, slightly out of order."""
    chance = random.Random(seed)
    rows: list[Row] = []
    while len(rows) < count:
        customer = f"customer-{chance.randrange(40):02}"
        begin = START + chance.randrange(days * DAY)
        for _ in range(min(chance.randrange(1, 12), count - len(rows))):
            begin += chance.randrange(20 * MINUTE)
            rows.append(
                {
                    "customer": customer,
                    "item": f"item-{min(chance.randrange(20), chance.randrange(20)):02}",
                    "country": ("FR", "DE", "UK")[hash_of(customer) % 3],
                    "ms": begin,
                    "cents": chance.randrange(100, 5000),
                    "line": f"{len(rows):06}",
                }
            )
    rows.sort(key=lambda row: row["ms"] + chance.randrange(10 * MINUTE))
    return rows


def hash_of(text: str) -> int:
    """Return a hash of a text that is the same in every process."""
    return sum(text.encode())


def retail(folder: Path, files: int = 5) -> list[Row]:
    """Read the first days of the Online Retail data set from a folder of CSV files."""
    rows: list[Row] = []
    for path in sorted(folder.glob("*.csv.gz"))[:files]:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
            for number, line in enumerate(csv.DictReader(lines)):
                if line["CustomerID"]:
                    moment = datetime.fromisoformat(line["InvoiceDate"]).replace(tzinfo=UTC)
                    cents = round(float(line["UnitPrice"]) * 100) * int(line["Quantity"])
                    rows.append(
                        {
                            "customer": line["CustomerID"],
                            "item": line["StockCode"],
                            "country": line["Country"],
                            "ms": int(moment.timestamp() * 1000),
                            "cents": cents,
                            "line": f"{path.name[:10]}-{number}",
                        }
                    )
    return rows
