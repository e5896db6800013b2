"""`Any` occurs in public signatures only if a value really may be anything."""

import importlib
import inspect
import re

import pytest

pytestmark = pytest.mark.slow

DOORS = [
    "millpond", "millpond.backend", "millpond.backend.operator_state",     "millpond.spi", "millpond.spi.hooks", "millpond.local", "millpond.spark",
    "millpond.state", "millpond.patterns", "millpond.testing", "millpond.types", "millpond.windows",
]  # fmt: skip

ARGUMENTS = {
    "key": "users' keys, or a function of users' rows",
    "namespace": "users' namespaces",
    "value": "users' values, or a function of users' rows",
    "values": "users' values, as columns or as tables keep them",
    "keys": "users' keys, as columns",
    "place": "a namespace as its table keeps it",
    "row": "users' rows",
    "rows": "users' rows",
    "row_type": "declares rows of any type",
    "broadcast": "users' rows",
    "second": "users' rows",
    "second_event_time": "a function of users' rows",
    "element": "users' rows",
    "event_time": "a function of users' rows",
    "broadcast_event_time": "a function of users' rows",
    "make": "from a user's row to a user's output",
    "late": "from a user's row to a user's output",
    "target": "users' namespaces",
    "sources": "users' namespaces",
    "key_type": "declares keys of any type",
    "type_info": "DDL, or a StructType of Spark, which the core does not know",
    "namespace_type": "declares namespaces of any type",
    "options": "a tree as TOML has it",
    "parameters": "a tree as TOML has it",
    "payload": "plain JSON",
}
RETURNS = {
    "value_serializer": "of users' values, whose type the descriptor's own state tells",
    "serializer_for": "the type is found out at run time",
    "infer_key_type": "the type is found out at run time",
    "millpond_serializers": "of users' values",
    "check": "users' keys and values",
    "copy": "pickled values",
    "deserialize": "pickled values",
    "decode": "users' keys",
    "decode_many": "users' keys",
    "check_with_group": "users' keys",
    "users_function": "a function of any arguments",
    "current_key": "users' keys",
    "keys": "users' keys",
    "keys_and_namespaces": "users' keys and namespaces",
    "addresses": "users' keys and namespaces",
    "get_many": "users' values, as columns or as tables keep them",
    "read_many": "users' values",
    "get": "users' values, stored or as plain Python",
    "items_at": "users' keys and values",
    "place": "a namespace as its table keeps it",
    "prepare_key": "a key as its table keeps it",
    "backend_options": "a tree as TOML has it",
    "get_job_parameter": "as it was configured, in a tree as TOML has it",
    "process_element": "what users' functions yield",
    "on_timer": "what users' functions yield",
}
SINGLE = {
    "AggregatingStateDescriptor.__init__ aggregate_function": "a function or its class; overloads type it",
    "StateBackend.structured_options return": "an instance of the class that the factory names",
    "BroadcastContext.apply_to_keyed_state function": "it takes users' keys",
    "SubtaskStates.apply_to_all_keys function": "it takes users' keys",
    **dict.fromkeys(
        (f"KeyedStream.{form} function" for form in ("map", "flat_map", "filter", "reduce")),
        "of any rows, which come as they are",
    ),
    "CurrentKey.key return": "users' keys",
    "KeyCodec.encode_bound bound": "users' keys, or a tuple of their first parts",
    "SortedEntries.__init__ entries": "pairs of keys and users' values",
    "SortedEntries.pop return": "users' values",
    "SortedEntries.pop default": "users' values",
    "SortedMapTable.range_at return": "users' keys and values",
    "CurrentKey.return_to before": "users' keys",
    "Expiry.of_object return": "users' values with their timestamps",
    "RawValueState.value return": "users' values",
    "RegisteredState.__init__ serializer": "of users' values",
    "RegisteredState.__init__ state": "plugins may wrap it in anything",
    "SnapshotResult.__init__ handle": "handles are above the SPI, each strategy has its own",
    "Strategy.start restored": "handles are above the SPI, each strategy has its own",
    "millpond_restore_operation handles": "handles are above the SPI, each strategy has its own",
    "serialized serializer": "of users' values",
    "TableSource.make_state return": "plugins may wrap it in anything",
    "SubtaskStates.make_state return": "plugins may wrap it in anything",
    "SubtaskStates.table_of return": "which table it is the state's kind tells",
    "KeyedStates.table_of return": "which table it is the state's kind tells",
    "VectorizedContext.__init__ timestamps": "an array of Arrow's, which has no type at run time",
    "WindowAssigner.assign_windows return": "windows of whatever type the assigner says",
    "Windowing.aggregate aggregate_function": "it takes users' rows",
}


def functions(named):
    """Return the public functions of a name: itself, or the methods of a class and its bases in Millpond."""
    if inspect.isfunction(named):
        yield named
    for base in inspect.getmro(named) if inspect.isclass(named) else ():
        if base.__module__.startswith("millpond") and not base.__name__.startswith("_"):
            for name, member in vars(base).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if inspect.isfunction(function) and (name == "__init__" or name[0] != "_"):
                    yield function


def public_anys():
    """Yield each `Any` of a public signature: function, argument, annotation."""
    for door in map(importlib.import_module, DOORS):
        names = {
            *getattr(door, "__all__", ()),
            *[name for name in vars(door) if name.startswith("millpond_")],
        }
        for function in [each for name in names for each in functions(getattr(door, name))]:
            for argument, annotation in inspect.get_annotations(inspect.unwrap(function)).items():
                if re.search(r"\bAny\b", str(annotation)):
                    yield function.__qualname__, argument, annotation


def test_any_has_a_reason():
    """Every `Any` has a listed reason, and every listed reason is needed."""
    lazy, used = set(), set()
    for name, argument, annotation in public_anys():
        single = f"{name} {argument}"
        entry = name.rpartition(".")[2] if argument == "return" else argument
        if single in SINGLE:
            used.add(single)
        elif entry in (RETURNS if argument == "return" else ARGUMENTS):
            used.add((argument == "return", entry))
        else:
            lazy.add(f"{single}: {annotation}")
    assert lazy == set()
    listed = {
        *SINGLE,
        *((True, entry) for entry in RETURNS),
        *((False, each) for each in ARGUMENTS),
    }
    assert listed - used == set()
