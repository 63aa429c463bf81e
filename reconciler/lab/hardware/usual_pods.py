"""What runs on a GPU node of a lab."""

from __future__ import annotations

from reconciler.lab.hardware.control_plane import ClusterTruth


def usual_pods(truth: ClusterTruth, name: str, *, gpus: int, busy: bool) -> None:
    """DaemonSets, a mirror pod, a finished job; `busy`: a job on its GPUs, and a server."""
    for namespace, owner in (
        ("kube-system", "kube-proxy"),
        ("gpu-operator", "nvidia-device-plugin-daemonset"),
        ("monitoring", "node-exporter"),
    ):
        truth.add_pod(namespace, f"{owner}-{name}", name, ("DaemonSet", owner), labels={"app": owner})
    truth.add_pod("kube-system", f"haproxy-{name}", name, ("Node", name), labels={"component": "haproxy"})
    truth.add_pod("default", f"prepare-{name}", name, ("Job", f"prepare-{name}"), phase="Succeeded")
    if busy:
        labels = {"app": "trainer"}
        truth.add_pod("default", f"trainer-{name}-0", name, ("Job", f"trainer-{name}"), labels=labels, gpus=gpus)
        truth.add_pod("default", f"router-{name}", name, ("ReplicaSet", "router-7c9d8f6b5"), labels={"app": "router"})
