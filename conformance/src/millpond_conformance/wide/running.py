"""Run the programs of several seeds until one fails."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.player import play
from millpond_conformance.wide.shrinking import failure_of
from millpond_conformance.wide.world import World


@attrs.frozen
class ProgramResults:
    """The results of several programs.

    Attributes:
        counts: how often each step occurred.
        message: the message of the failed program; empty if none has failed.
        program: the shortened code of the failed program; empty if none has failed.
    """

    counts: dict[str, int]
    message: str = ""
    program: str = ""


def play_seeds(backend: str, seeds: Iterable[int], wrapped: str = "none") -> ProgramResults:
    """Run one program for each of `seeds` on a backend, in this process, until one fails."""
    coverage = Coverage()
    for seed in seeds:
        world = World(seed)
        try:
            play(backend, world, coverage=coverage, wrapped=wrapped)
        except Exception as error:  # noqa: BLE001 - every error is reported with its program
            return ProgramResults(coverage.counts(), *failure_of(backend, world, error, wrapped))
    return ProgramResults(coverage.counts())
