"""The formats of everything that outlives a process, each with a version of its own.

A version is raised when earlier code could not read the new format. The reader then has to
distinguish the versions, because older files must remain readable.
"""

from __future__ import annotations

from typing import Any

import attrs

from millpond.errors import ApiVersionError, CorruptSnapshotError


@attrs.frozen
class Format:
    """One format.

    Attributes:
        name: its name in errors, such as ``snapshot file``.
        version: the version that is written, and the newest one that is read.
    """

    name: str
    version: int

    def written(self, _: int) -> int:
        """Return the present version, for an object that was read in any version."""
        return self.version

    def check(self, found: Any, where: str = "") -> int:
        """Return the version in which something was written if this Millpond can read it.

        Args:
            found: the version in the file.
            where: the path of the file, if it has one.

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
