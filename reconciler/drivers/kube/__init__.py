"""Kubernetes through the installed kubectl."""

from reconciler.drivers.kube.health_map import HealthMap
from reconciler.drivers.kube.kubectl_cluster import OLDEST_CLIENT, KubectlCluster
from reconciler.drivers.kube.own_pod import OwnPod
from reconciler.drivers.kube.watch import NodeWatch

__all__ = ["OLDEST_CLIENT", "HealthMap", "KubectlCluster", "NodeWatch", "OwnPod"]
