"""The texts of paths and URIs that commands are given."""

from __future__ import annotations

import re
from pathlib import Path

import click

__all__ = ["file_path", "is_uri", "place_text"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def place_text(value: str) -> str:
    """A path or URI as it was given; a wrong call where it is the text of an unset variable."""
    if not value.strip():
        raise click.BadParameter("the path is empty")
    return value


def file_path(value: str) -> Path:
    """The path of a local file; a wrong call as with ``place_text``, and for a URI."""
    if is_uri(place_text(value)):
        raise click.BadParameter(f"{value!r} is a URI; a local path is expected")
    return Path(value)


def is_uri(path: str) -> bool:
    """Whether a path has a scheme."""
    return _SCHEME.match(path) is not None
