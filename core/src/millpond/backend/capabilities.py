"""Features that a backend declares; each is checked where it is used."""

from __future__ import annotations

import enum


class Capability(enum.Enum):
    """A feature that not every backend has; the value is the word users see."""

    LOCAL_COPY = "local-copy"
    """The directory holds the state when the backend is closed, and may be opened again."""

    IN_PROCESS_COPY = "in-process-copy"
    """The open backend may be kept in the process between two tasks: it locks nothing."""

    PER_STATE_OPTIONS = "per-state-options"
    """Options can be given for a single state, under ``state.<name>.``."""

    ASYNC_SNAPSHOT = "async-snapshot"
    """A view may be read by another thread while work goes on, so snapshots do not stop it."""
