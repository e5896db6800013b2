"""Column families that are not made yet."""

from __future__ import annotations

__all__ = ["UnmadeFamily"]


class UnmadeFamily:
    """A column family that nothing was written to, as a column and as its own empty cursor.

    RocksDB writes the options of all column families anew whenever it makes one (measured: 18 s
    for 200, one after the other). So they are made at the first write, all that are asked for by
    then together.
    """

    def get(self, key: bytes) -> None:
        """Nothing."""

    def iter(self, read: object = None) -> UnmadeFamily:
        """An empty cursor."""
        del read
        return self

    def seek(self, key: bytes) -> None:
        """It stays at the end."""

    def valid(self) -> bool:
        """It is at the end."""
        return False

    def key(self) -> bytes:
        """It never stands at a row."""
        raise StopIteration

    value = key

    def next(self) -> None:
        """It stays at the end."""

    def status(self) -> None:
        """It is sound."""

    def property_int_value(self, name: str) -> int:
        """It takes no room."""
        del name
        return 0

    def close(self) -> None:
        """Nothing is open."""
