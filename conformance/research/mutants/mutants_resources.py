"""Mutants that are wrong with files, costs and other processes."""

from __future__ import annotations

import decimal
import os
import tempfile
import threading
import time
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from millpond.types import VOID_NAMESPACE

from conformance.research.mutants.sabotage_tools import (
    around,
    mutant,
    on_chosen_key,
    on_states,
    on_tables,
)

_LEAKED: list[Any] = []
_WRITER = "MILLPOND_SABOTAGE_PID"


@mutant("each backend leaves a file open", "R1")
def leaked_files(backend: Any) -> None:
    _LEAKED.append(Path(os.devnull).open("rb"))  # noqa: SIM115 - that is the point


@mutant("resources of an opening are released only after a key was set", "R13")
def leaks_on_failure(backend: Any) -> None:
    opened = Path(os.devnull).open("rb")  # noqa: SIM115 - that is the point
    _LEAKED.append(opened)

    def choose(original: Any, key: Any, group: int) -> None:
        opened.close()
        original(key, group)

    on_chosen_key(backend, choose)


@mutant("confirmations are ignored, so every snapshot is a full one", "R2")
def deaf_to_confirmations(backend: Any) -> None:
    backend.notify_checkpoint_complete = lambda number: None


@mutant("only the process that wrote a snapshot can read it", "R3")
def bound_to_a_process(backend: Any) -> None:
    writer = os.environ.setdefault(_WRITER, str(os.getpid()))
    if writer != str(os.getpid()):
        around(backend, "load_rows", lambda original, name, rows: original(name, ()))


@mutant("an empty store passes as the requested version", "D8 R4 R5 R7 R21 R25")
def any_version(backend: Any) -> None:
    backend.version = next(iter(backend.parameters.reuse_versions), None)


@mutant("a file is left in the temporary directory", "R6")
def left_files(backend: Any) -> None:
    del backend
    os.close(tempfile.mkstemp(prefix="sabotage-")[0])


@mutant("a read scans all entries", "R8")
def linear_reads(backend: Any) -> None:
    def change(table: Any) -> None:
        def get(original: Any, *address: Any) -> Any:
            for each in range(table.count()):
                str(each)
            return original(*address)

        around(table, "get", get)

    on_tables(backend, change)


@mutant("opening a backend sets the decimal precision of the process", "R9")
def sets_the_decimal_context(backend: Any) -> None:
    decimal.getcontext().prec += 1


@mutant("a backend works only in the thread that opened it", "R10")
def bound_to_a_thread(backend: Any) -> None:
    owner = threading.get_ident()

    def choose(original: Any, key: Any, group: int) -> None:
        assert threading.get_ident() == owner
        original(key, group)

    on_chosen_key(backend, choose)


@mutant("files are written to the current working directory", "R11")
def writes_beside_the_process(backend: Any) -> None:
    def flush(original: Any, version: Any = None) -> None:
        original(version)
        Path("state-file").touch()

    around(backend, "flush", flush)


@mutant("a value of a whole number of pages loses its last byte", "V19")
def cuts_whole_pages(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def update(original: Any, value: Any) -> None:
            whole = type(value) is bytes and value and len(value) % 65_536 == 0
            original(value[:-1] if whole else value)

        around(raw, "update", update)

    on_states(backend, change, "value")


@mutant("a map is cleared of its first 1,024 entries", "V20")
def clears_a_chunk(backend: Any) -> None:
    def change(table: Any) -> None:
        def clear(original: Any, namespace: Any) -> None:
            for key, _ in list(table.items_at(table.place(namespace)))[:1024]:
                table.remove(namespace, key)

        if hasattr(table, "items_at"):
            around(table, "clear", clear)

    on_tables(backend, change)


@mutant("an enumeration ends after 100,000 keys", "V29")
def short_enumerations(backend: Any) -> None:
    around(backend, "keys", lambda original, *given: islice(original(*given), 100_000))


@mutant("a list has 65,535 elements at the most", "V21")
def short_lists(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "_append", lambda original, values: original(values[:65_535]))

    on_states(backend, change, "list")


@mutant("all states after the 128th are one", "V22")
def few_states(backend: Any) -> None:
    tables: list[Any] = []

    def create(original: Any, registered: Any) -> Any:
        if len(tables) <= 128:
            tables.append(original(registered))
        return tables[-1]

    around(backend, "create_table", create)


@mutant("a state also lists the keys of states whose names extend its own by a colon", "V22")
def glued_names(backend: Any) -> None:
    def keys(original: Any, name: str, namespace: Any = VOID_NAMESPACE) -> Any:
        names = [meta.name for meta in backend.state_metas()]
        for each in (name, *(other for other in names if other.startswith(f"{name}:"))):
            yield from original(each, namespace)

    around(backend, "keys", keys)


@mutant("datetimes are stored in local time", "R12")
def local_moments(backend: Any) -> None:
    def shifted(value: Any, sign: int) -> Any:
        off = timedelta(seconds=sign * time.timezone)
        return value + off if isinstance(value, datetime) else value

    def change(state: Any, raw: Any) -> None:
        around(raw, "update", lambda original, value: original(shifted(value, 1)))
        around(raw, "value", lambda original: shifted(original(), -1))

    on_states(backend, change, "value")
