"""Functions over frames of rows, and their context."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeAlias

import pyarrow as pa
from typing_extensions import TypeVar, override

from millpond.backend.bulk_keys import Frame
from millpond.errors import ArgumentValueError, brief
from millpond.functions.functions import KeyedFunction
from millpond.functions.timer_service import TimerService
from millpond.spi.keys import CurrentKey

K = TypeVar("K", default=Any)
OUT = TypeVar("OUT", default=Any)

Batches: TypeAlias = Any
"""A RecordBatch, a Table or a DataFrame of pandas."""


class VectorizedContext(Generic[K]):
    """The context of one frame (a batch of rows): its keys, and the rows of each key.

    The rows of a key are consecutive in the frame. They are in the order of ``order_by``, or else
    in the order in which they came.

    Attributes:
        keys: the distinct keys: an Arrow array; a list of values if Arrow lacks the key's type;
            a list of rows if there are several key columns.
        timestamps: the event time of each row in ms, as an Arrow array. A row without an event time
            has a null. None if no row has an event time.
    """

    def __init__(
        self,
        frame: Frame,
        starts: Sequence[int],
        rows: pa.RecordBatch,
        timestamps: Any,
        timers: TimerService,
    ) -> None:
        self.keys: Any = frame.column
        self.timestamps: Any = timestamps
        self._frame = frame
        self._starts = starts
        self._rows = rows
        self._timers = timers

    @cached_property
    def offsets(self) -> Any:
        """The index of each key's first row, followed by the number of all rows: a NumPy array.

        The rows of key *i* are ``rows[offsets[i]:offsets[i + 1]]``.
        """
        import numpy as np  # noqa: PLC0415 - optional

        return np.append(np.asarray(self._starts, np.int64), self._rows.num_rows)

    @cached_property
    def positions(self) -> Any:
        """The index of each row's key in ``keys``, as an ascending NumPy array."""
        import numpy as np  # noqa: PLC0415 - optional

        return np.repeat(np.arange(len(self._frame)), np.diff(self.offsets))

    def groups(self) -> Iterator[tuple[K, pa.RecordBatch]]:
        """Yield each key with its rows; the yielded key is the current key until the next yield."""
        ends = [*self._starts[1:], self._rows.num_rows]
        current = self._frame.current
        before, group, key = current.key_or_none, current.key_group, None
        try:
            for key, start, end in zip(self._frame, self._starts, ends, strict=False):
                yield key, self._rows.slice(start, end - start)
        finally:  # after a `break`, Python may end the generator later, under another key
            if current.key_or_none is key:
                current.return_to(before, group)

    def timer_service(self, key: K | None = None) -> TimerService:
        """Return the clock, the watermark and the timers of the current key.

        Args:
            key: a key of this frame, which becomes the current key; None for the current key.

        Raises:
            BulkCallError: the frame has no such key.
        """
        if key is not None:
            index = self._frame.index_of(key)
            current: CurrentKey = self._frame.current
            current.select(self._frame.keys[index], self._frame.groups[index])
        return self._timers


class VectorizedProcessFunction(KeyedFunction[K, OUT], Generic[K, OUT]):
    """A function over frames (batches of rows) of a keyed stream, with state for many keys at once.

    ``open``, ``on_timer`` and ``close`` work as in a ``KeyedProcessFunction``. The states have
    methods for many keys: ``get_many``, ``update_many``, ``add_many`` and ``clear_many``. Their
    method ``at(key)`` selects a single key.

    Attributes:
        frames: the kind of frames that ``process_batch`` gets: ``arrow`` or ``pandas``. In a
            DataFrame, a column of ints or bools with nulls holds Python objects, and a null of a
            float column is NaN. A NaN in a returned DataFrame is a null.
    """

    frames: ClassVar[Literal["arrow", "pandas"]] = "arrow"

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.frames not in ("arrow", "pandas"):
            name = f"{cls.__qualname__}.frames"
            raise ArgumentValueError(name, "'arrow' or 'pandas'", brief(cls.frames))

    @abstractmethod
    def process_batch(
        self, rows: Any, context: VectorizedContext[K]
    ) -> Batches | Iterable[Batches] | None:
        """Handle a frame of at least one row.

        Args:
            rows: a ``pyarrow.RecordBatch`` of the stream's columns, or a pandas DataFrame; see
                ``frames``.
            context: the keys.

        Returns:
            A RecordBatch, a Table or a DataFrame with the output's columns; several if the method
            yields them or returns a list; or None.
        """
