"""Plays the programs of some seeds, up to the first that fails."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.player import play
from millpond_conformance.wide.shrinking import failure_of
from millpond_conformance.wide.world import World


@attrs.frozen
class Played:
    """How programs have ended.

    Attributes:
        counts: what they have done, and how often.
        told: what the one that failed says; empty where none has.
        program: that one, shrunk, as code.
    """

    counts: dict[str, int]
    told: str = ""
    program: str = ""


def played(backend: str, seeds: Iterable[int], wrapped: str = "none") -> Played:
    """Play the programs of some seeds on a backend, in this process."""
    coverage = Coverage()
    for seed in seeds:
        world = World(seed)
        try:
            play(backend, world, coverage=coverage, wrapped=wrapped)
        except Exception as error:  # noqa: BLE001 - every error is reported with its program
            return Played(coverage.counts(), *failure_of(backend, world, error, wrapped))
    return Played(coverage.counts())
