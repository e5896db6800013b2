"""RocksDB's properties and tickers as metrics, under RocksDB's names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from millpond.errors import ConfigError
from rocksdict import Options, Rdict

_PREFIX = "rocksdb."
_TICKER = re.compile(r"rocksdb\.(\S+) COUNT : (\d+)")
_OF_DATABASE = frozenset(
    {
        "actual-delayed-write-rate",
        "background-errors",
        "block-cache-capacity",
        "block-cache-pinned-usage",
        "block-cache-usage",
        "is-file-deletions-enabled",
        "is-write-stopped",
        "min-log-number-to-keep",
        "num-running-compactions",
        "num-running-flushes",
        "num-snapshots",
        "oldest-snapshot-sequence",
        "oldest-snapshot-time",
    }
)
"""The properties that have one value for all column families. Other properties are summed."""


def native_property(name: str, database: Rdict, columns: Iterable[Rdict]) -> float:
    """Return the value of a property of the database, or the sum over its column families."""
    asked = [database] if name in _OF_DATABASE else columns
    return float(sum(each.property_int_value(f"{_PREFIX}{name}") or 0 for each in asked))


def check_properties(names: Iterable[str], database: Rdict) -> None:
    """Raise ConfigError if a name is not that of a RocksDB property with a number as value."""
    for name in names:
        try:
            known = database.property_int_value(f"{_PREFIX}{name}") is not None
        except Exception:  # noqa: BLE001 - rocksdict has its own class for a property of text
            known = False
        if not known:
            reason = f"RocksDB has no property {name!r} with a number"
            raise ConfigError("backend.rocksdb.properties", reason)


def tickers(options: Options) -> Mapping[str, float]:
    """Return the values of RocksDB's tickers since the database was opened with `options`.

    If `options` do not enable statistics, there are no tickers.
    """
    text = options.get_statistics() or ""
    found = (_TICKER.fullmatch(line) for line in text.splitlines())
    return {match[1]: float(match[2]) for match in found if match}


def check_tickers(names: Iterable[str]) -> None:
    """Raise ConfigError if a name is not that of a RocksDB ticker."""
    options = Options(raw_mode=True)
    options.enable_statistics()
    known = tickers(options)
    for name in names:
        if name not in known:
            raise ConfigError("backend.rocksdb.tickers", f"RocksDB has no ticker {name!r}")
