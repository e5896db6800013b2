"""The text of a job file that tests change."""

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
    """A job file whose section ``[job]`` has these lines."""
    job = "\n".join(["[job]", 'key = ["k"]', *lines])
    return SOURCE + job + SINK
