"""Functions that use parts of Spark that are not public.

Spark may change these parts in any version. Therefore no other module of Millpond uses the JVM or a
private attribute of PySpark. `tests/spark/test_internals.py` has a test for each use, and `make
matrix` runs these tests on all versions of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from itertools import count
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener
from typing_extensions import override

# ruff: noqa: SLF001 - private access is the purpose of this module

ROW_NUMBER = "(select monotonically_increasing_id())"
"""SQL whose lower 33 bits are the number of a row within its partition.

Spark refuses ``monotonically_increasing_id()`` in a streaming query, but accepts a subquery of one
row. Spark's optimizer rule ``OptimizeOneRowRelationSubquery`` replaces the subquery by its column.
If the user excludes this rule, every row has the number 0. Then each row wakes all subtasks (see
``plan/timing.py``), which is slower, but the results are right.
"""

OPERATOR_NAME = re.compile(r"millpond\[([^\]]+)\](?:@[0-9a-f]{12})?")
"""The name of an operator's function: the uid, in a classic session followed by a hash."""

OPERATOR_NODE = "FlatMapGroupsInPandasWithState"
"""The name of the node in Spark's plan that runs an operator."""

SETS_WATERMARK = "EventTimeWatermark"
"""The name of the node in Spark's plan that sets a watermark."""


# ---------------------------------------------------------------- plans


def analyzed_plan(df: DataFrame) -> Any:
    """Return the analyzed plan of a classic DataFrame. PySpark's public API has only its text."""
    return df._jdf.queryExecution().analyzed()


def children(node: Any) -> list[Any]:
    """Return the nodes directly below `node` in a plan."""
    found = node.children()
    return [found.apply(at) for at in range(found.size())]


def function_name(node: Any) -> str:
    """Return the name of the function that `node` runs; empty if `node` is not an operator."""
    return str(node.functionExpr().name()) if node.nodeName() == OPERATOR_NODE else ""


def operator_names(plan: Any) -> list[str]:
    """Return the names of the functions of all operators in `plan`, in the plan's order."""
    # The plan's text is not used, because settings of the session limit its length.
    below = [name for child in children(plan) for name in operator_names(child)]
    return [function_name(plan), *below] if plan.nodeName() == OPERATOR_NODE else below


def before_operator(plan: Any, matches: Callable[[Any], bool]) -> tuple[Any, str] | None:
    """Find a node before a Millpond operator in `plan`.

    Args:
        plan: the plan.
        matches: returns whether a node is the one to find.

    Returns:
        The node and the operator's uid; None if there is no such node.
    """
    for child in children(plan):
        found = before_operator(child, matches)
        if found is not None:
            return found
    operator = OPERATOR_NAME.fullmatch(function_name(plan))
    node = operator and _first_node(plan, matches)
    return None if operator is None or node is None else (node, operator[1])


def _first_node(plan: Any, matches: Callable[[Any], bool]) -> Any:
    """Return the first node of `plan` that matches, or None."""
    if matches(plan):
        return plan
    found = (_first_node(child, matches) for child in children(plan))
    return next((node for node in found if node is not None), None)


def sets_watermark(node: Any) -> bool:
    """Return whether `node`, a node of a plan, sets a watermark."""
    return bool(node.nodeName() == SETS_WATERMARK)


def is_stream_join(node: Any) -> bool:
    """Return whether `node`, a node of a plan, is a join of two streams."""
    return node.nodeName() == "Join" and all(each.isStreaming() for each in children(node))


def watermarked_row(spark: SparkSession, watermark: Any) -> DataFrame:
    """Return a stream of one row in each micro-batch, whose watermark is that of `watermark`.

    Spark gives the query's watermark to each stateful operator that has a step with a watermark
    before it. It computes the query's watermark from the highest time at each such step, and counts
    steps with the same id as one. The row's time is that of 1970. So the returned stream passes the
    watermark on, but has no influence on it.

    Args:
        spark: a classic session.
        watermark: the node that sets the watermark.
    """
    jvm: Any = spark._jvm
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    found = analyzed_plan(spark.sql("SELECT * FROM VALUES (timestamp_millis(0)) AS row(time)"))
    while children(found):
        (found,) = children(found)
    nothing = jvm.scala.Option.empty()
    row = logical.LocalRelation(found.output(), found.data(), True, nothing)
    marked = logical.EventTimeWatermark(
        watermark.nodeId(), row.output().head(), watermark.delay(), row
    )
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, marked)
    return DataFrame(rows, spark)


def keeps_columns(plan: Any) -> bool:
    """Return whether `plan` has a join of streams or an aggregation of a stream.

    Spark stores the columns that later steps read in the state of such a join or aggregation. These
    columns cannot change.
    """
    if not plan.isStreaming():
        return False
    keeps = is_stream_join(plan) or plan.nodeName() == "Aggregate"
    return keeps or any(map(keeps_columns, children(plan)))


def is_outer_stream_join(node: Any) -> bool:
    """Return whether `node`, a node of a plan, is an outer join of two streams."""
    return is_stream_join(node) and "OUTER" in str(node.joinType().sql())


def written_plan(writer: Any) -> Any:
    """Return the analyzed plan of the DataFrame that `writer`, a classic writer, writes."""
    return analyzed_plan(writer._df)


def session_of_writer(writer: Any) -> SparkSession:
    """Return the session of a classic writer. Spark reads its settings when a query starts."""
    session: SparkSession = writer._df.sparkSession
    return session


# ---------------------------------------------------------------- plans of a Spark Connect client


def client_plan(df: DataFrame) -> Any:
    """Return the unanalyzed plan of a Spark Connect DataFrame."""
    return df._plan


def client_written_plan(writer: Any) -> Any:
    """Return the unanalyzed plan of the rows that a Spark Connect writer writes."""
    return writer._write_stream._child


def client_function_name(node: Any) -> str:
    """Return the name of the function of a stateful `node`; empty for other nodes."""
    is_stateful = type(node).__name__ == "ApplyInPandasWithState"
    return str(node._function._function_name) if is_stateful else ""


def client_inputs(node: Any) -> list[Any]:
    """Return the nodes directly below `node` in the plan of a Spark Connect DataFrame."""
    # A join has its left side in two attributes. The dict removes the duplicate.
    from pyspark.sql.connect.plan import LogicalPlan  # noqa: PLC0415 - an extra

    found = {id(each): each for each in vars(node).values() if isinstance(each, LogicalPlan)}
    return list(found.values())


def is_client_outer_stream_join(node: Any, session: Any) -> bool:
    """Return whether `node`, of a Spark Connect plan, is an outer join of two streams.

    The server is asked whether the joined DataFrames are streams.
    """
    from pyspark.sql.connect.dataframe import DataFrame as ClientFrame  # noqa: PLC0415 - an extra
    from pyspark.sql.connect.plan import Join  # noqa: PLC0415
    from pyspark.sql.connect.proto import Join as Message  # noqa: PLC0415

    if not isinstance(node, Join) or "OUTER" not in Message.JoinType.Name(node.how):
        return False
    return all(ClientFrame(each, session).isStreaming for each in client_inputs(node))


# ---------------------------------------------------------------- a query's start


def wrap_writer(
    wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]], *, remote: bool
) -> None:
    """Replace the methods of PySpark's writer that start queries, and ``foreachBatch``.

    Spark has no hook for a query that is about to start.

    Args:
        wrap: gets a method's name and the method; returns the method that takes its place.
        remote: whether to replace the methods of Spark Connect's writer instead.
    """
    package = "pyspark.sql.connect.streaming" if remote else "pyspark.sql.streaming"
    writer = import_module(f"{package}.readwriter").DataStreamWriter
    for name in ("start", "toTable", "foreachBatch"):
        setattr(writer, name, wrap(name, getattr(writer, name)))


class _OnlyStarts(JStreamingQueryListener):
    """Calls a Python listener only when queries start.

    PySpark's own class also reads all figures of each batch's progress from the JVM. With small
    batches that was a tenth of the driver's work.
    """

    @override
    def onQueryStarted(self, jevent: Any) -> None:
        """Pass the JVM's event to the Python listener without converting it."""
        # PySpark cannot convert the event if the query has job tags. A query has the tags of the
        # thread that starts it. In ``foreachBatch`` Spark itself sets tags.
        self.pylistener.onQueryStarted(jevent)

    @override
    def onQueryProgress(self, jevent: Any) -> None: ...

    @override
    def onQueryIdle(self, jevent: Any) -> None: ...

    @override
    def onQueryTerminated(self, jevent: Any) -> None: ...


class StartListener(StreamingQueryListener):
    """A listener that Spark calls at each query's start.

    Spark calls the listener in the query's own thread, so the query does not begin before the
    listener returns.

    Args:
        spark: the session.
        started: called with the JVM object of each query that starts.
    """

    def __init__(self, spark: SparkSession, started: Callable[[Any], None]) -> None:
        self._started = started
        self._spark = spark

    @cached_property
    @override
    def _jlistener(self) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.PythonStreamingQueryListenerWrapper(_OnlyStarts(self))

    @override
    def onQueryStarted(self, event: Any) -> None:
        """Call the function `started` with the query's JVM object."""
        self._started(running_query(self._spark, str(event.id().toString())))

    @override
    def onQueryProgress(self, event: Any) -> None: ...

    @override
    def onQueryTerminated(self, event: Any) -> None: ...


def session_id(spark: SparkSession) -> str:
    """Return the UUID of the session `spark`. PySpark may have several objects for one session."""
    session: Any = spark._jsparkSession
    return str(session.sessionUUID())


def running_query(spark: SparkSession, query_id: str) -> Any:
    """Return the JVM object of a running query.

    PySpark's public API has neither the query's plan nor its checkpoint.
    """
    session: Any = spark._jsparkSession
    return session.streams().get(query_id).streamingQuery()


def checkpoint_of(stream: Any) -> str:
    """Return the URI of a query's checkpoint."""
    return str(stream.resolvedCheckpointRoot())


def last_committed_batch(stream: Any) -> int:
    """Return the id of the last committed batch of a query; -1 if there is none."""
    latest = stream.commitLog().getLatestBatchId()
    return -1 if latest.isEmpty() else int(latest.get())


def skipped_batch(stream: Any) -> int | None:
    """Return a query's unfinished batch if the sink for files will skip it, else None.

    The sink skips the batch if the last run has committed its files. No task then repeats it.
    """
    latest = stream.offsetLog().getLatestBatchId()
    batch = last_committed_batch(stream) + 1
    found = re.fullmatch(r"FileSink\[(.*)\]", str(stream.sink().toString()), re.DOTALL)
    if not found or latest.isEmpty() or int(latest.get()) != batch:
        return None
    jvm: Any = SparkContext._jvm
    log = jvm.org.apache.hadoop.fs.Path(found[1], "_spark_metadata")
    configuration = stream.sparkSessionForStream().sparkContext().hadoopConfiguration()
    files = log.getFileSystem(configuration)
    names = (str(batch), f"{batch}.compact")
    written = any(files.exists(jvm.org.apache.hadoop.fs.Path(log, name)) for name in names)
    return batch if written else None


def query_plan(stream: Any) -> Any:
    """Return the analyzed plan of a query."""
    return stream.analyzedPlan()


def query_settings(stream: Any) -> Any:
    """Return the settings of a query's own session."""
    return stream.sparkSessionForStream().conf()


def set_run_property(spark: SparkSession, stream: Any, key: str, value: str) -> None:
    """Set the Spark property `key` for all tasks of a query.

    Nothing is set if this call does not reach the query's own thread in the JVM. This may be so
    with ``PYSPARK_PIN_THREAD=false``, because Python threads then share threads of the JVM.
    """
    jvm: Any = spark._jvm
    here = jvm.java.lang.Thread.currentThread().getId()
    if here == stream.queryExecutionThread().getId():
        stream.sparkSessionForStream().sparkContext().setLocalProperty(key, value)


def ends_with_its_input(stream: Any) -> bool:
    """Return whether a query stops at the end of its input: with ``availableNow`` or ``once``."""
    return bool(stream.trigger().toString().startswith(("AvailableNow", "OneTime")))


def fail_query(spark: SparkSession, stream: Any, reason: str) -> None:
    """End a query before its first batch, as if its start had failed with the message `reason`.

    ``awaitTermination`` of the query raises the exception. A listener cannot end the query by
    raising an error, because Spark ignores the error. Therefore this function changes the state of
    the query's JVM object.
    """
    jvm: Any = spark._jvm
    said = {"id": str(stream.id()), "runId": str(stream.runId()), "message": reason}
    cause = jvm.java.lang.IllegalStateException(reason)
    death = jvm.org.apache.spark.sql.streaming.StreamingQueryException(
        "", cause, "", "", "STREAM_FAILED", jvm.PythonUtils.toScalaMap(said)
    )
    getattr(stream, "streamDeathCause_$eq")(death)
    initializing = stream.state().get().getClass()
    name = initializing.getName().replace("INITIALIZING", "TERMINATED")
    ended = initializing.getClassLoader().loadClass(name).getField("MODULE$").get(None)
    stream.state().set(ended)


def check_operators_alone(spark: SparkSession, stream: Any) -> None:
    """Call Spark's check of streaming queries for each operator of a query by itself.

    Raises:
        AnalysisException: Spark refuses an operator or another step of the query.
    """
    jvm: Any = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    plans = [query_plan(stream)]
    while plans:
        plan = plans.pop()
        operators = _uppermost(plan)
        for kept in range(max(len(operators), 1)):
            checker.checkForStreaming(_alone(jvm, plan, kept, count()), stream.outputMode())
        plans += [operator.child() for operator in operators]


def _uppermost(node: Any) -> list[Any]:
    """Return the operators in the plan `node` that have no other operator above them."""
    if node.nodeName() == OPERATOR_NODE:
        return [node]
    return [found for child in children(node) for found in _uppermost(child)]


def _alone(jvm: Any, node: Any, kept: int, numbers: Iterator[int]) -> Any:
    """Return the plan `node` with only one of its uppermost operators.

    All other uppermost operators are replaced by plain streams with the same columns.

    Args:
        jvm: the JVM.
        node: the plan, or a node of it in a recursive call.
        kept: the position in ``_uppermost`` of the operator that remains. The operator itself would
            not do, because a plan may use one operator twice.
        numbers: an iterator that counts the operators.
    """
    if node.nodeName() == OPERATOR_NODE:
        if next(numbers) != kept:
            nothing, empty = jvm.scala.Option.empty(), jvm.PythonUtils.toSeq([])
            relation = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation
            return relation(node.output(), empty, True, nothing)
        kept = -1
    inputs = [_alone(jvm, child, kept, numbers) for child in children(node)]
    return node.withNewChildren(jvm.PythonUtils.toSeq(inputs)) if inputs else node


# ---------------------------------------------------------------- sessions and files


def builder_settings(builder: SparkSession.Builder) -> dict[str, str]:
    """Return the settings that the user has given to `builder`."""
    return dict(getattr(builder, "_options", {}))


def has_jvm() -> bool:
    """Return whether this process has started a JVM. The JVM's environment is then fixed."""
    return SparkContext._gateway is not None


def hadoop_configuration(spark: SparkSession) -> Any:
    """Return the Hadoop configuration of a session; None over Spark Connect."""
    session = getattr(spark, "_jsparkSession", None)
    return None if session is None else session.sessionState().newHadoopConf()


HADOOPS_FILES = tuple(
    f"org.apache.hadoop.fs.{name}" for name in ("LocalFileSystem", "RawLocalFileSystem")
)
"""Hadoop's classes for local files. A rename by one of them replaces an existing file."""


FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""The setting that names the class of Spark's manager of checkpoint files."""


def quick_file_manager() -> str:
    """Return the class of Spark's checkpoint file manager that renames files by a system call."""
    package = "org.apache.spark.sql.execution.streaming"
    if not pyspark.__version__.startswith("4.0."):
        package += ".checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def replaces_files(stream: Any) -> bool:
    """Return whether a rename in the checkpoint of a query replaces an existing file.

    This is so if the checkpoint is on a local disk, and Spark uses one of ``HADOOPS_FILES`` for it.
    """
    if not checkpoint_of(stream).startswith("file:"):
        return False
    jvm: Any = SparkContext._jvm
    configuration = stream.sparkSessionForStream().sparkContext().hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.Path("file:///").getFileSystem(configuration)
    return files.getClass().getName() in HADOOPS_FILES
