"""Write the signatures of all public names into `tests/documentation/public_api/`, a stub a module.

The stubs are those of the last release: a maintainer writes them when a release is made
(docs/releasing.md). A test compares them with the sources.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference" / "api"
FOLDER = ROOT / "tests" / "documentation" / "public_api"
SOURCES = ("core/src", "spark/src")
MADE_BY_MILLPOND = {
    *("KeyedStateHandle", "OperatorStateHandle", "SavepointHandle", "SavepointWriter"),
    *("RuntimeContext", "SnapshotContext", "StateInitializationContext", "VectorizedContext"),
    *("OperatorMetrics", "SubtaskMetrics"),
}
"""Classes whose constructors are not public; the objects come from functions and methods."""
KINDS = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}


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
    """Return the stub of a class with its public members, inherited ones included."""
    members = {
        member: value
        for member, value in found.all_members.items()
        if not member.startswith("_") or (is_constructor(value) and name not in MADE_BY_MILLPOND)
    }
    parts = [stub(member, value) for member, value in sorted(members.items())]
    body = "".join(parts) or "...\n"
    public = {each.rpartition(".")[2] for each in public_names()}
    bases = [
        each for each in (str(base).rpartition(".")[2] for base in found.bases) if each in public
    ]
    heading = f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    return f"{heading}:\n" + re.sub(r"^(?=.)", "    ", body, flags=re.MULTILINE)


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
    """Write the stubs anew."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.pyi"):
        old.unlink()
    for module, text in stubs().items():
        (FOLDER / f"{module}.pyi").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
