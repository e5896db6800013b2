"""Metrics as OpenTelemetry gauges."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from millpond.errors import ConfigError


@cache
def _gauge(name: str) -> Any:
    try:
        metrics = import_module("opentelemetry.metrics")
    except ImportError as error:
        reason = "install opentelemetry-api, and an SDK that exports"
        raise ConfigError("metrics.reporters", reason, "the reporter 'opentelemetry'") from error
    return metrics.get_meter("millpond").create_gauge(f"millpond.{name}")


def record_metrics(metrics: Mapping[str, float], labels: Mapping[str, str]) -> None:
    """Set a gauge for each metric, labels as attributes.

    Raises:
        ConfigError: the API is not installed.
    """
    for name, value in metrics.items():
        _gauge(name).set(value, dict(labels))
