"""The identity of an operator, whose state it is: query and uid."""

from __future__ import annotations

from typing import Self

import attrs
from typing_extensions import override

__all__ = ["OperatorId"]


@attrs.frozen(order=True)
class OperatorId:
    """Identifies an operator: in errors and logs, and by the folder of its snapshots.

    As text it is ``query/uid``, which is how tools show it; without a query the uid alone, and
    empty for a backend that was opened without a name.

    Attributes:
        query: on Spark the query's id; empty outside of a query.
        uid: the operator's stable name within the query.
    """

    query: str = ""
    uid: str = ""

    @classmethod
    def of(cls, text: str) -> Self:
        """The operator of a text, ``query/uid`` or a uid."""
        query, _, uid = text.strip("/").rpartition("/")
        return cls(query, uid)

    @override
    def __str__(self) -> str:
        return f"{self.query}/{self.uid}" if self.query else self.uid

    @property
    def folder(self) -> str:
        """Where its files lie, relative to the checkpoint directory."""
        return str(self) or "state"

    @property
    def label(self) -> str:
        """What errors call its state."""
        return str(self) or "keyed state"
