"""Every use of parts of Spark that are not public, and why each is needed.

Spark may change these parts in any version. So no other module of Millpond uses the JVM or a
private attribute of PySpark, and `tests/spark/test_internals.py` has a test for each use. `make
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
"""The number of a row within its partition, below the 33 bits of the partition's number.

Spark refuses ``monotonically_increasing_id()`` in a streaming query. A subquery of one row passes,
and Spark's optimizer replaces it by its column (``OptimizeOneRowRelationSubquery``). If that rule
is excluded, every row has the number 0. Then all rows wake subtasks, which is slower, but right.
"""

OPERATOR_NAME = re.compile(r"millpond\[([^\]]+)\](?:@[0-9a-f]{12})?")
"""The name of an operator's function: its uid, and in a classic session a hash behind it."""

OPERATOR_NODE = "FlatMapGroupsInPandasWithState"
"""The name of the plan's node that runs an operator."""

SETS_WATERMARK = "EventTimeWatermark"
"""The name of the plan's node that sets a watermark."""


# ---------------------------------------------------------------- plans


def analyzed_plan(df: DataFrame) -> Any:
    """Return the analyzed plan of a classic DataFrame, which PySpark offers as text only."""
    return df._jdf.queryExecution().analyzed()


def children(node: Any) -> list[Any]:
    """Return the nodes below a node of a plan."""
    found = node.children()
    return [found.apply(at) for at in range(found.size())]


def function_name(node: Any) -> str:
    """Return the name of the function that a plan's node runs; empty if it is not an operator."""
    return str(node.functionExpr().name()) if node.nodeName() == OPERATOR_NODE else ""


def operator_names(plan: Any) -> list[str]:
    """Return the names of the functions of a plan's operators, in the plan's order.

    They are not read from the plan's text, because settings of the session limit its length.
    """
    below = [name for child in children(plan) for name in operator_names(child)]
    return [function_name(plan), *below] if plan.nodeName() == OPERATOR_NODE else below


def keeps_columns(plan: Any) -> bool:
    """Return whether a plan has a join of streams or an aggregation of a stream.

    The state of these steps holds the columns that later steps read, and these cannot change.
    """
    if not plan.isStreaming():
        return False
    inputs = children(plan)
    joins = plan.nodeName() == "Join" and all(each.isStreaming() for each in inputs)
    return joins or plan.nodeName() == "Aggregate" or any(map(keeps_columns, inputs))


def is_outer_stream_join(node: Any) -> bool:
    """Return whether a plan's node is an outer join of two streams."""
    if node.nodeName() != "Join" or "OUTER" not in str(node.joinType().sql()):
        return False
    return all(each.isStreaming() for each in children(node))


def written_plan(writer: Any) -> Any:
    """Return the analyzed plan of the rows that PySpark's writer writes."""
    return analyzed_plan(writer._df)


def session_of_writer(writer: Any) -> SparkSession:
    """Return the session whose settings Spark reads when a classic writer starts a query."""
    session: SparkSession = writer._df.sparkSession
    return session


# ---------------------------------------------------------------- plans of a Spark Connect client


def client_plan(df: DataFrame) -> Any:
    """Return the plan of a client's DataFrame."""
    return df._plan


def client_inputs(node: Any) -> list[Any]:
    """Return the nodes below a node of a client's plan.

    A join has its left side in two attributes, so nodes are compared by identity.
    """
    from pyspark.sql.connect.plan import LogicalPlan  # noqa: PLC0415 - an extra

    found = {id(each): each for each in vars(node).values() if isinstance(each, LogicalPlan)}
    return list(found.values())


def is_client_outer_stream_join(node: Any, session: Any) -> bool:
    """Return whether a client's node is an outer join of two streams, which the server knows."""
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
    """Calls a Python listener for the starts of queries only.

    PySpark asks the JVM for each figure of each batch's progress before it calls a listener. With
    small batches that was a tenth of the driver's work.
    """

    @override
    def onQueryStarted(self, jevent: Any) -> None:
        """Pass the JVM's event on as it is: PySpark cannot convert it if the query has job tags.

        A query has the tags of the thread that starts it. A query that another query's
        ``foreachBatch`` starts has Spark's own tags for that batch.
        """
        self.pylistener.onQueryStarted(jevent)

    @override
    def onQueryProgress(self, jevent: Any) -> None: ...

    @override
    def onQueryIdle(self, jevent: Any) -> None: ...

    @override
    def onQueryTerminated(self, jevent: Any) -> None: ...


class StartListener(StreamingQueryListener):
    """A listener that Spark calls at each query's start, in the query's own thread.

    The thread waits for the listener.
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
        """Call the function with Spark's query, on the JVM's side."""
        self._started(running_query(self._spark, str(event.id().toString())))

    @override
    def onQueryProgress(self, event: Any) -> None: ...

    @override
    def onQueryTerminated(self, event: Any) -> None: ...


def session_id(spark: SparkSession) -> str:
    """Return the UUID of a session. PySpark may have several objects for the same session."""
    session: Any = spark._jsparkSession
    return str(session.sessionUUID())


def running_query(spark: SparkSession, query_id: str) -> Any:
    """Return a running query on the JVM's side: PySpark offers neither its plan nor checkpoint."""
    session: Any = spark._jsparkSession
    return session.streams().get(query_id).streamingQuery()


def checkpoint_of(stream: Any) -> str:
    """Return the URI of a query's checkpoint."""
    return str(stream.resolvedCheckpointRoot())


def last_committed_batch(stream: Any) -> int:
    """Return the last committed batch of a query; -1 before the first."""
    latest = stream.commitLog().getLatestBatchId()
    return -1 if latest.isEmpty() else int(latest.get())


def query_plan(stream: Any) -> Any:
    """Return the analyzed plan of a query."""
    return stream.analyzedPlan()


def query_settings(stream: Any) -> Any:
    """Return the settings of a query's own session."""
    return stream.sparkSessionForStream().conf()


def set_run_property(spark: SparkSession, stream: Any, key: str, value: str) -> None:
    """Set a property for the tasks of a query, if the current thread starts them.

    With ``PYSPARK_PIN_THREAD=false`` Python's threads have no threads of their own in the JVM. Then
    another thread may start the tasks, and nothing is set.
    """
    jvm: Any = spark._jvm
    here = jvm.java.lang.Thread.currentThread().getId()
    if here == stream.queryExecutionThread().getId():
        stream.sparkSessionForStream().sparkContext().setLocalProperty(key, value)


def ends_with_its_input(stream: Any) -> bool:
    """Return whether a query has the trigger ``availableNow`` or ``once``."""
    return bool(stream.trigger().toString().startswith(("AvailableNow", "OneTime")))


def fail_query(spark: SparkSession, stream: Any, reason: str) -> None:
    """End a query before its first batch, with an exception for those who wait for it.

    Spark swallows a listener's errors, and a query without input has no task that could fail.
    So Spark's query is set to the state of a query that has failed while it started.
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
    """Call Spark's check of streaming queries for each of a query's operators by itself.

    Raises:
        AnalysisException: Spark refuses one of them.
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
    """Return the operators of a plan that have no operator above them."""
    if node.nodeName() == OPERATOR_NODE:
        return [node]
    return [found for child in children(node) for found in _uppermost(child)]


def _alone(jvm: Any, node: Any, kept: int, numbers: Iterator[int]) -> Any:
    """Return a plan with one operator: the output of each other operator comes from outside.

    Args:
        jvm: the JVM.
        node: a node of the plan.
        kept: the number of the operator that remains, counted over ``_uppermost``. Numbers identify
            operators because an operator that is used twice equals itself.
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
    """Return the settings that a builder has been given."""
    return dict(getattr(builder, "_options", {}))


def has_jvm() -> bool:
    """Return whether this process has started a JVM, so that the JVM's environment is fixed."""
    return SparkContext._gateway is not None


def hadoop_configuration(spark: SparkSession) -> Any:
    """Return Hadoop's configuration in a session; None over Spark Connect."""
    session = getattr(spark, "_jsparkSession", None)
    return None if session is None else session.sessionState().newHadoopConf()


HADOOPS_FILES = tuple(
    f"org.apache.hadoop.fs.{name}" for name in ("LocalFileSystem", "RawLocalFileSystem")
)
"""Hadoop's local file systems, whose rename replaces an existing file. Hive's does not."""


FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""The setting that names the class of Spark's manager of checkpoint files."""


def quick_file_manager() -> str:
    """Return the class of Spark's checkpoint file manager that renames files by a system call."""
    package = "org.apache.spark.sql.execution.streaming"
    if not pyspark.__version__.startswith("4.0."):
        package += ".checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def replaces_files(stream: Any) -> bool:
    """Return whether a rename in a query's checkpoint replaces an existing file.

    It does if the checkpoint is on a local disk with one of ``HADOOPS_FILES``.
    """
    if not checkpoint_of(stream).startswith("file:"):
        return False
    jvm: Any = SparkContext._jvm
    configuration = stream.sparkSessionForStream().sparkContext().hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.Path("file:///").getFileSystem(configuration)
    return files.getClass().getName() in HADOOPS_FILES
