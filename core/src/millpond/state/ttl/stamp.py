"""The time stamp that stands before a stored value with a time to live."""

from __future__ import annotations

import struct

__all__ = ["STAMP"]

STAMP = struct.Struct(">q")
"""A time in ms since the epoch: eight bytes, big-endian and signed."""
