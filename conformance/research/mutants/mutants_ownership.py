"""Mutants that declare wrong capabilities, or are wrong with operator state or shared stores and snapshots."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import millpond as mp
from millpond.backend import KeyedStateBackend
from millpond.errors import StoreDamagedError
from millpond.snapshots.snapshot_task import SnapshotTask, run_snapshot
from millpond.spi import Capability, KeyedBackendParameters
from millpond.spi.snapshots import SnapshotResult

from conformance.research.mutants.sabotage_tools import Mutant, around, mutant, on_strategies


class NotLockedThoughExclusive(Mutant):
    """A backend that claims to lock its directory, and does not."""

    capabilities = frozenset({Capability.ASYNC_SNAPSHOT})


@mutant("a directory in use can be opened by another backend", "F1", NotLockedThoughExclusive)
def shared_directories(backend: Any) -> None:
    def take_directory(original: Any, workplace: Any, discarded: str) -> None:
        workplace.close()
        original(workplace, discarded)

    around(backend, "take_directory", take_directory)


@mutant("everything but its own last snapshot is deleted", "F2")
def deletes_the_others(backend: Any) -> None:
    last: list[Any] = []

    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        future = original(number, storage, version)
        last[:] = [future, storage]
        return future

    def complete(original: Any, number: int) -> None:
        original(number)
        future, storage = last
        handle = future.result().handle
        for path in set(storage.list("")) - handle.all_paths - {handle.metadata}:
            storage.delete(path)

    around(backend, "snapshot", snapshot)
    around(backend, "notify_checkpoint_complete", complete)


@mutant("two writers use the same file names", "F3")
def same_file_names(backend: Any) -> None:
    def change(strategy: Any) -> None:
        strategy.new_path = lambda number, suffix: f"state/{number}.{suffix}"

    on_strategies(backend, change)


@mutant("a forked child uses the parent's backend", "F4")
def inherited_backends(backend: Any) -> None:
    backend.disown = lambda: None


def _copied(backend: Any, version_of: Callable[[Any, Any], Any]) -> None:
    """Copy the files at each flush, under a version made of the given one and that of the last copy."""
    path = backend.parameters.directory / "secret" if backend.parameters.directory else None
    if path is None:
        return
    last = None
    if path.exists() and backend.parameters.reuse_versions:
        last, metas, rows = pickle.loads(path.read_bytes())
        if last in backend.parameters.reuse_versions:
            backend.version = last
            backend.restored.update({meta.name: meta for meta in metas})
            for name, changes in rows:
                backend.load_rows(name, changes)

    def flush(original: Any, version: Any = None) -> None:
        nonlocal last
        original(version)
        last = version_of(version, last)
        with contextlib.closing(backend.freeze()) as view:
            rows = [found for group in backend.key_group_range for found in view.rows(group)]
            path.write_bytes(pickle.dumps((last, view.metas, rows)))

    around(backend, "flush", flush)


@mutant("an undeclared local copy is kept and reused unchecked", "F6 F7 R5")
def secret_copies(backend: Any) -> None:
    _copied(backend, lambda version, last: version)


@mutant("a flush without a version leaves the copy at the previous version", "R18 R24")
def claims_its_version(backend: Any) -> None:
    _copied(backend, lambda version, last: version or last)


@mutant("a damaged local copy is opened again", "F9")
def trusted_damage(backend: Any) -> None:
    _copied(backend, lambda version, last: version)
    directory = backend.parameters.directory

    def close(original: Any) -> None:
        original()
        copy = directory / "secret" if directory is not None else None
        if copy is not None and copy.exists() and copy.read_bytes().endswith(b"\xff" * 64):
            raise StoreDamagedError("heap", str(directory), "the copy does not end as it did")

    around(backend, "close", close)


def _nameless() -> Mutant:
    return Forgetful("nobody", "", "", lambda backend: None)


class Forgetful(Mutant):
    """A factory that differs after pickling."""

    def __reduce__(self) -> Any:
        return _nameless, ()


@mutant("the factory forgets its name in a pickle", "F5", Forgetful)
def forgotten_name(backend: Any) -> None:
    del backend


class NotDeclaredBackground(Mutant):
    """A backend that runs snapshots in the background without the capability async-snapshot."""

    capabilities = frozenset({Capability.IN_PROCESS_COPY})


@mutant("snapshots run in the background without the capability", "A8", NotDeclaredBackground)
def undeclared_background(backend: Any) -> None:
    def change(strategy: Any) -> None:
        def launch(number: int, work: Any, view: Any) -> Any:
            wanted = threading.Event()

            def late(task: Any) -> Any:
                wanted.wait(10)
                return work(task)

            def result(original: Any, timeout: float | None = None) -> Any:
                wanted.set()
                return original(timeout)

            task = run_snapshot(late, view.close, background=True)
            around(task, "result", result)
            strategy._running[number] = task
            return task

        strategy.launch = launch

    on_strategies(backend, change)


@mutant("a late abort deletes a confirmed snapshot", "A9")
def late_aborts(backend: Any) -> None:
    taken: dict[int, tuple[Any, Any]] = {}

    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        future = original(number, storage, version)
        taken[number] = (future, storage)
        return future

    def aborted(original: Any, number: int) -> None:
        original(number)
        if number in taken:
            future, storage = taken[number]
            for path in future.result().handle.paths:
                storage.delete(path)

    around(backend, "snapshot", snapshot)
    around(backend, "notify_checkpoint_aborted", aborted)


@mutant("operator state is not in the handle", "O1 O2 O4")
def lost_operator_state(backend: Any) -> None:
    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        result = original(number, storage, version).result()
        task = SnapshotTask()
        handle = attrs.evolve(result.handle, operator_state=())
        task.set_result(SnapshotResult(handle, result.bytes_written, result.rows_written))
        return task

    around(backend, "snapshot", snapshot)


@mutant("a function starts with operator state that was never written", "O3")
def foreign_operator_state(backend: Any) -> None:
    def received(_: Any, own: Any) -> None:
        if own is not None:
            own.get_list_state(mp.ListStateDescriptor("items", int)).add(7)

    plain = type(backend)
    backend.__class__ = type(
        "Haunted", (plain,), {"operator_state": property(lambda _: None, received)}
    )


class TakesAnyOption(Mutant):
    """A backend that never checks its options."""

    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        return super().create_keyed_backend(attrs.evolve(parameters, options={}))


@mutant("unknown options are accepted", "X1", TakesAnyOption)
def any_option(backend: Any) -> None:
    del backend


class IgnoresStateOptions(Mutant):
    """A backend that declares options for single states, and ignores them."""

    capabilities = Mutant.capabilities | {Capability.PER_STATE_OPTIONS}

    def check_options(self, options: Mapping[str, Any]) -> None:
        super().check_options({name: v for name, v in options.items() if name != "state"})

    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        options = {name: v for name, v in parameters.options.items() if name != "state"}
        return super().create_keyed_backend(attrs.evolve(parameters, options=options))


@mutant("options of a single state are declared and ignored", "X2", IgnoresStateOptions)
def ignored_state_options(backend: Any) -> None:
    del backend


class DeclaresWords(Mutant):
    """A backend that declares capabilities unknown to the core."""

    capabilities: Any = frozenset({"time-travel"})


@mutant("an unknown capability is declared", "X3", DeclaresWords)
def unknown_capability(backend: Any) -> None:
    del backend


@mutant("states come without the core's wrappers", "W1")
def unwrapped(backend: Any) -> None:
    def get(original: Any, *given: Any, **named: Any) -> Any:
        state = original(*given, **named)
        return getattr(state, "wrapped", state)

    around(backend, "get_partitioned_state", get)
