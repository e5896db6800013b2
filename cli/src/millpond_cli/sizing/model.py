"""The model of `millpond plan`: a pure function from a workload to the figures of a job."""

from __future__ import annotations

import math

import attrs
from millpond.errors import ConfigError
from millpond.keygroups import MAX_KEY_GROUPS, SPREAD, default_max_parallelism, spreading

from millpond_cli.sizing import constants as c
from millpond_cli.sizing.constants import Backend

LOAD = 0.6
"""The share of the time between two batches that a batch may take; the rest is for catching up."""

_DAY = 86_400
ENOUGH_GROUPS = 10
"""The key groups per subtask with which no subtask has 10 % more of them than another."""

_DIVISORS = [n for n in range(1, MAX_KEY_GROUPS + 1) if SPREAD % n == 0]
"""The numbers of partitions over which as many subtasks are evenly spread."""


@attrs.frozen(kw_only=True)
class Workload:
    """The rows, keys and machines of a job.

    Attributes:
        rate: the rows per second.
        keys: the keys that have state at the same time.
        bytes_per_key: the serialized bytes of a key and its state.
        batch: the seconds between the starts of two micro-batches.
        backend: the state backend.
        touched: the keys whose state a batch changes. By default, the number for rows whose keys
            are drawn at random.
        parallelism: the number of subtasks; None to calculate it.
        executor_cores: the cores of an executor.
        function_us: the processor time of the user's function, in µs per row.
        core_speed: the speed of a core, as a multiple of a core of the benchmarks' machine.
        compression: the bytes in a snapshot per byte of state.
        download: the bytes per second that a worker reads from the object store.
    """

    rate: float
    keys: float
    bytes_per_key: float
    batch: float
    backend: Backend = "rocksdb"
    touched: float | None = None
    parallelism: int | None = None
    executor_cores: int = 4
    function_us: float = 0.0
    core_speed: float = 1.0
    compression: float = c.COMPRESSION.value
    download: float = 100 << 20

    @property
    def rows(self) -> float:
        """The rows of a batch."""
        return self.rate * self.batch

    @property
    def touched_keys(self) -> float:
        """The keys whose state a batch changes."""
        drawn = -self.keys * math.expm1(-self.rows / self.keys)
        return min(drawn if self.touched is None else self.touched, self.keys, self.rows)


@attrs.frozen(kw_only=True)
class Plan:
    """The figures of a job. Bytes and seconds are without a unit of their own.

    Attributes:
        parallelism: the number of subtasks.
        state_partitions: the number of Spark's state partitions.
        key_groups: the number of key groups.
        rows: the rows of a batch.
        touched: the keys whose state a batch changes.
        batch_seconds: the time of a batch.
        max_rate: the rows per second at which a batch takes as long as the time between two.
        worker_bytes: the memory of a Python worker.
        executor_bytes: the memory of an executor's Python workers.
        local_bytes: the disk space of all local copies.
        delta_bytes: the bytes of a subtask's snapshot in most batches.
        base_bytes: the bytes of a subtask's snapshot with its whole state.
        cycle: the number of batches from one whole snapshot to the next.
        written_per_day: the bytes that snapshots write per day.
        requests_per_day: the requests to the object store per day.
        stored_bytes: the bytes of all snapshots in the object store.
        restore_bytes: the most bytes that a subtask reads to restore its state.
        restore_seconds: the longest restore of a subtask.
    """

    parallelism: int
    state_partitions: int
    key_groups: int
    rows: float
    touched: float
    batch_seconds: float
    max_rate: float
    worker_bytes: float
    executor_bytes: float
    local_bytes: float
    delta_bytes: float
    base_bytes: float
    cycle: float
    written_per_day: float
    requests_per_day: float
    stored_bytes: float
    restore_bytes: float
    restore_seconds: float


def plan_job(workload: Workload) -> Plan:
    """Return the figures of a job.

    Raises:
        ConfigError: no number of subtasks is enough.
    """
    parallelism = workload.parallelism or least_parallelism(workload)
    delta, base, cycle = snapshots(workload, parallelism)
    per_batch = parallelism * (delta + base / cycle)
    batches = _DAY / workload.batch
    workers = min(workload.executor_cores, parallelism)
    worker = worker_bytes(workload, parallelism)
    return Plan(
        parallelism=parallelism,
        state_partitions=spreading(parallelism),
        key_groups=key_groups(parallelism),
        rows=workload.rows,
        touched=workload.touched_keys,
        batch_seconds=batch_seconds(workload, parallelism),
        max_rate=max_rate(workload, parallelism),
        worker_bytes=worker,
        executor_bytes=workers * worker,
        local_bytes=local_bytes(workload),
        delta_bytes=delta,
        base_bytes=base,
        cycle=cycle,
        written_per_day=batches * per_batch,
        requests_per_day=batches * requests_per_batch(parallelism, delta, base, cycle),
        stored_bytes=parallelism * base + (c.RETAINED + cycle / 2) * per_batch,
        restore_bytes=base + (cycle - 1) * delta,
        restore_seconds=restore_seconds(workload, parallelism, cycle - 1),
    )


def least_parallelism(workload: Workload) -> int:
    """Return the least number of subtasks with which a batch takes at most `LOAD` of its time.

    Only numbers are considered for which each subtask has a state partition of its own.

    Raises:
        ConfigError: no number of subtasks is enough.
    """
    seconds = {n: batch_seconds(workload, n) for n in _DIVISORS}
    limit = LOAD * workload.batch
    found = next((n for n, took in seconds.items() if took <= limit), None)
    if found is None:
        best = min(seconds, key=lambda n: seconds[n])
        reason = (
            f"{workload.batch:g} s are too short for {workload.rows:,.0f} rows: even the best "
            f"number of subtasks, {best:,}, needs {seconds[best]:,.2f} s for a batch, and a batch "
            f"should take at most {LOAD:.0%} of the time. Choose a longer time, or divide the rows "
            "among several queries"
        )
        raise ConfigError("--batch", reason, "millpond plan")
    return found


def key_groups(parallelism: int) -> int:
    """Return a power of two with `ENOUGH_GROUPS` per subtask, or the most that there can be."""
    wanted = min(ENOUGH_GROUPS * parallelism, MAX_KEY_GROUPS)
    return max(default_max_parallelism(parallelism), 1 << (wanted - 1).bit_length())


def fixed_seconds(workload: Workload, parallelism: int) -> float:
    """Return the seconds of a batch without its rows: in the driver, and in one subtask."""
    driver = c.BATCH.value + spreading(parallelism) * c.PARTITION.value
    return (driver + c.SUBTASK[workload.backend].value) / 1e3 / workload.core_speed


def row_seconds(workload: Workload) -> float:
    """Return the seconds of a row on one core."""
    return (c.ROW[workload.backend].value + workload.function_us) / 1e6 / workload.core_speed


def batch_seconds(workload: Workload, parallelism: int) -> float:
    """Return the seconds of a batch if each subtask has a core."""
    rows = workload.rows / parallelism
    return fixed_seconds(workload, parallelism) + rows * row_seconds(workload)


def max_rate(workload: Workload, parallelism: int) -> float:
    """Return the rows per second at which a batch takes as long as the time between two."""
    free = max(workload.batch - fixed_seconds(workload, parallelism), 0.0)
    return free * parallelism / row_seconds(workload) / workload.batch


def worker_bytes(workload: Workload, parallelism: int) -> float:
    """Return the memory of a Python worker.

    On heap a worker may have the state of each subtask of its executor, because Spark gives a task
    to any worker.
    """
    rows, touched = workload.rows / parallelism, workload.touched_keys / parallelism
    frames = min(rows, c.MAX_FRAME_ROWS) * c.FRAMES.value * 1e3
    buffer = min(touched, c.MAX_BUFFERED) * max(c.BUFFERED_ENTRY.value, 4 * workload.bytes_per_key)
    changes = rows * c.BATCH_ROW.value + touched * workload.bytes_per_key * workload.compression
    fixed = c.WORKER[workload.backend].value * 1e6
    state = min(c.CACHE.value * 1e6, workload.keys * workload.bytes_per_key)
    if workload.backend == "heap":
        subtasks = min(workload.executor_cores, parallelism)
        state = (
            subtasks / parallelism * workload.keys * (c.HEAP_ENTRY.value + workload.bytes_per_key)
        )
    elif workload.backend == "lmdb":
        pages = local_bytes(workload) / parallelism / c.PAGE.value
        state = min(touched, pages, c.MAX_PAGES) * c.PAGE.value
    return fixed + frames + buffer + changes + state


def local_bytes(workload: Workload) -> float:
    """Return the disk space of all local copies; 0 on heap."""
    size, unmerged = workload.bytes_per_key, 0.0
    if workload.backend == "rocksdb":
        size *= workload.compression
        unmerged = c.UNMERGED * workload.touched_keys * size
    each = c.DISK_FACTOR[workload.backend].value * size
    merged = max(c.DISK_ENTRY[workload.backend].value + each, each / 4)
    return workload.keys * merged + unmerged


def snapshots(workload: Workload, parallelism: int) -> tuple[float, float, float]:
    """Return a subtask's bytes of changes and of its whole state, and the batches per whole state.

    A whole snapshot is written when the changes since the last one are larger than a multiple of
    it, or if there are many of them.
    """
    size = workload.bytes_per_key * workload.compression / parallelism
    delta, base = workload.touched_keys * size, workload.keys * size
    return delta, base, min(c.BASE_RATIO * base / delta, c.MAX_DELTAS) + 1


def file_requests(delta: float, base: float, cycle: float) -> float:
    """Return the mean number of requests in which a subtask writes the file of a batch."""
    return (_write_requests(delta) * (cycle - 1) + _write_requests(base)) / cycle


def _write_requests(size: float) -> float:
    """Return the requests that write a file; a large one is sent in parts, between two requests."""
    return math.ceil(size / c.PART_BYTES) + 2 if size > c.PART_BYTES else c.WRITES.value


def requests_per_batch(
    parallelism: int, delta: float, base: float, cycle: float, retained: int = c.RETAINED
) -> float:
    """Return the requests of all subtasks: each writes a file, and later each file is deleted.

    Once in `retained` batches, each subtask lists its files, and one subtask all files.
    """
    files = parallelism * (file_requests(delta, base, cycle) + c.DELETES.value)
    return files + (parallelism + 1) / retained


def entry_seconds(workload: Workload) -> float:
    """Return the seconds in which a subtask restores an entry, without reading it."""
    each = c.RESTORE[workload.backend].value / 1e6
    each += workload.bytes_per_key * c.RESTORE_BYTE[workload.backend].value / 1e9
    return each / workload.core_speed


def restored_entries(workload: Workload, parallelism: int, deltas: float) -> float:
    """Return the entries that a subtask restores: its whole state and then `deltas` changes."""
    return (workload.keys + deltas * workload.touched_keys) / parallelism


def restore_seconds(workload: Workload, parallelism: int, deltas: float) -> float:
    """Return the seconds in which a subtask restores its whole state and then `deltas` changes."""
    entries = restored_entries(workload, parallelism, deltas)
    size = entries * workload.bytes_per_key * workload.compression
    return size / workload.download + entries * entry_seconds(workload)
