"""A time limit for code that may hang, by an alarm of the main thread."""

import signal
from contextlib import contextmanager

import pytest

SECONDS = 60


@contextmanager
def within_bounds(about="it"):
    """End code that takes too long, even if it catches exceptions."""

    def too_long(*_):
        pytest.fail(f"{about} has not ended after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
