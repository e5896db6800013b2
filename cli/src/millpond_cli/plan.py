"""``millpond plan``: the size of a job, before it runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, cast, get_args

import attrs
import click
from millpond.config.structuring import byte_count
from millpond.errors import shown
from millpond.keygroups import MAX_KEY_GROUPS
from typing_extensions import override

from millpond_cli.output import as_json_option, show, size_text
from millpond_cli.sizing import constants as c
from millpond_cli.sizing.constants import Backend
from millpond_cli.sizing.model import (
    ENOUGH_GROUPS,
    LOAD,
    Plan,
    Workload,
    entry_seconds,
    file_requests,
    plan_job,
    restored_entries,
    row_seconds,
)
from millpond_cli.terminal import complain, emit


class _Amount(click.ParamType):  # type: ignore[type-arg]  # not generic at run time in 8.2
    """A positive number, such as 5000, 50_000 or 1e7."""

    name = "number"
    example = "50000 or 1e7"

    def __init__(self, most: float = 1e15, least: float = 1e-9) -> None:
        self._most, self._least = most, least

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = self._parse(value)
        if number is None:
            self.fail(f"{shown(value)} is not a {self.name}, such as {self.example}.", param, ctx)
        if not self._least <= number <= self._most:
            limits = f"{self._least:g} to {self._most:g}"
            self.fail(f"{shown(value)} is not within {limits}.", param, ctx)
        return number

    def _parse(self, value: Any) -> float | None:
        try:
            number = float(value)
        except ValueError:
            return None
        return number if math.isfinite(number) else None


class _Bytes(_Amount):
    """A positive number of bytes, such as 200, 4kb or 1gb."""

    name = "size"
    example = "200, 4kb or 1gb"

    @override
    def _parse(self, value: Any) -> float | None:
        try:
            return float(byte_count(str(value)))
        except (ValueError, OverflowError):
            return None


def _given(name: str, kind: click.ParamType[Any], text: str, **more: Any) -> Callable[[Any], Any]:
    """Return an option of the command."""
    return click.option(name, type=kind, help=text, show_default="default" in more, **more)


@click.command()
@_given("--rate", _Amount(), "Rows per second.", required=True)
@_given("--keys", _Amount(), "Keys that have state at the same time.", required=True)
@_given(
    "--bytes-per-key",
    _Bytes(1 << 30),
    "Serialized bytes of a key and its state, such as 200 or 4kb.",
    required=True,
)
@_given("--batch", _Amount(86_400, 0.001), "Seconds between two micro-batches.", required=True)
@_given("--backend", click.Choice(get_args(Backend)), "State backend.", default="rocksdb")
@_given("--touched", _Amount(), "Keys whose state a batch changes.  [default: random keys]")
@_given(
    "--parallelism",
    click.IntRange(1, MAX_KEY_GROUPS),
    "Subtasks, one per core.  [default: as many as necessary]",
)
@_given("--executor-cores", click.IntRange(1, 1024), "Cores of an executor.", default=4)
@_given(
    "--function-us", _Amount(1e9, 0), "Your function's processor time per row, in µs.", default=0.0
)
@_given("--core-speed", _Amount(100, 0.001), "Speed of a core; 1 is the benchmarks'.", default=1.0)
@_given(
    "--compression",
    _Amount(10, 1e-4),
    "Bytes in a snapshot per byte of state.",
    default=c.COMPRESSION.value,
)
@_given(
    "--download",
    _Bytes(1 << 40),
    "Bytes per second that a worker reads from the object store.",
    default="100mb",
)
@as_json_option
def plan(*, as_json: bool, backend: str, **given: Any) -> int:
    """Calculate the size of a job: subtasks, memory, disk, requests, restore time.

    The figures come from measurements of Millpond's benchmarks, with the reason behind each. The
    status is 1 if the given parallelism is too low.
    """
    workload = Workload(backend=cast(Backend, backend), **given)
    made = plan_job(workload)
    if as_json:
        emit(json.dumps({"workload": attrs.asdict(workload), "plan": attrs.asdict(made)}, indent=2))
    else:
        show(figures(workload, made), as_json=False, empty="")
    if made.base_bytes > c.MAX_FILE_BYTES:
        size, most = size_text(made.base_bytes), size_text(c.MAX_FILE_BYTES)
        wanted = math.ceil(made.base_bytes * made.parallelism / c.MAX_FILE_BYTES)
        complain(
            f"a subtask's whole state of {size} is too large for a file on S3: pyarrow can write "
            f"{most}. Choose --parallelism {wanted} or more"
        )
    if made.batch_seconds <= workload.batch:
        return 0
    complain(
        f"a batch takes {_seconds(made.batch_seconds)}, longer than the {workload.batch:g} s "
        "between two batches: the job falls behind. Leave out --parallelism to see how many "
        "subtasks it needs"
    )
    return 1


def figures(workload: Workload, made: Plan) -> list[dict[str, str]]:
    """Return the rows of the table: each figure, its value and its reason."""
    rows = (
        ("subtasks", f"{made.parallelism:,}", _why_subtasks(workload, made)),
        ("state partitions", f"{made.state_partitions:,}", _WHY_PARTITIONS),
        ("key groups", f"{made.key_groups:,}", _why_groups(made)),
        ("time of a batch", _seconds(made.batch_seconds), _why_time(workload, made)),
        ("highest rate", f"{made.max_rate:,.0f} rows/s", "a batch then takes its whole time"),
        ("memory of a worker", size_text(made.worker_bytes), _why_memory(workload, made)),
        ("workers of an executor", size_text(made.executor_bytes), _why_executor(workload, made)),
        ("local disk", size_text(made.local_bytes), _why_disk(workload, made)),
        ("written per day", size_text(made.written_per_day), _why_bytes(made)),
        ("requests per day", f"{made.requests_per_day:,.0f}", _why_requests(workload, made)),
        ("stored snapshots", size_text(made.stored_bytes), _WHY_STORED),
        ("longest restore", _seconds(made.restore_seconds), _why_restore(workload, made)),
    )
    return [{"figure": name, "plan": value, "reason": why} for name, value, why in rows]


_WHY_PARTITIONS = "spark.sql.shuffle.partitions: one per subtask; fixed at the first start"
_WHY_STORED = f"the files of the last {c.RETAINED} checkpoints (checkpoint.retained)"


def _why_subtasks(workload: Workload, made: Plan) -> str:
    if workload.parallelism is not None:
        return f"given; a batch takes {made.batch_seconds / workload.batch:.0%} of its time"
    return f"a batch should take at most {LOAD:.0%} of the {workload.batch:g} s; a core per subtask"


def _why_groups(made: Plan) -> str:
    if made.key_groups < ENOUGH_GROUPS * made.parallelism:
        least, most = made.key_groups // made.parallelism, -(-made.key_groups // made.parallelism)
        each = f"{least}" if least == most else f"{least} or {most}"
        return f"max-parallelism: the most there can be, {each} per subtask; fixed for ever"
    return "max-parallelism: ten per subtask, so that all are equal; fixed for ever"


def _why_time(workload: Workload, made: Plan) -> str:
    speed = workload.core_speed
    driver = (c.BATCH.value + made.state_partitions * c.PARTITION.value) / speed
    return (
        f"{driver:,.0f} ms in the driver, {c.SUBTASK[workload.backend].value / speed:.3g} ms a "
        f"subtask, {made.rows / made.parallelism:,.0f} rows a subtask at "
        f"{row_seconds(workload) * 1e6:.3g} µs"
    )


def _why_memory(workload: Workload, made: Plan) -> str:
    touched = f"{made.touched / made.parallelism:,.0f} changed keys a subtask"
    if workload.backend == "heap":
        return f"the state of an executor's subtasks, since Spark chooses the worker; {touched}"
    if workload.backend == "lmdb":
        return f"a copy of a 4 kB page per changed key until the flush; {touched}"
    return f"{c.CACHE.value:g} MB block cache; {touched}"


def _why_executor(workload: Workload, made: Plan) -> str:
    workers = min(workload.executor_cores, made.parallelism)
    return f"one worker per core, {workers} in all: spark.executor.memoryOverhead"


def _why_disk(workload: Workload, made: Plan) -> str:
    if workload.backend == "heap":
        return "heap has no local copies"
    return f"all executors together; {size_text(made.local_bytes / made.parallelism)} a subtask"


def _why_bytes(made: Plan) -> str:
    return (
        f"a subtask writes {size_text(made.delta_bytes)} a batch, and its whole state of "
        f"{size_text(made.base_bytes)} every {made.cycle:,.0f} batches"
    )


def _why_requests(workload: Workload, made: Plan) -> str:
    writes = file_requests(made.delta_bytes, made.base_bytes, made.cycle)
    return (
        f"{86_400 / workload.batch:,.0f} batches, each with {writes:,.3g} to write a subtask's "
        f"file and {c.DELETES.value:g} to delete one; Spark's checkpoint is not included"
    )


def _why_restore(workload: Workload, made: Plan) -> str:
    read, speed = size_text(made.restore_bytes), size_text(workload.download)
    entries = restored_entries(workload, made.parallelism, made.cycle - 1)
    each = entry_seconds(workload) * 1e6
    return (
        f"a subtask reads {read} at {speed}/s, and restores {entries:,.0f} entries at {each:.3g} µs"
    )


def _seconds(seconds: float) -> str:
    """Format a duration."""
    if seconds < 1:
        return f"{seconds * 1000:,.0f} ms"
    return f"{seconds:,.1f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"  # noqa: PLR2004
