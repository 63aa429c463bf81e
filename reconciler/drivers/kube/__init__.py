"""Kubernetes through the installed kubectl."""

from reconciler.drivers.kube.kubectl_cluster import OLDEST_CLIENT, KubectlCluster
from reconciler.drivers.kube.own_pod import OwnPod
from reconciler.drivers.kube.watch import NodeWatch

__all__ = ["OLDEST_CLIENT", "KubectlCluster", "NodeWatch", "OwnPod"]
