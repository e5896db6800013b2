"""Shorten a failing program by removing steps, and write it as Python code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from millpond_conformance.wide.player import play
from millpond_conformance.wide.steps import Step, generate
from millpond_conformance.wide.world import World

SECONDS = 20
"""The maximum time for shortening a program, in seconds."""

Fails = Callable[[Sequence[Step]], bool]


def shrunk(steps: Sequence[Step], fails: Fails, seconds: float = SECONDS) -> list[Step]:
    """Return a shorter program that still fails, by removing steps.

    Args:
        steps: the failing program.
        fails: returns whether a program fails.
        seconds: the maximum time.
    """
    kept, until = list(steps), time.monotonic() + seconds
    size = max(1, len(kept) // 2)
    while size:
        at = len(kept)
        while at > 0 and time.monotonic() < until:
            shorter = kept[: max(0, at - size)] + kept[at:]
            if fails(shorter):
                kept = shorter
            at -= size
            at = min(at, len(kept))
        size //= 2
    return kept


def failure_of(
    backend: str, world: World, error: Exception, wrapped: str = "none"
) -> tuple[str, str]:
    """Shorten the failing program of `world`; return the message of the failure and the code.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        world: the world of the program.
        error: the error that the program has raised.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.
    """
    errors = [error]

    def fails(steps: Sequence[Step]) -> bool:
        try:
            play(backend, world, steps, wrapped=wrapped)
        except Exception as found:  # noqa: BLE001 - with every error, the program fails
            errors.append(found)
            return True
        return False

    steps = shrunk(generate(world), fails)
    last = errors[-1]
    name = "" if isinstance(last, AssertionError) else f"{type(last).__name__}: "
    return f"the program of seed {world.seed}: {name}{last}", as_code(
        backend, world, steps, wrapped
    )


def as_code(backend: str, world: World, steps: Sequence[Step], wrapped: str = "none") -> str:
    """Return Python code that runs a program. Comments name the states, keys and namespaces."""
    around = "" if wrapped == "none" else f", wrapped={wrapped!r}"
    lines = [
        "from millpond_conformance.wide import World, play",
        "",
        f"play({backend!r}, World({world.seed}), [",
        *(f"    {step!r},{_told(world, step)}" for step in steps),
        f"]{around})",
    ]
    return "\n".join(lines)


def _told(world: World, step: Step) -> str:
    name, _, *rest = step
    if name in ("write", "extend", "refuse", "clear", "read", "put", "put_all", "remove", "look"):
        spec = world.states[rest[0]]
        key, space = world.keys[rest[1]], world.spaces[rest[2]]
        return f"  # {spec.kind} {spec.name!r}, key {_short(key)}, namespace {_short(space)}"
    return ""


_LONGEST = 40


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:20]}…{text[-10:]} ({len(text):,})"
