"""An operator as a checkpoint directory or a savepoint holds it: one view of both, for tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import pyarrow as pa

from millpond.backend.operator_state import FrozenState, OperatorStateMeta, StateId
from millpond.config import RestoreConfig
from millpond.errors import RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding
from millpond.savepoints.operator_tables import OperatorTableCodec, read_operator_states
from millpond.savepoints.rows_in_memory import RowsInMemory, read_contents
from millpond.savepoints.savepoint_file import SavedOperator
from millpond.savepoints.table_rows import TableCodec
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.operator_state import frozen_operator_states
from millpond.spi.parameters import PluginHooks
from millpond.spi.rows import live_rows
from millpond.state.names import Scope
from millpond.state.state_meta import StateMeta
from millpond.types import SerializerSnapshot
from millpond.types.columns import UnfitError

_SLICE = 1 << 15


@attrs.frozen
class StoredOperator:
    """An operator as it is stored.

    Attributes:
        operator: whose state it is.
        checkpoint_id: of its newest part.
        parts: the snapshots, or the savepoint, that hold it.
        registry: the plugins that may restore.
        limits: what the files may ask for.
        undivided: the lists of which the parts do not say which elements count, for some subtasks
            have no snapshot since a rescale.
    """

    operator: OperatorId
    checkpoint_id: int
    max_parallelism: int
    key: SerializerSnapshot
    states: tuple[StateMeta, ...]
    parts: tuple[KeyedStateHandle | SavepointHandle, ...]
    registry: PluginHooks = attrs.field(eq=False, repr=False)
    _shape: KeyedStateHandle | SavedOperator
    limits: RestoreConfig = RestoreConfig()
    undivided: frozenset[StateId] = frozenset()

    @property
    def uid(self) -> str:
        """The operator's uid."""
        return self.operator.uid

    def operator_states(self) -> list[list[FrozenState]]:
        """The operator state of each subtask."""
        if isinstance(self._shape, SavedOperator):
            (handle,) = self.parts
            assert isinstance(handle, SavepointHandle)
            return read_operator_states(handle, self._shape, self.limits)
        snapshots = (part for part in self.parts if isinstance(part, KeyedStateHandle))
        return frozen_operator_states(snapshots, self.limits)

    def require_divided(self, known: StateId | None = None) -> None:
        """Refuse a list of which nobody can tell which elements count; any one by default.

        Raises:
            RestoreError: it is one, or there is one.
        """
        if known in self.undivided or (known is None and self.undivided):
            name, _ = known or min(self.undivided)
            cause = (
                f"the elements of {name!r} were divided anew, and not all subtasks have taken a "
                "snapshot since: have each take one or, of a Spark query, name its "
                "checkpointLocation with this directory as --snapshots"
            )
            raise RestoreError(f"operator {self.uid!r}", (cause,))

    def operator_metas(self) -> list[OperatorStateMeta]:
        """What is known of each operator state."""
        metas = {s.meta.id: s.meta for states in self.operator_states() for s in states}
        return [metas[known] for known in sorted(metas)]

    def state_names(self) -> list[str]:
        """The names of all states, those of the operator last."""
        own = [meta.name for meta in self.operator_metas()]
        return [*(meta.name for meta in self.states), *own]

    def schema(self, name: str, scope: Scope | None = None) -> pa.Schema:
        """The columns of a state's table; the arguments and errors are those of ``find``."""
        meta = self.find(name, scope)
        if isinstance(meta, OperatorStateMeta):
            return OperatorTableCodec(meta, exact=False).schema
        return self.codec(meta.name).schema

    def find(self, name: str, scope: Scope | None = None) -> StateMeta | OperatorStateMeta:
        """What is known of a state of any scope, by its name, else by a keyed one's query name.

        Args:
            name: the name.
            scope: says which, where states of several scopes have that name.

        Raises:
            RestoreError: no state has that name, or several have.
        """
        keyed = self._named(name)
        found: dict[Scope, StateMeta | OperatorStateMeta] = {
            meta.scope: meta for meta in self.operator_metas() if meta.name == name
        }
        if keyed is None and (not found or scope == "keyed"):
            keyed = self._of_query_name(name)
        if keyed is not None:
            found["keyed"] = keyed
        if scope in found:
            return found[scope]
        if scope is None and len(found) == 1:
            return next(iter(found.values()))
        if not found:
            raise self._unknown(name)
        cause = f"state {name!r} is there in scope {', '.join(sorted(found))}: give one of these"
        raise RestoreError(f"operator {self.uid!r}", (cause,))

    def state(self, name: str) -> StateMeta:
        """What is known of a keyed state, by its name, else by its query name.

        Raises:
            RestoreError: no state has that name, or several have that query name.
        """
        meta = self._named(name) or self._of_query_name(name)
        if meta is None:
            raise self._unknown(name)
        return meta

    def _named(self, name: str) -> StateMeta | None:
        return next((meta for meta in self.states if meta.name == name), None)

    def published(self, name: str) -> list[StateMeta]:
        """The keyed states of a query name, which is empty where a state is not queryable."""
        return [meta for meta in self.states if name and meta.query_name == name]

    def _of_query_name(self, name: str) -> StateMeta | None:
        found = self.published(name)
        if len(found) > 1:
            names = ", ".join(repr(meta.name) for meta in found)
            cause = f"the states {names} are all published as {name!r}; give a state's own name"
            raise RestoreError(f"operator {self.uid!r}", (cause,))
        return found[0] if found else None

    def _unknown(self, name: str) -> RestoreError:
        known = ", ".join(map(repr, self.state_names())) or "none"
        return RestoreError(f"operator {self.uid!r}", (f"no state {name!r}; there are: {known}",))

    def contents(self, groups: KeyGroupRange | None = None) -> RowsInMemory:
        """All its rows, or those of some key groups, in memory."""
        return read_contents(self.parts, self._shape, self.uid, self.registry, groups, self.limits)

    def count(self, state: str, now: int) -> tuple[int, int]:
        """How many rows a keyed state has, and how many of them have expired at a time in ms.

        Of a list state with TTL a row counts as expired when no element of it is alive.
        """
        meta = self.state(state)
        rows = [row for group in self.contents().state_rows(meta.name) for row in group]
        return len(rows), len(rows) - len(live_rows(meta, rows, now))

    def codec(self, state: str, *, exact: bool = False) -> TableCodec:
        """What turns a state's rows into a table's."""
        meta = self.state(state)
        with decoding(str(self.operator), f"the types of state {meta.name!r} cannot be read"):
            return TableCodec(self.key, meta, self.max_parallelism, exact=exact)

    def part(self, number: int) -> StoredOperator:
        """The operator as one of its parts holds it."""
        part = self.parts[number]
        if isinstance(part, SavepointHandle):
            return attrs.evolve(self, parts=(part,))
        return attrs.evolve(self, parts=(part,), shape=part)

    def table(
        self,
        state: str,
        groups: KeyGroupRange | None = None,
        *,
        scope: Scope | None = None,
        exact: bool | None = None,
    ) -> pa.Table:
        """A keyed or operator state with typed columns.

        Args:
            state: its name.
            groups: the key groups to read; all by default.
            scope: says which, where states of several scopes have that name.
            exact: whether ints are digits and datetimes ISO texts; by default only where a
                value does not fit the natural types.

        Raises:
            RestoreError: as ``find``; or ``exact`` is False and a value does not fit.
        """
        meta = self.find(state, scope)
        if isinstance(meta, OperatorStateMeta):
            return self._in_form(state, partial(self._operator_table, meta), exact=exact)
        rows = list(self.contents(groups).state_rows(meta.name))
        return self._in_form(state, partial(self._table, meta.name, rows), exact=exact)

    def _in_form(
        self, state: str, make: Callable[..., pa.Table], *, exact: bool | None
    ) -> pa.Table:
        if exact:
            return make(exact=True)
        try:
            return make(exact=False)
        except (UnfitError, pa.ArrowInvalid) as error:
            if exact is False:
                cause = f"state {state!r} has a value that fits no 64-bit int or UTC timestamp"
                raise RestoreError(f"operator {self.uid!r}", (cause,)) from error
            return make(exact=True)

    def _operator_table(self, meta: OperatorStateMeta, *, exact: bool) -> pa.Table:
        self.require_divided(meta.id)
        partitions = {
            number: state.partitions
            for number, states in enumerate(self.operator_states())
            for state in states
            if state.meta.id == meta.id
        }
        return OperatorTableCodec(meta, exact=exact).to_table(partitions)

    def _table(self, state: str, rows: Sequence[list[Any]], *, exact: bool) -> pa.Table:
        codec = self.codec(state, exact=exact)
        batches = [
            codec.to_batch(group[at : at + _SLICE])
            for group in rows
            for at in range(0, len(group), _SLICE)
        ]
        return pa.Table.from_batches(batches, codec.schema)
