"""Clauses: generated programs, compared with a model in dictionaries and with other backends."""

import uuid
from functools import partial
from itertools import permutations

import millpond as mp
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from millpond.plugins import get_registry

from millpond_conformance.machine import machine_of
from millpond_conformance.programs import SemanticsProgram

pytestmark = pytest.mark.slow


@pytest.mark.clause("G1")
def test_generated_programs(backend_name, wrapped):
    """In generated programs, every read gives the result of a model in plain dictionaries."""
    run_state_machine_as_test(
        machine_of(backend_name, wrapped),
        settings=settings(
            max_examples=max(5, settings().max_examples // 4),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.clause("G2")
@pytest.mark.switches_ttl
def test_all_backends_show_the_same(backend_name, open_backend, clock, storage, tmp_path):
    """A program has the same results on all installed backends; each restores the others' data."""

    def opened(parts, names):
        name = names[bool(parts)]
        if name == backend_name:
            return open_backend(restore=parts)
        folder = tmp_path / uuid.uuid4().hex
        return mp.open_keyed_backend(
            name, key_type=str, directory=folder, clock=clock, restore=parts
        )

    others = {name for name in get_registry().backend_names() if ":" not in name} - {backend_name}
    seeds = range(max(2, settings().max_examples // 10))
    for name in sorted(others):
        for names in permutations((backend_name, name)):
            SemanticsProgram.run_all(seeds, partial(opened, names=names), clock, storage)


@pytest.mark.clause("G3")
@pytest.mark.switches_ttl
def test_every_kind_means_what_it_should(open_backend, clock, storage):
    """For every kind of state and any TTL, all accesses and merges give the results of a model.

    This includes iterations that are interrupted by other calls.
    """
    seeds = range(2 * settings().max_examples)
    SemanticsProgram.run_all(seeds, lambda parts: open_backend(restore=parts), clock, storage)
