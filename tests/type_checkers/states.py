"""Type checkers infer the types of states: `assert_type`, and calls that are errors.

`test_type_checkers.py` checks this file with mypy --strict and pyright; it never runs. A comment
that begins with E: names the codes that mypy and pyright report on its line, or on the next line if
the comment is alone.
"""

import datetime as dt
import enum
import operator
from collections.abc import Awaitable, Generator, Iterable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, assert_type
from uuid import UUID

import attrs
import millpond as mp
import msgspec
import pydantic
from millpond.backend import KeyedStateBackend
from millpond.backend.operator_state import BroadcastState, OperatorStateBackend
from millpond.functions.functions import ReadOnlyBroadcastState
from millpond.functions.side_outputs import Output
from millpond.state import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    SortedMapState,
    ValueState,
)
from millpond.types import KeyCodec
from millpond.windows import TimeWindow, WindowContext


@attrs.frozen
class Order:
    item: str
    price: float


class Point(NamedTuple):
    x: int
    y: int


class Color(enum.Enum):
    RED = 1


class Model(pydantic.BaseModel):
    x: int


class Struct(msgspec.Struct):
    x: int


class Film(TypedDict):
    title: str


UserId = NewType("UserId", str)


class ComplexSerializer(mp.TypeSerializer[complex]):
    def check(self, value: Any) -> complex:
        return complex(value)

    def serialize(self, value: complex) -> bytes:
        return str(value).encode()

    def deserialize(self, data: bytes) -> complex:
        return complex(data.decode())

    def snapshot(self) -> mp.SerializerSnapshot:
        return mp.SerializerSnapshot("complex")


class Mean(mp.AggregateFunction[float, tuple[float, int], Decimal]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> Decimal:
        return Decimal(accumulator[0]) / accumulator[1]

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        return a[0] + b[0], a[1] + b[1]


class Asked(mp.KeyedAsyncFunction[str, Order, tuple[str, float]]):
    def process_element(
        self, row: Order, context: mp.Context[str]
    ) -> Generator[tuple[str, float] | Awaitable[float], float, None]:
        price = yield self.ask(row.item)
        yield row.item, price

    async def ask(self, item: str) -> float:
        return float(len(item))


class Named(mp.AsyncFunction[Order, str]):
    async def async_invoke(self, row: Order) -> list[str]:
        return [row.item]


def asynchronous_functions(orders: list[Order]) -> None:
    assert_type(mp.local.run(Named(), orders), Output[str])
    assert_type(mp.local.run(Asked(), orders, key="item"), Output[tuple[str, float]])


class Plain(mp.AggregateFunction):
    """Function without type parameters, which are then Any."""

    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


def longer(known: str, value: bytes) -> str:
    return known + value.decode()


def value_states(context: mp.RuntimeContext) -> None:
    spent = context.get_state(mp.ValueStateDescriptor("spent", float))
    assert_type(spent, ValueState[float])
    assert_type(spent.value(), float | None)
    spent.update(1.0)
    spent.update(None)
    spent.update("x")  # E: arg-type reportArgumentType
    spent.value() + 1  # E: operator reportOptionalOperand
    spent.valeu()  # E: attr-defined reportAttributeAccessIssue
    assert_type((spent.value() or 0.0) + 1, float)


def what_may_be_declared(context: mp.RuntimeContext) -> None:
    get = context.get_state
    assert_type(get(mp.ValueStateDescriptor("a", int)), ValueState[int])
    assert_type(get(mp.ValueStateDescriptor("a", type=str)), ValueState[str])
    assert_type(get(mp.ValueStateDescriptor("a", dt.datetime)), ValueState[dt.datetime])
    assert_type(get(mp.ValueStateDescriptor("a", UUID)), ValueState[UUID])
    assert_type(get(mp.ValueStateDescriptor("a", int | None)), ValueState[int | None])
    assert_type(get(mp.ValueStateDescriptor("a", int | str)), ValueState[int | str])
    assert_type(get(mp.ValueStateDescriptor("a", list[int])), ValueState[list[int]])
    assert_type(
        get(mp.ValueStateDescriptor("a", dict[str, float | None])),
        ValueState[dict[str, float | None]],
    )
    assert_type(get(mp.ValueStateDescriptor("a", tuple[int, str])), ValueState[tuple[int, str]])
    assert_type(get(mp.ValueStateDescriptor("a", tuple[int, ...])), ValueState[tuple[int, ...]])
    assert_type(get(mp.ValueStateDescriptor("a", set[bytes])), ValueState[set[bytes]])
    assert_type(get(mp.ValueStateDescriptor("a", Order)), ValueState[Order])
    assert_type(get(mp.ValueStateDescriptor("a", Point)), ValueState[Point])
    assert_type(get(mp.ValueStateDescriptor("a", Color)), ValueState[Color])
    assert_type(get(mp.ValueStateDescriptor("a", Model)), ValueState[Model])
    assert_type(get(mp.ValueStateDescriptor("a", Struct)), ValueState[Struct])
    assert_type(get(mp.ValueStateDescriptor("a", Film)), ValueState[Film])
    assert_type(get(mp.ValueStateDescriptor("a", UserId)), ValueState[UserId])
    assert_type(get(mp.ValueStateDescriptor("a", Annotated[int, "n"])), ValueState[int])
    side = mp.ValueStateDescriptor("a", Literal["buy", "sell"])
    assert_type(get(side), ValueState[Literal["buy", "sell"]])
    get(side).update("hold")  # E: arg-type reportArgumentType
    assert_type(get(mp.ValueStateDescriptor("a", ComplexSerializer())), ValueState[complex])
    assert_type(get(mp.ValueStateDescriptor("a", mp.PickleSerializer())), ValueState[Any])
    mp.ValueStateDescriptor("a", 3)  # E: call-overload reportArgumentType reportCallIssue
    mp.ValueStateDescriptor("a")  # E: call-overload reportCallIssue
    mp.ValueStateDescriptor(3, int)  # E: call-overload reportArgumentType reportCallIssue


def settings_keep_the_type(context: mp.RuntimeContext, ttl: mp.StateTtlConfig) -> None:
    expiring = mp.ValueStateDescriptor("a", int).enable_time_to_live(ttl)
    assert_type(context.get_state(expiring), ValueState[int])
    public = mp.MapStateDescriptor("a", str, int).set_queryable("totals")
    assert_type(context.get_map_state(public), MapState[str, int])
    mp.StateTtlConfig(dt.timedelta(1), time=mp.TtlTime.EVENT_TIME)


def own_times_to_live(
    value: ValueState[int], items: ListState[int], entries: MapState[str, int]
) -> None:
    value.update(1, ttl=dt.timedelta(1))
    items.add(1, ttl=None)
    entries.put("a", 1, ttl=dt.timedelta(1))
    value.update(1, ttl=5)  # E: arg-type reportArgumentType


def defaults(context: mp.RuntimeContext) -> None:
    assert_type(context.get_state(mp.ValueStateDescriptor("n", int, default=0)), ValueState[int])
    assert_type(context.get_state(mp.ValueStateDescriptor("n", int, 0)), ValueState[int])
    tags = mp.ValueStateDescriptor("n", list[str], default=["a"])
    assert_type(context.get_state(tags), ValueState[list[str]])


def what_only_the_program_knows(
    context: mp.RuntimeContext, declared: Any, descriptor: mp.StateDescriptor
) -> None:
    assert_type(context.get_state(mp.ValueStateDescriptor("a", declared)), ValueState[Any])
    assert_type(context.get_namespaced_state(descriptor, "window"), Any)


def list_states(context: mp.RuntimeContext, operator_state: OperatorStateBackend) -> None:
    items = context.get_list_state(mp.ListStateDescriptor("items", Order))
    assert_type(items, ListState[Order])
    assert_type(items.get(), list[Order])
    items.add(Order("tea", 1.0))
    items.add("tea")  # E: arg-type reportArgumentType
    items.add_all([1])  # E: list-item reportArgumentType
    items.update(["tea"])  # E: list-item reportArgumentType
    for item in items:
        assert_type(item, Order)
    optional = context.get_list_state(mp.ListStateDescriptor("items", int | str))
    assert_type(optional, ListState[int | str])
    coded = context.get_list_state(mp.ListStateDescriptor("items", ComplexSerializer()))
    assert_type(coded, ListState[complex])
    buffered = mp.ListStateDescriptor("buffered", tuple[str, int])
    assert_type(operator_state.get_list_state(buffered), ListState[tuple[str, int]])
    assert_type(operator_state.get_union_list_state(buffered), ListState[tuple[str, int]])


def map_states(context: mp.RuntimeContext) -> None:
    scores = context.get_map_state(mp.MapStateDescriptor("scores", str, int))
    assert_type(scores, MapState[str, int])
    assert_type(scores.get("a"), int | None)
    assert_type(scores.get("a", 0), int)
    assert_type(scores.get("a", "none"), int | str)
    assert_type(scores["a"], int)
    assert_type(list(scores.items()), list[tuple[str, int]])
    assert_type(list(scores.keys()), list[str])
    assert_type(list(scores.values()), list[int])
    scores["a"] = 1
    scores.put("a", "b")  # E: arg-type reportArgumentType
    scores.put(1, 1)  # E: arg-type reportArgumentType
    scores.put_all({1: 1})  # E: dict-item reportArgumentType
    scores.get(1)  # E: call-overload reportArgumentType
    scores["a"] = "b"  # E: assignment reportArgumentType
    in_order = context.get_sorted_map_state(mp.SortedMapStateDescriptor("s", int, str))
    assert_type(in_order, SortedMapState[int, str])
    assert_type(in_order.first(), tuple[int, str] | None)
    assert_type(list(in_order.range(1, 5, limit=2)), list[tuple[int, str]])
    wrong = mp.SortedMapStateDescriptor("s", int, str)
    context.get_map_state(wrong)  # E: arg-type reportArgumentType
    in_order.range("a")  # E: arg-type reportArgumentType
    optional = context.get_map_state(mp.MapStateDescriptor("o", tuple[str, int], float | None))
    assert_type(optional, MapState[tuple[str, int], float | None])
    coded = context.get_map_state(mp.MapStateDescriptor("c", ComplexSerializer(), list[int]))
    assert_type(coded, MapState[complex, list[int]])
    stored = context.get_map_state(mp.MapStateDescriptor("c", str, ComplexSerializer()))
    assert_type(stored, MapState[str, complex])


def codecs(context: mp.RuntimeContext, codec: KeyCodec) -> None:
    by_codec = context.get_map_state(mp.MapStateDescriptor("c", codec, int))
    assert_type(by_codec, MapState[Any, int])


def reducing_states(context: mp.RuntimeContext) -> None:
    total = context.get_reducing_state(mp.ReducingStateDescriptor("total", operator.add, float))
    assert_type(total, ReducingState[float])
    assert_type(total.get(), float | None)
    total.add("x")  # E: arg-type reportArgumentType
    most = context.get_reducing_state(mp.ReducingStateDescriptor("most", max, int))
    assert_type(most, ReducingState[int])
    least = mp.ReducingStateDescriptor("least", lambda a, b: min(b, a), int)
    assert_type(context.get_reducing_state(least), ReducingState[int])
    coded = mp.ReducingStateDescriptor("coded", lambda a, b: a + b, ComplexSerializer())
    assert_type(context.get_reducing_state(coded), ReducingState[complex])
    mp.ReducingStateDescriptor("r", longer, str)  # E: arg-type reportArgumentType reportCallIssue


def aggregating_states(context: mp.RuntimeContext) -> None:
    declared = mp.AggregatingStateDescriptor("mean", Mean(), tuple[float, int])
    mean = context.get_aggregating_state(declared)
    assert_type(mean, AggregatingState[float, Decimal])
    assert_type(mean.get(), Decimal | None)
    mean.add("x")  # E: arg-type reportArgumentType
    by_class = mp.AggregatingStateDescriptor("mean", Mean, tuple[float, int])
    assert_type(context.get_aggregating_state(by_class), AggregatingState[float, Decimal])
    plain = mp.AggregatingStateDescriptor("plain", Plain(), int)
    assert_type(context.get_aggregating_state(plain), AggregatingState[Any, Any])
    mp.AggregatingStateDescriptor("m", Mean(), int)  # E: misc reportArgumentType reportCallIssue


def folding_states(context: mp.RuntimeContext) -> None:
    text = context.get_folding_state(mp.FoldingStateDescriptor("text", "", longer, str))
    assert_type(text, FoldingState[bytes, str])
    assert_type(text.get(), str | None)
    text.add("x")  # E: arg-type reportArgumentType


def any_kind_by_one_door(backend: KeyedStateBackend, context: mp.RuntimeContext) -> None:
    get = backend.get_partitioned_state
    assert_type(get(mp.ValueStateDescriptor("a", float)), ValueState[float])
    assert_type(get(mp.ValueStateDescriptor("a", int | None)), ValueState[int | None])
    assert_type(get(mp.ListStateDescriptor("a", int), "ns", str), ListState[int])
    assert_type(get(mp.MapStateDescriptor("a", str, int)), MapState[str, int])
    assert_type(get(mp.SortedMapStateDescriptor("a", str, int)), SortedMapState[str, int])
    assert_type(get(mp.ReducingStateDescriptor("a", max, int)), ReducingState[int])
    mean = mp.AggregatingStateDescriptor("a", Mean(), tuple[float, int])
    assert_type(get(mean), AggregatingState[float, Decimal])
    fold = mp.FoldingStateDescriptor("a", "", longer, str)
    assert_type(get(fold), FoldingState[bytes, str])
    named = context.get_namespaced_state(mp.ValueStateDescriptor("a", int), "ns")
    assert_type(named, ValueState[int])
    get(mp.ValueStateDescriptor("a", float)).update("x")  # E: arg-type reportArgumentType
    get("a")  # E: arg-type reportArgumentType


def all_keys(backend: KeyedStateBackend, broadcast: mp.BroadcastContext) -> None:
    def double(key: str, state: ValueState[int]) -> None:
        state.update(2 * (state.value() or 0))

    backend.apply_to_all_keys(mp.ValueStateDescriptor("a", int), double)
    broadcast.apply_to_keyed_state(mp.ValueStateDescriptor("a", int), double)
    texts = mp.ValueStateDescriptor("a", str)
    backend.apply_to_all_keys(texts, double)  # E: arg-type reportArgumentType
    broadcast.apply_to_keyed_state(texts, double)  # E: arg-type reportArgumentType


def a_state_of_another_kind(context: mp.RuntimeContext) -> None:
    items = mp.ListStateDescriptor("a", int)
    context.get_state(items)  # E: arg-type reportArgumentType
    context.get_map_state(items)  # E: arg-type reportArgumentType


def broadcast_states(
    keyed: mp.Context, broadcast: mp.BroadcastContext, operator_state: OperatorStateBackend
) -> None:
    rules = mp.MapStateDescriptor("rules", str, float)
    changed = broadcast.get_broadcast_state(rules)
    assert_type(changed, BroadcastState[str, float])
    assert_type(operator_state.get_broadcast_state(rules), BroadcastState[str, float])
    changed.put("a", "b")  # E: arg-type reportArgumentType
    assert_type(changed.get("a"), float | None)
    read = keyed.get_broadcast_state(rules)
    assert_type(read, ReadOnlyBroadcastState[str, float])
    assert_type(read.get("a"), float | None)
    assert_type(read["a"], float)
    read.put("a", 1.0)  # E: attr-defined reportAttributeAccessIssue


def window_states(context: WindowContext) -> None:
    fired = context.window_state(mp.ValueStateDescriptor("fired", int))
    assert_type(fired, ValueState[int])
    seen = context.global_state(mp.MapStateDescriptor("seen", str, int | None))
    assert_type(seen, MapState[str, int | None])
    assert_type(context.window, TimeWindow)


class Spent(mp.KeyedProcessFunction):
    """A function as most users write it: without parameters and annotations of the state."""

    def open(self, context: mp.RuntimeContext) -> None:
        self.spent = context.get_state(mp.ValueStateDescriptor("spent", float))

    def process_element(self, row: Any, context: mp.Context) -> Iterator[tuple[str, float]]:
        assert_type(context.current_key, Any)
        assert_type(self.spent.value(), float | None)
        self.spent.update(row.customer)
        self.spent.update("x")  # E: arg-type reportArgumentType
        yield row.customer, 1.0


class Priced(mp.KeyedProcessFunction[str, Order, tuple[str, float]]):
    """Function with the types of key, row and output."""

    def process_element(self, row: Order, context: mp.Context[str]) -> Iterable[tuple[str, float]]:
        assert_type(context.current_key, str)
        assert_type(context.event_time + 1, int)
        context.timestamp + 1  # E: operator reportOptionalOperand
        return [(context.current_key, row.price)]

    # E: override reportIncompatibleMethodOverride
    def on_timer(self, timestamp: int, context: mp.Context[str]) -> list[str]:
        return ["x"]


class Ruled(mp.KeyedBroadcastProcessFunction[str, Order, tuple[str, float], Point]):
    def process_element(self, row: Order, context: mp.Context[str]) -> list[Point]:
        return [Point(1, 2)]

    def process_broadcast_element(
        self, row: tuple[str, float], context: mp.BroadcastContext
    ) -> list[Point]:
        return []


class Dealt(mp.BroadcastProcessFunction[Order, tuple[str, float], Point]):
    def process_element(self, row: Order, context: mp.ProcessContext) -> list[Point]:
        str(context.current_key)  # E: attr-defined reportAttributeAccessIssue
        return [Point(1, 2)]

    def process_broadcast_element(
        self, row: tuple[str, float], context: mp.BroadcastContext
    ) -> list[Point]:
        return []


class Sum(mp.windows.ProcessWindowFunction[list[float], tuple[str, float], str]):
    def process(
        self, key: str, context: WindowContext, elements: list[float]
    ) -> Iterable[tuple[str, float]]:
        yield key, sum(elements)


class Anything(mp.windows.ProcessWindowFunction):
    def process(self, key: Any, context: WindowContext, elements: Any) -> Iterable[Any]:
        yield key, len(elements)


class Buffered(mp.ListCheckpointed[tuple[str, int]]):
    element_type = tuple[str, int]

    def snapshot_state(self, checkpoint_id: int) -> list[tuple[str, int]]:
        return []

    # E: override reportIncompatibleMethodOverride
    def restore_state(self, elements: list[str]) -> None:
        pass


def runs(orders: list[Order]) -> None:
    assert_type(mp.local.run(Priced(), orders, key="item"), Output[tuple[str, float]])
    assert_type(mp.local.run(Spent(), orders, key="item", key_type=str), Output[Any])
    with mp.testing.KeyedOperatorHarness(Priced(), key="item", key_type=tuple[str, int]) as harness:
        assert_type(harness.output, Output[tuple[str, float]])
    with mp.testing.KeyedOperatorHarness(Spent(), key=lambda row: row.item) as plain:
        assert_type(plain.output, Output[Any])


def windows() -> None:
    hours = mp.windows.TumblingEventTimeWindows.of(3_600_000)
    assert_type(hours, mp.windows.TumblingEventTimeWindows)
    windowing = mp.windows.window(hours)
    windowing.reduce(max, float, "price")
    windowing.reduce(longer, str, "item")  # E: arg-type reportArgumentType
    windowing.aggregate(Mean(), tuple[float, int])
    windowing.process(Sum(), float, "price")
    windowing.process(Anything(), float, "price")
    windowing.process(Sum(), str, "item")  # E: arg-type reportArgumentType


def joins(orders: list[Order], points: list[Point]) -> None:
    near = mp.IntervalJoin(Order, Point, lower=-5, upper=dt.timedelta(0), how="full")
    assert_type(near, mp.IntervalJoin[Any, Order, Point])
    joined = mp.local.run(near, orders, key="item", second=points)
    assert_type(joined, Output[tuple[Order | None, Point | None]])
    mp.IntervalJoin(Order, Point, lower=0, upper=5, how="outer")  # E: arg-type reportArgumentType
    latest = mp.AsOfJoin(Order, Point, tolerance=dt.timedelta(hours=1))
    assert_type(latest, mp.AsOfJoin[Any, Order, Point])
    mp.AsOfJoin(Order, Point, how="full")  # E: arg-type reportArgumentType
    table: mp.LookupJoin[str, Order, Point] = mp.LookupJoin(Point)
    assert_type(mp.local.run(table, orders, key="item"), Output[tuple[Order | None, Point | None]])
    ddl = mp.IntervalJoin("item string", "item string, x double", lower=0, upper=5)
    assert_type(ddl, mp.IntervalJoin[Any, Any, Any])
    assert_type(mp.AsOfJoin(Order, "item string"), mp.AsOfJoin[Any, Order, Any])
    mp.LookupJoin("item string, x double")
    mp.LookupJoin(5)  # E: arg-type reportArgumentType
