"""The verification of files: its verdicts as a table, and the status that follows from them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from millpond.errors import MillpondError

from millpond_cli.output import show, working
from millpond_cli.terminal import complain

_NAMED = 3
"""The most damaged files that the closing message names."""


@attrs.frozen
class Checked:
    """A file to check; ``check`` raises a MillpondError if it is damaged."""

    operator: str
    path: str
    size: int
    check: Callable[[], None]


def finding(operator: str, path: str, size: int, verdict: str) -> dict[str, Any]:
    """Return a row of the table; the verdict is ``ok``, or the damage of the file."""
    return {"operator": operator, "file": path, "bytes": size, "verdict": verdict}


def verified(files: Sequence[Checked]) -> Iterator[dict[str, Any]]:
    """Check files one after the other, and yield a row for each."""
    with working("verifying", sum(file.size for file in files)) as done:
        for file in files:
            try:
                file.check()
                verdict = "ok"
            except MillpondError as error:
                verdict = str(error)
            yield finding(file.operator, file.path, file.size, verdict)
            done(file.size)


def show_findings(directory: str, rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Show the verdict on each file; exit with status 1 if one is damaged, or there is none."""
    show(rows, as_json=as_json, empty="There is nothing to check.", by=("operator",))
    damaged = [row["file"] for row in rows if row["verdict"] != "ok"]
    if damaged:
        first = ", ".join(damaged[:_NAMED]) + (", ..." if len(damaged) > _NAMED else "")
        found = f"{len(damaged)} of {len(rows)} files are damaged or missing"
        complain(f"{directory}: {found}: {first}")
    if damaged or not rows:
        sys.exit(1)
