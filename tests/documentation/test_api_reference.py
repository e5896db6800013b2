"""The API reference documents exactly the public names."""

import re
from importlib import import_module
from pathlib import Path

import click
import millpond
import pytest
from millpond import errors
from millpond_cli.main import commands

from tools import reference_pages

API = Path(__file__).parents[2] / "docs" / "reference" / "api"
MODULES = ["local", "testing", "windows"]


def documented():
    """Return every name that a page of the reference asks for."""
    return {
        name
        for page in API.glob("*.md")
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
    }


def test_every_public_name_of_the_core_is_documented():
    """Each name in `millpond.__all__` has an entry; modules have a page instead."""
    objects = {name for name in millpond.__all__ if not name.startswith("__")}
    modules = {"errors", "functions", "local", "patterns", "testing", "windows", "hookimpl"}
    assert {f"millpond.{name}" for name in objects - modules} <= documented()


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_of_a_module_is_documented(module):
    """Each name in the module's `__all__` has an entry."""
    names = {name.rpartition(".")[2] for name in documented()}
    assert set(import_module(f"millpond.{module}").__all__) <= names


def test_every_error_is_documented():
    """Each public class of errors has an entry."""
    classes = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.MillpondError) and name[0] != "_"
    }
    assert {f"millpond.errors.{name}" for name in classes} <= documented()


def test_every_public_name_of_spark_is_documented():
    """Each name in `millpond_spark.__all__` has an entry."""
    text = Path(import_module("millpond_spark").__file__).read_text()
    names = re.findall(r'"(\w+)"', text.partition("__all__ = ")[2])
    assert {f"millpond_spark.{name}" for name in names} <= documented()


def test_every_documented_name_exists():
    """The reference names nothing that a user cannot import."""
    for name in documented():
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name


def test_the_configuration_page_is_current():
    """Key, type and default of each option in the page agree with its class.

    If this fails, run ``python tools/reference_pages.py`` and describe new options in the page.
    """
    page = (API.parent / "configuration.md").read_text()
    assert reference_pages.configuration_page(page) == page
    assert "|  |" not in page


def test_the_table_of_errors_is_current():
    """Each error class has its cause and a cure in the page; see the test above."""
    page = (API.parent / "errors.md").read_text()
    assert reference_pages.errors_page(page) == page
    assert "|  |" not in page


def test_each_command_has_a_section():
    """The generated reference has a section for each command, with each of its options."""
    text = reference_pages.command_reference()
    context = click.Context(commands, info_name="millpond")
    for name in commands.list_commands(context):
        assert f"## millpond {name}\n" in text
    assert "### millpond state dump\n" in text
    assert "| `--limit`" in text
