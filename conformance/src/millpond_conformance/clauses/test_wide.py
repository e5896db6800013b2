"""Wide programs: many dimensions at once, beside a model of all kinds."""

import pytest
from hypothesis import settings

from millpond_conformance.judging import COVERAGE, PROGRAM
from millpond_conformance.wide import Coverage, World, play
from millpond_conformance.wide.shrinking import failure_of


@pytest.mark.clause("G4")
@pytest.mark.switches_ttl
def test_wide_programs(backend_name, wrapped, program_seed, record_property):
    """Whatever states, keys, sizes, key groups and limits, reads give what a model gives."""
    coverage = Coverage()
    for number in range(max(40, 2 * settings().max_examples)):
        world = World(program_seed + number)
        try:
            play(backend_name, world, coverage=coverage, wrapped=wrapped)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its program
            told, program = failure_of(backend_name, world, error, wrapped)
            record_property(PROGRAM, program)
            pytest.fail(told, pytrace=False)
    record_property(COVERAGE, coverage.counts())
