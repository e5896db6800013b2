"""What is wrong in a job file is told by line and key, with what to write instead."""

import pytest
from millpond.cli.jobfile import JobFile
from millpond.errors import ConfigError

JOB = """
[source]
format = "json"
schema = "k string, at timestamp"
path = "input"
[job]
uid = "counts"
function = "counts.py:Counts"
key = ["k"]
output = "k string"
[sink]
format = "json"
path = "output"
checkpoint = "checkpoint"
[millpond]
parallelism = 2
"""


def line_of(text, line):
    """The number of a line, as an error tells it."""
    return f"line {text.splitlines().index(line) + 1}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("millpond.parallelism = 3", "spark.millpond.parallelism: belongs in [millpond]: write pa"),
        ("spark.millpond.parallelism = 3", "spark.spark.millpond.parallelism: belongs in [mill"),
        ("spark.sql.x = 3", "spark.spark.sql.x: is given spark. by the section: write sql.x"),
    ],
)
def test_settings_of_spark_under_a_name_that_would_be_another(tmp_path, line, said):
    """Millpond's keys have one section, and the prefix is added once."""
    text = f"{JOB}[spark]\nmaster = 'local'\n{line}\n"
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        JobFile.read(tmp_path / "job.toml")
    assert f"job.toml, {line_of(text, line)}: {said}" in str(caught.value)
