"""No class overrides a method only to refuse it."""

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
    "millpond.backend.operator_state: merge_namespaces": "users' lists, without a namespace",
    "millpond.backend.operator_state: set_current_namespace": "users' lists, the same",
    "millpond.local.queryable: serialize": "what is read for show is never written",
    "millpond_spark.values.carrier: pack": "a void column has no value but null",
}
"""The methods that may refuse, with the reason."""


def refusals(text):
    """Return the overriding methods of a source that only raise."""
    methods = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    for method in methods:
        overrides = any(ast.unparse(each) == "override" for each in method.decorator_list)
        body = method.body[ast.get_docstring(method) is not None :]
        if overrides and body and isinstance(body[0], ast.Raise):
            yield method.name


def test_no_class_refuses_what_it_inherits():
    """In the core and the plugins, no overriding method only raises, except the known ones."""
    found = {
        f"{name}: {method}"
        for source in SOURCES
        for name, path in modules_below(HERE / source).items()
        for method in refusals(path.read_text())
    }
    assert found == set(REFUSED)


def test_a_refusal_is_found():
    """The check finds an overriding method that only raises, and ignores one that may raise."""
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
