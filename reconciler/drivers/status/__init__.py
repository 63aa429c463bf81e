"""Count what a long-running reconciler does, for Prometheus and for probes; drivers/web serves it."""

from reconciler.drivers.status.metrics import PrometheusMetrics

__all__ = ["PrometheusMetrics"]
