"""The file formats and their versions. Each format has its own version number.

If earlier code could not read a changed format, the version must be increased. The code that reads
the format then has to distinguish the versions, because older files must remain readable.
"""

from __future__ import annotations

from typing import Any

import attrs

from millpond.errors import ApiVersionError, CorruptSnapshotError


@attrs.frozen
class Format:
    """A file format.

    Attributes:
        name: the format's name in errors, such as ``snapshot file``.
        version: the version that is written; older versions can be read, too.
    """

    name: str
    version: int

    def written(self, _: int) -> int:
        """Return the version in which files are written, whatever version was read."""
        return self.version

    def check(self, found: Any, where: str = "") -> int:
        """Return ``found`` if this Millpond can read files of that version.

        Args:
            found: the version that is stored in the file.
            where: the path of the file, for errors.

        Raises:
            ApiVersionError: only a newer Millpond can read the version.
            CorruptSnapshotError: ``found`` is not a version.
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
