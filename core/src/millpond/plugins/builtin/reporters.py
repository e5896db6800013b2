"""The built-in reporters as a plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from millpond.config import Config
from millpond.reporters.log import log_metrics
from millpond.reporters.otel import record_metrics
from millpond.reporters.prometheus import write_text_file
from millpond.spi.hooks import hookimpl

MILLPOND_API = 1


@hookimpl
def millpond_metric_reporters(config: Config) -> Mapping[str, Callable[..., None]]:
    """Provide ``log``, ``prometheus`` and ``opentelemetry``."""
    return {
        "log": log_metrics,
        "prometheus": partial(write_text_file, config.metrics.directory),
        "opentelemetry": record_metrics,
    }
