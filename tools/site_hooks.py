"""Prepare the documentation site: a hook of mkdocs and an extension of griffe."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the reference of the commands, and drop the words behind a code block's language.

    These words instruct the tests of the docs.
    """
    if "<!-- commands -->" in markdown:
        sys.path.append(str(Path(__file__).parent))
        commands = import_module("reference_pages").command_reference()
        markdown = markdown.replace("<!-- commands -->", commands)
    return re.sub(r"^(```\w+) .*$", r"\1", markdown, flags=re.MULTILINE)


class AttrsSignatures(griffe.Extension):
    """An extension that gives attrs classes the signature of their generated ``__init__``."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add ``__init__`` to a class that attrs decorates."""
        decorated = any(str(decorator.value).startswith("attrs.") for decorator in cls.decorators)
        if not decorated or "__init__" in cls.members:
            return
        made = getattr(import_module(cls.module.path), cls.name)
        parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        for name, parameter in inspect.signature(made).parameters.items():
            field = cls.members.get(name)
            default = parameter.default
            parameters.append(
                griffe.Parameter(
                    name,
                    annotation=getattr(field, "annotation", None),
                    kind=griffe.ParameterKind(parameter.kind.description),
                    default=None if default is inspect.Parameter.empty else repr(default),
                )
            )
        cls.set_member(
            "__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
        )
