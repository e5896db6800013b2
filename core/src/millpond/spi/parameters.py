"""The parameters for opening a backend, and the capabilities that a backend declares."""

from __future__ import annotations

import enum
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs
import pluggy

from millpond.clock import Clock, EventTime
from millpond.config import Config
from millpond.config.structuring import share_of_memory
from millpond.errors import ConfigError
from millpond.keygroups import KeyGroupRange, check_range
from millpond.operator_id import OperatorId
from millpond.state.interfaces import State
from millpond.types import KeyCodec, TypeSerializer


class Capability(enum.Enum):
    """A feature that only some backends have. The value is its name in commands and messages."""

    LOCAL_COPY = "local-copy"
    """After the backend was closed, its directory contains the state and can be opened again."""

    IN_PROCESS_COPY = "in-process-copy"
    """The open backend can remain in the process between two tasks, because it locks no files."""

    PER_STATE_OPTIONS = "per-state-options"
    """Options can be set for a single state, under ``state.<name>.``."""

    ASYNC_SNAPSHOT = "async-snapshot"
    """Another thread can read a snapshot's view of the state while the task continues."""


def process_memory() -> int:
    """Return the memory in bytes that this process may use.

    This is its address-space limit or the machine's memory, whichever is less.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return physical if limit == resource.RLIM_INFINITY else min(limit, physical)


def memory_bytes(given: str, key: str) -> int:
    """Return the bytes of a memory budget, which is given as a size or a share of process memory.

    Args:
        given: the budget, such as ``512m`` or ``25%``.
        key: the name of the option, for the error.

    Raises:
        ConfigError: `given` is neither a size nor a share.
    """
    try:
        return share_of_memory(given, process_memory())
    except ValueError as error:
        raise ConfigError(key, str(error)) from None


class PluginHooks(Protocol):
    """The parts of the plugin registry that backends and snapshots use."""

    @property
    def hook(self) -> pluggy.HookRelay:
        """Pluggy's object that calls the hooks."""

    def serializer(self, declared: type, /) -> TypeSerializer[Any] | None:
        """Return the serializer that a plugin provides for a type, or None if there is none."""

    def make_state(self, backend: Any, registered: Any, /) -> State:
        """Return the state object over a table that `backend` has created, with all wrappers."""

    def snapshot_strategies(self, backend: Any, /) -> list[Any]:
        """Return the snapshot strategies that plugins provide for `backend`."""


def _absolute(directory: Path | None) -> Path | None:
    return None if directory is None else directory.absolute()


@attrs.frozen
class KeyedBackendParameters:
    """The parameters for opening the keyed backend of one subtask.

    Attributes:
        key_codec: the codec that encodes, checks and hashes keys.
        max_parallelism: the number of key groups of the whole operator.
        key_group_range: the key groups of this subtask.
        clock: the processing time, for the time to live of entries.
        config: the configuration of the job.
        registry: the plugins of the job.
        directory: the local working directory; None only if the backend needs none.
        reuse_versions: the names of state versions that the backend may reopen if the directory
            contains one of them. Any other content of the directory is deleted.
        options: the configuration under ``backend.<name>.``.
        capabilities: the capabilities that the backend's factory declares.
        operator: the name of the operator in errors, logs and the folder of snapshots.
        event_time: the event time, for the time to live of entries.

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
    event_time: EventTime = attrs.field(factory=EventTime)

    @property
    def memory_budget(self) -> int | None:
        """The number of bytes that all backends of this process may use together, or None."""
        given = self.config.state.memory
        return None if given is None else memory_bytes(given, "state.memory")

    def __attrs_post_init__(self) -> None:
        check_range(self.key_group_range, self.max_parallelism)
