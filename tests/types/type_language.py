"""Generated types of state: nested to a depth, with extreme values of each.

A generated type consists of scalars, containers, unions, enums of every kind, flags, literals,
``NewType``, ``Annotated``, named tuples, TypedDicts, recursive classes, attrs classes, dataclasses,
msgspec structs and pydantic models. ``fingerprint`` distinguishes values that are equal in Python.
"""

import dataclasses
import datetime as dt
import enum
import itertools
import math
import struct
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, get_args

import attrs
import msgspec
import pydantic
from typing_extensions import TypedDict

UTC = dt.UTC
PLUS_9 = dt.timezone(dt.timedelta(hours=9, minutes=30))


class Level(enum.IntEnum):
    """An enum that is an int."""

    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    """An enum that is a str."""

    A = "a"
    EMPTY = ""


class Mixed(str, enum.Enum):  # noqa: UP042 - not the same as StrEnum
    """An enum that is a str whose text differs from its value."""

    A = "a"
    B = "B"


class Ratio(float, enum.Enum):
    """An enum that is a float."""

    HALF = 0.5
    MANY = math.inf


class Pair(enum.Enum):
    """An enum with values that JSON cannot contain."""

    A = (1, 2)
    B = b"\0"
    C = dt.datetime(2024, 1, 1)
    D = None
    E = [1]  # noqa: RUF012 - not hashable on purpose
    ALIAS = (1, 2)  # noqa: PIE796 - an alias on purpose


class Plain(enum.Enum):
    """An enum with values of several plain types."""

    ONE = 1
    TEXT = "1"
    REAL = 1.5
    HUGE = 2**62


class Odd(enum.Enum):
    """An enum with a value beyond 64 bits and NaN."""

    BIG = 1 << 80
    NAN = math.nan


class Rights(enum.Flag):
    """A flag."""

    READ = 1
    WRITE = 2
    RUN = 4


class Bits(enum.IntFlag):
    """A flag that accepts unknown bits."""

    A = 1
    B = 256


class Point(NamedTuple):
    """A named tuple."""

    x: float
    label: str | None


@attrs.frozen
class Frozen:
    """A frozen class, which can be a key."""

    number: int
    word: str


@dataclasses.dataclass(frozen=True)
class Spot:
    """A frozen dataclass, which can be a key."""

    x: int
    day: dt.date


@attrs.define
class Shaped:
    """A class whose constructor changes its arguments and has other parameter names."""

    _count: int = attrs.field(converter=lambda given: given + 1)
    seen: list[int] = attrs.field(init=False, factory=list)
    checked: int = attrs.field(default=0, validator=attrs.validators.instance_of(int))


@dataclasses.dataclass
class Posted:
    """A class that counts its constructor calls."""

    items: list[int]
    made: int = 0

    def __post_init__(self):
        self.made += 1


@attrs.frozen
class Empty:
    """A class without fields."""


def made(cls, **fields):
    """Return an instance with exactly these field values."""
    if issubclass(cls, msgspec.Struct):
        return cls(**fields)
    if issubclass(cls, pydantic.BaseModel):
        return cls.model_construct(**fields)
    value = cls.__new__(cls)
    for name, given in fields.items():
        object.__setattr__(value, name, given)
    return value


@dataclasses.dataclass
class Tree:
    """A recursive dataclass."""

    number: int
    children: list["Tree"]


@attrs.frozen
class Chain:
    """A recursive frozen class."""

    number: Decimal
    rest: "Chain | None"


class Cell(NamedTuple):
    """A recursive named tuple."""

    word: str
    cells: "tuple[Cell, ...]"


class Note(pydantic.BaseModel):
    """A recursive pydantic model."""

    text: str
    replies: dict[str, "Note"]


class Part(msgspec.Struct):
    """A recursive msgspec struct with a default."""

    size: float
    inner: "Part | None" = None


class Link(TypedDict):
    """A recursive TypedDict, whose keys may be missing."""

    number: int
    after: NotRequired["Link | None"]


@dataclasses.dataclass
class Sum:
    """A class of a language of formulas, which contain each other."""

    terms: "list[Sum | Product | int]"


@attrs.define
class Product:
    """Another class of the language of formulas."""

    left: "Sum | Product | int"
    right: "Sum | Product | int"


def recursive(rng, kind, depth=4):  # noqa: PLR0911 - a case a line
    """Draw an instance of a recursive class."""
    size = rng.randint(0, 2) if depth else 0
    parts = [recursive(rng, kind, depth - 1) for _ in range(size)]
    if kind is Tree:
        return Tree(rng.choice(SCALARS[int]), parts)
    if kind is Chain:
        return Chain(rng.choice(SCALARS[Decimal]), parts[0] if parts else None)
    if kind is Cell:
        return Cell(rng.choice(SCALARS[str]), tuple(parts))
    if kind is Note:
        return Note(text="n", replies={str(at): part for at, part in enumerate(parts)})
    if kind is Part:
        return Part(rng.choice(SCALARS[float]), parts[0] if parts else None)
    if kind is Link:
        return {"number": 1} if not parts else {"number": 2, "after": rng.choice([None, parts[0]])}
    if size < 2:
        return rng.choice([Sum([7, *parts]), Product(-1, 2**70)])
    return Product(*parts)


RECURSIVE = [Tree, Chain, Cell, Note, Part, Link, Sum | Product]

LITERALS = [
    Literal["a"],
    Literal["a", "b\0", "\u20ac"],
    Literal[1, -2, 2**62],
    Literal[True],
    Literal[b"", b"\0\xff"],
    Literal[Level.LOW],
    Literal[Word.A, Word.EMPTY],
    Literal[Pair.C],
]
MIXED_LITERALS = [Literal["a", 1, None], Literal[True, b"a", "a"], Literal[Level.LOW, "low"]]  # noqa: PYI061 - the form to test

SCALARS = {
    int: [0, -1, 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**30, 7**9000, -(7**9000)],
    float: [0.0, -0.0, 0.1, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2.0**53],
    bool: [True, False],
    str: ["", "a", "\0", "é\0€😀", "a" * 70, "1", "null", " \n\t\x7f"],
    bytes: [b"", b"\0", b"\0\xff\0\0", bytes(range(256))],
    Decimal: [
        Decimal(text)
        for text in (
            "0", "-0", "0.00", "0E+5", "1.0", "1.00", "-1E+5", "1E-30", "1E+20000000", "1E-20000000",
            "123456789012345678901234567890.123456789", "NaN", "-NaN12", "sNaN", "Infinity",
            "-Infinity",
        )
    ],
    dt.datetime: [
        dt.datetime.min,  # noqa: DTZ901 - naive on purpose
        dt.datetime.max,  # noqa: DTZ901
        dt.datetime.min.replace(tzinfo=UTC),
        dt.datetime.max.replace(tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        dt.datetime(2024, 3, 10, 2, 30, fold=1),
        dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=PLUS_9),
    ],
    dt.date: [dt.date.min, dt.date.max, dt.date(1969, 12, 31)],
    dt.timedelta: [
        dt.timedelta.min, dt.timedelta.max, dt.timedelta(0), dt.timedelta(microseconds=-1),
        dt.timedelta(days=7, seconds=1, microseconds=2),
    ],
    dt.time: [dt.time.min, dt.time.max, dt.time(1, 2, 3), dt.time(12, 0, 0, 5)],
    uuid.UUID: [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)],
}  # fmt: skip
ENUMS = [Level, Word, Mixed, Ratio, Pair, Plain, Odd]
FLAGS = {
    Rights: [Rights(0), Rights.READ, Rights.READ | Rights.RUN, ~Rights.READ],
    Bits: [Bits(0), Bits.A | Bits.B, Bits(2), Bits(1 << 70)],
}
CLASSES = {
    Point: [Point(-0.0, None), Point(math.nan, "x")],
    Frozen: [Frozen(1, ""), Frozen(-(2**63), "\0")],
    Spot: [Spot(0, dt.date.min), Spot(2**62, dt.date.max)],
    Shaped: [
        made(Shaped, _count=5, seen=[1, 2], checked=3),
        made(Shaped, _count=-1, seen=[], checked=0),
    ],
    Posted: [made(Posted, items=[1], made=7), made(Posted, items=[], made=0)],
    Empty: [Empty()],
}
_NUMBERS = itertools.count()


class Case:
    """A type, with a function that draws its values."""

    def __init__(self, declared, draw, *, hashable=True, keyable=False):
        self.declared, self.draw = declared, draw
        self.hashable, self.keyable = hashable, keyable


def scalar(rng):
    """Draw a type without parts."""
    kind = rng.choice(list(SCALARS))
    return Case(kind, lambda: rng.choice(SCALARS[kind]), keyable=True)


def leaf(rng):
    """Draw a scalar, an enum, a literal, a flag or a class."""
    pick = rng.random()
    if pick < 0.45:
        return scalar(rng)
    if pick < 0.6:
        kind = rng.choice(ENUMS)
        return Case(kind, lambda: rng.choice(list(kind)), keyable=True)
    if pick < 0.7:
        kind = rng.choice(LITERALS + MIXED_LITERALS)
        return Case(kind, lambda: rng.choice(get_args(kind)), keyable=kind in LITERALS)
    values = FLAGS if pick < 0.8 else CLASSES
    kind = rng.choice(list(values))
    hashable = kind not in (Shaped, Posted, Empty)
    keyable = kind in (Point, Frozen, Spot)
    return Case(kind, lambda: rng.choice(values[kind]), hashable=hashable, keyable=keyable)


def any_type(rng, depth):
    """Draw a type with at most the given nesting."""
    if depth == 0 or rng.random() < 0.15:
        return leaf(rng)
    return rng.choice(
        [
            _list,
            _tuple,
            _repeated,
            _dict,
            _dict,
            _set,
            _optional,
            _union,
            _attrs,
            _data,
            _named_tuple,
            _struct,
            _model,
            _typed_dict,
            _alias,
            _recursive,
        ]
    )(rng, depth - 1)


def hashable_type(rng):
    """Draw a type whose values can be keys of a dictionary."""
    while True:
        case = rng.choice([leaf, leaf, _leaves, _maybe])(rng)
        if case.hashable:
            return case


def _leaves(rng):
    return _as_tuple([leaf(rng) for _ in range(rng.randint(1, 2))])


def _maybe(rng):
    return _optional_of(leaf(rng), rng)


def _size(rng):
    return rng.choice([0, 1, 1, 2, 3])


def _list(rng, depth):
    part = any_type(rng, depth)
    return Case(
        list[part.declared], lambda: [part.draw() for _ in range(_size(rng))], hashable=False
    )


def _repeated(rng, depth):
    part = any_type(rng, depth)
    return Case(
        tuple[part.declared, ...],
        lambda: tuple(part.draw() for _ in range(_size(rng))),
        hashable=part.hashable,
    )


def _as_tuple(parts):
    return Case(
        tuple[tuple(part.declared for part in parts)],
        lambda: tuple(part.draw() for part in parts),
        hashable=all(part.hashable for part in parts),
        keyable=bool(parts) and all(part.keyable for part in parts),
    )


def _tuple(rng, depth):
    return _as_tuple([any_type(rng, depth) for _ in range(rng.randint(0, 3))])


def _hashed(draw):
    """Return a hashable value: a signaling NaN has no hash."""
    while True:
        value = draw()
        try:
            hash(value)
        except TypeError:
            continue
        return value


def _dict(rng, depth):
    key, item = hashable_type(rng), any_type(rng, depth)
    return Case(
        dict[key.declared, item.declared],
        lambda: {_hashed(key.draw): item.draw() for _ in range(_size(rng))},
        hashable=False,
    )


def _set(rng, depth):
    part = hashable_type(rng)
    kind = rng.choice([set, frozenset])
    return Case(
        kind[part.declared],
        lambda: kind(_hashed(part.draw) for _ in range(_size(rng))),
        hashable=kind is frozenset,
    )


def _optional_of(part, rng):
    return Case(
        part.declared | None,
        lambda: None if rng.random() < 0.3 else part.draw(),
        hashable=part.hashable,
    )


def _optional(rng, depth):
    return _optional_of(any_type(rng, depth), rng)


def _union(rng, depth):
    """Draw a union of distinguishable types; if that fails, a single type."""
    pool = [
        [int, float, str, bytes, bool],
        [Decimal, int],
        [uuid.UUID, str, dt.date],
        [dt.datetime, float, bytes],
        [Level, str],
        [Word, int],
        [Shaped, Posted, int],
        [Frozen, Spot, str],
    ]
    kinds = rng.choice(pool)
    kinds = rng.sample(kinds, rng.randint(2, len(kinds)))
    values = {**SCALARS, **CLASSES, Level: list(Level), Word: list(Word)}
    declared = kinds[0]
    for kind in kinds[1:]:
        declared = declared | kind
    return Case(
        declared,
        lambda: rng.choice(values[rng.choice(kinds)]),
        hashable=not {Shaped, Posted} & set(kinds),
    )


def _named_parts(rng, depth):
    names = rng.sample(["a", "b_c", "_hidden", "key", "value", "self_", "Ä"], rng.randint(1, 3))
    return {name: any_type(rng, depth) for name in names}


def _attrs(rng, depth):
    parts = _named_parts(rng, depth)
    frozen = rng.random() < 0.5
    fields = {name: attrs.field(type=part.declared) for name, part in parts.items()}
    cls = attrs.make_class(
        f"Attrs{next(_NUMBERS)}", fields, frozen=frozen, slots=rng.random() < 0.5
    )
    return _class_case(cls, parts, frozen=frozen)


def _data(rng, depth):
    parts = _named_parts(rng, depth)
    frozen = rng.random() < 0.5
    fields = [(name, part.declared) for name, part in parts.items()]
    cls = dataclasses.make_dataclass(
        f"Data{next(_NUMBERS)}", fields, frozen=frozen, kw_only=rng.random() < 0.5
    )  # fmt: skip
    return _class_case(cls, parts, frozen=frozen)


def _class_case(cls, parts, *, frozen):
    return Case(
        cls,
        lambda: made(cls, **{name: part.draw() for name, part in parts.items()}),
        hashable=frozen and all(part.hashable for part in parts.values()),
        keyable=frozen and all(part.keyable for part in parts.values()),
    )


def _struct(rng, depth):
    parts = _named_parts(rng, depth)
    frozen = rng.random() < 0.5
    fields = [(name, part.declared) for name, part in parts.items()]
    cls = msgspec.defstruct(f"Struct{next(_NUMBERS)}", fields, frozen=frozen)
    return _class_case(cls, parts, frozen=frozen)


def _model(rng, depth):
    parts = {name.strip("_"): part for name, part in _named_parts(rng, depth).items()}
    frozen = rng.random() < 0.5
    config = pydantic.ConfigDict(frozen=frozen, arbitrary_types_allowed=True)
    fields = {name: (part.declared, ...) for name, part in parts.items()}
    cls = pydantic.create_model(f"Model{next(_NUMBERS)}", __config__=config, **fields)
    return _class_case(cls, parts, frozen=frozen)


def _typed_dict(rng, depth):
    parts = _named_parts(rng, depth)
    missing = {name for name in parts if rng.random() < 0.4}
    fields = {
        name: NotRequired[part.declared] if name in missing else part.declared
        for name, part in parts.items()
    }
    cls: Any = TypedDict(f"Dict{next(_NUMBERS)}", fields)

    def draw():
        given = [name for name in parts if name not in missing or rng.random() < 0.5]
        return {name: parts[name].draw() for name in given}

    return Case(cls, draw, hashable=False)


def _alias(rng, depth):
    part = any_type(rng, depth)
    named = NewType(f"Name{next(_NUMBERS)}", part.declared)
    declared = rng.choice([named, Annotated[part.declared, "note"], Annotated[named, 1, 2]])
    return Case(declared, part.draw, hashable=part.hashable, keyable=part.keyable)


def _recursive(rng, depth):
    kind = rng.choice(RECURSIVE)
    return Case(kind, lambda: recursive(rng, kind), hashable=False)


def _named_tuple(rng, depth):
    parts = {name.strip("_"): part for name, part in _named_parts(rng, depth).items()}
    fields = [(name, part.declared) for name, part in parts.items()]
    cls: Any = NamedTuple(f"Named{next(_NUMBERS)}", fields)
    return Case(
        cls,
        lambda: cls(**{name: part.draw() for name, part in parts.items()}),
        hashable=all(part.hashable for part in parts.values()),
        keyable=all(part.keyable for part in parts.values()),
    )


def key_type(rng, depth=1):
    """Draw a type for keys, namespaces or map keys."""
    while True:
        case = any_type(rng, depth)
        if case.keyable:
            return case


def fields_of(value):
    """Return name and value of each field of an object."""
    kind = type(value)
    if issubclass(kind, msgspec.Struct):
        return [(name, getattr(value, name)) for name in kind.__struct_fields__]
    if issubclass(kind, pydantic.BaseModel):
        return [(name, getattr(value, name)) for name in kind.model_fields]
    fields = attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind)
    return [(field.name, getattr(value, field.name)) for field in fields]


def has_fields(kind):
    """Return whether a class has fields as attributes."""
    return (
        attrs.has(kind)
        or dataclasses.is_dataclass(kind)
        or issubclass(kind, (msgspec.Struct, pydantic.BaseModel))
    )


def fingerprint(value):  # noqa: PLR0911 - a case a line
    """Return the exact form of a value: types at each depth, the sign of zero, NaNs and scales."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return kind, value.name, fingerprint(value.value)
    if kind is float:
        return kind, "nan" if math.isnan(value) else struct.pack(">d", value)
    if kind is dt.datetime:
        utc = None if value.tzinfo is None else value - dt.datetime(1970, 1, 1, tzinfo=UTC)
        return kind, value.replace(fold=0) if utc is None else utc, value.tzinfo is None
    if kind is Decimal:
        return kind, str(value)
    if kind is int:
        return kind, hex(value)
    if kind is dict:
        return kind, [(fingerprint(key), fingerprint(item)) for key, item in value.items()]
    if kind in (set, frozenset):
        return kind, sorted(repr(fingerprint(item)) for item in value)
    if isinstance(value, (list, tuple)):
        return kind, [fingerprint(item) for item in value]
    if has_fields(kind):
        return kind, [(name, fingerprint(item)) for name, item in fields_of(value)]
    return kind, value
