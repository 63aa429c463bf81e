"""What probes, Prometheus and people ask a long-running reconciler, over HTTP."""

from reconciler.drivers.status.metrics import PrometheusMetrics
from reconciler.drivers.status.server import LISTEN, StatusServer

__all__ = ["LISTEN", "PrometheusMetrics", "StatusServer"]
