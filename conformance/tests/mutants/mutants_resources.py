"""Wrong with files, costs and other processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from sabotage_tools import around, mutant, on_tables

_LEAKED: list[Any] = []
_WRITER = "MILLPOND_SABOTAGE_PID"


@mutant("each backend leaves a file open", "R1")
def leaked_files(backend: Any) -> None:
    _LEAKED.append(Path(os.devnull).open("rb"))  # noqa: SIM115 - that is the point


@mutant("confirmations are not heard, so every snapshot is a whole one", "R2")
def deaf_to_confirmations(backend: Any) -> None:
    backend.notify_checkpoint_complete = lambda number: None


@mutant("only the process that has written a snapshot can read it", "R3")
def bound_to_a_process(backend: Any) -> None:
    writer = os.environ.setdefault(_WRITER, str(os.getpid()))
    if writer != str(os.getpid()):
        around(backend, "load_rows", lambda original, name, rows: original(name, ()))


@mutant("an empty store is taken for the version that is wanted", "R4 R5 R7")
def any_version(backend: Any) -> None:
    backend.version = next(iter(backend.parameters.reuse_versions), None)


@mutant("a file is left in the temporary directory", "R6")
def left_files(backend: Any) -> None:
    del backend
    os.close(tempfile.mkstemp(prefix="sabotage-")[0])


@mutant("a read looks at all entries", "R8")
def linear_reads(backend: Any) -> None:
    def change(table: Any) -> None:
        def get(original: Any, *address: Any) -> Any:
            for each in range(table.count()):
                str(each)
            return original(*address)

        around(table, "get", get)

    on_tables(backend, change)
