"""The time settings of a job file: event time, watermark delay, time mode."""

import pytest
from millpond.errors import ConfigError, JobError
from millpond_cli.jobfile import JobFile, load_function
from millpond_cli.run import start_query
from millpond_cli.spark import spark_words

from tests.tools.job_text import job_text

JOB = job_text(
    'uid = "alarms"',
    'function = "alarms.py:Alarms"',
    'output = "k string, at bigint"',
    'event-time = "at"',
    'watermark = "5 seconds"',
    'time-mode = "event-time"',
)
FUNCTION = """
import millpond as mp
class Alarms(mp.KeyedProcessFunction):
    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(context.timestamp + 1000)
    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp
"""


def job_file(folder, **changed):
    """Return a job file with some changed keys."""
    text = JOB
    for key, value in changed.items():
        name = key.replace("_", "-")
        line = next(each for each in JOB.splitlines() if each.startswith(f"{name} ="))
        text = text.replace(line, f'{name} = "{value}"')
    (folder / "alarms.py").write_text(FUNCTION)
    (folder / "job.toml").write_text(text)
    job = JobFile.read(folder / "job.toml")
    return job, load_function(job.job.function, folder)


def test_timers_of_a_job_file_fire(spark, job_conf, tmp_path):
    """A timer fires once the watermark of the file's column and delay has passed it."""
    (tmp_path / "input").mkdir()
    rows = '{"k": "a", "at": "2026-01-01T00:00:00Z"}\n{"k": "b", "at": "2026-01-01T00:01:00Z"}\n'
    (tmp_path / "input" / "1.json").write_text(rows)
    start_query(spark, *job_file(tmp_path)).awaitTermination()
    found = spark.read.json(str(tmp_path / "output")).collect()
    assert [(row.k, row.at) for row in found] == [("a", 1767225601000)]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("watermark", "soon", "Unable to parse 'soon'"),
        ("event_time", "att", "`att` cannot be resolved. Did you mean one of the following? [`at`"),
        ("event_time", "k", '`k` has the invalid type "STRING", but expected "TIMESTAMP"'),
        ("time_mode", "noon", "time-mode: expected one of event-time, processing-time, got"),
    ],
)
def test_a_wrong_time_is_refused(spark, job_conf, tmp_path, key, value, said):
    """Spark's error about a column or a delay is shown as one message, with the file's name."""
    (tmp_path / "input").mkdir()
    job, function = job_file(tmp_path, **{key: value})
    expected = pytest.raises((ConfigError, JobError))
    with expected as caught, spark_words("job.toml"), job.locating_errors():
        start_query(spark, job, function)
    assert said in str(caught.value)
    assert "EventTimeWatermark" not in str(caught.value)
