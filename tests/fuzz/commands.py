"""Calls of the command line with odd values; see ``cli_calls``."""

import os
import sys

from cli.tests.cli_calls import MODES, Calls, faults, make_places
from tests.fuzz.runner import EQUAL, REFUSED

__all__ = ["TARGETS"]


class BadCallError(AssertionError):
    """The error if a call did not end as it should."""


class Commands:
    """All commands that do not change the given directory; a mutant is a call."""

    weight = 0.6

    def __init__(self, folder):
        # As if PySpark were not installed: these calls must not start Spark.
        sys.modules["pyspark"] = None
        (folder / "work").mkdir()
        os.chdir(folder / "work")
        self._calls = Calls(make_places(folder))
        self._verbs = [verb for verb in self._calls.verbs() if verb[-1] not in ("gc", "seal")]

    def run(self, rng):
        """Make one call; the outcome is equal if it succeeded, and refused if it said so."""
        verb = rng.choice(self._verbs)
        single = rng.random() < 0.5
        calls = self._calls.single(verb) if single else self._calls.mixed(verb, rng, 1)
        call = rng.choice([*calls])
        status, wrong = faults(call, rng.choice(list(MODES)))
        if wrong:
            raise BadCallError(f"millpond {call.shown()}: {wrong[0]}")
        return (REFUSED if status else EQUAL), 0


TARGETS = {"commands": Commands}
