"""Generated programs: writes, snapshots, losses, restores, rescales, clock jumps in any order."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from millpond_conformance.machine import machine_of


@pytest.mark.clause("G1")
def test_generated_programs(backend_name):
    """Whatever the program, every read is what a model in plain dictionaries gives."""
    examples = max(5, settings().max_examples // 4)
    run_state_machine_as_test(
        machine_of(backend_name),
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
