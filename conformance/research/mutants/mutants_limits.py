"""Mutants that are wrong at limits of the machine, and with several backends at the same time."""

from __future__ import annotations

from typing import Any

from millpond.spi import Capability
from millpond_heap import HeapStateBackend

from conformance.research.mutants.sabotage_tools import (
    Mutant,
    around,
    mutant,
    on_chosen_key,
    on_states,
)

_WRITTEN: dict[Any, Any] = {}


@mutant("keys of 511 bytes are cut", "V23")
def cut_keys(backend: Any) -> None:
    def choose(original: Any, key: Any, group: int) -> None:
        original(key[:510] if isinstance(key, bytes) and len(key) == 511 else key, group)

    on_chosen_key(backend, choose)


@mutant("operating-system errors are raised without directory and cure", "D6 D7")
def bare_errors(backend: Any) -> None:
    directory = backend.parameters.directory

    def flush(original: Any, version: Any = None) -> None:
        original(version)
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "copy").write_bytes(bytes(1 << 20))

    around(backend, "flush", flush)


@mutant("each flush leaves a file behind", "R14")
def heap_of_files(backend: Any) -> None:
    directory = backend.parameters.directory

    def flush(original: Any, version: Any = None) -> None:
        original(version)
        if directory is not None:
            number = len(list(directory.iterdir()))
            (directory / f"flushed-{number}").write_bytes(bytes(2 << 20))

    around(backend, "flush", flush)


@mutant("a read goes through all keys, in one call", "R15")
def slow_reads(backend: Any) -> None:
    seen: set[Any] = set()

    def choose(original: Any, key: Any, group: int) -> None:
        seen.add(key)
        original(key, group)

    def change(_: Any, raw: Any) -> None:
        def value(original: Any) -> Any:
            sum(map(len, seen))
            return original()

        around(raw, "value", value)

    on_chosen_key(backend, choose)
    on_states(backend, change, "value")


@mutant("backends of one process share their entries", "R16")
def shared_writes(backend: Any) -> None:
    def change(_: Any, raw: Any) -> None:
        def update(original: Any, value: Any) -> None:
            original(value)
            _WRITTEN[backend.current_key] = value

        def value(original: Any) -> Any:
            found = original()
            return found if found is None else _WRITTEN.get(backend.current_key, found)

        around(raw, "update", update)
        around(raw, "value", value)

    on_states(backend, change, "value")


@mutant("writes beyond 36 MiB are lost", "A13 R17")
def full_at_36_mib(backend: Any) -> None:
    taken = 0

    def change(_: Any, raw: Any) -> None:
        def update(original: Any, value: Any) -> None:
            nonlocal taken
            taken += len(value) if isinstance(value, bytes) else 0
            if taken <= 36 << 20:
                original(value)

        around(raw, "update", update)

    on_states(backend, change, "value")


@mutant("a counter counts down", "W2")
def counts_down(backend: Any) -> None:
    counted = 0

    def counters(original: Any) -> Any:
        nonlocal counted
        counted -= 1
        return {**original(), "flushes": counted}

    around(backend, "counters", counters)


class Hoarder(Mutant):
    """A backend that keeps its state in memory but claims that it is in its directory."""

    capabilities = HeapStateBackend.capabilities | {Capability.LOCAL_COPY}


@mutant("a local copy is declared although all state is in memory", "R23", Hoarder)
def hoard(backend: Any) -> None:
    del backend
