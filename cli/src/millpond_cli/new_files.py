"""Files that commands write: complete under their names, or not there at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from millpond.errors import PlaceError


@contextmanager
def open_new(target: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name when it is complete.

    Until then it has a hidden temporary name next to it. A symbolic link under the name is not
    followed: it counts as a file.

    Args:
        target: the name.
        replace: whether a file of that name is replaced.

    Raises:
        PlaceError: there is a file of that name, and it is not to be replaced.
        OSError: the file cannot be written.
    """
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
    with temporary.open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _publish(temporary, target, replace=replace)
        finally:
            temporary.unlink(missing_ok=True)


def _publish(temporary: Path, target: Path, *, replace: bool) -> None:
    if replace:
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise PlaceError(str(target), "it is there already; name another file") from None
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise PlaceError(str(target), "it is there already; name another file") from None
        temporary.rename(target)


def write_text(target: Path, text: str) -> None:
    """Write a text file; a file of that name is replaced when the new one is complete."""
    with open_new(target, replace=True) as file:
        file.write(text.encode())
