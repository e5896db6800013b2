"""Each access to Spark's internals works on the installed version of Spark."""

from types import SimpleNamespace

import pyspark
import pytest
from millpond_spark.session import internals
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def case(spark, tmp_path_factory):
    """A running query of Spark, for both sides."""
    rows = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    folder = tmp_path_factory.mktemp("query")
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = writer.trigger(processingTime="1 second").start()
    stream = internals.running_query(spark, str(query.id))
    yield SimpleNamespace(spark=spark, rows=rows, writer=writer, stream=stream, folder=folder)
    query.stop()


def plan(case, rows=None):
    """Return the plan of the query's rows, or of other rows."""
    return internals.analyzed_plan(case.rows if rows is None else rows)


def outer_join(case):
    """Return the plan of an outer join of two streams."""
    left, right = (case.rows.select(F.col("timestamp").alias(name)) for name in "ab")
    return internals.analyzed_plan(left.join(right, F.expr("a = b"), "left_outer"))


def join_of(node):
    """Return the join in a plan."""
    return node if node.nodeName() == "Join" else join_of(internals.children(node)[0])


def watermarked_row(case):
    """Return whether the row is a stream with the step that sets the query's watermark."""
    made = internals.watermarked_row(case.spark, plan(case))
    copy = plan(case, made)
    return made.isStreaming and copy.nodeId() == plan(case).nodeId() and made.columns == ["time"]


def wrapped(case):
    """Return the methods of the writer that can be replaced."""
    names = []

    def wrap(name, method):
        names.append(name)
        return method

    internals.wrap_writer(wrap, remote=False)
    internals.wrap_writer(wrap, remote=True)
    return names == ["start", "toTable", "foreachBatch"] * 2


def client_nodes(case):
    """Return the nodes of a client's plan, which needs no server."""
    from pyspark.sql.connect import plan as nodes

    source = nodes.Range(0, 1, 1)
    marked = nodes.WithWatermark(source, "t", "1 second")
    join = nodes.Join(left=source, right=marked, on=None, how="left")
    return internals.client_inputs(marked) == [source] and len(internals.client_inputs(join)) == 2


def client_frames(case):
    """Return the plan of a client's DataFrame."""
    import inspect

    from pyspark.sql.connect.dataframe import DataFrame

    return "self._plan " in inspect.getsource(DataFrame.__init__)


def client_functions(case):
    """Return the name of a function in a client's plan."""
    import inspect

    from pyspark.sql.connect import plan as nodes
    from pyspark.sql.connect.expressions import CommonInlineUserDefinedFunction

    named = inspect.getsource(CommonInlineUserDefinedFunction.__init__)
    return "_function_name" in named and "self._function " in inspect.getsource(
        nodes.ApplyInPandasWithState.__init__
    )


def client_writers(case):
    """Return the plan of the rows that a client writes."""
    import inspect

    from pyspark.sql.connect.plan import LogicalPlan, WriteStreamOperation
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    found = inspect.getsource(DataStreamWriter.__init__)
    return (
        "self._write_stream" in found
        and "_child" in inspect.getsource(LogicalPlan.__init__)
        and (issubclass(WriteStreamOperation, LogicalPlan))
    )


ACCESSES = {
    "analyzed_plan": lambda case: plan(case).nodeName() == internals.SETS_WATERMARK,
    "children": lambda case: len(internals.children(plan(case))) == 1,
    "operator_names": lambda case: internals.operator_names(plan(case)) == [],
    "keeps_columns": lambda case: internals.keeps_columns(outer_join(case)),
    "is_outer_stream_join": lambda case: internals.is_outer_stream_join(join_of(outer_join(case))),
    "is_stream_join": lambda case: internals.is_stream_join(join_of(outer_join(case))),
    "watermarked_row": watermarked_row,
    "written_plan": lambda case: internals.written_plan(case.writer).nodeName() != "",
    "session_of_writer": lambda case: internals.session_of_writer(case.writer) is case.spark,
    "client_inputs": client_nodes,
    "client_plan": client_frames,
    "client_function_name": client_functions,
    "client_written_plan": client_writers,
    "wrap_writer": wrapped,
    "session_id": lambda case: internals.session_id(case.spark) != "",
    "checkpoint_of": lambda case: internals.checkpoint_of(case.stream) == f"file:{case.folder}",
    "last_committed_batch": lambda case: internals.last_committed_batch(case.stream) >= -1,
    "skipped_batch": lambda case: internals.skipped_batch(case.stream) is None,
    "query_plan": lambda case: internals.query_plan(case.stream).nodeName() != "",
    "query_settings": lambda case: internals.query_settings(case.stream).get("x", "y") == "y",
    "ends_with_its_input": lambda case: not internals.ends_with_its_input(case.stream),
    "builder_settings": lambda case: (
        internals.builder_settings(SparkSession.Builder().config("a", "b")) == {"a": "b"}
    ),
    "has_jvm": lambda case: internals.has_jvm(),
    "hadoop_configuration": lambda case: (
        internals.hadoop_configuration(case.spark).get("fs.defaultFS") is not None
    ),
    "quick_file_manager": lambda case: case.spark._jvm.java.lang.Class.forName(
        internals.quick_file_manager()
    ),
    "replaces_files": lambda case: internals.replaces_files(case.stream),
    "ROW_NUMBER": lambda case: [
        row.n for row in case.spark.range(3).repartition(1).select(
            F.expr(internals.ROW_NUMBER).alias("n")
        ).collect()
    ] == [0, 1, 2],
}  # fmt: skip


@pytest.mark.parametrize("access", ACCESSES)
def test_an_access(access, case):
    """The access works on this version of Spark; otherwise the failure names both."""
    broken = f"Spark {pyspark.__version__} broke session/internals.py: {access}"
    try:
        works = ACCESSES[access](case)
    except Exception as error:  # noqa: BLE001 - any error means that it broke
        pytest.fail(f"{broken}: {type(error).__name__}: {error}")
    assert works, broken


def test_a_query_is_listened_to_and_ended(spark, tmp_path):
    """StartListener, set_run_property and fail_query end a query before its first batch."""
    found = []

    def started(stream):
        internals.set_run_property(spark, stream, "millpond.test", "1")
        found.append(str(stream.id()))
        internals.fail_query(spark, stream, "it may not start")

    listener = internals.StartListener(spark, started)
    spark.streams.addListener(listener)
    try:
        writer = spark.readStream.format("rate").load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(StreamingQueryException, match="it may not start"):
            query.awaitTermination(60)
    finally:
        spark.streams.removeListener(listener)
    assert found == [str(query.id)]
    assert not (tmp_path / "offsets" / "0").exists()


def test_the_check_is_asked(case):
    """check_operators_alone makes Spark's check refuse an unsupported query."""
    mode, sorted_plan = case.stream.outputMode(), plan(case, case.rows.orderBy("value"))
    internals.check_operators_alone(case.spark, case.stream)
    unsupported = SimpleNamespace(analyzedPlan=lambda: sorted_plan, outputMode=lambda: mode)
    with pytest.raises(AnalysisException):
        internals.check_operators_alone(case.spark, unsupported)
