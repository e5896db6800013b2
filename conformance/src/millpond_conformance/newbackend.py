"""``millpond new-backend``: a plugin's whole tree, which passes as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import click
from millpond.cli.terminal import say, tell
from millpond.errors import ConfigError

__all__ = ["new_backend", "write_tree"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


def _templates(folder: Traversable, below: str = "") -> Iterator[tuple[str, str]]:
    """Relative paths without their ``.txt``, and texts."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _templates(entry, f"{below}{entry.name}/")
        elif entry.name.endswith(".txt"):
            yield below + entry.name.removesuffix(".txt"), entry.read_text(encoding="utf-8")


def write_tree(name: str, target: Path) -> list[Path]:
    """Write the tree of a new backend.

    Args:
        name: the word that users will write in configuration.
        target: a folder that does not exist yet.

    Returns:
        The files.

    Raises:
        ConfigError: the name cannot be a package's, or is taken, or the folder exists.
    """
    if not _NAME.fullmatch(name):
        reason = f"{name!r} must be a lower-case word of letters, digits and underscores"
        raise ConfigError("NAME", reason, "new-backend")
    if find_spec(f"millpond_{name}") is not None:
        reason = f"the package millpond_{name} is installed already; take another name"
        raise ConfigError("NAME", reason, "new-backend")
    if target.exists():
        raise ConfigError(str(target), "it exists already", "new-backend")
    words = {
        "@name@": name,
        "@Name@": name.title().replace("_", ""),
        "@package@": f"millpond_{name}",
        "@distribution@": f"millpond-{name.replace('_', '-')}",
    }
    written = []
    for place, text in _templates(files("millpond_conformance") / "template"):
        path = target / place.replace("/package/", f"/{words['@package@']}/")
        for word, value in words.items():
            text = text.replace(word, value)  # noqa: PLW2901 - one word after the other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return sorted(written)


@click.command("new-backend")
@click.argument("name")
@click.option("--directory", type=click.Path(path_type=Path), help="By default millpond-NAME.")
def new_backend(name: str, directory: Path | None) -> None:
    """Write a new state backend NAME: a distribution of its own, which conforms as it stands."""
    target = directory or Path(f"millpond-{name.replace('_', '-')}")
    try:
        written = write_tree(name, target)
    except ConfigError as error:
        raise click.BadParameter(error.reason, param_hint=error.key) from error
    for path in written:
        say(str(path))
    say("Next:")
    tell(f"  pip install -e {target}")
    tell(f"  millpond conformance {name} --profile quick")
