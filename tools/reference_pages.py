"""Generate the reference of the commands, and the tables of the options and of the errors.

    python tools/reference_pages.py

rewrites the tables; run it after a change of an option or an error class. A test compares the
pages with the sources. The tables take keys, types, defaults and causes from the classes, and
keep meanings and cures in the pages. A new option starts with its class's description.
The site's build inserts the commands into the command-line page.
"""

import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import click
from millpond import errors
from millpond.config import ByteSize, Config
from millpond.config.structuring import NO_KEY, Secret
from millpond_cli.main import commands
from millpond_lmdb.options import LmdbOptions
from millpond_rocksdb.options import RocksDBOptions

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
TABLES = {
    "configuration": (Config, ""),
    "rocksdb": (RocksDBOptions, "backend.rocksdb."),
    "lmdb": (LmdbOptions, "backend.lmdb."),
}
UNITS = [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")]
PLAIN = (tuple, types.UnionType, Union, None)  # origins of types that one key can hold
ROW = re.compile(r"^\| `([^`]+)` \| [^|]* \| [^|]* \| (.*) \|$", re.MULTILINE)


def option_table(page: str, table: str) -> str:
    """Return one table of options, with the meanings that the page has for them."""
    meanings = dict(ROW.findall(page))
    cls, prefix = TABLES[table]
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, kind, default, description in options(cls, prefix):
        meaning = meanings.get(key) or description
        lines.append(f"| `{key}` | {kind} | {default} | {meaning} |")
    return "\n".join(lines)


def options(cls: type, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, type, default and description of each option of a class and its sections."""
    hints = get_type_hints(cls)
    for field in attrs.fields(cls):
        key = prefix + field.name.replace("_", "-")
        kind = hints[field.name]
        if field.metadata == NO_KEY or get_origin(kind) not in PLAIN:
            continue
        if attrs.has(kind):
            yield from options(kind, f"{key}.")
            continue
        description = re.search(
            rf"^ *{field.name}: (.*?)(?=^ *\w+: |\Z)", cls.__doc__ or "", re.MULTILINE | re.DOTALL
        )
        words = " ".join(description[1].split()) if description else ""
        yield key, type_name(kind), default_text(field.default, kind), words


def type_name(kind: Any) -> str:
    """Return the name that the page uses for an option's type."""
    members = [member for member in get_args(kind) if member not in (type(None), ...)]
    names = {ByteSize: "bytes", Secret: "text", str: "text", int: "number", float: "number"}
    if get_origin(kind) is tuple:
        return "names"
    return names.get(members[0] if members else kind, "true or false")


def default_text(default: Any, kind: Any) -> str:
    """Return an option's default as a user would write it."""
    if (
        default is None
        or default == ()
        or default is attrs.NOTHING
        or isinstance(default, attrs.Factory)
    ):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if kind is ByteSize:
        for size, unit in UNITS:
            if default and default % size == 0:
                return f"{default // size}{unit}"
    return f"`{default}`" if isinstance(default, str) else str(default)


def configuration_page(page: str) -> str:
    """Return the configuration page with each table between its two comments rewritten."""
    return re.sub(
        r"(<!-- options: (\w+) -->\n).*?(\n<!-- end -->)",
        lambda found: found[1] + option_table(page, found[2]) + found[3],
        page,
        flags=re.DOTALL,
    )


def errors_page(page: str) -> str:
    """Return the page of errors with its table of classes between two comments rewritten."""
    cures = dict(re.findall(r"^\| \[`(\w+)`\].* \| (.*) \|$", page, re.MULTILINE))
    lines = ["| error | cause | cure |", "|---|---|---|"]
    for name, kind in sorted(vars(errors).items()):
        if isinstance(kind, type) and issubclass(kind, errors.MillpondError) and name[0] != "_":
            cause = (kind.__doc__ or "").splitlines()[0].replace("``", "`").rstrip(".")
            link = f"[`{name}`](api/errors.md#millpond.errors.{name})"
            lines.append(f"| {link} | {cause} | {cures.get(name, '')} |")
    return re.sub(
        r"(<!-- errors -->\n).*?(\n<!-- end -->)",
        lambda found: found[1] + "\n".join(lines) + found[2],
        page,
        flags=re.DOTALL,
    )


def command_reference() -> str:
    """Return the reference of all commands as Markdown."""
    context = click.Context(commands, info_name="millpond")
    return "\n".join(command_text(commands, context, 2))


def command_text(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Yield the paragraphs of a command and of its subcommands."""
    if level > 2:  # noqa: PLR2004
        yield f"{'#' * (level - 1)} {context.command_path}\n"
    help_text = inspect.cleandoc(command.help or "").replace("\b", "")
    if not isinstance(command, click.Group):
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"    {context.command_path} {usage}\n"
    yield re.sub(r"(?<!\n)\n(?!\n)", " ", help_text) + "\n"
    rows = [row for parameter in command.params for row in parameter_rows(parameter, context)]
    if rows:
        yield "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            inner = click.Context(child, info_name=name, parent=context)
            yield from command_text(child, inner, level + 1)


def parameter_rows(parameter: click.Parameter, context: click.Context) -> Iterator[str]:
    """Yield the table row of an option; arguments have none."""
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
    default = parameter.to_info_dict().get("default")
    shown = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
    words = " ".join((parameter.help or "").split()).replace("|", "\\|")
    yield f"| {names}{value.replace('|', ' or ')} | {shown} | {words} |"


def main() -> None:
    """Rewrite the tables of both pages."""
    for name, rewrite in (("configuration.md", configuration_page), ("errors.md", errors_page)):
        page = REFERENCE / name
        page.write_text(rewrite(page.read_text()))


if __name__ == "__main__":
    main()
