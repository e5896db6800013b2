"""No class refuses what it inherits: a class has the operations that it can do."""

import ast
from pathlib import Path

from core.tests.import_graph import modules_below

HERE = Path(__file__).resolve().parents[2]
SOURCES = (
    "core/src",
    "spark/src",
    "cli/src",
    "plugins/heap/src",
    "plugins/rocksdb/src",
    "plugins/lmdb/src",
)


REFUSED = {
    "millpond.backend.operator_state.operator_states: merge_namespaces": "users' lists, without a namespace",
    "millpond.backend.operator_state.operator_states: set_current_namespace": "users' lists, the same",
    "millpond.local.queryable: serialize": "what is read for show is never written",
    "millpond_spark.values.carrier: pack": "a void column has no value but null",
}
"""The methods that refuse, and why they may."""


def refusals(text):
    """The overriding methods of a source text that do nothing but raise."""
    methods = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    for method in methods:
        overrides = any(ast.unparse(each) == "override" for each in method.decorator_list)
        body = method.body[ast.get_docstring(method) is not None :]
        if overrides and body and isinstance(body[0], ast.Raise):
            yield method.name


def test_no_class_refuses_what_it_inherits():
    """No overriding method in the core and the plugins only raises, but for those known."""
    found = {
        f"{name}: {method}"
        for source in SOURCES
        for name, path in modules_below(HERE / source).items()
        for method in refusals(path.read_text())
    }
    assert found == set(REFUSED)


def test_a_refusal_is_found():
    """A method that overrides another to raise is found; one that may raise is not."""
    text = """
class Duck:
    @override
    def bark(self):
        "Ducks do not."
        raise TypeError

    @override
    def swim(self):
        if not self.pond:
            raise ValueError

    def fly(self):
        raise NotImplementedError
"""
    assert list(refusals(text)) == ["bark"]
