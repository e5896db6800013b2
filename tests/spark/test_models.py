"""Models, structs, TypedDicts and recursive classes on Spark, in state and in output rows."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import millpond as mp
import msgspec
import pydantic
import pytest
from millpond.spark import key_by
from pyspark import cloudpickle
from typing_extensions import TypedDict

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

OUTPUT = (
    "k string, last struct<n:bigint,parity:string>, links array<struct<n:bigint>>, depth bigint"
)


class Last(pydantic.BaseModel):
    """A model in state and in a struct column."""

    n: int
    parity: Literal["even", "odd"]


class LaterLast(pydantic.BaseModel):
    """The model after a change."""

    number: Annotated[int, mp.renamed_from("n")]
    parity: Literal["odd", "even", "none"]
    note: str = "new"


class Link(TypedDict):
    """A dict in state and in an array of structs."""

    n: int


@dataclass
class Path:
    """A recursive class."""

    n: int
    rest: "list[Path]" = field(default_factory=list)


class Out(msgspec.Struct):
    """An output row."""

    depth: int
    k: str
    last: Last
    links: list[Link]


class Kept(mp.KeyedProcessFunction):
    """Keep the numbers of a key in states of several types, and yield them."""

    def open(self, context):
        self.last = context.get_state(mp.ValueStateDescriptor("last", Last))
        self.links = context.get_list_state(mp.ListStateDescriptor("links", Link))
        self.path = context.get_state(mp.ValueStateDescriptor("path", Path))

    def process_element(self, row, context):
        self.last.update(Last(n=row.n, parity="odd" if row.n % 2 else "even"))
        self.links.add({"n": row.n})
        old = self.path.value()
        self.path.update(Path(row.n, [] if old is None else [old]))
        depth, at = 0, [self.path.value()]
        while at:
            depth, at = depth + 1, at[0].rest
        yield Out(depth, context.current_key, self.last.value(), self.links.get())


class Changed(mp.KeyedProcessFunction):
    """Read the changed model."""

    def open(self, context):
        self.last = context.get_state(mp.ValueStateDescriptor("last", LaterLast))

    def process_element(self, row, context):
        last = self.last.value()
        found = {"n": last.number, "parity": last.note}
        yield {"k": context.current_key, "last": found, "links": [], "depth": 0}


def test_a_stream_with_a_restart_and_a_change(spark, job_conf, tmp_path):
    """The values continue after a restart with another backend and after a change of the model."""
    files = Files(spark, tmp_path / "in")
    for backend, function in (("heap", Kept()), ("rocksdb", Kept()), ("lmdb", Changed())):
        job_conf(state_backend=backend, parallelism=1)
        files.add(("a", files.count + 1))
        run(key_by(files.stream(), "k").process(function, output=OUTPUT, uid="kept"), tmp_path)
    assert output(spark, tmp_path) == [
        ("a", (1, "odd"), [(1,)], 1),
        ("a", (2, "even"), [(1,), (2,)], 2),
        ("a", (2, "new"), [], 0),
    ]


class Model(pydantic.BaseModel):
    """A model that is sent to the workers by value."""

    n: int
    inner: "Model | None" = None


class Sent(mp.KeyedProcessFunction):
    """Keep a recursive model of the main program."""

    def __init__(self, kind):
        self.kind = kind

    def open(self, context):
        self.state = context.get_state(mp.ValueStateDescriptor("state", self.kind))

    def process_element(self, row, context):
        self.state.update(self.kind(n=row.n, inner=self.kind(n=0)))
        yield context.current_key, self.state.value().inner.n


def test_a_model_of_the_main_program(spark, job_conf):
    """A recursive model that Spark pickles by value works in the workers."""
    module = __import__(Model.__module__, fromlist=["Model"])
    job_conf(state_backend="heap", parallelism=1)
    df = spark.createDataFrame([("a", 5)], "k string, n long")
    cloudpickle.register_pickle_by_value(module)
    try:
        out = key_by(df, "k").process(Sent(Model), output="k string, n bigint", uid="sent")
        assert list(map(tuple, out.collect())) == [("a", 0)]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
