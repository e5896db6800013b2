"""What a plugin implements: the factory of keyed backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from millpond.backend.capabilities import Capability
from millpond.backend.keyed import KeyedStateBackend
from millpond.backend.parameters import KeyedBackendParameters


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
