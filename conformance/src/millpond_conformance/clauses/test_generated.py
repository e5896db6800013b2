"""Clauses: generated programs, compared with a model in dictionaries and with other backends."""

import tempfile
import uuid
from pathlib import Path

import millpond as mp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from millpond import errors
from millpond.plugins import get_registry

from millpond_conformance.machine import machine_of
from millpond_conformance.model import GROUPS, KEYS, SPACES, descriptors, observations
from millpond_conformance.opening import open_wrapped
from millpond_conformance.programs import SemanticsProgram

pytestmark = pytest.mark.slow


@pytest.mark.clause("G1")
def test_generated_programs(backend_name, wrapped):
    """In generated programs, every read gives the result of a model in plain dictionaries."""
    examples = max(5, settings().max_examples // 4)
    run_state_machine_as_test(
        machine_of(backend_name, wrapped),
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("update", "clear", "add", "put", "remove", "append", "flush", "wrong")),
        st.sampled_from(KEYS),
        st.sampled_from(SPACES),
        st.integers(-1, 1),
    ),
    max_size=30,
)


def step(backend, action, key, space, number):
    """Run one step, and return the number of state entries, or the name of the raised error."""
    backend.set_current_key(key)
    states = {n: backend.get_partitioned_state(d, space) for n, d in descriptors().items()}
    actions = {
        "update": lambda: states["values"].update(number),
        "clear": states["maps"].clear,
        "add": lambda: states["sums"].add(number),
        "put": lambda: states["maps"].put(f"e{number}", number),
        "remove": lambda: states["maps"].remove(f"e{number}"),
        "append": lambda: states["lists"].add_all([number, number]),
        "flush": backend.flush,
        "wrong": lambda: states["values"].update("no number"),
    }
    try:
        actions[action]()
    except errors.MillpondError as error:
        return type(error).__name__
    return backend.num_state_entries()


def outcome(backend_name, wrapped, folder, program):
    """Run a program on a backend; return its results, and the handle of a full snapshot."""
    storage = mp.checkpoint_storage(f"memory:differential-{uuid.uuid4().hex}")
    config = mp.Config({"state.snapshot.strategy": "full"})
    with open_wrapped(
        backend_name,
        wrapped,
        key_type=str,
        max_parallelism=GROUPS,
        directory=folder,
        config=config,
    ) as backend:
        shown = [step(backend, *each) for each in program]
        result = backend.snapshot(1, storage).result()
        return [*shown, observations(backend), result.rows_written], result.handle


@pytest.mark.clause("G2")
def test_all_backends_show_the_same(backend_name, wrapped):
    """A program has the same results on all installed backends; each restores the others' data."""
    installed = [name for name in get_registry().backend_names() if ":" not in name]
    others = [name for name in installed if name != backend_name]

    @given(STEPS)
    @settings(
        max_examples=max(10, settings().max_examples // 2),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def same(program):
        with tempfile.TemporaryDirectory(prefix="millpond-differential-") as temporary:
            folder = Path(temporary)
            shown, _ = outcome(backend_name, wrapped, folder / "own", program)
            for name in others:
                elsewhere, handle = outcome(name, "none", folder / name, program)
                assert elsewhere == shown, name
                with open_wrapped(
                    backend_name,
                    wrapped,
                    key_type=str,
                    max_parallelism=GROUPS,
                    directory=folder / f"from-{name}",
                    restore=[handle],
                ) as restored:
                    assert observations(restored) == shown[-2], name

    same()


@pytest.mark.clause("G3")
@pytest.mark.switches_ttl
def test_every_kind_means_what_it_should(open_backend, clock, storage):
    """For every kind of state and any TTL, all accesses and merges give the results of a model.

    This includes iterations that are interrupted by other calls.
    """
    for seed in range(2 * settings().max_examples):
        program = SemanticsProgram(seed, lambda parts: open_backend(restore=parts), clock, storage)
        try:
            program.run()
        except AssertionError as error:
            error.add_note(f"the program of seed {seed}")
            raise
