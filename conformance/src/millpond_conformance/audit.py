"""A check before any clause runs: the backend can be opened, written and read."""

from __future__ import annotations

import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path

import millpond as mp
from millpond.backend import KeyedStateBackend
from millpond.errors import PluginError

from millpond_conformance.errors import HarnessError, UnopenableBackendError

_DESCRIPTOR = mp.ValueStateDescriptor("audit", int)


def audit(backend: str) -> None:
    """Check that a new backend is empty and readable, and that two new backends share no entries.

    Without these properties the clauses could prove nothing about the backend.

    Args:
        backend: an installed backend's name, or ``module:attr``.

    Raises:
        UnopenableBackendError: a backend cannot be opened.
        HarnessError: one of the checks has failed.
    """
    with tempfile.TemporaryDirectory(prefix="millpond-audit-") as temporary, ExitStack() as stack:
        states = []
        for number in range(2):
            opened = stack.enter_context(_opened(backend, Path(temporary) / str(number)))
            opened.set_current_key("k")
            states.append(opened.get_partitioned_state(_DESCRIPTOR))
        if any(state.value() is not None for state in states):
            raise HarnessError(backend, "a backend in a fresh directory is not empty")
        states[0].update(1)
        if states[0].value() != 1:
            raise HarnessError(backend, "written entries cannot be read back at once")
        if states[1].value() is not None:
            raise HarnessError(backend, "two backends in two directories share their entries")


def _opened(backend: str, directory: Path) -> KeyedStateBackend:
    try:
        return mp.open_keyed_backend(backend, key_type=str, directory=directory)
    except PluginError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnopenableBackendError(backend, reason, _place(error), _cure(error)) from error


def _place(error: Exception) -> str:
    """Return the file and the line that raised an error, as text."""
    raised = traceback.extract_tb(error.__traceback__)[-1]
    return f"{raised.filename}:{raised.lineno}"


def _cure(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"Install {error.name}, and name it among the dependencies of the backend"
    return ""
