"""Sorting of a subtask's rows in a micro-batch, in bounded memory.

Spark does not sort the rows of a streaming query within a subtask, so the worker sorts them. The
rows are divided into runs that fit in memory. If there is more than one run, each run is sorted and
written to a temporary file. Then the runs are merged. Merging needs memory for one chunk of each
run.
"""

from __future__ import annotations

import heapq
import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from millpond_spark.worker.local_copies import executor_directory

KeysOf = Callable[[pd.DataFrame], Sequence[Any]]
"""A function that returns the sort keys of a frame's rows."""

_RUN_ROWS = 100_000
_CHUNK_ROWS = 2_000
_FRAME_ROWS = 20_000


def in_order(frames: Iterable[pd.DataFrame], keys_of: KeysOf) -> Iterator[pd.DataFrame]:
    """Yield the rows of all `frames`, sorted by the sort keys that `keys_of` returns.

    Rows with equal sort keys keep their order.
    """
    runs = _runs(frames)
    first = next(runs, None)
    second = next(runs, None)
    if first is None:
        return
    if second is None:
        ordered = _sorted(first, keys_of)
        for start in range(0, len(ordered), _FRAME_ROWS):
            yield ordered.iloc[start : start + _FRAME_ROWS]
        return
    with tempfile.TemporaryFile(dir=executor_directory()) as file:
        ends = [0]
        for run in chain((first, second), runs):
            table = pa.Table.from_pandas(_sorted(run, keys_of), preserve_index=False)
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table, max_chunksize=_CHUNK_ROWS)
            ends.append(file.tell())
        del first, second, run, table
        file.flush()
        content = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        parts = [content.slice(start, end - start) for start, end in pairwise(ends)]
        yield from _merged(parts, keys_of)


def _runs(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Join `frames` to runs of at most `_RUN_ROWS` rows. A larger frame is a run by itself."""
    run: list[pd.DataFrame] = []
    rows = 0
    for frame in filter(len, frames):
        if rows and rows + len(frame) > _RUN_ROWS:
            yield pd.concat(run, ignore_index=True)
            run, rows = [], 0
        run.append(frame)
        rows += len(frame)
    if run:
        yield pd.concat(run, ignore_index=True)


def _sorted(run: pd.DataFrame, keys_of: KeysOf) -> pd.DataFrame:
    order = sorted(range(len(run)), key=keys_of(run).__getitem__)
    return run.take(order)


def _merged(runs: Iterable[pa.Buffer], keys_of: KeysOf) -> Iterator[pd.DataFrame]:
    """Merge sorted runs, which are Arrow streams. Only one chunk of each run is in memory."""

    def rows(run: pa.Buffer) -> Iterator[tuple[Any, pd.DataFrame, int]]:
        for batch in pa.ipc.open_stream(run):
            frame = batch.to_pandas()
            for position, key in enumerate(keys_of(frame)):
                yield key, frame, position

    ordered = heapq.merge(*map(rows, runs), key=itemgetter(0))
    while picked := list(islice(ordered, _FRAME_ROWS)):
        frames: dict[int, pd.DataFrame] = {}
        positions: dict[int, list[int]] = {}
        places: dict[int, list[int]] = {}
        for place, (_, frame, position) in enumerate(picked):
            frames[id(frame)] = frame
            positions.setdefault(id(frame), []).append(position)
            places.setdefault(id(frame), []).append(place)
        parts = [frame.take(positions[identity]) for identity, frame in frames.items()]
        target = np.concatenate([places[identity] for identity in frames])
        yield pd.concat(parts, ignore_index=True).take(np.argsort(target))
