"""The permission to decode pickled bytes, which can run code."""

from __future__ import annotations

import attrs

from millpond.errors import ConfigError


@attrs.define
class PicklePermission:
    """The permission to decode pickled bytes. All serializers of a backend share one object.

    Attributes:
        configured: the value of ``serialization.allow-pickle``.
        outside: whether some bytes may come from outside this process, such as from a snapshot, a
            savepoint or a local copy of the state.
    """

    configured: bool
    outside: bool

    def require(self) -> None:
        """Raise ConfigError if bytes may come from outside and pickle is not allowed."""
        if self.outside and not self.configured:
            reason = (
                "it was stored with pickle, which can run code when it is read; set it to true if "
                "you trust the snapshot"
            )
            raise ConfigError("serialization.allow-pickle", reason)


NO_PICKLES = PicklePermission(configured=False, outside=True)
"""The permission of a serializer that was not bound to a backend's permission."""
