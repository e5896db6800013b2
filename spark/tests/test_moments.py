"""Moments at clock changes: input and yielded values, in any time zone of the process."""

import datetime as dt
import time
from zoneinfo import ZoneInfo

import pytest
from millpond import errors
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from pyspark.sql.types import ArrayType, StructType, TimestampNTZType, TimestampType

from tests.arriving import arriving

NEW_YORK = ZoneInfo("America/New_York")
MOMENTS = [
    dt.datetime(2024, 3, 10, 6, 59, 59, 999999, dt.UTC),  # then New York's clocks go forward
    dt.datetime(2024, 3, 10, 7, 0, tzinfo=dt.UTC),
    dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC),  # half past one, the first time
    dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.UTC),  # and the second time
]
WALLS = [
    dt.datetime(2024, 3, 10, 2, 30),  # this time does not exist in New York
    dt.datetime(2024, 11, 3, 1, 30),  # this time occurs twice
    dt.datetime(2024, 11, 3, 1, 30, fold=1),
]
SCHEMA = StructType().add("t", TimestampType()).add("wall", TimestampNTZType())
CODEC, ROWS = OutputCodec.from_schema(SCHEMA), RowCodec.from_schema(SCHEMA)


@pytest.fixture(autouse=True, params=["UTC", "America/New_York"])
def zone(request, monkeypatch):
    """Set the zone of the process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def there_and_back(*rows):
    """Return rows that were encoded as output and decoded as input."""
    columns = CODEC.columns(rows, "op")
    return list(ROWS.rows(ROWS.decode(arriving(ROWS, columns))))


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_timestamp_is_a_moment_in_utc(moment):
    """A yielded moment in UTC, in another zone, or naive (which means UTC) comes back in UTC."""
    forms = [moment, moment.astimezone(NEW_YORK), moment.replace(tzinfo=None)]
    for row in there_and_back(*((form, None) for form in forms)):
        assert (row.t, row.t.tzinfo) == (moment, dt.UTC)


def test_hours_between_moments_are_hours():
    """The hour that occurs twice in New York is two different hours."""
    first, second = there_and_back((MOMENTS[2], None), (MOMENTS[3].astimezone(NEW_YORK), None))
    assert second.t - first.t == dt.timedelta(hours=1)


@pytest.mark.parametrize("wall", WALLS)
def test_a_wall_clock_stays_as_it_was_read(wall):
    """A timestamp_ntz keeps its reading, also one that a zone lacks or has twice; an aware one is refused."""
    ((_, kept),) = there_and_back((None, wall))
    assert (kept, kept.tzinfo) == (wall, None)
    with pytest.raises(errors.OutputTypeError, match="output column 'wall'"):
        CODEC.columns([(None, wall.replace(tzinfo=NEW_YORK))], "op")


def test_moments_within_arrays_are_moments():
    """Moments within arrays of any depth are moments in UTC."""
    codec = OutputCodec.from_schema(StructType().add("ts", ArrayType(TimestampType())))
    forms = [(MOMENTS,), ([m.astimezone(NEW_YORK) for m in MOMENTS],)]
    packed = [codec.columns([row], "op")[0][0].as_py() for row in forms]
    assert packed[0] == packed[1]
