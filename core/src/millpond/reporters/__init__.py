"""Metric reporters: log, Prometheus text, OpenTelemetry."""

from millpond.reporters.prometheus import prometheus_text

__all__ = ["prometheus_text"]
