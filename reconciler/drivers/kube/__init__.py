"""Kubernetes through the kubectl that is installed."""

from reconciler.drivers.kube.cluster import OLDEST_CLIENT, KubectlCluster

__all__ = ["OLDEST_CLIENT", "KubectlCluster"]
