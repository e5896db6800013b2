"""The settings of TTL; names are PyFlink's."""

from __future__ import annotations

import enum
from datetime import timedelta
from functools import cached_property

import attrs

from millpond.arguments import INT64, check_within, typed, within
from millpond.errors import ConfigError, brief

__all__ = ["CleanupStrategies", "StateTtlConfig", "StateVisibility", "UpdateType"]

_DEFAULT_SIZE = 5
_LONG_MAX = (1 << 63) - 1


class UpdateType(enum.Enum):
    """When the timestamp of an entry is set anew."""

    ON_CREATE_AND_WRITE = "on-create-and-write"
    ON_READ_AND_WRITE = "on-read-and-write"


class StateVisibility(enum.Enum):
    """Whether an expired entry that is still there is returned, once."""

    NEVER_RETURN_EXPIRED = "never-return-expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return-expired-if-not-cleaned-up"


@attrs.frozen
class CleanupStrategies:
    """How expired entries are removed that are not read. A full snapshot never holds any.

    Attributes:
        in_background: whether they are removed where nothing more is said.
        incremental_size: at each flush so many stored entries are looked at for every entry
            that the bundle has changed, but at least 1,000. A number asks for this, in the
            background or not; None means 5, and nothing where ``in_background`` is false.
    """

    in_background: bool = attrs.field(default=True, validator=typed(bool))
    incremental_size: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(within(1, INT64[1]))
    )

    @property
    def entries_per_change(self) -> int:
        """How many entries a flush looks at for every changed one; 0 switches it off."""
        if self.incremental_size is not None:
            return self.incremental_size
        return _DEFAULT_SIZE if self.in_background else 0


def _positive(_: object, __: object, ttl: timedelta) -> None:
    if not isinstance(ttl, timedelta) or ttl < timedelta(milliseconds=1):
        raise ConfigError("ttl", f"expected a timedelta of at least 1 ms, got {brief(ttl)}", "TTL")


@attrs.frozen
class StateTtlConfig:
    """How long entries live.

    Attributes:
        ttl: the time to live; kept in whole milliseconds.
        update_type: see UpdateType.
        visibility: see StateVisibility.
        cleanup: see CleanupStrategies.
    """

    ttl: timedelta = attrs.field(validator=_positive)
    update_type: UpdateType = attrs.field(
        default=UpdateType.ON_CREATE_AND_WRITE, validator=typed(UpdateType)
    )
    visibility: StateVisibility = attrs.field(
        default=StateVisibility.NEVER_RETURN_EXPIRED, validator=typed(StateVisibility)
    )
    cleanup: CleanupStrategies = attrs.field(
        default=CleanupStrategies(), validator=typed(CleanupStrategies)
    )

    @cached_property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return self.ttl // timedelta(milliseconds=1)

    @cached_property
    def shows_expired(self) -> bool:
        """Whether what has expired is visible as long as it is there."""
        return self.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP

    def expired(self, timestamp: int, now: int) -> bool:
        """Whether an entry of this timestamp has expired: ``timestamp + ttl <= now``.

        The sum is capped at 2**63 - 1 ms, as Flink's is, so a very long TTL never expires.
        """
        return min(timestamp + self.ttl_ms, _LONG_MAX) <= now

    @staticmethod
    def new_builder(ttl: timedelta) -> StateTtlConfigBuilder:
        """PyFlink's builder."""
        return StateTtlConfigBuilder(StateTtlConfig(ttl))


@attrs.define
class StateTtlConfigBuilder:
    """Builds a StateTtlConfig step by step."""

    _config: StateTtlConfig

    def set_update_type(self, update_type: UpdateType) -> StateTtlConfigBuilder:
        """Set when timestamps are renewed."""
        self._config = attrs.evolve(self._config, update_type=update_type)
        return self

    def update_ttl_on_create_and_write(self) -> StateTtlConfigBuilder:
        """Renew timestamps at writes."""
        return self.set_update_type(UpdateType.ON_CREATE_AND_WRITE)

    def update_ttl_on_read_and_write(self) -> StateTtlConfigBuilder:
        """Renew timestamps at writes and at reads."""
        return self.set_update_type(UpdateType.ON_READ_AND_WRITE)

    def set_state_visibility(self, visibility: StateVisibility) -> StateTtlConfigBuilder:
        """Set whether expired entries may be seen."""
        self._config = attrs.evolve(self._config, visibility=visibility)
        return self

    def never_return_expired(self) -> StateTtlConfigBuilder:
        """Hide expired entries."""
        return self.set_state_visibility(StateVisibility.NEVER_RETURN_EXPIRED)

    def return_expired_if_not_cleaned_up(self) -> StateTtlConfigBuilder:
        """Return an expired entry once, if it is still there."""
        return self.set_state_visibility(StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)

    def set_ttl(self, ttl: timedelta) -> StateTtlConfigBuilder:
        """Set the time to live."""
        self._config = attrs.evolve(self._config, ttl=ttl)
        return self

    def cleanup_incrementally(self, cleanup_size: int) -> StateTtlConfigBuilder:
        """Set how many entries are looked at for every changed one.

        PyFlink's second argument is not there: each flush looks at some, changed entries or not.
        """
        check_within("cleanup_size", cleanup_size, 1, INT64[1])
        cleanup = attrs.evolve(self._config.cleanup, incremental_size=cleanup_size)
        self._config = attrs.evolve(self._config, cleanup=cleanup)
        return self

    def cleanup_full_snapshot(self) -> StateTtlConfigBuilder:
        """Leave expired entries out of full snapshots, which is always so."""
        return self

    def disable_cleanup_in_background(self) -> StateTtlConfigBuilder:
        """Remove expired entries only when they are read, unless ``cleanup_incrementally`` asks."""
        cleanup = attrs.evolve(self._config.cleanup, in_background=False)
        self._config = attrs.evolve(self._config, cleanup=cleanup)
        return self

    def build(self) -> StateTtlConfig:
        """The finished settings."""
        return self._config
