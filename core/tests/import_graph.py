"""The import graph of modules, including imports for types only and in functions."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = ["circles", "graph_of", "modules_below"]


def modules_below(source: Path) -> dict[str, Path]:
    """Return all modules of a source folder, by name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def graph_of(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    return {
        name: {used for used in imported(path, modules) if used != name}
        for name, path in modules.items()
    }


def imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules that a file imports, directly or by their names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
    return found & modules.keys()


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that reach each other, sorted."""
    reach = {name: reached(name, graph) for name in graph}
    together = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in graph
        if name in reach[name]
    }
    return [list(circle) for circle in sorted(together)]


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    """Return the modules that a module imports directly or indirectly."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found
