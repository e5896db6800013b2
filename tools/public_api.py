"""Write the signatures of all public names into `tests/documentation/public_api/`, a stub a module.

The stubs are those of the last release: a maintainer writes them when a release is made
(docs/releasing.md). A test compares them with the sources.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference" / "api"
FOLDER = ROOT / "tests" / "documentation" / "public_api"
SOURCES = ("core/src", "spark/src")
MADE_BY_MILLPOND = {
    *("KeyedStateHandle", "OperatorStateHandle", "SavepointHandle", "SavepointWriter"),
    *("RuntimeContext", "SnapshotContext", "StateInitializationContext", "VectorizedContext"),
    *("OperatorMetrics", "SubtaskMetrics", "QueryPositions", "SourcePosition"),
}
"""Classes whose constructors are not public; the objects come from functions and methods."""
KINDS = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}


@cache
def public_names() -> list[str]:
    """Return the names in the API reference, which are the public ones."""
    pages = (page.read_text() for page in sorted(PAGES.glob("*.md")))
    return sorted(
        {name for page in pages for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)}
    )


def stubs() -> dict[str, str]:
    """Return the stub of each module with public names, from the sources."""
    loader = griffe.GriffeLoader(
        search_paths=[ROOT / each for each in SOURCES],
        extensions=griffe.load_extensions(f"{ROOT}/tools/site_hooks.py:AttrsSignatures"),
    )
    for package in ("millpond", "millpond_spark"):
        loader.load(package)
    loader.resolve_aliases(implicit=True)
    modules = defaultdict(list)
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        modules[module].append(stub(attribute, loader.modules_collection[name]))
    return {module: "\n".join(parts) for module, parts in modules.items()}


def stub(name: str, found: griffe.Object | griffe.Alias) -> str:
    """Return the stub of a class, function or attribute."""
    target = found.final_target if isinstance(found, griffe.Alias) else found
    if isinstance(target, griffe.Class):
        return stub_of_class(name, target)
    if isinstance(target, griffe.Function):
        return stub_of_function(name, target)
    return f"{name}: {getattr(target, 'annotation', None) or 'object'}\n"


def stub_of_class(name: str, found: griffe.Class) -> str:
    """Return the stub of a class with its public members.

    A member that is the same in a public class above it is in the stub of that class only.
    """
    parts = members(found, with_constructor=name not in MADE_BY_MILLPOND)
    above = {part for each in public_ancestors(found) for part in members(each)}
    body = "".join(part for part in parts if part not in above) or "...\n"
    bases = base_names(found)
    heading = f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    return f"{heading}:\n" + re.sub(r"^(?=.)", "    ", body, flags=re.MULTILINE)


def members(found: griffe.Class, *, with_constructor: bool = True) -> list[str]:
    """Return the stubs of a class's public members, inherited ones included."""
    return [
        stub(member, value)
        for member, value in sorted(found.all_members.items())
        if not member.startswith("_") or (with_constructor and is_constructor(value))
    ]


def public_ancestors(found: griffe.Class) -> list[griffe.Class]:
    """Return the public classes from which a class inherits, the nearest first."""
    public = {each.rpartition(".")[2] for each in public_names()}
    return [each for each in found.mro() if each.name in public]


def base_names(found: griffe.Class) -> list[str]:
    """Return the public and built-in classes above a class, without those above its bases."""
    above = public_ancestors(found)
    bases = (str(base) for each in (found, *found.mro()) for base in each.bases)
    built_in = dict.fromkeys(base for base in bases if base in vars(builtins))
    indirect = {name for each in above for name in base_names(each)}
    return [name for name in (*(each.name for each in above), *built_in) if name not in indirect]


def is_constructor(found: griffe.Object | griffe.Alias) -> bool:
    """Return whether this is a constructor that users call.

    The one of an attrs class with private fields has parameters without annotations: only Millpond
    makes such objects.
    """
    if found.name != "__init__" or not found.is_function:
        return False
    _, *others = found.parameters
    return all(each.annotation for each in others)


def stub_of_function(name: str, found: griffe.Function) -> str:
    """Return the stub of a function or method."""
    lines = [
        f"@{each.value}"
        for each in found.decorators
        if str(each.value) in {"classmethod", "staticmethod"}
    ]
    returns = f" -> {found.returns}" if found.returns else ""
    return "\n".join([*lines, f"def {name}({parameters(found)}){returns}: ...\n"])


def parameters(found: griffe.Function) -> str:
    """Return the parameters of a function as they are declared."""
    parts: list[str] = []
    before = None
    for each in found.parameters:
        if before is griffe.ParameterKind.positional_only and each.kind is not before:
            parts.append("/")
        keyword = each.kind is griffe.ParameterKind.keyword_only
        if keyword and before not in (
            griffe.ParameterKind.keyword_only,
            griffe.ParameterKind.var_positional,
        ):
            parts.append("*")
        text = KINDS.get(each.kind, "") + each.name
        text += f": {each.annotation}" if each.annotation else ""
        if each.default and each.kind not in KINDS:
            text += f" = {expression(each.default)}"
        parts.append(text)
        before = each.kind
    if before is griffe.ParameterKind.positional_only:
        parts.append("/")
    return ", ".join(parts)


def expression(default: object) -> str:
    """Return a default value as it is written, or `...` if its form is no Python."""
    try:
        ast.parse(str(default), mode="eval")
    except SyntaxError:
        return "..."
    return str(default)


def main() -> int:
    """Replace the stubs."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.pyi"):
        old.unlink()
    for module, text in stubs().items():
        (FOLDER / f"{module}.pyi").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
