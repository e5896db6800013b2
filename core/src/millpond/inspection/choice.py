"""Which operators of a directory are meant."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from millpond.operator_id import OperatorId

__all__ = ["ALL_OPERATORS", "OperatorChoice", "operator_named"]


@attrs.frozen
class OperatorChoice:
    """Says of an operator whether it is meant.

    Attributes:
        name: its uid, or ``query/uid``; None for any.
        queries: those of which it is one; None for any.
    """

    name: str | None = None
    queries: frozenset[str] | None = None

    def __call__(self, known: OperatorId) -> bool:
        """Whether it is."""
        named = self.name in (None, known.uid, str(known))
        return named and (self.queries is None or known.query in self.queries)

    def none_of(self, known: Iterable[OperatorId]) -> str:
        """Why a directory that holds these operators does not hold what is meant."""
        wanted = "" if self.name is None else f" {self.name!r}"
        if self.queries is not None:
            wanted += f" of the query {', '.join(sorted(self.queries))}"
        there = ", ".join(map(str, sorted(known)))
        return f"there is no operator{wanted} with snapshots in it; there are: {there}"


ALL_OPERATORS = OperatorChoice()


def operator_named(name: str | None, query: str | None = None) -> OperatorChoice:
    """An operator of that uid, or ``query/uid``, and of that query; None for any."""
    return OperatorChoice(name, None if query is None else frozenset({query}))
