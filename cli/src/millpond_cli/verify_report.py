"""What the verification of files has found, as a table and a status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from millpond_cli.output import show
from millpond_cli.terminal import complain

_NAMED = 3


def finding(operator: str, path: str, size: int, verdict: str) -> dict[str, Any]:
    """A row of the table: ``ok``, or what is wrong with a file."""
    return {"operator": operator, "file": path, "bytes": size, "verdict": verdict}


def show_findings(directory: str, rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Show the verdict on each file; status 1 where one is damaged, or there is none."""
    show(rows, as_json=as_json, empty="There is nothing to check.", by=("operator",))
    damaged = [row["file"] for row in rows if row["verdict"] != "ok"]
    if damaged:
        first = ", ".join(damaged[:_NAMED]) + (", ..." if len(damaged) > _NAMED else "")
        found = f"{len(damaged)} of {len(rows)} files are damaged or missing"
        complain(f"{directory}: {found}: {first}")
    if damaged or not rows:
        sys.exit(1)
