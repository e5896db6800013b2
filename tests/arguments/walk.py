"""Every public function and method there is, found by walking.

Public are the names that the public modules list, the methods of the classes among them, and those
of every class that one of these is said to take or give.
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
from millpond import errors, local, spark, testing, windows
from pyspark.sql import SparkSession

__all__ = ["callable_of", "callables", "hints", "parameters"]

MODULES = (mp, local, testing, windows, spark)
ANY_NAME = inspect.Parameter.VAR_KEYWORD


def ours(thing):
    """Whether something is Millpond's."""
    return str(getattr(thing, "__module__", "")).startswith("millpond")


def names_of(module):
    """What a module's annotations may name; also what it imports for types only."""
    return {**names_of_all(), **vars(sys.modules[module])}


@cache
def names_of_all():
    """What any module of Millpond's names."""
    for each in pkgutil.walk_packages(mp.__path__, "millpond."):
        importlib.import_module(each.name)
    mine = [vars(other) for name, other in sys.modules.items() if name.startswith("millpond.")]
    return {"SparkSession": SparkSession, **{key: names[key] for names in mine for key in names}}


def hints(function):
    """The annotations of a function, or of a class's constructor, as types."""
    if isinstance(function, type):
        function = function.__init__
    plain = inspect.unwrap(getattr(function, "__func__", function))
    return hints_of(plain, plain.__module__) if ours(plain) and inspect.isfunction(plain) else {}


def fields(cls):
    """The annotations of what a class's instances show, as types."""
    found = {}
    for each in reversed(cls.__mro__):
        if ours(each):
            found |= hints_of(each, each.__module__)
    return {name: hint for name, hint in found.items() if not name.startswith("_")}


def hints_of(annotated, module):
    """The same of one object; an annotation is text, or a type already."""
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
    """Millpond's classes that a type is made of."""
    origin = get_origin(hint)
    plain = hint if origin is None else origin
    if isinstance(plain, type) and ours(plain):
        yield plain
    for part in get_args(hint):
        for each in part if isinstance(part, list) else [part]:
            yield from classes_in(each)


def methods_of(cls):
    """The public methods and properties of a class, inherited ones of Millpond's too."""
    for name in sorted(dir(cls)):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") or isinstance(getattr(cls, name), type):
            continue
        if isinstance(found, property):
            yield name, found.fget
        elif callable(getattr(cls, name)) and ours(inspect.unwrap(getattr(cls, name))):
            yield name, getattr(cls, name)


def reached(thing):
    """The classes that something public is said to take or give."""
    if isinstance(thing, type):
        for hint in fields(thing).values():
            yield from classes_in(hint)
        for _, method in methods_of(thing):
            yield from reached(method)
    elif callable(thing):
        for hint in hints(thing).values():
            yield from classes_in(hint)


def classes():
    """All classes, and all functions, by name."""
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
    """Whether a class is among the public names, rather than given out by what is."""
    return any(getattr(module, cls.__name__, None) is cls for module in MODULES)


@cache
def callables():
    """Everything that can be called, by its name: ``function``, ``Class`` or ``Class.method``."""
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
    """The names of what a caller gives, without self and what may have any name."""
    plain = inspect.signature(function).parameters
    return [name for name, each in plain.items() if name != "self" and each.kind is not ANY_NAME]


def takes_any_name(function):
    """Whether a caller may give what has no parameter of its own."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return ANY_NAME in kinds


def callable_of(target):
    """What a target calls: targets are named as callables are, with a variant in brackets."""
    return callables()[target.partition(" [")[0]]
