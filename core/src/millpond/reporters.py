"""Metric reporters: the log, text files for Prometheus, and OpenTelemetry."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from millpond.errors import ConfigError

_LOG = logging.getLogger("millpond.metrics")


def log_metrics(metrics: Mapping[str, float], labels: Mapping[str, str]) -> None:
    """Log one line at level INFO: ``labels``, then ``metrics``, both sorted by name."""
    place = " ".join(f"{name}={value}" for name, value in sorted(labels.items()))
    numbers = " ".join(f"{name}={value:g}" for name, value in sorted(metrics.items()))
    _LOG.info("%s: %s", place, numbers)


@cache
def _gauge(name: str) -> Any:
    """Return the metric's OpenTelemetry gauge; raise ConfigError if its API is not installed."""
    try:
        metrics = import_module("opentelemetry.metrics")
    except ImportError as error:
        reason = "install opentelemetry-api, and an SDK that exports"
        raise ConfigError("metrics.reporters", reason, "the reporter 'opentelemetry'") from error
    return metrics.get_meter("millpond").create_gauge(f"millpond.{name}")


def record_metrics(metrics: Mapping[str, float], labels: Mapping[str, str]) -> None:
    """Set a gauge for each metric, with the labels as attributes.

    Raises:
        ConfigError: OpenTelemetry's API is not installed.
    """
    for name, value in metrics.items():
        _gauge(name).set(value, dict(labels))


# ---------------------------------------------------------------- Prometheus

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_QUANTILE = re.compile(r"(?P<name>.+)\.(?P<quantile>p\d+|max)")

_RESTORED = "restored_bytes."

Sample = tuple[Mapping[str, float], Mapping[str, str]]
"""Metrics by name, and the labels that apply to all of these metrics."""


def _series(name: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the Prometheus name and the labels of the metric ``name``.

    If the name contains a state, a quantile or the source of a restore, this becomes a label.
    """
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


def _number(value: float) -> str:
    """Return a number as text; NumPy's numbers are written as Python's."""
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
        for name, value in metrics.items():
            metric, own = _series(name, labels)
            text = ",".join(f'{key}="{_escaped(own[key])}"' for key in sorted(own))
            lines.setdefault(metric, []).append(f"{metric}{{{text}}} {_number(value)}")
    blocks = (
        f"# TYPE {metric} gauge\n" + "\n".join(sorted(found)) for metric, found in lines.items()
    )
    return "\n".join(sorted(blocks)) + "\n" if lines else ""


def write_text_file(
    directory: str | None, metrics: Mapping[str, float], labels: Mapping[str, str]
) -> None:
    """Write a subtask's metrics to a text file in ``directory``.

    The file is replaced as a whole, so a collector never reads an incomplete file.

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
