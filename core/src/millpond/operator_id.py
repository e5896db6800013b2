"""The identity of an operator, whose state it is: query and uid."""

from __future__ import annotations

import re
from typing import Any, Self

import attrs
from typing_extensions import override

from millpond.errors import ConfigError, brief

__all__ = ["SAVEPOINT_FILE", "OperatorId", "check_uid"]

SAVEPOINT_FILE = "savepoint.json"
"""A savepoint's own file, beside the folders of its operators: the one name that no folder has."""

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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


def check_uid(uid: Any, call: str) -> str:
    """Return a usable operator uid; ConfigError where it cannot be a folder's name."""
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        reason = f"expected 1 to 100 letters, digits, '.', '_' or '-', got {brief(uid)}"
        raise ConfigError("uid", reason, call)
    if uid == SAVEPOINT_FILE:
        reason = f"{uid!r} is the name of a savepoint's own file, beside the operators' folders"
        raise ConfigError("uid", f"{reason}: choose another one", call)
    return uid
