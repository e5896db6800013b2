"""Run a program on backends, and compare every read with the model."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.side import Side
from millpond_conformance.wide.steps import SIDES, Step, generate
from millpond_conformance.wide.world import World


def play(
    backend: str,
    world: World,
    steps: Sequence[Step] | None = None,
    coverage: Coverage | None = None,
    wrapped: str = "none",
) -> None:
    """Run a program on two backends, and compare all contents at its end.

    Each step has the number of its backend. In some worlds every second step runs in another
    thread.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        world: the world of the program.
        steps: the steps; by default the steps that are generated from the world's seed.
        coverage: counts the steps.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.

    Raises:
        AssertionError: a read differs from the model. The message has the expected value.
    """
    counted = coverage or Coverage()
    before, count = None, 0
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="millpond-wide-"))
        other = stack.enter_context(ThreadPoolExecutor(1))
        sides = []
        for number in range(SIDES):
            side = Side(backend, world, Path(place) / str(number), counted, wrapped, number)
            stack.callback(side.close)
            sides.append(side)
        for name, chosen, *arguments in generate(world) if steps is None else steps:
            if before is not None and before is not sides[chosen] and before.dirty:
                counted.note("two backends in turn")
            before = sides[chosen]
            count += 1
            if count % world.threads:
                counted.note("step in another thread")
                other.submit(getattr(before, name), *arguments).result()
            else:
                getattr(before, name)(*arguments)
        for side in sides:
            side.finish()
