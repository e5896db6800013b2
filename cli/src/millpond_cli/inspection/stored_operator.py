"""Stored operators: a common view for tools of checkpoint directories and savepoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import pyarrow as pa
from millpond.backend.operator_state import RAW_KEYED, FrozenState, Mode, OperatorStateMeta, StateId
from millpond.config import RestoreConfig
from millpond.errors import MillpondError, RestoreError
from millpond.keygroups import KeyGroupRange, key_group_range
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding
from millpond.savepoints.collect import RowsInMemory, read_contents
from millpond.savepoints.operator_tables import OperatorTableCodec, read_operator_states
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    is_savepoint,
    read_savepoint,
    unfinished,
)
from millpond.savepoints.state_tables import TableCodec
from millpond.snapshots.catalog import (
    ALL_OPERATORS,
    OperatorChoice,
    only_operator,
    read_checkpoints,
)
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.operator_state import frozen_operator_states
from millpond.snapshots.restore import newest_states
from millpond.snapshots.subtasks import Subtask
from millpond.spi.parameters import PluginHooks
from millpond.state.names import Scope
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import public_uri
from millpond.types import SerializerSnapshot
from millpond.types.scalar_base import UnfitError


@attrs.frozen
class StoredOperator:
    """An operator in a checkpoint directory or a savepoint.

    Attributes:
        operator: the operator.
        checkpoint_id: the newest checkpoint id of `parts`.
        max_parallelism: the number of key groups.
        key: the description of the key type.
        states: the metadata of the keyed states.
        parts: the snapshots that together hold the operator, or the savepoint that holds it.
        registry: the plugins that can restore snapshots and savepoints.
        limits: the limits for the memory that the files may need.
        undivided: the lists of operator state whose present elements are unknown, because some
            subtasks have not taken a snapshot since a rescale.
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
        """Return the operator state of each subtask."""
        if isinstance(self._shape, SavedOperator):
            (handle,) = self.parts
            assert isinstance(handle, SavepointHandle)
            return read_operator_states(attrs.evolve(handle, limits=self.limits), self._shape)
        snapshots = (part for part in self.parts if isinstance(part, KeyedStateHandle))
        return frozen_operator_states(snapshots, self.limits)

    def require_divided(self, known: StateId | None = None) -> None:
        """Raise RestoreError if the present elements of the operator state `known` are unknown.

        If `known` is None, raise RestoreError if the elements of any operator state are unknown.
        """
        if known in self.undivided or (known is None and self.undivided):
            name, _ = known or min(self.undivided)
            cause = (
                f"the elements of {name!r} were divided again, and not all subtasks have taken a "
                "snapshot since: have each take one or, of a Spark query, name its "
                "checkpointLocation with this directory as --snapshots"
            )
            raise RestoreError(f"operator {self.uid!r}", (cause,))

    def operator_metas(self) -> list[OperatorStateMeta]:
        """Return the metadata of each operator state."""
        metas = {s.meta.id: s.meta for states in self.operator_states() for s in states}
        return [metas[known] for known in sorted(metas)]

    def state_names(self) -> list[str]:
        """Return the names of all states; operator states come last."""
        own = [meta.name for meta in self.operator_metas()]
        return [*(meta.name for meta in self.states), *own]

    def find(self, name: str, scope: Scope | None = None) -> StateMeta | OperatorStateMeta:
        """Return the metadata of the state `name`.

        Args:
            name: the name.
            scope: the scope of the state; needed only if several states have this name.

        Raises:
            RestoreError: no state has the name, or several states have it.
        """
        found: dict[Scope, StateMeta | OperatorStateMeta] = {
            meta.scope: meta for meta in self.operator_metas() if meta.name == name
        }
        if keyed := [meta for meta in self.states if meta.name == name]:
            found["keyed"] = keyed[0]
        if scope in found:
            return found[scope]
        if scope is None and len(found) == 1:
            return next(iter(found.values()))
        if not found:
            raise self._unknown(name)
        cause = f"state {name!r} is there in scope {', '.join(sorted(found))}: give one of these"
        raise RestoreError(f"operator {self.uid!r}", (cause,))

    def state(self, name: str) -> StateMeta:
        """Return the metadata of the keyed state `name`; raise RestoreError if there is none."""
        for meta in self.states:
            if meta.name == name:
                return meta
        raise self._unknown(name)

    def _unknown(self, name: str) -> RestoreError:
        """Return the error for a name that no state has."""
        known = ", ".join(map(repr, self.state_names())) or "none"
        return RestoreError(f"operator {self.uid!r}", (f"no state {name!r}; there are: {known}",))

    def contents(self, groups: KeyGroupRange | None = None) -> RowsInMemory:
        """Read the operator's keyed rows into memory; if `groups` is given, only their rows."""
        return read_contents(self.parts, self._shape, self.uid, self.registry, groups, self.limits)

    def codec(self, state: str, *, exact: bool = False) -> TableCodec:
        """Return the codec of a keyed state's table."""
        meta = self.state(state)
        with decoding(str(self.operator), f"the types of state {meta.name!r} cannot be read"):
            return TableCodec(self.key, meta, self.max_parallelism, exact=exact)

    def part(self, number: int) -> StoredOperator:
        """Return a copy of the operator with only one of its `parts`, the one at index `number`."""
        part = self.parts[number]
        shape = self._shape if isinstance(part, SavepointHandle) else part
        return attrs.evolve(self, parts=(part,), shape=shape)


def undivided_states(
    subtasks: Sequence[Subtask],
    parts: Sequence[KeyedStateHandle],
    checkpoint_id: int | None = None,
) -> frozenset[StateId]:
    """Return the lists of operator state whose present elements are unknown.

    After a rescale each new subtask gets some elements of each list. Until every subtask has taken
    a snapshot, the stored files do not show which subtask has which elements.

    Args:
        subtasks: all subtasks of the operator.
        parts: the result of ``newest_parts`` for these subtasks.
        checkpoint_id: the last checkpoint that counts; None if all count.
    """
    newest = [known[-1] for each in subtasks if (known := each.at(checkpoint_id))]
    whole = [each for each in newest if each in parts]
    replaced = [each for each in newest if each not in whole]
    if not replaced:
        return frozenset()
    # Every subtask has taken a snapshot since the rescale if all parts are newer than the replaced
    # snapshots, and if the parts have the key groups of that many subtasks.
    are_newer = min(each.checkpoint_id for each in parts) > max(h.checkpoint_id for h in replaced)
    if are_newer and len(whole) == len(parts):
        total, count = parts[0].max_parallelism, len(parts)
        division = {key_group_range(total, count, index) for index in range(count)}
        if division == {part.key_group_range for part in parts}:
            return frozenset()
    return frozenset(
        state.meta.id
        for each in newest
        for share in each.operator_state
        for state in share.states
        if state.meta.mode is not Mode.BROADCAST and state.meta != RAW_KEYED
        if state.partitions
    )


IN_POINTERS = (
    "; to read the snapshots in Spark's pointers, name the query's checkpointLocation, and this "
    "directory with --snapshots"
)
"""The end of messages about a directory whose newest snapshots may be in Spark's pointers only."""


def open_stored(
    where: SavepointHandle,
    registry: PluginHooks,
    checkpoint_id: int | None = None,
    limits: RestoreConfig = RestoreConfig(),
    wanted: OperatorChoice = ALL_OPERATORS,
    refused: list[MillpondError] | None = None,
) -> list[StoredOperator]:
    """Return the operators in a savepoint or a checkpoint directory.

    Args:
        where: the savepoint or the checkpoint directory.
        registry: the plugins that can restore snapshots and savepoints.
        checkpoint_id: the last checkpoint that counts in a checkpoint directory; None if all count.
        limits: the limits for the memory that the files may need.
        wanted: the operators to read from a checkpoint directory.
        refused: a list to which the errors of unreadable operators are appended if at least one
            operator can be read. Without the list, the first error is raised.

    Raises:
        CorruptSnapshotError: the metadata of a snapshot, or of the savepoint, are damaged.
        RestoreError: the directory has neither a complete checkpoint nor a savepoint, or has no
            wanted operator.
    """
    if is_savepoint(where):
        savepoint = read_savepoint(where)
        return [
            StoredOperator(
                operator=OperatorId(uid=operator.uid),
                checkpoint_id=savepoint.checkpoint_id,
                max_parallelism=operator.max_parallelism,
                key=operator.key,
                states=operator.metas,
                parts=(where,),
                registry=registry,
                shape=operator,
                limits=limits,
            )
            for operator in savepoint.operators
        ]
    found = read_checkpoints(where.storage, checkpoint_id, wanted, refused)
    if not found:
        cause = unfinished(where) or f"it holds neither a savepoint nor snapshots{IN_POINTERS}"
        raise RestoreError(public_uri(where.storage.uri), (cause,))
    return [
        operator_of_parts(
            each.operator,
            each.parts,
            registry,
            limits,
            undivided_states(each.subtasks, each.parts, checkpoint_id),
        )
        for each in found
    ]


def operator_of_parts(
    operator: OperatorId,
    parts: Sequence[KeyedStateHandle],
    registry: PluginHooks,
    limits: RestoreConfig = RestoreConfig(),
    undivided: frozenset[StateId] = frozenset(),
) -> StoredOperator:
    """Return a stored operator whose state is in the snapshots `parts`.

    Args:
        operator: the operator.
        parts: the snapshots, at least one, the newest first.
        registry: the plugins that can restore snapshots.
        limits: the limits for the memory that the files may need.
        undivided: the lists whose present elements are unknown; see `undivided_states`.
    """
    newest = parts[0]
    metas = newest_states(operator.label, parts)
    return StoredOperator(
        operator=operator,
        checkpoint_id=newest.checkpoint_id,
        max_parallelism=newest.max_parallelism,
        key=newest.key,
        states=tuple(metas[name] for name in sorted(metas)),
        parts=tuple(parts),
        registry=registry,
        shape=newest,
        limits=limits,
        undivided=undivided,
    )


def pick_operator(
    operators: Sequence[StoredOperator], name: str | None, where: str
) -> StoredOperator:
    """Return the operator whose uid, or ``query/uid``, is `name`.

    Args:
        operators: the operators to search.
        name: the uid or ``query/uid``; None if there is only one operator.
        where: the directory of the operators, for errors.

    Raises:
        RestoreError: no operator fits, or several do.
    """
    known = {each.operator: each for each in operators}
    return known[only_operator(known, name, where)]


_SLICE = 1 << 15


def state_schema(operator: StoredOperator, name: str, scope: Scope | None = None) -> pa.Schema:
    """Return the names and types of the columns in the table of a keyed or operator state.

    Raises:
        RestoreError: no state has the name, or several states have it.
    """
    meta = operator.find(name, scope)
    if isinstance(meta, OperatorStateMeta):
        return OperatorTableCodec(meta, exact=False).schema
    return operator.codec(meta.name).schema


def state_table(
    operator: StoredOperator,
    state: str,
    groups: KeyGroupRange | None = None,
    *,
    scope: Scope | None = None,
    exact: bool | None = None,
) -> pa.Table:
    """Return all rows of a keyed or operator state as a table with typed columns.

    Args:
        operator: the operator.
        state: the name of the state.
        groups: the key groups to read of a keyed state; all by default.
        scope: the scope of the state; needed only if several states have this name.
        exact: whether the table has the exact form (see ``SavedState``). If it is None, the table
            has this form only if a value does not fit the usual column types.

    Raises:
        RestoreError: no state has the name, or several states have the name; or `exact` is False
            and a value does not fit the usual column types.
    """
    meta = operator.find(state, scope)
    make: Callable[..., pa.Table]
    if isinstance(meta, OperatorStateMeta):
        operator.require_divided(meta.id)
        partitions = {
            number: own.partitions
            for number, states in enumerate(operator.operator_states())
            for own in states
            if own.meta.id == meta.id
        }

        def make(*, exact: bool) -> pa.Table:
            return OperatorTableCodec(meta, exact=exact).to_table(partitions)

    else:
        rows = list(operator.contents(groups).state_rows(meta.name))

        def make(*, exact: bool) -> pa.Table:
            codec = operator.codec(meta.name, exact=exact)
            batches = [
                codec.to_batch(group[at : at + _SLICE])
                for group in rows
                for at in range(0, len(group), _SLICE)
            ]
            return pa.Table.from_batches(batches, codec.schema)

    if exact:
        return make(exact=True)
    try:
        return make(exact=False)
    except (UnfitError, pa.ArrowInvalid) as error:
        if exact is False:
            cause = f"state {state!r} has a value that fits no 64-bit int or UTC timestamp"
            raise RestoreError(f"operator {operator.uid!r}", (cause,)) from error
        return make(exact=True)
