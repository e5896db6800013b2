"""Chains of operators around watermarks give the result of the same chain in a batch, or are refused."""

import random
from collections import Counter
from datetime import UTC, datetime
from itertools import product
from typing import NamedTuple

import millpond as mp
import pytest
from millpond import errors, windows
from millpond.spark import key_by, several_operators
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

ROWS = "k string, t timestamp, n bigint"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
FAR = 100_000
"""The second of the closing rows, which close the windows of all other rows."""


class Later(mp.KeyedProcessFunction):
    """Function that yields a row five seconds after each row, by an event-time timer."""

    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(context.timestamp + 5_000)

    def on_timer(self, timestamp, context):
        yield context.current_key, moment(timestamp), 1


class Soon(mp.KeyedProcessFunction):
    """Function that yields each row, and has only processing-time timers."""

    def process_element(self, row, context):
        yield row

    def on_timer(self, timestamp, context):
        return None


def moment(ms):
    return datetime.fromtimestamp(ms / 1000, UTC)


def total(key, window, n):
    yield key, moment(window.max_timestamp()), n


def summed(df, uid, size):
    windowed = key_by(df, "k").window(windows.TumblingEventTimeWindows.of(size))
    return windowed.reduce(int.__add__, int, "n", total, output=ROWS, uid=uid, event_time="t")


OPERATORS = {
    "map": lambda df, uid: key_by(df, "k").filter(bool, uid=uid),
    "soon": lambda df, uid: key_by(df, "k").process(Soon(), output=ROWS, uid=uid),
    "later": lambda df, uid: key_by(df, "k").process(Later(), output=ROWS, uid=uid, event_time="t"),
    "minutes": lambda df, uid: summed(df, uid, 60_000),
    "pairs": lambda df, uid: summed(df, uid, 120_000),
}
BY_EVENT_TIME = ("later", "minutes", "pairs")


class Step(NamedTuple):
    """An operator of a chain: a watermark or a union with the source may come before it."""

    operator: str
    watermark: bool = False
    beside: str = ""


def built(steps, source):
    """Return a chain over rows, and its operators' uids."""
    df = source
    for at, step in enumerate(steps):
        marked = df.withWatermark("t", "0 seconds") if step.watermark else df
        if step.beside == "first":
            marked = source.withWatermark("t", "0 seconds").union(marked)
        elif step.beside == "second":
            marked = marked.union(source.withWatermark("t", "0 seconds"))
        df = OPERATORS[step.operator](marked, f"{step.operator}{at}")
    return df


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    """Three files with ordered rows of ten minutes, and the closing rows."""
    files = Files(spark, tmp_path_factory.mktemp("chains") / "in", "k string, s bigint, n bigint")
    draw = random.Random(5)
    for part in range(3):
        seconds = sorted(draw.sample(range(part * 200, part * 200 + 200), 6))
        files.add(*((draw.choice("ab"), second, draw.randrange(1, 9)) for second in seconds))
    files.add(("a", FAR, 1), ("b", FAR, 1))
    # Because of processing-time timers, a query that ends runs no batch without rows.
    files.add(("a", FAR + 60, 1))
    return files


def moments(df):
    return df.selectExpr("k", "timestamp_seconds(s) t", "n")


def closed(found):
    """Return the rows before the closing ones."""
    return Counter(row for row in found if row[1] < FAR - 1000)


def outcome(spark, steps, rows, tmp_path, policy):
    """Return the output of a chain as a query, or the error that refuses it."""
    spark.conf.set(POLICY, policy)
    try:
        df = built(steps, moments(rows.stream()))
        with several_operators():
            run(df.selectExpr("k", "unix_seconds(t) t", "n"), tmp_path)
    except errors.NoWatermarkError as error:
        return str(error)
    except StreamingQueryException as error:
        return str(error)
    finally:
        spark.conf.unset(POLICY)
    return closed(output(spark, tmp_path))


def in_a_batch(spark, steps, rows):
    df = built(steps, moments(spark.read.schema(rows.schema).json(str(rows.folder))))
    return closed(map(tuple, df.selectExpr("k", "unix_seconds(t) t", "n").collect()))


REFUSALS = (
    "need a watermark, and",
    "would wait for rows",
    "so rows would be late behind",
)
QUICK = (("map", "soon", "later"), ("map", "later", "minutes"))
"""The first and second operators of the pairs that every test run uses."""


def named(steps):
    """Return the name of a chain: operators with a watermark before them begin with w."""
    return "-".join(f"{'w.' if step.watermark else ''}{step.operator}" for step in steps)


def pair(first, second, before, between):
    quick = first in QUICK[0] and second in QUICK[1]
    steps = [Step(first, before), Step(second, between)]
    return pytest.param(steps, id=named(steps), marks=() if quick else pytest.mark.soak)


PLAIN = [pair(*each) for each in product(OPERATORS, OPERATORS, (False, True), (False, True))]


def drawn(seed):
    """Return a random longer chain, which may add the source's rows again."""
    draw = random.Random(seed)
    watermark = (True, False)
    first = Step(draw.choice(("map", "soon", *BY_EVENT_TIME)), draw.random() < 0.8)
    others = [
        Step(
            draw.choice(list(OPERATORS)),
            draw.choice(watermark),
            draw.choice(("", "", "first", "second")),
        )
        for _ in range(draw.choice((1, 1, 2)))
    ]
    return [first, *others]


def works(steps):
    """Return whether a chain of two operators is correct under the lowest watermark.

    The first operator, if it uses event time, needs a watermark of the source. The second one needs
    a watermark before it, and one between the two must not wait for the first operator.
    """
    first, second = steps
    timed = [step.operator in BY_EVENT_TIME for step in steps]
    waits = first.watermark and (timed[0] or first.operator == "soon")
    marked = first.watermark or second.watermark
    missing = (timed[0] and not first.watermark) or (timed[1] and not marked)
    return not missing and not (second.watermark and waits)


def check(spark, job_conf, tmp_path, steps, rows, policy):
    job_conf(state_backend="heap", parallelism=1)
    found = outcome(spark, steps, rows, tmp_path, policy)
    if isinstance(found, str):
        assert any(each in found for each in REFUSALS), found
        return False
    expected = in_a_batch(spark, steps, rows)
    assert found == expected
    assert expected
    return True


@pytest.mark.long
@pytest.mark.sample(10)
@pytest.mark.parametrize("steps", PLAIN)
def test_two_operators_are_right_or_refused(spark, job_conf, tmp_path, rows, steps):
    """Under the lowest watermark, exactly the chains that are not correct are refused."""
    assert check(spark, job_conf, tmp_path, steps, rows, "min") == works(steps)


BOTH = [
    [Step(first, True), Step(second, True)]
    for first, second in product(("map", "soon", "minutes"), ("map", "pairs"))
]


@pytest.mark.parametrize("steps", BOTH, ids=named)
def test_the_highest_of_two_watermarks_is_refused(spark, job_conf, tmp_path, rows, steps):
    """Under the highest watermark, rows behind any first operator would be late, so the chain is refused."""
    assert not check(spark, job_conf, tmp_path, steps, rows, "max")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n < 6 else pytest.mark.soak) for n in range(20)]
)
def test_longer_chains_are_right_or_refused(spark, job_conf, tmp_path, rows, seed):
    """Chains of up to three operators, with unions and either watermark policy, are correct or refused."""
    check(spark, job_conf, tmp_path, drawn(seed), rows, ("min", "max")[seed % 2])


def outer_join(df):
    """Return an outer join whose unmatched rows come a minute later."""
    other = df.selectExpr("k other", "t + interval 9 hours at").withWatermark("at", "0 seconds")
    within = F.expr("k = other and at between t and t + interval 1 minute")
    joined = df.withWatermark("t", "0 seconds").join(other, within, "left")
    return joined.where("other is null").select("k", "t", "n")


def joined(df, kind, within, time="t"):
    """Return rows joined with copies under the same key; one side may be null."""
    other = df.selectExpr("k other", "t at").withWatermark("at", "0 seconds")
    found = df.withWatermark("t", "0 seconds").join(other, F.expr(f"k = other{within}"), kind)
    return found.selectExpr("coalesce(k, other) k", time, "coalesce(unix_seconds(at), 0) n")


def left_of_a_table(df):
    """Return rows with the numbers of a table, or 0."""
    table = df.sparkSession.createDataFrame([("a", 7)], "other string, number bigint")
    found = df.withWatermark("t", "0 seconds").join(table, F.expr("k = other"), "left")
    return found.select("k", "t", F.expr("coalesce(number, 0) n"))


def distinct(df, within_watermark):
    """Return rows without duplicates; a batch has no duplicates within a watermark."""
    twice = df.withWatermark("t", "0 seconds")
    twice = twice.union(twice)
    if within_watermark and df.isStreaming:
        return twice.dropDuplicatesWithinWatermark(["k", "t", "n"])
    return twice.dropDuplicates(["k", "t", "n"])


def aggregated(df):
    """Return counts per minute, dated by the minute's end."""
    minutes = df.withWatermark("t", "0 seconds").groupBy("k", F.window("t", "1 minute"))
    return minutes.agg(F.sum("n").alias("n")).select("k", F.window_time("window").alias("t"), "n")


MINUTE = " and at between t and t + interval 1 minute"
STRICTLY = f"{MINUTE} and at > t"
BEFORE = {
    "inner": lambda df: joined(df, "inner", MINUTE),
    "semi": lambda df: df.withWatermark("t", "0 seconds").join(
        df.selectExpr("k other", "t at").withWatermark("at", "0 seconds"),
        F.expr(f"k = other and at > t{MINUTE}"),
        "left_semi",
    ),
    "same time": lambda df: joined(df, "inner", " and at = t"),
    "table": left_of_a_table,
    "distinct": lambda df: distinct(df, False),
    "within": lambda df: distinct(df, True),
}
"""Stateful steps of Spark that pass each row on immediately."""


def check_like_a_batch(spark, tmp_path, rows, before, operator):
    """Check that a step and an operator behind it have the same output in a stream and a batch."""

    def chain(source):
        made = OPERATORS[operator](before(moments(source)), "behind")
        return made.selectExpr("k", "unix_seconds(t) t", "n")

    run(chain(rows.stream()), tmp_path)
    batch = chain(spark.read.schema(rows.schema).json(str(rows.folder)))
    expected = closed(map(tuple, batch.collect()))
    assert closed(output(spark, tmp_path)) == expected
    assert expected


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("before", "operator"),
    [
        pytest.param(
            *each,
            marks=() if each in {("inner", "minutes"), ("within", "later")} else pytest.mark.soak,
        )
        for each in product(BEFORE, OPERATORS)
        if each[1] != "soon"
    ],
)
def test_steps_of_spark_before_an_operator(spark, job_conf, tmp_path, rows, before, operator):
    """After joins and deduplications that pass rows on immediately, an operator gets all of them."""
    job_conf(state_backend="heap", parallelism=1)
    check_like_a_batch(spark, tmp_path, rows, BEFORE[before], operator)


OUTER = {
    "left": lambda df: joined(df, "left", STRICTLY),
    "right": lambda df: joined(df, "right", STRICTLY, "at t"),
    "full": lambda df: joined(df, "full", STRICTLY).where("t is not null"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "operator"), [*product(OUTER, BY_EVENT_TIME)])
def test_event_time_behind_an_outer_join(spark, job_conf, tmp_path, rows, kind, operator):
    """Event time behind an outer join of two streams gets the rows without a match in time."""
    job_conf(state_backend="heap", parallelism=1)
    check_like_a_batch(spark, tmp_path, rows, OUTER[kind], operator)


@pytest.mark.parametrize("operator", BY_EVENT_TIME)
def test_a_join_before_the_operator_before(spark, job_conf, rows, operator):
    """Event time behind an operator that follows a join of two streams is refused at creation."""
    job_conf(state_backend="heap", parallelism=1)
    between = OPERATORS["map"](joined(moments(rows.stream()), "inner", MINUTE), "between")
    for df in (between, between.union(between)):
        with pytest.raises(errors.EventTimeChainError, match="'behind' .* 'between', which follow"):
            OPERATORS[operator](df, "behind")
    assert OPERATORS["map"](between, "behind").columns == ["k", "t", "n"]


def test_a_second_input_from_an_outer_join(spark, job_conf, tmp_path, rows):
    """Rows without a match in a second input are not late."""
    job_conf(state_backend="heap", parallelism=1)

    def chain(source):
        first = moments(source).withWatermark("t", "0 seconds")
        second = joined(moments(source), "left", STRICTLY)
        both = key_by(first, "k").connect(key_by(second, "k"), event_time="t")
        made = both.process(Both(), output=ROWS, uid="behind", event_time="t")
        return made.selectExpr("k", "unix_seconds(t) t", "n")

    run(chain(rows.stream()), tmp_path)
    expected = closed(
        map(tuple, chain(spark.read.schema(rows.schema).json(str(rows.folder))).collect())
    )
    assert closed(output(spark, tmp_path)) == expected
    assert expected


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "full"])
def test_windows_behind_an_interval_join(spark, job_conf, tmp_path, rows, how):
    """Windows behind an interval join get the pairs and the rows without a partner in time."""
    job_conf(state_backend="heap", parallelism=1)

    def chain(source):
        left = moments(source).withWatermark("t", "0 seconds")
        right = moments(source).toDF("k", "at", "m").withWatermark("at", "0 seconds")
        joined = key_by(left, "k").interval_join(
            key_by(right, "k"),
            lower=-90_000,
            upper=-1,
            how=how,
            uid="join",
            event_time="t",
            right_event_time="at",
        )
        df = joined.selectExpr("k", "coalesce(at, t) t", "coalesce(n, 0) + coalesce(m, 0) n")
        between = OPERATORS["map"](df, "between")
        return OPERATORS["minutes"](between, "behind").selectExpr("k", "unix_seconds(t) t", "n")

    with several_operators():
        run(chain(rows.stream()), tmp_path)
    expected = closed(
        map(tuple, chain(spark.read.schema(rows.schema).json(str(rows.folder))).collect())
    )
    assert closed(output(spark, tmp_path)) == expected
    assert expected


class Both(mp.KeyedCoProcessFunction):
    """Function that counts the rows of both inputs in windows of a minute, by event-time timers."""

    def open(self, context):
        self.counts = context.get_map_state(mp.MapStateDescriptor("counts", int, int))

    def process_element1(self, row, context):
        minute = context.event_time // 60_000
        if minute * 60_000 + 59_999 > context.timer_service().current_watermark():
            self.counts[minute] = self.counts.get(minute, 0) + 1
            context.timer_service().register_event_time_timer(minute * 60_000 + 59_999)

    process_element2 = process_element1

    def on_timer(self, timestamp, context):
        yield context.current_key, moment(timestamp), self.counts[timestamp // 60_000]


def counted(df):
    """Return a window for each row."""
    windowed = key_by(df, "k").window(windows.GlobalWindows.create())
    triggered = windowed.trigger(windows.PurgingTrigger.of(windows.CountTrigger.of(1)))
    return triggered.reduce(int.__add__, int, "n", first, output="k string, n bigint", uid="behind")


def first(key, window, n):
    yield key, n


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("operator", [lambda df: OPERATORS["map"](df, "behind"), counted])
def test_operators_without_event_time_behind_an_outer_join(
    spark, job_conf, tmp_path, rows, operator
):
    """Functions without timers, and windows that end with a row, work behind an outer join."""
    job_conf(state_backend="heap", parallelism=1)

    def chain(source):
        df = joined(moments(source), "left", STRICTLY)
        return operator(df).select("k", "n")

    run(chain(rows.stream()), tmp_path)
    expected = Counter(
        map(tuple, chain(spark.read.schema(rows.schema).json(str(rows.folder))).collect())
    )
    found = Counter(output(spark, tmp_path))
    assert found <= expected
    # Unmatched rows of the last file wait for a later watermark.
    assert sum((expected - found).values()) <= 2
    assert any(n == 0 for _, n in found)


@pytest.mark.sample(1)
@pytest.mark.parametrize("joins", [False, True])
def test_an_aggregation_before_an_operator_is_refused_by_spark(
    spark, job_conf, tmp_path, rows, joins
):
    """Spark refuses an operator behind a streaming aggregation, and behind a join with one."""
    job_conf(state_backend="heap", parallelism=1)
    df = aggregated(moments(rows.stream()))
    if joins:
        other = moments(rows.stream()).selectExpr("k other", "t at")
        other = other.withWatermark("at", "0 seconds")
        df = df.join(other, F.expr("k = other and at = t")).select("k", "t", "n")
    with (
        pytest.raises(AnalysisException, match="not supported after aggregation"),
        several_operators(),
    ):
        run(OPERATORS["minutes"](df, "behind"), tmp_path)


@pytest.mark.sample(1)
@pytest.mark.parametrize("behind", ["", "map"])
def test_a_watermark_behind_a_join_that_waits(spark, job_conf, tmp_path, rows, behind):
    """A watermark behind an operator and a join is refused; without it the chain gives the rows."""
    job_conf(state_backend="heap", parallelism=1)
    before = OPERATORS["map"](outer_join(moments(rows.stream())), "before")
    if behind:
        marked = OPERATORS[behind](before.withWatermark("t", "0 seconds"), "behind")
        with (
            pytest.raises(StreamingQueryException, match="would wait for rows"),
            several_operators(),
        ):
            run(marked, tmp_path)
        return
    run(before.selectExpr("k", "unix_seconds(t) t", "n"), tmp_path)
    assert sum(closed(output(spark, tmp_path)).values()) == 18


def test_a_watermark_that_nothing_reads_holds_windows_back(spark, job_conf, tmp_path, rows):
    """A watermark behind windows is refused, because the windows would wait for it."""
    job_conf(state_backend="heap", parallelism=1)
    made = summed(moments(rows.stream()).withWatermark("t", "0 seconds"), "first", 60_000)
    with pytest.raises(StreamingQueryException, match="output of operator 'first'.*would wait"):
        run(made.withWatermark("t", "0 seconds"), tmp_path)
