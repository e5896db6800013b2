"""Metric reporters: the log and OpenTelemetry."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

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
