"""What a plugin implements: the factory, and the parameters it gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from millpond.backend.capabilities import Capability
from millpond.clock import Clock
from millpond.config import Config
from millpond.keygroups import KeyGroupRange, check_parallelism, check_range
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.types import KeyCodec, SerializerSnapshot

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend
    from millpond.plugins.registry import PluginRegistry

__all__ = ["KeyedBackendParameters", "StateBackend", "StateContext", "StateMeta"]


@attrs.frozen
class StateMeta:
    """What a snapshot says about one state.

    Attributes:
        ttl_ms: the time to live in ms; None where there is none, and no timestamp beside values.
        query_name: under which clients find the state; empty where it is not queryable.
    """

    name: str
    kind: StateKind
    namespace: SerializerSnapshot
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None
    ttl_ms: int | None = None
    query_name: str = attrs.field(default="", eq=False)

    @classmethod
    def of(cls, descriptor: StateDescriptor, namespace_codec: KeyCodec) -> StateMeta:
        """What a snapshot will say of a declared state."""
        map_key = descriptor.map_key_codec()
        return cls(
            name=descriptor.name,
            kind=descriptor.kind,
            namespace=namespace_codec.snapshot(),
            value=descriptor.value_serializer().snapshot(),
            map_key=map_key.snapshot() if map_key else None,
            ttl_ms=descriptor.ttl_config.ttl_ms if descriptor.ttl_config else None,
            query_name=descriptor.query_name or "",
        )

    @property
    def ttl(self) -> bool:
        """Whether a timestamp stands beside each value."""
        return self.ttl_ms is not None


@attrs.frozen
class StateContext:
    """What a state wrapper may use."""

    backend: KeyedStateBackend
    clock: Clock
    config: Config
    metrics: MetricRegistry


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
        place: how errors and logs call the opened backend.

    Raises:
        KeyGroupRangeError: there are no such key groups.
    """

    key_codec: KeyCodec
    max_parallelism: int
    key_group_range: KeyGroupRange
    clock: Clock
    config: Config
    registry: PluginRegistry
    directory: Path | None = None
    reuse_versions: frozenset[str] = frozenset()
    options: Mapping[str, Any] = attrs.field(factory=dict)
    capabilities: frozenset[Capability] = frozenset()
    place: str = ""

    def __attrs_post_init__(self) -> None:
        check_parallelism(self.max_parallelism)
        check_range(self.key_group_range, self.max_parallelism)


class StateBackend(ABC):
    """A factory of keyed backends; light, picklable, and importable without its native library.

    Note for implementers: import the native library inside ``create_keyed_backend``, so that
    ``millpond backends`` works where it is missing, and check ``is_available`` the same way.
    """

    name: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Check what stands in configuration under ``backend.<name>.``; by default nothing.

        Called when a job is built, on the driver, where the native library may be missing, and
        before a backend is created.

        Raises:
            ConfigError: an option is unknown or wrong.
        """

    @abstractmethod
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        """Open an empty backend, or one at a reusable version of the directory.

        Raises:
            ConfigError: an option is unknown or wrong.
            PluginLoadError: the native library is missing.
        """

    def native_version(self) -> str:
        """Name and version of the native library, empty where there is none.

        Raises:
            ImportError: it is missing.
        """
        return ""

    @classmethod
    def capability_names(cls) -> tuple[str, ...]:
        """The declared capabilities as words, sorted."""
        return tuple(sorted(capability.value for capability in cls.capabilities))
