"""The pytest plugin that runs the clauses against all usable backends, or the selected ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import millpond as mp
import pytest
from hypothesis import settings
from millpond.backend import KeyedStateBackend
from millpond.plugins import get_registry
from millpond.storage.checkpoint_storage import CheckpointStorage

from millpond_conformance.judging import Judge
from millpond_conformance.opening import open_wrapped
from millpond_conformance.plugin import INI, OPTION
from millpond_conformance.wrapping import WRAPPERS

PROFILES = {"quick": 10, "standard": 100, "soak": 2000}
"""The number of examples that each generated test draws, by profile."""

BackendOpener = Callable[..., KeyedStateBackend]
"""A function that opens the backend under test, with the options of `mp.open_keyed_backend`."""


def _settings(config: pytest.Config) -> dict[str, str]:
    """Return the words of the ini key, such as ``profile=quick``, as a dictionary."""
    found = dict(word.partition("=")[::2] for word in config.getini(INI))
    allowed = {"profile": PROFILES, "wrapped": WRAPPERS, "shadow": ("yes", "no")}
    for key, value in found.items():
        if key not in (*allowed, "seed") or value not in allowed.get(key, (value,)):
            choices = "profile=quick, standard or soak; wrapped=ttl, metrics or both; "
            choices += "shadow=yes; seed=NUMBER"
            raise pytest.UsageError(f"{INI}: expected {choices}, got {key}={value}")
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, the `Judge`, and the number of examples of generated tests."""
    config.addinivalue_line("markers", "clause(number): the promise that a test checks")
    config.addinivalue_line("markers", "slow: the clause starts processes or draws programs")
    config.addinivalue_line("markers", "switches_ttl: the clause is about TTL being on or off")
    if not any(isinstance(plugin, Judge) for plugin in config.pluginmanager.get_plugins()):
        config.pluginmanager.register(Judge())
    profile = _settings(config).get("profile")
    if profile:
        name = f"millpond-{profile}"
        settings.register_profile(
            name, max_examples=PROFILES[profile], derandomize=profile == "quick", deadline=None
        )
        settings.load_profile(name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each clause with the names of the backends; do not change other tests."""
    if metafunc.definition.get_closest_marker("clause") and "backend_name" in metafunc.fixturenames:
        chosen = metafunc.config.getoption(OPTION) or get_registry().backend_names()
        metafunc.parametrize("backend_name", chosen, scope="session")


@pytest.fixture
def clock() -> mp.ManualClock:
    """Return the clock with the processing time of all backends that a test opens."""
    return mp.ManualClock(0)


@pytest.fixture
def storage() -> CheckpointStorage:
    """Return an empty checkpoint storage in memory."""
    return mp.checkpoint_storage(f"memory:{uuid.uuid4().hex}")


@pytest.fixture
def wrapped(request: pytest.FixtureRequest) -> str:
    """Return the core's wrappers around every state; one of `WRAPPERS`.

    The TTL wrapper is left out in clauses that switch TTL on or off themselves.
    """
    wanted = _settings(request.config).get("wrapped", "none")
    if request.node.get_closest_marker("switches_ttl") is None:
        return wanted
    return {"ttl": "none", "both": "metrics"}.get(wanted, wanted)


@pytest.fixture
def program_seed(pytestconfig: pytest.Config) -> int:
    """Return the seed of the first generated program. The next programs use the next numbers."""
    return int(_settings(pytestconfig).get("seed", "0"))


@pytest.fixture
def shadow(pytestconfig: pytest.Config) -> bool:
    """Return whether wide programs run in a process that does not reveal the kit."""
    return _settings(pytestconfig).get("shadow") == "yes"


@pytest.fixture
def open_backend(
    backend_name: str, tmp_path: Path, clock: mp.ManualClock, wrapped: str
) -> Iterator[BackendOpener]:
    """Return a function that opens the backend under test, at each call in a new directory.

    All backends that it has opened are closed at the end of the test.
    """
    with ExitStack() as stack:
        count = 0

        def open_one(**options: Any) -> KeyedStateBackend:
            nonlocal count
            count += 1
            arguments = {
                "key_type": str,
                "directory": tmp_path / f"backend-{count}",
                "clock": clock,
                **options,
            }
            return stack.enter_context(open_wrapped(backend_name, wrapped, **arguments))

        yield open_one
