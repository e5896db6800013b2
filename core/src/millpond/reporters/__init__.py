"""Receivers of metrics: the log, text for Prometheus, OpenTelemetry."""

from millpond.reporters.prometheus import prometheus_text

__all__ = ["prometheus_text"]
