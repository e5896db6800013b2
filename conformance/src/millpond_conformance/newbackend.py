"""``millpond new-backend``: the command that writes the files of a new plugin for a backend."""

from __future__ import annotations

import keyword
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import click
from millpond.errors import ConfigError
from millpond.plugins import get_registry
from millpond_cli.targets import file_path
from millpond_cli.terminal import say, tell

_NAME = re.compile(r"(?=.{1,31}$)[a-z][a-z0-9]*(_[a-z0-9]+)*")
_OURS = ("conformance", "heap", "lmdb", "rocksdb")
_WORDS_OF_THE_SPI = ("byte", "keyed")
"""Names that a backend may not have: its classes would be called like their base classes."""


def _templates(folder: Traversable, below: str = "") -> Iterator[tuple[str, str]]:
    """Yield the relative path, without ``.txt``, and the text of each template.

    Args:
        folder: the folder with the templates.
        below: the path of the folder, relative to the folder of all templates.
    """
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _templates(entry, f"{below}{entry.name}/")
        elif entry.name.endswith(".txt"):
            yield below + entry.name.removesuffix(".txt"), entry.read_text(encoding="utf-8")


def write_tree(name: str, target: Path) -> list[Path]:
    """Write the files of a new backend, and return their paths.

    Args:
        name: the backend's name, which users will write in configuration.
        target: the folder to create.

    Raises:
        ConfigError: the name cannot be that of a package, or is in use, or the folder exists.
    """
    if reason := _unusable(name):
        raise ConfigError("NAME", reason, "new-backend")
    if os.path.lexists(target):
        raise ConfigError(str(target), "it exists already", "new-backend")
    words = {
        "@name@": name,
        "@Name@": name.title().replace("_", ""),
        "@package@": f"millpond_{name}",
        "@distribution@": _distribution(name),
    }
    written = []
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        for place, text in _templates(files("millpond_conformance") / "template"):
            path = temporary / place.replace("/package/", f"/{words['@package@']}/")
            for word, value in words.items():
                text = text.replace(word, value)  # noqa: PLW2901 - one word after the other
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(target / path.relative_to(temporary))
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(written)


def _distribution(name: str) -> str:
    return f"millpond-{name.replace('_', '-')}"


def _unusable(name: str) -> str:
    """Return an error message if a name cannot be that of a new backend, else an empty string."""
    if not _NAME.fullmatch(name):
        return (
            f"{name!r} must be a lower-case word: at most 31 letters, digits and single "
            "underscores, a letter first and no underscore last"
        )
    if keyword.iskeyword(name):
        return f"{name!r} is a keyword of Python; take another name"
    if name in _WORDS_OF_THE_SPI:
        return f"{name!r} would give a class the name of one of Millpond's; take another name"
    taken = _taken(name)
    return f"{taken}; take another name" if taken else ""


def _taken(name: str) -> str:
    """Return an error message if a backend or a package uses the name, else an empty string."""
    for record in get_registry().records:
        if record.name == name:
            return f"{record.distribution} is installed and provides {name!r} already"
    if name in _OURS:
        return f"{_distribution(name)} is a distribution of Millpond's own"
    if find_spec(f"millpond_{name}") is not None:
        return f"the package millpond_{name} is installed already"
    try:
        found = distribution(_distribution(name))
    except PackageNotFoundError:
        return ""
    return f"the distribution {found.name} is installed already"


@click.command("new-backend")
@click.argument("name")
@click.option("--directory", type=file_path, help="Folder to create; by default millpond-NAME.")
def new_backend(name: str, directory: Path | None) -> None:
    """Write a new state backend NAME: a distribution of its own that passes the kit."""
    target = directory or Path(_distribution(name))
    try:
        written = write_tree(name, target)
    except ConfigError as error:
        raise click.BadParameter(error.reason, param_hint=error.key) from error
    for path in written:
        say(str(path))
    say("Next:")
    tell(f"  pip install -e {target}")
    tell(f"  millpond conformance {name} --profile quick")
