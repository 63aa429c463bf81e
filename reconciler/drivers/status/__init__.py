"""Serve the status of a long-running reconciler over HTTP, to probes, Prometheus and people."""

from reconciler.drivers.status.metrics import PrometheusMetrics
from reconciler.drivers.status.server import LISTEN, StatusServer

__all__ = ["LISTEN", "PrometheusMetrics", "StatusServer"]
