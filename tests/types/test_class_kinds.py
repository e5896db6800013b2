"""Models, structs, TypedDicts, literals, aliases and recursive classes as types of state."""

import copy
import dataclasses
import subprocess
import sys
import threading
import time
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, Required, TypeVar

import attrs
import millpond as mp
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from millpond import errors
from millpond.types import Outcome, key_codec_for, serializer_for
from millpond.types.recursion import MAX_DEPTH
from millpond.types.value_columns import column_form
from pyspark import cloudpickle
from typing_extensions import ReadOnly, TypeAliasType, TypedDict

from tests.types import type_language as tl

T = TypeVar("T")


class Order(pydantic.BaseModel):
    """A model with a validator, an alias, a constraint and a default factory."""

    item: str = pydantic.Field(alias="Item")
    amount: Annotated[int, pydantic.Field(gt=0)]
    tags: list[str] = pydantic.Field(default_factory=list)
    note: str | None = None

    @pydantic.field_validator("item")
    @classmethod
    def _shout(cls, item):
        return item + "!"


class Place(pydantic.BaseModel, frozen=True):
    """A frozen model, which can be a key."""

    x: int
    name: str


class Spot(msgspec.Struct, frozen=True):
    """A frozen struct, which can be a key."""

    x: int
    name: str


class Counted(msgspec.Struct):
    """A struct whose constructor changes a field."""

    number: int
    seen: list[int] = []

    def __post_init__(self):
        self.number += 1


class Box(pydantic.BaseModel, Generic[T]):
    """A generic model."""

    held: T


@dataclasses.dataclass
class Carton(Generic[T]):
    """A generic dataclass."""

    held: T


class Numbers(pydantic.RootModel[list[int]]):
    """A model of a list."""


class Film(TypedDict, total=False):
    """A TypedDict of qualified keys."""

    title: Required[str]
    year: ReadOnly[int | None]
    stars: Annotated[int, "at most five"]


UserId = NewType("UserId", str)
Side = Literal["buy", "sell"]
Pair = TypeAliasType("Pair", tuple[Side, UserId])
Size = Annotated[int, pydantic.Field(gt=0)]


def stored(declared, value):
    """Return a value after serialization."""
    serializer = serializer_for(declared)
    return serializer.deserialize(serializer.serialize(serializer.check(value)))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Order, Order(Item="tea", amount=1)),
        (Order, Order.model_construct(item="x", amount=-1, tags=["a"], note="n")),
        (Box[int], Box[int](held=1)),
        (list[Box[Side]], [Box[Side](held="buy")]),
        (Numbers, Numbers([1, 2])),
        (Counted, Counted(1, [2])),
        (Film, {"title": "a"}),
        (Film, {"title": "a", "year": None}),
        (Film, {"title": "a", "year": 1, "stars": 5}),
        (dict[UserId, Size | None], {"a": None}),
        (tuple[Side, Literal[1, None]], ("sell", None)),  # noqa: PYI061 - the form to test
        (Order | Place | int, Place(x=1, name="a")),
        (Side | int, "buy"),
        (list[Pair], [("buy", "a")]),
        (Pair | None, None),
    ],
)
def test_values_come_back(declared, value):
    """A value is equal to the stored one, has its type, and no validator or constructor changed it."""
    found = stored(declared, value)
    assert found == value
    assert tl.fingerprint(found) == tl.fingerprint(value)


def refused(declared):
    """Return the reason why a type is refused when it is declared."""
    with pytest.raises(errors.ConfigError) as caught:
        serializer_for(declared)
    return str(caught.value)


class Private(pydantic.BaseModel):
    """A model with a private attribute."""

    x: int
    _cache: int = 0


class Open(pydantic.BaseModel, extra="allow"):
    """A model that accepts any fields."""

    x: int


class Unknown(pydantic.BaseModel):
    """A model with an unknown type."""

    x: "Nowhere"  # noqa: F821


class Late(msgspec.Struct):
    """A struct with an unknown type."""

    x: "Nowhere"  # noqa: F821


class Raw(pydantic.BaseModel):
    """A model with a field of any type."""

    x: Any


@attrs.define
class Converted:
    """A recursive class with a converter."""

    items: "list[Converted]" = attrs.field(converter=list)


@dataclasses.dataclass
class Outer:
    """A recursive class within which a class has a post-init method."""

    inner: "Posted | None"


@dataclasses.dataclass
class Posted:
    """A class with a post-init method."""

    outer: Outer

    def __post_init__(self):
        pass


@dataclasses.dataclass(frozen=True)
class Member:
    """A frozen recursive class."""

    friends: "frozenset[Member]"


class Identity(msgspec.Struct, frozen=True, eq=False):
    """A struct that is equal only to itself."""

    number: int


Keyword = msgspec.defstruct("Keyword", [("class", int)])
Bytes = TypedDict("Bytes", {"a": bytes, "b c": int})
Same = TypedDict("Same", {"a": bytes, "b c": int})


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (Private, "its private attributes (_cache) are no fields"),
        (Open, "allows extra fields"),
        (Unknown, "model_rebuild"),
        (Late, "Nowhere"),
        (Raw, "at x, is refused"),
        (Box, "at held, is refused"),
        (Converted, "its constructor may change its fields"),
        (Outer, "its constructor may change its fields"),
        (Member, "a set's element must be immutable and hashable"),
        (set[Identity], "a set's element must be immutable and hashable"),
        (list[Carton[int]], "of generic classes only pydantic models are supported"),
        (Keyword, "its field 'class' cannot be read as an attribute"),
        (Literal["\ud800"], "surrogate"),
        (Literal[2**64], "64 bits"),
        (Literal["a"] | str, "stored in the same form"),  # noqa: PYI051 - refused for this
        (Bytes | Same, "stored in the same form"),
        (Film | Order, "stored in the same form"),
        (NewType("Anything", object), "object is refused"),
        (set[Annotated[list[int], 1]], "a set's element must be immutable"),
    ],
)
def test_types_that_could_not_come_back_are_refused(declared, reason):
    """The refusal comes at the declaration, and gives the reason and the place."""
    assert reason in refused(declared)


class SubOrder(Order):
    """A subclass of a model."""


class Shout(str):  # noqa: SLOT000 - as users have it
    """A subclass of str."""


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        (Order, SubOrder(Item="a", amount=1), "subclass"),
        (Order, Order.model_construct(item=1, amount=1), "item: expected str"),
        (Order, Order.model_construct(amount=1), "item"),
        (Order, {"item": "a", "amount": 1}, "expected Order"),
        (Spot, Place(x=1, name="a"), "expected Spot"),
        (Spot, Spot("a", "b"), "x: expected int"),
        (Film, {}, "it lacks str 'title'"),
        (Film, {"title": "a", "yaer": 1}, "it has str 'yaer'"),
        (Film, {Shout("title"): "a"}, "it has Shout"),
        (Film, {"title": 1}, "title: expected str"),
        (Film, Order(Item="a", amount=1), "expected Film"),
        (Side, "hold", "one of 'buy', 'sell'"),
        (Side, None, "expected str"),
        (Literal[1], True, "expected int"),
        (UserId, 1, "expected str"),
        (list[Size], ["a"], "expected int"),
    ],
)
def test_values_of_other_types_are_refused(declared, value, reason):
    """A value that is not exactly of the type is refused when it is written."""
    with pytest.raises(errors.StateTypeError) as caught:
        serializer_for(declared).check(value)
    assert reason in str(caught.value)


def test_a_missing_field_of_a_model_gets_its_default():
    """A migrated model gets defaults, and values of default factories, without a validator."""

    class Before(pydantic.BaseModel):
        item: str

    class After(pydantic.BaseModel):
        item: str
        count: int = 7
        tags: list[str] = pydantic.Field(default_factory=lambda data: [data["item"]])

    old, new = serializer_for(Before), serializer_for(After)
    migrate = new.compatibility(old.snapshot()).migrate
    found = new.deserialize(migrate(old.serialize(Before(item="a"))))
    assert found == After(item="a", count=7, tags=["a"])


def test_pydantic_is_not_imported():
    """A job without models imports no pydantic."""
    code = (
        "import sys, dataclasses, millpond as mp\n"
        "D = dataclasses.make_dataclass('D', [('x', int)])\n"
        "with mp.open_keyed_backend('heap', key_type=str) as backend:\n"
        "    backend.set_current_key('k')\n"
        "    backend.get_partitioned_state(mp.ValueStateDescriptor('v', D)).update(D(1))\n"
        "print([name for name in sys.modules if name.startswith('pydantic')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def chain(length):
    """Return a recursive value of so many objects."""
    value = None
    for number in range(length):
        value = tl.Chain(Decimal(number), value)
    return value


def test_the_depth_of_recursive_values_is_limited():
    """A value at the limit comes back; a deeper one is refused, when written and when read."""
    deepest = MAX_DEPTH // 2 + 1  # an object and its `X | None` are two levels
    value = chain(deepest)
    assert stored(tl.Chain, value) == value
    serializer = serializer_for(tl.Chain)
    for much in (deepest + 1, 5_000):
        with pytest.raises(errors.StateTypeError, match="more than 200 levels deep"):
            serializer.check(chain(much))
    plain = None
    for _ in range(deepest + 1):
        plain = {"number": "1", "rest": plain}
    with pytest.raises(errors.StateTypeError, match="more than 200 levels deep"):
        serializer.deserialize(msgspec.msgpack.encode(plain))


def test_a_circle_is_refused(tmp_path):
    """An object that contains itself is refused, on every backend, and nothing is changed."""
    tree = tl.Tree(1, [])
    tree.children.append(tree)
    for backend in ("heap", "rocksdb", "lmdb"):
        folder = tmp_path / backend
        with mp.open_keyed_backend(backend, key_type=str, directory=folder) as opened:
            opened.set_current_key("k")
            state = opened.get_partitioned_state(mp.ValueStateDescriptor("v", tl.Tree))
            state.update(tl.Tree(1, []))
            with pytest.raises(errors.StateTypeError, match="or in a circle"):
                state.update(tree)
            assert state.value() == tl.Tree(1, [])


def test_a_wrong_value_in_a_deep_tree_is_found_at_once():
    """The error names the path; the time does not double with each level."""
    value = tl.Part(1.0)
    wrong = value
    for _ in range(60):
        value = tl.Part(1.0, value)
    wrong.size = "x"
    started = time.process_time()
    with pytest.raises(errors.StateTypeError, match=r"inner\.inner\.inner.*size: expected float"):
        serializer_for(tl.Part).check(value)
    assert time.process_time() - started < 5


def test_threads_count_their_depths_separately():
    """Two threads that convert deep values at the same time do not disturb each other."""
    serializer, value = serializer_for(tl.Chain), chain(90)
    data, found = serializer.serialize(value), []

    def convert():
        found.extend(serializer.deserialize(serializer.serialize(value)) for _ in range(30))

    threads = [threading.Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120
    assert all(serializer.serialize(each) == data for each in found)


KINDS = {
    "model": lambda fields: pydantic.create_model(
        "Value", **{name: (kind, ...) for name, kind in fields.items()}
    ),
    "struct": lambda fields: msgspec.defstruct("Value", list(fields.items())),
    "typed dict": lambda fields: TypedDict("Value", fields),
}
FIELDS = {
    "a": int | None,
    "b": list[Side],
    "c": dict[UserId, Annotated[Decimal, 1]],
    "d": tuple[Literal[tl.Level.LOW], bytes],
}
VALUES = {"a": 2**63 - 1, "b": ["buy"], "c": {"x": Decimal("1.50")}, "d": (tl.Level.LOW, b"")}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_a_savepoint_are_those_of_a_dataclass(kind, exact):
    """A class of each kind has the same typed columns and cells as a dataclass of the same fields."""
    declared = KINDS[kind](FIELDS)
    twin = dataclasses.make_dataclass("Value", list(FIELDS.items()))
    cells = []
    for each in (declared, twin):
        serializer = serializer_for(each)
        form = column_form(serializer.snapshot(), exact=exact)
        data = serializer.serialize(serializer.check(each(**VALUES)))
        cells.append((form.arrow_type, form.to_column(data)))
        assert form.from_column(form.to_column(data)) == data
    assert cells[0] == cells[1]
    assert not pa.types.is_binary(cells[0][0])


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (Side, pa.string()),
        (Literal[1], pa.int64()),
        (Literal[tl.Level.LOW], pa.string()),
        (UserId, pa.string()),
        (list[Size], pa.list_(pa.int64())),
        (Literal["a", 1], pa.binary()),
        (
            Film,
            pa.struct(
                [
                    ("title", pa.string()),
                    ("year", pa.struct([("value", pa.int64())])),
                    ("stars", pa.int64()),
                ]
            ),
        ),
        (tl.Tree, pa.struct([("number", pa.int64()), ("children", pa.list_(pa.binary()))])),
        (
            tuple[tl.Part, bool],
            pa.struct(
                [
                    ("_1", pa.struct([("size", pa.float64()), ("inner", pa.binary())])),
                    ("_2", pa.bool_()),
                ]
            ),
        ),
    ],
)
def test_columns_of_a_savepoint(declared, expected):
    """A literal has the column of its values; a recursive class has bytes at its second level."""
    assert column_form(serializer_for(declared).snapshot(), exact=False).arrow_type == expected


def test_a_savepoint_of_a_recursive_class_can_be_edited(tmp_path):
    """An edited typed field is restored; the bytes of the second level are MessagePack."""
    descriptor = mp.ValueStateDescriptor("v", tl.Tree)
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(descriptor)
        state.update(tl.Tree(1, [tl.Tree(2, [])]))
        backend.savepoint(1, mp.checkpoint_storage(tmp_path.as_uri())).result()
    (savepoint,) = tmp_path.iterdir()
    (file,) = savepoint.rglob("*.parquet")
    frame = pq.read_table(file)
    cell = frame["value"][0].as_py()
    assert msgspec.msgpack.decode(cell["children"][0]) == {"number": 2, "children": []}
    cell = {"number": 5, "children": [msgspec.msgpack.encode({"number": 7, "children": []})]}
    values = pa.array([cell], frame.schema.field("value").type)
    pq.write_table(frame.set_column(frame.column_names.index("value"), "value", values), file)
    mp.seal_savepoint(str(savepoint))
    with mp.open_keyed_backend("heap", key_type=str, restore=[str(savepoint)]) as backend:
        backend.set_current_key("k")
        assert backend.get_partitioned_state(descriptor).value() == tl.Tree(5, [tl.Tree(7, [])])


@pytest.mark.parametrize(
    ("declared", "cell"),
    [(tl.Tree, {"number": 1, "children": [b"\xc1"]}), (Side, "hold"), (Literal[1], 2), (Film, {})],
)
def test_wrong_cells_are_refused(declared, cell):
    """Bytes that are no MessagePack, and values that the literal does not have, are refused."""
    form = column_form(serializer_for(declared).snapshot(), exact=False)
    with pytest.raises((ValueError, KeyError)):
        form.from_column(cell)


KEYS = [
    (Place, [Place(x=1, name="a"), Place(x=-1, name="")]),
    (Spot, [Spot(1, "a"), Spot(2, "")]),
    (UserId, ["a", "b"]),
    (Side, ["buy", "sell"]),
    (Literal[b"a", b"b"], [b"a", b"b"]),
    (Literal[tl.Word.A, tl.Word.EMPTY], [tl.Word.A, tl.Word.EMPTY]),
    (tuple[UserId, Annotated[Literal[1, None], "n"]], [("a", None), ("a", 1)]),  # noqa: PYI061 - the form to test
]


@pytest.mark.parametrize(("declared", "keys"), KEYS)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_keys(tmp_path, backend, declared, keys):
    """The types are accepted for keys, map keys and namespaces, and come back from a savepoint."""
    mapped = mp.MapStateDescriptor("m", declared, int)
    named = mp.ValueStateDescriptor("n", int)
    with mp.open_keyed_backend(backend, key_type=declared, directory=tmp_path / "a") as opened:
        for number, key in enumerate(keys):
            opened.set_current_key(key)
            opened.get_partitioned_state(mapped)[key] = number
            opened.get_partitioned_state(named, key, declared).update(number)
        handle = opened.savepoint(1, mp.checkpoint_storage("memory:kinds")).result().handle
    with mp.open_keyed_backend(
        backend, key_type=declared, directory=tmp_path / "b", restore=[handle]
    ) as opened:
        state = opened.get_partitioned_state(mapped)
        assert {repr(key) for key in opened.keys("m")} == {repr(key) for key in keys}
        for number, key in enumerate(keys):
            opened.set_current_key(key)
            assert list(state.items()) == [(key, number)]
            assert type(next(iter(state))) is type(key)
            assert opened.get_partitioned_state(named, key, declared).value() == number


@pytest.mark.parametrize(
    ("declared", "key"), [(Side, "hold"), (Literal[1], 2), (Literal[tl.Level.LOW], tl.Level.HIGH)]
)
def test_keys_outside_a_literal_are_refused(declared, key):
    """A key that the literal does not contain is refused, and so is a stored one."""
    codec = key_codec_for(declared)
    with pytest.raises(errors.StateTypeError):
        codec.check(key)
    data = key_codec_for(type(key)).encode(key)
    with pytest.raises(errors.StateTypeError):
        codec.decode(data, 0)


@pytest.mark.parametrize("declared", [Order, Film, tl.Tree, Literal["a", 1], Raw])
def test_types_that_cannot_be_keys(declared):
    """Mutable classes, dicts, recursive classes and mixed literals are refused as keys."""
    with pytest.raises(errors.ConfigError):
        key_codec_for(declared)


class Shelf(msgspec.Struct, frozen=True):
    """A frozen struct with a field that cannot be part of a key."""

    places: tuple[Spot, tuple[int, ...]]


@pytest.mark.parametrize(
    ("declared", "place"),
    [
        (Shelf, "key type at places[1]: tuple[int, ...]"),
        (tuple[int, Order], "key type at [1]: "),
        (list[int], "key type: list[int]"),
    ],
)
def test_the_place_in_a_key_type_is_named(declared, place):
    """The error names the field or part that cannot be part of a key."""
    with pytest.raises(errors.ConfigError) as caught:
        key_codec_for(declared)
    assert place in str(caught.value)


ISOLATED = [
    (Order, Order(Item="a", amount=1), lambda value: value.tags.append("x")),
    (Film, {"title": "a"}, lambda value: value.clear()),
    (Counted, Counted(1, []), lambda value: value.seen.append(1)),
    (tl.Tree, tl.Tree(1, [tl.Tree(2, [])]), lambda value: value.children[0].children.append(3)),
]


@pytest.mark.parametrize(("declared", "value", "change"), ISOLATED)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_changed_objects_do_not_change_the_state(tmp_path, backend, declared, value, change):
    """Changing a written or a read object changes neither later reads nor the snapshot."""
    value = copy.deepcopy(value)
    expected = tl.fingerprint(value)
    with mp.open_keyed_backend(backend, key_type=str, directory=tmp_path) as opened:
        opened.set_current_key("k")
        state = opened.get_partitioned_state(mp.ValueStateDescriptor("v", declared))
        state.update(value)
        change(value)
        change(state.value())
        assert tl.fingerprint(state.value()) == expected


ROWS = [Order(Item="tea", amount=2), Order(Item="milk", amount=1)]


def test_rows_of_models_and_structs():
    """In local runs, models and structs arrive as rows, and short forms make instances of them."""

    class Sale(msgspec.Struct):
        item: str
        amount: int

    class Totals(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            yield row.item, row.amount

    assert mp.local.run(Totals(), ROWS, key="item") == [("tea!", 2), ("milk!", 1)]
    rows = [{"item": "a", "amount": 1}, Sale("a", 5), {"amount": 2, "item": "a"}]
    found = mp.local.run(mp.keyed.sum("amount", Sale), rows, key="item")
    assert found == [Sale("a", 1), Sale("a", 6), Sale("a", 8)]
    model = pydantic.create_model("Model", item=(str, ...), amount=(Size, ...))
    found = mp.local.run(mp.keyed.max("amount", model), rows, key="item")
    assert found == [model(item="a", amount=number) for number in (1, 5, 5)]

    class Dict(TypedDict):
        item: str
        amount: int
        note: NotRequired[str]

    found = mp.local.run(mp.keyed.sum("amount", Dict), rows, key="item")
    assert found == [{"item": "a", "amount": number} for number in (1, 6, 8)]


IN_A_WORKER = """
import pickle, sys
from millpond.types import serializer_for
declared, value = pickle.load(sys.stdin.buffer)
serializer = serializer_for(declared)
assert serializer.deserialize(serializer.serialize(serializer.check(value))) == value
"""


def pickled_classes():
    """Yield a class of each kind, as the main module of a job has it, and a value."""

    @dataclasses.dataclass
    class Node:
        number: int
        nodes: "list[Node]"

    class Leaf(TypedDict):
        number: int
        leaf: NotRequired["Leaf"]

    class Model(pydantic.BaseModel):
        number: int
        others: list["Model"] = []

    yield Node, Node(1, [Node(2, [])])
    yield Leaf, {"number": 1, "leaf": {"number": 2}}
    yield Model, Model(number=1, others=[Model(number=2)])


@pytest.mark.parametrize(("declared", "value"), list(pickled_classes()))
def test_recursive_classes_that_spark_sends(declared, value):
    """A class of the main module that refers to itself works in a worker, which lacks the module."""
    declared.__module__ = "__main__"
    sent = cloudpickle.dumps((declared, value))
    done = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER], input=sent, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_bounded_strings_are_refused():
    """State does not limit or pad strings, so `varchar(n)` and `char(n)` are refused like columns."""
    for declared in ("varchar(3)", "a char(3), b int", "array<character(2)>"):
        with pytest.raises(errors.ConfigError, match="declare string"):
            serializer_for(declared)


def test_a_whole_literal_becomes_its_type():
    """The whole type of a state may change from a literal to the type of its values."""
    before, after = serializer_for(Side), serializer_for(str)
    verdict = after.compatibility(before.snapshot())
    assert verdict.outcome is Outcome.AFTER_MIGRATION
    assert after.deserialize(verdict.migrate(before.serialize("buy"))) == "buy"
