"""The formats of everything that outlives a process, each with a version of its own.

A version is raised when what is written can no longer be read by the code before; the reader
then has to tell the versions apart, because older ones must stay readable.
"""

from __future__ import annotations

from typing import Any

import attrs

from millpond.errors import ApiVersionError, CorruptSnapshotError


@attrs.frozen
class Format:
    """One format.

    Attributes:
        name: how errors call it, such as ``snapshot file``.
        version: the one that is written, and the newest one that is read.
    """

    name: str
    version: int

    def written(self, _: int) -> int:
        """The version of a thing that is written, whatever version it was read in."""
        return self.version

    def check(self, found: Any, where: str = "") -> int:
        """The version that something was written in, where this Millpond can read it.

        Args:
            found: what the thing says.
            where: the thing's path, if it has one.

        Raises:
            ApiVersionError: a newer Millpond wrote it.
            CorruptSnapshotError: that is not a version.
        """
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise CorruptSnapshotError(where or self.name, f"its format version is {found!r}")
        if found > self.version:
            what = f"The {self.name} {where}".rstrip()
            raise ApiVersionError(what, found=found, supported=self.version)
        return found


SNAPSHOT_HANDLE = Format("snapshot handle", 1)
OPERATOR_STATE_HANDLE = Format("operator state handle", 1)
SNAPSHOT_FILE = Format("snapshot file", 1)
SAVEPOINT = Format("savepoint", 1)
LAYOUT = Format("layout", 1)
POINTER = Format("pointer", 1)
LOCAL_COPY = Format("local copy", 1)
