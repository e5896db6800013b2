"""All kinds of classes evolve like dataclasses: the same changes are migrated or refused."""

import dataclasses
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import attrs
import millpond as mp
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.types import Outcome, serializer_for
from typing_extensions import TypedDict

from tests.types import type_language as tl

REQUIRED = object()
MISSING = object()


@dataclasses.dataclass
class Column:
    """A generated field: its type, its default, and its old name."""

    name: str
    type: Any
    default: Any = REQUIRED
    old: str | None = None

    @property
    def annotation(self):
        """Return the type with the mark of a renamed field."""
        return self.type if self.old is None else Annotated[self.type, mp.renamed_from(self.old)]


def _dataclass(columns):
    fields = []
    for each in columns:
        options = {} if each.default is REQUIRED else {"default": each.default}
        options["metadata"] = {} if each.old is None else mp.renamed_from(each.old)
        fields.append((each.name, each.type, dataclasses.field(**options)))
    return dataclasses.make_dataclass("Value", fields, kw_only=True)


def _attrs(columns):
    fields = {
        each.name: attrs.field(
            type=each.annotation,
            default=attrs.NOTHING if each.default is REQUIRED else each.default,
        )
        for each in columns
    }
    return attrs.make_class("Value", fields, kw_only=True)


def _struct(columns):
    fields = [
        (c.name, c.annotation) if c.default is REQUIRED else (c.name, c.annotation, c.default)
        for c in columns
    ]
    return msgspec.defstruct("Value", fields, kw_only=True)


def _model(columns):
    fields = {
        each.name: (each.annotation, ... if each.default is REQUIRED else each.default)
        for each in columns
    }
    return pydantic.create_model("Value", **fields)


def _typed_dict(columns):
    fields = {
        each.name: each.annotation if each.default is REQUIRED else NotRequired[each.annotation]
        for each in columns
    }
    return TypedDict("Value", fields)


KINDS = {"attrs": _attrs, "struct": _struct, "model": _model, "typed dict": _typed_dict}

VALUES = {
    int: [0, -3, 2**40],
    str: ["", "x"],
    float: [1.5],
    int | None: [None, 4],
    list[int]: [[], [1, 2]],
    Literal["a", "b"]: ["a", "b"],
    tuple[int, str]: [(1, "t")],
}
CHANGES = {
    int: [float, Decimal, int | None, str, Literal[1]],
    list[int]: [list[float], list[int] | None, set[int]],
    Literal["a", "b"]: [Literal["b", "a", "c"], Literal["a"], str, str | None],
    tuple[int, str]: [tuple[float, str], tuple[int, str, int]],
}


def evolution(rng):
    """Draw the fields of a class, a later version of them, and the values of the fields."""
    names = rng.sample("abcdef", rng.randint(1, 4))
    old = [Column(name, rng.choice(list(VALUES))) for name in names]
    new = [dataclasses.replace(each) for each in old]
    for _ in range(rng.randint(1, 3)):
        change = rng.randrange(6)
        at = rng.randrange(len(new)) if new else 0
        if change == 0:
            kind = rng.choice([int, str])
            default = REQUIRED if rng.random() < 0.3 else rng.choice(VALUES[kind])
            new.insert(at, Column(f"n{len(new)}", kind, default))
        elif change == 1 and new:
            del new[at]
        elif change == 2:
            rng.shuffle(new)
        elif change == 3 and new:
            marked = new[at].name if rng.random() < 0.8 else None
            new[at] = dataclasses.replace(new[at], name=f"r{at}", old=marked)
        elif new and new[at].default is REQUIRED and new[at].type in CHANGES:
            new[at] = dataclasses.replace(new[at], type=rng.choice(CHANGES[new[at].type]))
    if len({each.name for each in new}) < len(new):
        return evolution(rng)
    return old, new, {each.name: rng.choice(VALUES[each.type]) for each in old}


def evolved(make, old, new, values):
    """Return the fields of a stored value in the later version, or the refusal."""
    stored_class = make(old)
    before, after = serializer_for(stored_class), serializer_for(make(new))
    verdict = after.compatibility(before.snapshot())
    if verdict.outcome is Outcome.INCOMPATIBLE:
        return verdict.field, verdict.reason
    stored = before.serialize(before.check(stored_class(**values)))
    value = after.deserialize(verdict.migrate(stored) if verdict.migrate else stored)
    found = value if type(value) is dict else dict(tl.fields_of(value))
    return {each.name: found.get(each.name, each.default) for each in new}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_a_class_evolves_like_a_dataclass(kind, rng):
    """After generated changes, the values, or the refused field and its reason, are the twin's."""
    old, new, values = evolution(rng)
    found = evolved(KINDS[kind], old, new, values)
    assert tl.fingerprint(found) == tl.fingerprint(evolved(_dataclass, old, new, values))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_a_class_becomes_another_kind_of_class(kind, rng):
    """A stored dataclass can be read as any other kind of class, which has the same stored form."""
    columns, _, values = evolution(rng)
    twin, declared = _dataclass(columns), KINDS[kind](columns)
    before, after = serializer_for(twin), serializer_for(declared)
    assert after.compatibility(before.snapshot()).outcome is Outcome.AS_IS
    stored = before.serialize(before.check(twin(**values)))
    assert after.deserialize(stored) == declared(**values)


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize("kind", [*KINDS, "dataclass"])
def test_a_refusal_comes_when_the_state_is_requested(kind, backend, tmp_path):
    """On each backend, the error names the field, and the state remains readable as before."""
    make = KINDS.get(kind, _dataclass)
    before = make([Column("a", int)])
    after, refused = make([Column("a", float), Column("b", int, 7)]), make([Column("b", int)])
    storage, handle = mp.checkpoint_storage("memory:class-evolution"), []
    for number, declared in enumerate((before, refused, before, after)):
        with mp.open_keyed_backend(
            backend, key_type=str, directory=tmp_path / str(number), restore=handle
        ) as opened:
            opened.set_current_key("k")
            descriptor = mp.ValueStateDescriptor("v", declared)
            if declared is refused:
                with pytest.raises(errors.StateMigrationError) as caught:
                    opened.get_partitioned_state(descriptor)
                assert caught.value.field == "b"
                continue
            state = opened.get_partitioned_state(descriptor)
            if number == 0:
                state.update(before(a=1))
            elif declared is before:
                assert state.value() == before(a=1)
            else:
                expected = {"a": 1.0} if kind == "typed dict" else after(a=1.0)
                assert tl.fingerprint(state.value()) == tl.fingerprint(expected)
            handle = [opened.snapshot(1, storage).result().handle]


def changed(before, after, value):
    """Return a value that is stored as `before` and read as `after`, or the refusal."""
    old, new = serializer_for(before), serializer_for(after)
    verdict = new.compatibility(old.snapshot())
    if verdict.outcome is Outcome.INCOMPATIBLE:
        return f"{verdict.field}: {verdict.reason}"
    stored = old.serialize(old.check(value))
    return new.deserialize(verdict.migrate(stored) if verdict.migrate else stored)


def dict_type(**fields):
    """Return a TypedDict."""
    return TypedDict("Value", fields)


def test_keys_of_a_typed_dict_become_optional_and_required():
    """A key may become optional; an optional one becomes required only if it has a default."""
    required, optional = dict_type(a=int), dict_type(a=NotRequired[int])
    assert changed(required, optional, {"a": 1}) == {"a": 1}
    assert changed(optional, required, {"a": 1}) == (
        "a: the field is missing in some values and has no default; give it one, or declare its "
        "old name"
    )
    data = _dataclass([Column("a", int, 5)])
    for value, expected in (({}, 5), ({"a": 1}, 1)):
        assert changed(optional, data, value) == data(a=expected)
        assert changed(optional, dict_type(a=NotRequired[float]), value) == value
    new = dict_type(b=NotRequired[Annotated[int, mp.renamed_from("a")]])
    assert changed(optional, new, {}) == {}
    assert changed(required, new, {"a": 3}) == {"b": 3}


@pytest.mark.parametrize(
    ("before", "after", "value", "expected"),
    [
        (Literal["a"], Literal["b", "a"], "a", "a"),
        (Literal["a", "b"], Literal["a"], "a", ": the literal has lost 'b'"),
        (Literal["a"], str, "a", "a"),
        (Literal[1], float, 1, 1.0),
        (Literal[1], Decimal | None, 1, Decimal(1)),
        (str, Literal["a"], "a", ": str cannot become literal"),
        (Literal["a"], Literal["a", None], "a", "a"),  # noqa: PYI061 - the form to test
        (Literal["a", 1], Literal["a", 2, 1], 1, 1),
        (Literal["a", 1], str | int, "a", "a"),
        (list[Literal[b"x"]], list[bytes], [b"x"], [b"x"]),
        (Literal[tl.Level.LOW], tl.Level, tl.Level.LOW, tl.Level.LOW),
        (Literal[tl.Level.LOW], Literal[tl.Level.LOW, tl.Level.HIGH], tl.Level.LOW, tl.Level.LOW),
        (tl.Level, Literal[tl.Level.LOW], tl.Level.LOW, ": enum cannot become literal"),
    ],
)
def test_literals_gain_values(before, after, value, expected):
    """A literal may gain values or become its type; a lost value is refused."""
    assert changed(before, after, value) == expected


@dataclasses.dataclass
class Tree:
    """A stored recursive class."""

    name: str
    size: int
    children: list["Tree"]


@dataclasses.dataclass
class NewTree:
    """A later version of the recursive class."""

    size: float
    children: "list[NewTree]"
    label: str = dataclasses.field(metadata=mp.renamed_from("name"))
    tags: set[int] = dataclasses.field(default_factory=set)


class ModelTree(pydantic.BaseModel):
    """A model with the same fields as the recursive class."""

    name: str
    size: int
    children: list["ModelTree"]


@dataclasses.dataclass
class LostTree:
    """A version with a new field in each node that has no default."""

    children: "list[LostTree]"
    colour: str


@dataclasses.dataclass
class Forest:
    """A class with two trees."""

    first: Tree
    second: Tree | None


@dataclasses.dataclass
class NewForest:
    """A class with two later trees."""

    second: NewTree | None
    first: NewTree


def test_each_level_of_a_recursive_class_evolves():
    """Fields are added, renamed and widened in nodes of any depth, also within another class."""
    tree = Tree("a", 1, [Tree("b", 2, []), Tree("c", 3, [Tree("d", 4, [])])])
    new = NewTree(1.0, [NewTree(2.0, [], "b"), NewTree(3.0, [NewTree(4.0, [], "d")], "c")], "a")
    found = changed(Tree, NewTree, tree)
    assert tl.fingerprint(found) == tl.fingerprint(new)
    forest = changed(Forest, NewForest, Forest(tree, tree.children[1]))
    assert forest == NewForest(new.children[1], new)
    assert changed(Forest, NewForest, Forest(tree, None)) == NewForest(None, new)
    model = changed(Tree, ModelTree, tree)
    assert model.children[1].children[0] == ModelTree(name="d", size=4, children=[])
    assert "colour: the field is new" in changed(Tree, LostTree, tree)


class OldCell(NamedTuple):
    """A stored recursive named tuple."""

    number: int
    cells: "tuple[OldCell, ...]"


class NewCell(NamedTuple):
    """A later version of the recursive named tuple."""

    cells: "tuple[NewCell, ...]"
    number: float
    note: str = "n"


def test_a_recursive_named_tuple_evolves():
    """Fields are added, reordered and widened in named tuples of any depth."""
    found = changed(OldCell, NewCell, OldCell(1, (OldCell(2, ()),)))
    assert tl.fingerprint(found) == tl.fingerprint(NewCell((NewCell((), 2.0),), 1.0))


class WrongCell(NamedTuple):
    """A later version with a default of another type."""

    number: int
    cells: "tuple[WrongCell, ...]"
    note: str = None


def test_a_default_of_another_type_is_refused_with_its_field():
    """The error names the field of a named tuple whose default cannot be stored."""
    old, new = tuple[OldCell, int], tuple[WrongCell, int]
    verdict = serializer_for(new).compatibility(serializer_for(old).snapshot())
    with pytest.raises(errors.StateTypeError, match="note: expected str"):
        verdict.migrate(serializer_for(old).serialize((OldCell(1, ()), 2)))


def test_an_unchanged_recursive_class_is_no_reason_to_migrate():
    """If only another part changes, values of a recursive class are not rewritten."""
    verdict = serializer_for(ModelTree).compatibility(serializer_for(Tree).snapshot())
    assert verdict.outcome is Outcome.AS_IS
    union, wider = serializer_for(Tree | int), serializer_for(Tree | int | str)
    assert wider.compatibility(union.snapshot()).outcome is Outcome.RECONFIGURED


@dataclasses.dataclass
class Inner:
    """A class within a class of another shape."""

    outer: "Outer | None"


@dataclasses.dataclass
class Outer:
    """A class that contains itself by another class."""

    inner: Inner | None


@dataclasses.dataclass
class Own:
    """A class that contains itself directly, with a field of the same name."""

    outer: "Own | None"


@dataclasses.dataclass
class Holder:
    """A class with the directly recursive class."""

    inner: Own | None


BROKEN = [{"list": [{"self": number}]} for number in (-1, 5, "x", None)]


def test_references_to_different_classes_are_not_confused():
    """Two types whose references have equal numbers, but mean other classes, are distinguished."""
    value = Outer(Inner(Outer(None)))
    assert "cannot become" in changed(Outer, Holder, value) or "new" in changed(
        Outer, Holder, value
    )
    assert changed(Outer, Outer, value) == value


@pytest.mark.parametrize("kind", [_attrs, _struct, _model, _typed_dict])
def test_a_mark_within_a_union_counts(kind):
    """A mark is found in a member of a union, too, so that no value is lost silently."""
    marked = Annotated[int, mp.renamed_from("a")] | None
    new = kind([Column("b", marked, None)])
    old = _dataclass([Column("a", int)])
    found = changed(old, new, old(a=3))
    assert found == new(b=3)


@pytest.mark.parametrize(
    "payload",
    [
        *({"recursive": [{"self": 0}, {"struct": {"children": at}}]} for at in BROKEN),
        {"recursive": []},
        {"recursive": 5},
        {"recursive": [{"self": 0}]},
        {"self": 0},
    ],
)
def test_a_damaged_description_is_refused(payload):
    """A stored description with a wrong reference gives the outcome INCOMPATIBLE."""
    stored = mp.SerializerSnapshot("structured", payload=payload)
    assert serializer_for(Tree).compatibility(stored).outcome is Outcome.INCOMPATIBLE
