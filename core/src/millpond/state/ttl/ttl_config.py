"""The settings for the time to live of state, with PyFlink's names."""

from __future__ import annotations

import enum
from datetime import timedelta
from functools import cached_property
from typing import Any

import attrs

from millpond.arguments import INT64, check_type, check_within, typed, within
from millpond.errors import ConfigError, brief
from millpond.state.ttl.expiry_rule import has_expired

_DEFAULT_SIZE = 5
_MILLISECOND = timedelta(milliseconds=1)


class UpdateType(enum.Enum):
    """The operations that renew the timestamp of an entry. With ``DISABLED`` no entry expires.

    PyFlink's spellings are aliases: ``Disabled``, ``OnCreateAndWrite``, ``OnReadAndWrite``.
    """

    DISABLED = "disabled"
    ON_CREATE_AND_WRITE = "on-create-and-write"
    ON_READ_AND_WRITE = "on-read-and-write"

    Disabled = DISABLED
    OnCreateAndWrite = ON_CREATE_AND_WRITE
    OnReadAndWrite = ON_READ_AND_WRITE


class StateVisibility(enum.Enum):
    """Whether a read returns an expired entry that is still stored.

    PyFlink's spellings are aliases: ``NeverReturnExpired``, ``ReturnExpiredIfNotCleanedUp``.
    """

    NEVER_RETURN_EXPIRED = "never-return-expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return-expired-if-not-cleaned-up"

    NeverReturnExpired = NEVER_RETURN_EXPIRED
    ReturnExpiredIfNotCleanedUp = RETURN_EXPIRED_IF_NOT_CLEANED_UP


class TtlTime(enum.Enum):
    """The time by which entries expire.

    PyFlink has only processing time, as ``TtlTimeCharacteristic.ProcessingTime``. This spelling is
    an alias.
    """

    PROCESSING_TIME = "processing-time"
    """The time of the clock."""
    EVENT_TIME = "event-time"
    """The watermark. The timestamp of an entry is the event time of the row that has written it."""

    ProcessingTime = PROCESSING_TIME


# StateTtlConfig has attributes of the same names, as in PyFlink.
_UpdateType = UpdateType
_StateVisibility = StateVisibility


@attrs.frozen
class CleanupStrategies:
    """The ways in which expired entries are removed before a read finds them.

    Full snapshots never contain expired entries.

    Attributes:
        in_background: whether flushes remove expired entries.
        incremental_size: the number of stored entries that a flush checks for each changed entry. A
            flush checks at least 1,000 entries. None means 5 if ``in_background`` is true, and no
            checks otherwise.
    """

    in_background: bool = attrs.field(default=True, validator=typed(bool))
    incremental_size: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(within(1, INT64[1]))
    )

    @property
    def entries_per_change(self) -> int:
        """The number of stored entries that a flush checks for each changed entry; 0 for none."""
        if self.incremental_size is not None:
            return self.incremental_size
        return _DEFAULT_SIZE if self.in_background else 0


def _check_ttl(_: object, __: object, ttl: timedelta) -> None:
    ttl_in_ms(ttl)


def ttl_in_ms(ttl: timedelta) -> int:
    """Return a time to live in milliseconds; raise ConfigError if it is not at least 1 whole ms."""
    if not isinstance(ttl, timedelta) or ttl < _MILLISECOND:
        raise ConfigError("ttl", f"expected a timedelta of at least 1 ms, got {brief(ttl)}", "TTL")
    if ttl != timedelta.max and ttl % _MILLISECOND:  # .max is no whole number of ms
        reason = f"{brief(ttl)} is not a whole number of milliseconds"
        raise ConfigError("ttl", reason, "TTL")
    return ttl // _MILLISECOND


@attrs.frozen
class StateTtlConfig:
    """The time to live of a state's entries.

    PyFlink's ``StateTtlConfig.UpdateType``, ``.StateVisibility`` and ``.TtlTimeCharacteristic`` are
    the enums of this module. The last one is ``TtlTime``.

    Attributes:
        ttl: the time to live, in whole milliseconds.
        update_type: the operations that renew the timestamp of an entry.
        visibility: whether a read returns an expired entry that is still stored.
        cleanup: the ways in which expired entries are removed before a read finds them.
        time: the time by which entries expire: processing time or event time.
    """

    UpdateType = _UpdateType
    StateVisibility = _StateVisibility
    TtlTimeCharacteristic = TtlTime

    ttl: timedelta = attrs.field(validator=_check_ttl)
    update_type: _UpdateType = attrs.field(
        default=_UpdateType.ON_CREATE_AND_WRITE, validator=typed(_UpdateType)
    )
    visibility: _StateVisibility = attrs.field(
        default=_StateVisibility.NEVER_RETURN_EXPIRED, validator=typed(_StateVisibility)
    )
    cleanup: CleanupStrategies = attrs.field(
        default=CleanupStrategies(), validator=typed(CleanupStrategies)
    )
    time: TtlTime = attrs.field(default=TtlTime.PROCESSING_TIME, validator=typed(TtlTime))

    @cached_property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return ttl_in_ms(self.ttl)

    @cached_property
    def shows_expired(self) -> bool:
        """Whether reads return expired entries that are still stored."""
        return self.visibility is _StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP

    def expired(self, timestamp: int, now: int) -> bool:
        """Return whether an entry with this timestamp has expired at `now`; both are in ms."""
        return has_expired(timestamp, self.ttl_ms, now)

    def is_enabled(self) -> bool:
        """Return whether entries expire, i.e. the update type is not ``UpdateType.DISABLED``."""
        return self.update_type is not _UpdateType.DISABLED

    def get_ttl(self) -> timedelta:
        """Return ``ttl``. This is PyFlink's method."""
        return self.ttl

    def get_update_type(self) -> _UpdateType:
        """Return ``update_type``. This is PyFlink's method."""
        return self.update_type

    def get_state_visibility(self) -> _StateVisibility:
        """Return ``visibility``. This is PyFlink's method."""
        return self.visibility

    def get_ttl_time_characteristic(self) -> TtlTime:
        """Return ``time``. This is PyFlink's method."""
        return self.time

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Return ``cleanup``. This is PyFlink's method."""
        return self.cleanup

    @staticmethod
    def new_builder(ttl: timedelta) -> StateTtlConfigBuilder:
        """Return a builder for a configuration with this time to live. This is PyFlink's method."""
        return StateTtlConfigBuilder(StateTtlConfig(ttl))


@attrs.define
class StateTtlConfigBuilder:
    """A builder of StateTtlConfig, as in PyFlink. Each method changes and returns the builder."""

    _config: StateTtlConfig

    def _set(self, **fields: Any) -> StateTtlConfigBuilder:
        self._config = attrs.evolve(self._config, **fields)
        return self

    def _set_cleanup(self, **fields: Any) -> StateTtlConfigBuilder:
        return self._set(cleanup=attrs.evolve(self._config.cleanup, **fields))

    def set_update_type(self, update_type: UpdateType) -> StateTtlConfigBuilder:
        """Set the operations that renew the timestamp of an entry."""
        return self._set(update_type=update_type)

    def update_ttl_on_create_and_write(self) -> StateTtlConfigBuilder:
        """Let writes renew the timestamp of an entry."""
        return self.set_update_type(UpdateType.ON_CREATE_AND_WRITE)

    def update_ttl_on_read_and_write(self) -> StateTtlConfigBuilder:
        """Let reads and writes renew the timestamp of an entry."""
        return self.set_update_type(UpdateType.ON_READ_AND_WRITE)

    def set_state_visibility(self, visibility: StateVisibility) -> StateTtlConfigBuilder:
        """Set whether a read returns an expired entry that is still stored."""
        return self._set(visibility=visibility)

    def never_return_expired(self) -> StateTtlConfigBuilder:
        """Never return expired entries from reads."""
        return self.set_state_visibility(StateVisibility.NEVER_RETURN_EXPIRED)

    def return_expired_if_not_cleaned_up(self) -> StateTtlConfigBuilder:
        """Let reads return an expired entry that is still stored. The first read removes it."""
        return self.set_state_visibility(StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)

    def set_ttl(self, ttl: timedelta) -> StateTtlConfigBuilder:
        """Set the time to live."""
        return self._set(ttl=ttl)

    def set_ttl_time_characteristic(
        self, ttl_time_characteristic: TtlTime
    ) -> StateTtlConfigBuilder:
        """Set the time by which entries expire."""
        check_type("ttl_time_characteristic", ttl_time_characteristic, TtlTime)
        return self._set(time=ttl_time_characteristic)

    def use_processing_time(self) -> StateTtlConfigBuilder:
        """Let entries expire by processing time. This is the default."""
        return self.set_ttl_time_characteristic(TtlTime.PROCESSING_TIME)

    def use_event_time(self) -> StateTtlConfigBuilder:
        """Let entries expire by the watermark. PyFlink does not have this method."""
        return self.set_ttl_time_characteristic(TtlTime.EVENT_TIME)

    def cleanup_incrementally(
        self,
        cleanup_size: int,
        run_cleanup_for_every_record: bool = False,  # noqa: FBT001, FBT002 - PyFlink's signature
    ) -> StateTtlConfigBuilder:
        """Set the number of stored entries that a flush checks for each changed entry.

        Args:
            cleanup_size: the number of stored entries.
            run_cleanup_for_every_record: has no effect, because every flush checks entries.
        """
        check_within("cleanup_size", cleanup_size, 1, INT64[1])
        check_type("run_cleanup_for_every_record", run_cleanup_for_every_record, bool)
        return self._set_cleanup(incremental_size=cleanup_size)

    def cleanup_full_snapshot(self) -> StateTtlConfigBuilder:
        """Do nothing, because full snapshots never contain expired entries.

        PyFlink has this method.
        """
        return self

    def cleanup_in_rocksdb_compact_filter(
        self,
        query_time_after_num_entries: int = 1000,
        periodic_compaction_time: timedelta = timedelta(days=30),
    ) -> StateTtlConfigBuilder:
        """Let flushes remove expired entries, on every backend. This is the default.

        Args:
            query_time_after_num_entries: has no effect, because each flush reads the clock once.
            periodic_compaction_time: has no effect, because flushes do not wait for compactions.
        """
        check_within("query_time_after_num_entries", query_time_after_num_entries, 0, INT64[1])
        check_type("periodic_compaction_time", periodic_compaction_time, timedelta)
        return self._set_cleanup(in_background=True)

    def disable_cleanup_in_background(self) -> StateTtlConfigBuilder:
        """Remove expired entries only in reads, unless ``cleanup_incrementally`` is called too."""
        return self._set_cleanup(in_background=False)

    def build(self) -> StateTtlConfig:
        """Return the configuration."""
        return self._config
