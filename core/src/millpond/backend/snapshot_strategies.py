"""The snapshots of a backend: their results, and the strategies that take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future

from millpond.arguments import CHECKPOINT_IDS, check_type, check_within
from millpond.errors import ConfigError
from millpond.spi.keys import CurrentKey
from millpond.spi.snapshots import SnapshotResult, Strategy
from millpond.storage.checkpoint_storage import CheckpointStorage


class Snapshots:
    """The snapshots of one backend: its strategies, and their notifications.

    Args:
        current: knows whether the backend is open.
        provide: asks the plugins for the strategies; called at the first use.
        configured: the name of the strategy that takes snapshots.
    """

    def __init__(
        self, current: CurrentKey, provide: Callable[[], Iterable[Strategy]], configured: str
    ) -> None:
        self._current = current
        self._provide = provide
        self._configured = configured
        self._strategies: list[Strategy] | None = None

    def _known(self) -> list[Strategy]:
        if self._strategies is None:
            self._strategies = list(self._provide())
        return self._strategies

    def names(self) -> list[str]:
        """The names of all strategies, sorted."""
        return sorted(strategy.name for strategy in self._known())

    def strategy(self, name: str = "") -> Strategy:
        """A strategy by its name, by default the configured one; ConfigError if there is none."""
        wanted = name or self._configured
        for strategy in self._known():
            if strategy.name == wanted:
                return strategy
        reason = f"expected one of {', '.join(self.names())}, got {wanted!r}"
        raise ConfigError("state.snapshot.strategy", reason)

    def take(
        self,
        checkpoint_id: int,
        storage: CheckpointStorage,
        version: str | None = None,
        strategy: str = "",
    ) -> Future[SnapshotResult]:
        """Take a snapshot by a strategy, by default the configured one."""
        self._current.require_open()
        check_within("checkpoint_id", checkpoint_id, *CHECKPOINT_IDS)
        check_type("version", version, str | None)
        return self.strategy(strategy).snapshot(checkpoint_id, storage, version)

    def confirmed(self, checkpoint_id: int) -> None:
        """A snapshot is confirmed."""
        for strategy in self._told_of(checkpoint_id):
            strategy.notify_complete(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """A snapshot was aborted and will never be confirmed."""
        for strategy in self._told_of(checkpoint_id):
            strategy.notify_aborted(checkpoint_id)

    def subsumed(self, checkpoint_id: int) -> None:
        """A confirmed snapshot is not needed any more."""
        for strategy in self._told_of(checkpoint_id):
            strategy.notify_subsumed(checkpoint_id)

    def _told_of(self, checkpoint_id: int) -> list[Strategy]:
        """The strategies to notify of a snapshot: none before the first use of a strategy."""
        self._current.require_open()
        check_type("checkpoint_id", checkpoint_id, int)
        return self._strategies or []

    def close(self) -> None:
        """Cancel running snapshots and wait for them."""
        for strategy in self._strategies or []:
            strategy.close()
