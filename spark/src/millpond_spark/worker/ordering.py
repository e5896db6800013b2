"""A micro-batch's rows in the order that was asked for, however many there are.

Spark refuses to sort in a streaming query, and before the operator it sorts by the subtask alone.
So the worker sorts. It holds one run of rows at a time: each but a batch's only one is sorted and
written to a file without a name, and all are merged from there, a chunk of each in memory.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import IO, Any

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa

from millpond_spark.worker.local_copies import roomiest_directory

KeysOf = Callable[[pd.DataFrame], Sequence[Any]]
"""What a frame's rows are sorted by."""

_RUN_ROWS = 100_000
_CHUNK_ROWS = 2_000
_FRAME_ROWS = 20_000


def in_order(frames: Iterable[pd.DataFrame], keys_of: KeysOf) -> Iterator[pd.DataFrame]:
    """The rows of all frames, sorted by their keys; equal ones in the order they came."""
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
    with tempfile.TemporaryFile(dir=roomiest_directory(), buffering=0) as file:
        written = [_written(file, _sorted(run, keys_of)) for run in (first, second)]
        del first, second
        written += [_written(file, _sorted(run, keys_of)) for run in runs]
        yield from _merged(file, written, keys_of)


def _runs(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The frames, joined to runs that are sorted in memory."""
    held: list[pd.DataFrame] = []
    rows = 0
    for frame in frames:
        if rows and rows + len(frame) > _RUN_ROWS:
            yield pd.concat(held, ignore_index=True)
            held, rows = [], 0
        if len(frame):
            held.append(frame)
            rows += len(frame)
    if held:
        yield pd.concat(held, ignore_index=True)


def _sorted(run: pd.DataFrame, keys_of: KeysOf) -> pd.DataFrame:
    order = sorted(range(len(run)), key=keys_of(run).__getitem__)
    return run.take(order)


@attrs.frozen
class _Chunk:
    """Where a piece of a run lies in the file."""

    offset: int
    size: int

    def read(self, file: IO[bytes]) -> pd.DataFrame:
        content = os.pread(file.fileno(), self.size, self.offset)
        frame: pd.DataFrame = pa.ipc.open_stream(content).read_pandas()
        return frame


def _written(file: IO[bytes], run: pd.DataFrame) -> list[_Chunk]:
    """Write a sorted run; each chunk can be read by itself."""
    chunks = []
    for start in range(0, len(run), _CHUNK_ROWS):
        part = run.iloc[start : start + _CHUNK_ROWS]
        batch = pa.RecordBatch.from_pandas(part, preserve_index=False)
        content = pa.BufferOutputStream()
        with pa.ipc.new_stream(content, batch.schema) as stream:
            stream.write_batch(batch)
        data = content.getvalue()
        chunks.append(_Chunk(file.tell(), data.size))
        _write_all(file, memoryview(data))
    return chunks


def _write_all(file: IO[bytes], data: memoryview) -> None:
    """An unbuffered file may take less than it is given, as at the edge of a full disk."""
    while data:
        data = data[file.write(data) :]


def _merged(
    file: IO[bytes], runs: Sequence[Sequence[_Chunk]], keys_of: KeysOf
) -> Iterator[pd.DataFrame]:
    """Frames of the rows of sorted runs; of each run one chunk is in memory."""

    def rows(chunks: Sequence[_Chunk]) -> Iterator[tuple[Any, pd.DataFrame, int]]:
        for chunk in chunks:
            frame = chunk.read(file)
            for position, key in enumerate(keys_of(frame)):
                yield key, frame, position

    ordered = heapq.merge(*map(rows, runs), key=itemgetter(0))
    while picked := list(islice(ordered, _FRAME_ROWS)):
        yield _gathered([(frame, position) for _, frame, position in picked])


def _gathered(picked: Sequence[tuple[pd.DataFrame, int]]) -> pd.DataFrame:
    """A frame of single rows of several frames."""
    frames: dict[int, pd.DataFrame] = {}
    positions: dict[int, list[int]] = {}
    places: dict[int, list[int]] = {}
    for place, (frame, position) in enumerate(picked):
        identity = id(frame)
        if identity not in frames:
            frames[identity], positions[identity], places[identity] = frame, [], []
        positions[identity].append(position)
        places[identity].append(place)
    parts = [frame.take(positions[identity]) for identity, frame in frames.items()]
    target = np.concatenate([places[identity] for identity in frames])
    joined = pd.concat(parts, ignore_index=True)
    return joined.take(np.argsort(target))
