"""Tumbling windows of a time zone: days and hours as its clocks show them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import hypothesis
import millpond as mp
import pytest
from hypothesis import strategies as st
from millpond import errors, windows

HOUR = 3_600_000
BERLIN = ZoneInfo("Europe/Berlin")
ODD = ("Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "Africa/Cairo",
       "Europe/Berlin", "America/Los_Angeles", "Antarctica/Troll", "Asia/Pyongyang")  # fmt: skip


def ms(*local, zone=BERLIN, fold=0):
    """Return a local time in ms since 1970."""
    return round(datetime(*local, tzinfo=zone, fold=fold).timestamp() * 1000)


def window_at(time, size, zone="Europe/Berlin", offset=0):
    assigner = windows.TumblingEventTimeWindows.of(size, offset, time_zone=zone)
    (found,) = assigner.assign_windows(None, time)
    return found


@pytest.mark.parametrize(
    ("day", "hours"),
    [((2026, 3, 28), 24), ((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 10, 26), 24)],
)
def test_days_begin_at_local_midnight(day, hours):
    """Days on which the clocks change have 23 or 25 hours."""
    window = window_at(ms(*day, 12), timedelta(days=1))
    assert window.start == ms(*day)
    assert window.end - window.start == hours * HOUR


@pytest.mark.parametrize(
    ("time", "size", "wanted"),
    [
        # clocks go forward at 2: no window of that hour, and a short one of two hours
        (ms(2026, 3, 29, 1, 30), HOUR, (ms(2026, 3, 29, 1), ms(2026, 3, 29, 3))),
        (ms(2026, 3, 29, 3, 30), 2 * HOUR, (ms(2026, 3, 29, 3), ms(2026, 3, 29, 4))),
        # clocks go back at 3 to 2: that hour lasts two hours, that slot of four hours five
        (ms(2026, 10, 25, 2, 30), HOUR, (ms(2026, 10, 25, 2), ms(2026, 10, 25, 3))),
        (ms(2026, 10, 25, 2, 30, fold=1), HOUR, (ms(2026, 10, 25, 2), ms(2026, 10, 25, 3))),
        (ms(2026, 10, 25, 1), 4 * HOUR, (ms(2026, 10, 25), ms(2026, 10, 25, 4))),
        # half hours occur twice
        (
            ms(2026, 10, 25, 2, 10, fold=1),
            HOUR // 2,
            (ms(2026, 10, 25, 2, fold=1), ms(2026, 10, 25, 2, 30, fold=1)),
        ),
    ],
)
def test_hours_when_the_clocks_change(time, size, wanted):
    """Windows follow the clocks, and cover all times."""
    assert window_at(time, size) == wanted


@hypothesis.given(
    zone=st.sampled_from(ODD),
    time=st.integers(ms(1930, 1, 1), ms(2060, 1, 1)),
    size=st.sampled_from((HOUR // 4, HOUR // 2, HOUR, 2 * HOUR, 6 * HOUR, 24 * HOUR, 168 * HOUR)),
    offset=st.sampled_from((0, -HOUR // 8, HOUR // 5)),
)
@hypothesis.settings(max_examples=300, deadline=None)
def test_windows_are_what_the_clocks_show(zone, time, size, offset):
    """Inside a window the clocks are in one slot, and just outside in another."""

    def slot(at):
        local = datetime.fromtimestamp(at // 1000, ZoneInfo(zone)).replace(tzinfo=UTC)
        return (round(local.timestamp()) * 1000 + at % 1000 - offset) // size

    start, end = window_at(time, size, zone, offset)
    assert start <= time < end
    inside = {start, end - 1, time, *range(start, end, max(1, (end - start) // 50))}
    assert {slot(at) for at in inside} == {slot(time)}
    assert slot(start - 1) != slot(time) != slot(end)


@pytest.mark.parametrize("zone", sorted(available_timezones() & {"UTC", "Etc/GMT+5", "Asia/Tokyo"}))
def test_zones_that_never_change(zone):
    """In zones without changes the windows are those of a fixed offset."""
    shift = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)).utcoffset() // timedelta(milliseconds=1)
    fixed = windows.TumblingEventTimeWindows.of(24 * HOUR, -shift % (24 * HOUR))
    time = ms(2026, 7, 1, 5)
    assert window_at(time, 24 * HOUR, zone) == fixed.assign_windows(None, time)[0]


@pytest.mark.parametrize("time", [mp.MIN_TIMESTAMP, -(1 << 62), 1 << 62])
def test_times_beyond_the_calendar(time):
    """Before year 1 and after year 9999 windows continue with the last known offset."""
    window = window_at(time, HOUR)
    assert window.start <= time < window.end


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", "../etc/passwd", "\0"])
def test_unknown_zones(zone):
    """A zone that this machine does not know is refused with the correct form."""
    with pytest.raises(errors.ConfigError, match="expected an IANA name"):
        windows.TumblingEventTimeWindows.of(HOUR, time_zone=zone)


def test_a_job_by_local_days():
    """Rows of a Sunday of 23 hours are counted for that day."""
    rows = [{"k": "a", "ms": ms(2026, 3, 29, 0, 5)}, {"k": "a", "ms": ms(2026, 3, 29, 23, 5)},
            {"k": "a", "ms": ms(2026, 3, 30, 0, 5)}]  # fmt: skip
    days = windows.window(
        windows.TumblingEventTimeWindows.of(timedelta(days=1), time_zone="Europe/Berlin")
    )
    counted = days.reduce(lambda a, b: a + b, int, lambda row: 1)
    assert mp.local.run(counted, rows, key="k", event_time="ms") == [
        ("a", ms(2026, 3, 29), ms(2026, 3, 30), 2),
        ("a", ms(2026, 3, 30), ms(2026, 3, 31), 1),
    ]
