"""Metrics as text for Prometheus: in a file per subtask, or of all subtasks on the driver."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from millpond.errors import ConfigError

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_QUANTILE = re.compile(r"(?P<name>.+)\.(?P<quantile>p\d+|max)")

_RESTORED = "restored_bytes."

Sample = tuple[Mapping[str, float], Mapping[str, str]]
"""Metrics by name, and the labels they have in common."""


def _parts(name: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return a metric's name and labels: states, quantiles and places become labels."""
    if name.startswith("user."):
        return "millpond_" + _UNFIT.sub("_", name), dict(labels)
    found = dict(labels)
    if name.startswith(_RESTORED):
        found["place"] = name.removeprefix(_RESTORED)
        return "millpond_restored_bytes", found
    match = _QUANTILE.fullmatch(name)
    if match:
        name, found["quantile"] = match["name"], match["quantile"]
    state, dot, operation = name.rpartition(".")
    if dot:
        found["state"] = state
        name = f"state_{operation}"
    return "millpond_" + _UNFIT.sub("_", name), found


def _series(
    metrics: Iterable[str], labels: Mapping[str, str]
) -> dict[str, tuple[str, dict[str, str]]]:
    """Return each metric's name and labels; a label ``name`` distinguishes equal ones."""
    found = {name: _parts(name, labels) for name in metrics}
    alike = Counter((metric, frozenset(own.items())) for metric, own in found.values())
    for name, (metric, own) in found.items():
        if alike[metric, frozenset(own.items())] > 1:
            own["name"] = name
    return found


def _number(value: float) -> str:
    """Return a number as Python writes it, also for subclasses."""
    return repr(int(value) if isinstance(value, int) else float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prometheus_text(samples: Iterable[Sample]) -> str:
    """Return all samples in Prometheus' text format, as gauges, sorted by name.

    Args:
        samples: metrics by name with their labels, for instance one for each subtask.
    """
    lines: dict[str, list[str]] = {}
    for metrics, labels in samples:
        for name, (metric, own) in _series(metrics, labels).items():
            text = ",".join(f'{key}="{_escaped(own[key])}"' for key in sorted(own))
            lines.setdefault(metric, []).append(f"{metric}{{{text}}} {_number(metrics[name])}")
    blocks = (
        f"# TYPE {metric} gauge\n" + "\n".join(sorted(found)) for metric, found in lines.items()
    )
    return "\n".join(sorted(blocks)) + "\n" if lines else ""


def write_text_file(
    directory: str | None, metrics: Mapping[str, float], labels: Mapping[str, str]
) -> None:
    """Replace a subtask's file atomically, so that a collector never reads half of it.

    Raises:
        ConfigError: no directory is configured.
    """
    if directory is None:
        reason = "name a directory that a collector of text files reads"
        raise ConfigError("metrics.directory", reason, "the reporter 'prometheus'")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    parts = (quote(labels[key], safe="").replace("-", "%2D") for key in sorted(labels))
    name = "-".join(parts) or "millpond"
    text = prometheus_text([(metrics, labels)])
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
        part = Path(file.name)
        try:
            file.write(text)
            file.flush()
            part.chmod(0o644)
            part.replace(folder / f"millpond-{name}.prom")
        except BaseException:
            part.unlink()
            raise
