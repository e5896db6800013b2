"""Code in a fresh process that finds the same modules as this one."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["child_command", "in_a_child"]


def child_command(code: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a process that runs some code."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return [sys.executable, "-c", code, *arguments], environment


def in_a_child(
    code: str, *arguments: str, timeout: float = 120, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process, and wait for it so many seconds.

    Args:
        code: Python source; it finds its arguments in ``sys.argv``.
        arguments: what it is given.
        timeout: seconds after which it is killed.
        variables: further environment variables.
    """
    command, environment = child_command(code, *arguments)
    return subprocess.run(  # noqa: S603 - the kit's own code
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **variables},
        timeout=timeout,
    )
