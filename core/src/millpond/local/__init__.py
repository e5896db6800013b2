"""``millpond.local.run``: a job in this process, without Spark."""

from millpond.local.local_runner import run

__all__ = ["run"]
