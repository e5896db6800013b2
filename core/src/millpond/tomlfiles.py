"""Text and TOML files that somebody named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from millpond.errors import ConfigError

__all__ = ["line_of", "read_text", "read_toml"]


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a tree; ConfigError where there is none or it does not parse."""
    try:
        return tomllib.loads(read_text(path))
    except ConfigError:
        raise
    except ValueError as error:  # also of a number with too many digits
        raise ConfigError("file", f"is not TOML: {error}", place=str(path)) from error
    except RecursionError as error:
        raise ConfigError("file", "is nested too deeply", place=str(path)) from error


def line_of(text: str, key: str) -> int | None:
    """The line of a TOML file where a dotted key most likely stands."""
    last = re.escape(key.rpartition(".")[2])
    spelt = last.replace("\\-", "[-_]")
    found = re.search(rf"^[^#\n]*?(?<![\w-]){spelt}[\"']?\s*[=\].]", text, re.MULTILINE)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def read_text(path: str | Path) -> str:
    """The text of a file that somebody named; ConfigError where it cannot be read as one."""
    file = Path(path)
    try:
        odd = file.exists() and not (file.is_file() or file.is_dir())
    except (OSError, ValueError):
        odd = False  # reading it says why
    if odd:
        raise ConfigError("file", "is no regular file", place=str(path))
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("file", reason, place=str(path)) from error
    except ValueError as error:
        raise ConfigError("file", f"is no UTF-8 text: {error}", place=str(path)) from error
