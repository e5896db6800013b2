"""Functions over a frame of rows at once, and the context that they get."""

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
    """What ``process_batch`` gets: the keys of the frame, and which rows are whose.

    The rows of a key stand together, in the order in which they came, or in that of ``order_by``.

    Attributes:
        keys: the distinct keys. An Arrow array of the key column's type; a list of rows where
            there are several key columns, or where Arrow has no such type.
        timestamps: the event time of each row in ms, an Arrow array with null where it has none;
            None where no row can have one.
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
        """Where the rows of each key begin, and the number of all rows: one more than keys.

        An array of NumPy's: those of key *i* are ``rows[offsets[i]:offsets[i + 1]]``.
        """
        import numpy as np  # noqa: PLC0415 - an extra of the core's

        return np.append(np.asarray(self._starts, np.int64), self._rows.num_rows)

    @cached_property
    def positions(self) -> Any:
        """For each row the index of its key in ``keys``, an array of NumPy's that ascends."""
        import numpy as np  # noqa: PLC0415 - as above

        return np.repeat(np.arange(len(self._frame)), np.diff(self.offsets))

    def groups(self) -> Iterator[tuple[K, pa.RecordBatch]]:
        """Each key, which is the current one meanwhile, and its rows."""
        ends = [*self._starts[1:], self._rows.num_rows]
        current = self._frame.current
        before, group, key = current.key_or_none, current.key_group, None
        try:
            for key, start, end in zip(self._frame, self._starts, ends, strict=False):
                yield key, self._rows.slice(start, end - start)
        finally:  # a loop that is left ends whenever its generator goes, perhaps under another key
            if current.key_or_none is key:
                current.return_to(before, group)

    def timer_service(self, key: K | None = None) -> TimerService:
        """Time, and the timers of a key of this frame, which becomes the current one.

        Raises:
            BulkCallError: the key is none of the frame's.
        """
        if key is not None:
            index = self._frame.index_of(key)
            current: CurrentKey = self._frame.current
            current.select(self._frame.keys[index], self._frame.groups[index])
        return self._timers


class VectorizedProcessFunction(KeyedFunction[K, OUT], Generic[K, OUT]):
    """A function over frames of a keyed stream's rows, with state for many keys at once.

    ``open``, ``on_timer`` and ``close`` are those of a ``KeyedProcessFunction``. What its states
    offer for many keys: ``get_many``, ``update_many``, ``add_many``, ``clear_many``; and
    ``at(key)`` for the calls of a single key.

    Attributes:
        frames: what ``process_batch`` gets: ``arrow`` or ``pandas``. In a DataFrame of pandas a
            column of ints or bools with nulls has Python's own objects, and a null of a float
            column is NaN; a NaN of a DataFrame that is returned is a null.
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
        """Handle a frame of rows, which has one at least.

        Args:
            rows: a ``pyarrow.RecordBatch`` of the stream's columns, of their own types; or a
                DataFrame of pandas, see ``frames``.
            context: the keys.

        Returns:
            A RecordBatch, a Table or a DataFrame with the output's columns; several by yielding
            them or in a list; or None.
        """
