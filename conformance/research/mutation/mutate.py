"""Make small changes to source code: operators, constants, conditions, calls, returns.

cosmic-ray and mutmut change files in place, or run a project's own tests. Here the kit judges a
mutant in child processes, while other processes use the same files. So a mutant exists only in
memory: `sitecustomize` in this folder makes each process import the changed module.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

import attrs

__all__ = ["Mutation", "mutated", "mutations"]

_COMPARES: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.LShift: ast.RShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@attrs.frozen
class Mutation:
    """One change: its number in the module, its line, and the code before and after."""

    place: int
    line: int
    before: str
    after: str


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


def _negated(condition: ast.expr) -> ast.expr:
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    return ast.UnaryOp(ast.Not(), condition)


def _changed(node: Any) -> Any:
    """Return a node that replaces another one; None if there is none."""
    other = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARES:
            other.ops = [_COMPARES[type(op)]()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS:
            other.op = _OPERATORS[type(op)]()
        case ast.Constant(value=bool() as value):
            other.value = not value
        case ast.Constant(value=int() as value):
            other.value = value + 1
        case ast.If() | ast.While() | ast.IfExp():
            other.test = _negated(other.test)
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            other.value = ast.Constant(None)
        case _:
            return None
    return other


class _Walk(ast.NodeTransformer):
    """Visitor that numbers the places that can be changed, and changes one of them."""

    def __init__(self, wanted: int = -1) -> None:
        self.found: list[Mutation] = []
        self._wanted = wanted

    def visit(self, node: ast.AST) -> Any:
        """Visit a node, except annotations and docstrings."""
        changed = _changed(node)
        if changed is not None:
            number = len(self.found)
            line = getattr(node, "lineno", 0)
            after = "nothing" if isinstance(changed, ast.Pass) else _text(changed)
            self.found.append(Mutation(number, line, _text(node), after))
            if number == self._wanted:
                return ast.copy_location(changed, node)
        return super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Visit only the value."""
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> Any:
        """Visit nothing, because an argument has only an annotation."""
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Visit defaults and body, but neither decorators nor the return type."""
        node.args.defaults = [self.visit(each) for each in node.args.defaults]
        node.args.kw_defaults = [each and self.visit(each) for each in node.args.kw_defaults]
        node.body = [self.visit(each) for each in node.body]
        return node


def mutations(source: str) -> Iterator[Mutation]:
    """Return all possible changes of a module."""
    walk = _Walk()
    walk.visit(ast.parse(source))
    yield from walk.found


def mutated(source: str, place: int) -> ast.Module:
    """Return the module's source with one place changed."""
    tree: ast.Module = _Walk(place).visit(ast.parse(source))
    return ast.fix_missing_locations(tree)
