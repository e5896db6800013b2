"""Run cases in processes of their own, and return their reports."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

__all__ = ["run_cases", "run_in_own_process", "tell"]

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
    """Run a script of this folder with arguments and options; return its report.

    Args:
        script: the name of its file.
        arguments: positional arguments, before the options.
        options: by name; underscores become hyphens.
        show_errors: show its standard error, which carries its progress.

    Raises:
        SystemExit: the script reported nothing.
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
    """Report figures to the process that started this one."""
    print(_MARK + json.dumps(report, default=str), flush=True)


def run_cases(
    parser: argparse.ArgumentParser,
    cases: Sequence[str],
    measured: Callable[[str, argparse.Namespace], dict[str, Any]],
) -> None:
    """Run each case of this script in a process of its own; print and write the figures.

    Args:
        parser: the script's options; `--case` and `--output` are added.
        cases: the names of the cases.
        measured: returns the figures of a case.
    """
    parser.add_argument("--case", choices=cases, help="run only this case, in this process")
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    if given.case:
        tell(measured(given.case, given))
        return
    given.output.mkdir(parents=True, exist_ok=True)
    script = Path(sys.argv[0])
    report = {}
    for case in cases:
        report[case] = run_in_own_process(
            script.name, sys.argv[1:], {"case": case}, show_errors=True
        )
        _CONSOLE.print(case, {name: round(value, 2) for name, value in report[case].items()})
    (given.output / f"{script.stem}.json").write_text(json.dumps(report))
