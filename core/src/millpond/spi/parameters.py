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
    """A view may be read by another thread while work goes on, so snapshots do not stop it."""


def process_memory() -> int:
    """Bytes that this process may use: its address-space limit, or the machine's memory."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return physical if limit == resource.RLIM_INFINITY else min(limit, physical)


def memory_bytes(given: str, key: str) -> int:
    """The bytes of a budget, which is a size or a share of what this process may use.

    Raises:
        ConfigError: it is neither; names the key.
    """
    try:
        return share_of_memory(given, process_memory())
    except ValueError as error:
        raise ConfigError(key, str(error)) from None


class PluginHooks(Protocol):
    """A registry of plugins, as far as backends and snapshots need one."""

    @property
    def hook(self) -> pluggy.HookRelay:
        """Calls the hooks that gather all results."""

    def serializer(self, declared: type, /) -> TypeSerializer[Any] | None:
        """The serializer that a plugin provides for a type; None where none does."""

    def make_state(self, backend: Any, registered: Any, /) -> State:
        """Make and wrap the state object of a state whose table the backend has."""

    def snapshot_strategies(self, backend: Any, /) -> list[Any]:
        """The snapshot strategies that plugins provide for a backend."""


def _absolute(directory: Path | None) -> Path | None:
    """The directory wherever the process goes later on."""
    return None if directory is None else directory.absolute()


@attrs.frozen
class KeyedBackendParameters:
    """What is needed to open a keyed backend for one subtask.

    Attributes:
        key_codec: how keys are encoded, checked and hashed.
        max_parallelism: the number of key groups of the whole operator.
        key_group_range: the groups of this subtask.
        directory: local working space; None only for backends that need none.
        reuse_versions: versions of the state which, found in the directory, may be taken over;
            anything else that lies there is deleted.
        options: what stands in configuration under ``backend.<name>.``.
        capabilities: what the factory declares.
        operator: whose state it is: in errors and logs, and by the folder of its snapshots.

    Raises:
        KeyGroupRangeError: there are no such key groups.
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
        """Bytes that all backends of this process may use together; None without a budget."""
        given = self.config.state.memory
        return None if given is None else memory_bytes(given, "state.memory")

    def __attrs_post_init__(self) -> None:
        check_range(self.key_group_range, self.max_parallelism)
