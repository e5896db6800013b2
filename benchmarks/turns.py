"""Serve samples from long-lived processes in turns, so that a drifting machine is fair to all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["in_turns"]


def in_turns(
    servers: dict[Any, Callable[[Connection], None]], count: int, warm_up: int
) -> dict[Any, list[Any]]:
    """Yield samples of servers, each in a process of its own, in turns."""
    context = get_context("spawn")
    wires: dict[Any, Connection] = {}
    processes = []
    for name, server in servers.items():
        here, there = context.Pipe()
        process = context.Process(target=server, args=(there,), daemon=True)
        process.start()
        there.close()
        here.recv()
        wires[name] = here
        processes.append(process)
    samples: dict[Any, list[Any]] = {name: [] for name in servers}
    for number in range(count + warm_up):
        for name in rotated(list(servers), number):
            wires[name].send(True)
            answer = wires[name].recv()
            if number >= warm_up:
                samples[name].append(answer)
    for wire, process in zip(wires.values(), processes, strict=True):
        wire.send(False)
        process.join()
    return samples


def rotated(names: list[Any], number: int) -> Iterator[Any]:
    """Return the names, starting with another one in each round."""
    first = number % len(names)
    yield from names[first:] + names[:first]
