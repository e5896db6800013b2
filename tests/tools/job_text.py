"""The text of a job file, for tests that change it."""

SOURCE = """
[source]
format = "json"
schema = "k string, at timestamp"
path = "input"
"""
SINK = """
[sink]
format = "json"
path = "output"
checkpoint = "checkpoint"
"""


def job_text(*lines):
    """Return a job file whose section ``[job]`` has the given lines."""
    job = "\n".join(["[job]", 'key = ["k"]', *lines])
    return SOURCE + job + SINK
