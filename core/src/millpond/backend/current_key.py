"""The current key of a backend, and the key group it belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from millpond.backend.parameters import KeyedBackendParameters
from millpond.errors import (
    BackendClosedError,
    BackendFailedError,
    KeyGroupRangeError,
    MillpondError,
    NoCurrentKeyError,
    NullValueError,
    brief,
)
from millpond.types import PicklePermission, signed64

__all__ = ["KeyContext"]


class KeyContext(ABC):
    """Holds the current key, on which all states of a backend work."""

    name: ClassVar[str]
    _failure: BaseException | None = None

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self.parameters = parameters
        self.pickles = PicklePermission(
            parameters.config.serialization.allow_pickle, outside=bool(parameters.reuse_versions)
        )
        self.key_codec = parameters.key_codec.bound(self.pickles)
        self.key_group_range = parameters.key_group_range
        self.max_parallelism = parameters.max_parallelism
        self._current_key: Any = None
        self._current_group = 0
        self._closed = False  # whether everything is refused

    def expect_outside_bytes(self) -> None:
        """Bytes of a snapshot, a savepoint or another process come in: no pickle is trusted.

        Raises:
            ConfigError: the keys are pickled, and configuration does not allow it.
        """
        self.pickles.outside = True
        self.key_codec = self.key_codec.bound(self.pickles)

    def set_current_key(self, key: Any) -> None:
        """Choose the key that all states work on.

        Raises:
            NullValueError: the key is None.
            StateTypeError: it is not of the declared key type.
            KeyGroupRangeError: its key group belongs to another subtask.
        """
        if key is None:
            raise NullValueError("the key", str(self.parameters.operator))
        key = self.key_codec.check(key)
        group = signed64(self.key_codec.hash(key)) % self.max_parallelism
        self.set_current_key_and_group(key, group)

    def set_current_key_and_group(self, key: Any, key_group: int) -> None:
        """Choose a key that is known to be checked, with its key group, which is not hashed anew.

        The JVM has computed the group already where rows come from Spark.
        """
        if self._closed:
            raise self._refusal()
        if not self.key_group_range.start <= key_group <= self.key_group_range.end:
            raise KeyGroupRangeError(
                f"{str(self.parameters.operator) or self.name}: key {brief(key)} has key group "
                f"{key_group}, this subtask owns {self.key_group_range}"
            )
        self._current_key = key
        self._current_group = key_group
        self._select(key, key_group)

    @property
    def current_key(self) -> Any:
        """The current key; NoCurrentKeyError where there is none."""
        if self._current_key is None:
            raise self.no_key()
        return self._current_key

    def current_address(self) -> tuple[int, bytes]:
        """Key group and encoded current key; NoCurrentKeyError where there is none."""
        return self._current_group, self.key_codec.encode(self.current_key)

    def no_key(self) -> MillpondError:
        """The error that says why there is no current key."""
        return self._refusal() if self._closed else NoCurrentKeyError(self.name)

    @abstractmethod
    def _select(self, key: Any, key_group: int) -> None:
        """Prepare for accesses to a key."""

    @abstractmethod
    def _unselect(self) -> None:
        """Forget the current key."""

    def forget_key(self) -> None:
        """There is no current key from now on."""
        self._current_key = None
        self._unselect()

    def require_open(self) -> None:
        """Raise BackendClosedError once the backend is closed, BackendFailedError if it failed."""
        if self._closed:
            raise self._refusal()

    def fail(self, cause: BaseException) -> None:
        """Refuse everything from now on, for what is held may be half of a change."""
        if self._failure is None:
            self._failure = cause
        self._closed = True
        self.forget_key()

    def _refusal(self) -> MillpondError:
        cause = self._failure
        if cause is None:
            return BackendClosedError(self.name)
        what = f"{type(cause).__name__}: {cause}".rstrip(".")
        error = BackendFailedError(self.name, what, str(self.parameters.operator))
        error.__cause__ = cause
        return error
