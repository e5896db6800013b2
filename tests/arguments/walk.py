"""Find every public function and method.

Public are the names that public modules list, the methods of their classes, and the methods of all
classes that occur in the annotations of public functions.
"""

import importlib
import inspect
import pkgutil
import sys
import types
from enum import Enum
from functools import cache
from typing import get_args, get_origin

import millpond as mp
from millpond import errors, local, patterns, spark, testing, windows
from pyspark.sql import SparkSession

__all__ = ["callable_of", "callables", "hints", "parameters"]

MODULES = (mp, local, patterns, testing, windows, spark)
ANY_NAME = inspect.Parameter.VAR_KEYWORD


def ours(thing):
    """Return whether an object belongs to Millpond."""
    return str(getattr(thing, "__module__", "")).startswith("millpond")


def names_of(module):
    """Return the names that a module's annotations can use, including imports for types only."""
    return {**names_of_all(), **vars(sys.modules[module])}


@cache
def names_of_all():
    """Return the names that annotations of any module of Millpond can use."""
    for each in pkgutil.walk_packages(mp.__path__, "millpond."):
        importlib.import_module(each.name)
    mine = [vars(other) for name, other in sys.modules.items() if name.startswith("millpond.")]
    return {"SparkSession": SparkSession, **{key: names[key] for names in mine for key in names}}


def hints(function):
    """Return the annotations of a function, or of a class's constructor, as types."""
    if isinstance(function, type):
        function = function.__init__
    plain = inspect.unwrap(getattr(function, "__func__", function))
    return hints_of(plain, plain.__module__) if ours(plain) and inspect.isfunction(plain) else {}


def fields(cls):
    """Return the annotations of the attributes of a class, as types."""
    found = {}
    for each in reversed(cls.__mro__):
        if ours(each):
            found |= hints_of(each, each.__module__)
    return {name: hint for name, hint in found.items() if not name.startswith("_")}


def hints_of(annotated, module):
    """Return an object's annotations as types, from strings or types."""
    known = None
    found = {}
    for name, hint in inspect.get_annotations(annotated).items():
        if isinstance(hint, str):
            known = known or names_of(module)
            found[name] = eval(hint, known)
        else:
            found[name] = hint
    return found


def classes_in(hint):
    """Yield Millpond's classes that occur in a type."""
    origin = get_origin(hint)
    plain = hint if origin is None else origin
    if isinstance(plain, type) and ours(plain):
        yield plain
    for part in get_args(hint):
        for each in part if isinstance(part, list) else [part]:
            yield from classes_in(each)


def methods_of(cls):
    """Return the public methods and properties of a class, including those inherited from Millpond."""
    for name in sorted(dir(cls)):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") or isinstance(getattr(cls, name), type):
            continue
        if isinstance(found, property):
            yield name, found.fget
        elif callable(getattr(cls, name)) and ours(inspect.unwrap(getattr(cls, name))):
            yield name, getattr(cls, name)


def reached(thing):
    """Return the classes in the annotations of a public object."""
    if isinstance(thing, type):
        for hint in fields(thing).values():
            yield from classes_in(hint)
        for _, method in methods_of(thing):
            yield from reached(method)
    elif callable(thing):
        for hint in hints(thing).values():
            yield from classes_in(hint)


def classes():
    """Return all public classes and functions, by name."""
    waiting = [getattr(module, name) for module in MODULES for name in module.__all__]
    found = {}
    while waiting:
        thing = waiting.pop()
        if not callable(thing) or isinstance(thing, types.ModuleType) or not ours(thing):
            continue
        if isinstance(thing, type) and issubclass(thing, (Enum, errors.MillpondError)):
            continue
        name = thing.__name__
        if name not in found:
            found[name] = thing
            waiting += reached(thing)
    return found


def constructed_by_users(cls):
    """Return whether users construct a class, because its name is public."""
    return any(getattr(module, cls.__name__, None) is cls for module in MODULES)


@cache
def callables():
    """Return all public callables by name: ``function``, ``Class`` or ``Class.method``."""
    found = {}
    for name, thing in classes().items():
        if not isinstance(thing, type):
            found[name] = thing
            continue
        if constructed_by_users(thing):
            found[name] = thing
        found |= {
            f"{name}.{method}": getattr(thing, method)
            for method, function in methods_of(thing)
            if not isinstance(inspect.getattr_static(thing, method), property)
        }
    return found


def parameters(function):
    """Return the names of a callable's parameters, without self, ``*args`` and ``**kwargs``."""
    plain = inspect.signature(function).parameters
    return [name for name, each in plain.items() if name != "self" and each.kind is not ANY_NAME]


def takes_any_name(function):
    """Return whether a callable has ``*args`` or ``**kwargs``."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return ANY_NAME in kinds


def callable_of(target):
    """Return the callable that a target calls; a target's name may end with a variant in brackets."""
    return callables()[target.partition(" [")[0]]
