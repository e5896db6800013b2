"""The parameters with which a backend is opened, and the capabilities that it declares."""

from __future__ import annotations

import enum
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs
import pluggy

from millpond.clock import Clock
from millpond.config import Config
from millpond.config.structuring import share_of_memory
from millpond.errors import ConfigError
from millpond.keygroups import KeyGroupRange, check_range
from millpond.operator_id import OperatorId
from millpond.state.interfaces import State
from millpond.types import KeyCodec, TypeSerializer


class Capability(enum.Enum):
    """A feature that not every backend has; the value is the word users see."""

    LOCAL_COPY = "local-copy"
    """The directory holds the state when the backend is closed, and may be opened again."""

    IN_PROCESS_COPY = "in-process-copy"
    """The open backend may be kept in the process between two tasks: it locks nothing."""

    PER_STATE_OPTIONS = "per-state-options"
    """Options can be given for a single state, under ``state.<name>.``."""

    ASYNC_SNAPSHOT = "async-snapshot"
    """Another thread may read a view while the task continues, so snapshots do not stop it."""


def process_memory() -> int:
    """Return this process's memory in bytes: its address-space limit, or the machine's memory."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return physical if limit == resource.RLIM_INFINITY else min(limit, physical)


def memory_bytes(given: str, key: str) -> int:
    """Return a budget in bytes, given as a size or as a share of this process's memory.

    Raises:
        ConfigError: `given` is neither; the error names `key`.
    """
    try:
        return share_of_memory(given, process_memory())
    except ValueError as error:
        raise ConfigError(key, str(error)) from None


class PluginHooks(Protocol):
    """The parts of the plugin registry that backends and snapshots use."""

    @property
    def hook(self) -> pluggy.HookRelay:
        """Pluggy's caller of hooks."""

    def serializer(self, declared: type, /) -> TypeSerializer[Any] | None:
        """Return the serializer that a plugin provides for a type; None if no plugin does."""

    def make_state(self, backend: Any, registered: Any, /) -> State:
        """Make the state object over a table that the backend has made, and wrap it."""

    def snapshot_strategies(self, backend: Any, /) -> list[Any]:
        """Return the snapshot strategies that plugins provide for a backend."""


def _absolute(directory: Path | None) -> Path | None:
    """Make a path independent of later changes of the working directory."""
    return None if directory is None else directory.absolute()


@attrs.frozen
class KeyedBackendParameters:
    """The parameters with which a keyed backend of one subtask is opened.

    Attributes:
        key_codec: the codec that encodes, checks and hashes keys.
        max_parallelism: the number of key groups of the whole operator.
        key_group_range: the groups of this subtask.
        clock: the clock of TTL.
        config: the configuration of the job.
        registry: the plugins.
        directory: the local working directory; None only for backends that need none.
        reuse_versions: the versions of the state that may be reopened in the directory; any other
            content is deleted.
        options: the configuration under ``backend.<name>.``.
        capabilities: the capabilities that the factory declares.
        operator: the name of the operator in errors, logs and the folder of snapshots.

    Raises:
        KeyGroupRangeError: the range is not within 0 to ``max_parallelism`` - 1.
    """

    key_codec: KeyCodec
    max_parallelism: int
    key_group_range: KeyGroupRange
    clock: Clock
    config: Config
    registry: PluginHooks
    directory: Path | None = attrs.field(default=None, converter=_absolute)
    reuse_versions: frozenset[str] = frozenset()
    options: Mapping[str, Any] = attrs.field(factory=dict)
    capabilities: frozenset[Capability] = frozenset()
    operator: OperatorId = attrs.field(factory=OperatorId)

    @property
    def memory_budget(self) -> int | None:
        """The bytes that all backends of this process may use together; None without a budget."""
        given = self.config.state.memory
        return None if given is None else memory_bytes(given, "state.memory")

    def __attrs_post_init__(self) -> None:
        check_range(self.key_group_range, self.max_parallelism)
