"""The identity of an operator: its query and its uid."""

from __future__ import annotations

import re
from typing import Any, Self, TypeGuard

import attrs
from typing_extensions import override

from millpond.errors import ConfigError, brief

SAVEPOINT_FILE = "savepoint.json"
"""The metadata file of a savepoint, next to the folders of its operators."""

NAME_RULE = "1 to 100 letters, digits, '.', '_' or '-', of which the first is a letter or digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@attrs.frozen(order=True)
class OperatorId:
    """The identity of an operator in errors and logs, and the folder of its snapshots.

    As a string it is ``query/uid``, or only the uid if there is no query. It is empty for a backend
    that was opened without a name.

    Attributes:
        query: the query's id on Spark; empty in local runs.
        uid: the operator's stable name within the query.
    """

    query: str = ""
    uid: str = ""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse ``query/uid`` or a uid."""
        query, _, uid = text.strip("/").rpartition("/")
        return cls(query, uid)

    @override
    def __str__(self) -> str:
        return f"{self.query}/{self.uid}" if self.query else self.uid

    @property
    def folder(self) -> str:
        """The folder of the operator's files, relative to the checkpoint directory."""
        return str(self) or "state"

    @property
    def label(self) -> str:
        """The text by which errors name the operator's state."""
        return str(self) or "keyed state"


def is_plain_name(name: object) -> TypeGuard[str]:
    """Return whether every file system, terminal and URL accepts a name unchanged."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_place(place: str, call: str) -> OperatorId:
    """Return the operator that the argument ``place`` of a public function names.

    ``place`` is ``uid``, ``query/uid`` or empty. ``call`` is the name of the function, for errors.

    Raises:
        ConfigError: the query or the uid cannot be the name of a folder.
    """
    query, slash, uid = place.rpartition("/")
    if slash and not is_plain_name(query):
        reason = f"expected a uid, or a query and a uid: each {NAME_RULE}, got {brief(place)}"
        raise ConfigError("place", reason, call)
    return OperatorId(query, check_uid(uid, call) if place else "")


def check_uid(uid: Any, call: str) -> str:
    """Return ``uid``; raise ConfigError if it cannot be the name of an operator's folder.

    ``call`` is the name of the public function that got the uid, for errors.
    """
    if not is_plain_name(uid):
        reason = f"expected {NAME_RULE}, got {brief(uid)}"
        raise ConfigError("uid", reason, call)
    if uid == SAVEPOINT_FILE:
        reason = f"{uid!r} is the name of the metadata file of a savepoint"
        raise ConfigError("uid", f"{reason}: choose another one", call)
    return uid
