"""Tables of stored states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from millpond.backend.operator_state import OperatorStateMeta
from millpond.errors import RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.savepoints.operator_tables import OperatorTableCodec
from millpond.state.names import Scope
from millpond.types.scalar import UnfitError

from millpond_cli.inspection.stored_operator import StoredOperator

_SLICE = 1 << 15


def state_schema(operator: StoredOperator, name: str, scope: Scope | None = None) -> pa.Schema:
    """Return the columns of a state's table; see ``StoredOperator.find`` for the errors."""
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
    """Return the table of a keyed or operator state with typed columns.

    Args:
        operator: the operator.
        state: the name of the state.
        groups: the key groups to read; all by default.
        scope: selects one state if states of several scopes have that name.
        exact: whether ints are digits and datetimes ISO strings; by default only if a
            value does not fit the natural types.

    Raises:
        RestoreError: as ``StoredOperator.find``; or ``exact`` is False and a value does not fit.
    """
    meta = operator.find(state, scope)
    make: Callable[..., pa.Table]
    if isinstance(meta, OperatorStateMeta):
        make = partial(_operator_table, operator, meta)
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


def _operator_table(operator: StoredOperator, meta: OperatorStateMeta, *, exact: bool) -> pa.Table:
    operator.require_divided(meta.id)
    partitions = {
        number: state.partitions
        for number, states in enumerate(operator.operator_states())
        for state in states
        if state.meta.id == meta.id
    }
    return OperatorTableCodec(meta, exact=exact).to_table(partitions)
