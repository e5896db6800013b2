"""Cases in processes of their own: how they are started, and how they tell what they have found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

__all__ = ["run_in_own_process", "tell"]

_MARK = "RESULT "
_LONGEST = 4000
_CONSOLE = Console()


def run_in_own_process(
    script: str,
    arguments: Sequence[str],
    options: Mapping[str, int | str],
    *,
    show_errors: bool = False,
) -> dict[str, Any]:
    """What a script of this folder tells when it is run with arguments and options.

    Args:
        script: its file's name.
        arguments: before the options.
        options: by name, as on its command line but for underscores.
        show_errors: whether what it writes to its standard error is shown, as its progress.

    Raises:
        SystemExit: it has told nothing.
    """
    given = [text for name, value in options.items() for text in (_option(name), str(value))]
    _CONSOLE.print(f"  {' '.join([*arguments, *given])} …")
    command = [sys.executable, str(Path(__file__).parent / script), *arguments, *given]
    errors = None if show_errors else subprocess.PIPE
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    line = next((text for text in done.stdout.splitlines() if text.startswith(_MARK)), None)
    if line is None:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{(done.stderr or '')[-_LONGEST:]}")
    report: dict[str, Any] = json.loads(line.removeprefix(_MARK))
    return report


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def tell(report: dict[str, Any]) -> None:
    """Tell the process that has started this one what was found."""
    print(_MARK + json.dumps(report, default=str), flush=True)
