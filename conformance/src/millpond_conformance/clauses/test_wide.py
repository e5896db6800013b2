"""Clauses: generated programs with any states, keys, sizes and limits, compared with a model."""

import pytest
from hypothesis import settings

from millpond_conformance.judging import COVERAGE, PROGRAM
from millpond_conformance.shadow import play_in_shadow
from millpond_conformance.wide.running import play_seeds

pytestmark = pytest.mark.slow


@pytest.mark.clause("G4")
@pytest.mark.switches_ttl
def test_wide_programs(backend_name, wrapped, program_seed, shadow, record_property):
    """In programs with any states, keys, sizes, key groups and limits, reads match a model."""
    seeds = range(program_seed, program_seed + max(40, 2 * settings().max_examples))
    found = (play_in_shadow if shadow else play_seeds)(backend_name, seeds, wrapped)
    if found.message:
        record_property(PROGRAM, found.program)
        pytest.fail(found.message, pytrace=False)
    record_property(COVERAGE, found.counts)
