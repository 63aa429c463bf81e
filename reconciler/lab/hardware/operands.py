"""Play what operators do on the nodes of a lab: pods of NVIDIA's device plugin and validator, and what kubelet offers.

Order and names as in NVIDIA/gpu-operator assets/ (a22dbf67): the validator's init containers wait for the plugin. A
plugin looks for devices when it starts, and not again (README of NVIDIA/k8s-device-plugin); kubelet offers 0 of a
resource whose plugin does not run. MIG is shown as by `mig.strategy: single`, the chart's default. Its pods tolerate
our mark, as `validate` wants of the chart's values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from reconciler.lab.hardware.cluster_objects import NodeObject, PodObject
from reconciler.lab.hardware.helm_site import HelmSite
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.programs import Programs
from reconciler.model.operands import DEVICE_PLUGIN, GPU_RESOURCE, VALIDATOR

NAMESPACE: Final = "gpu-operator"
FAULT: Final = "gpu_not_advertised"
_READY_AFTER_S: Final = {DEVICE_PLUGIN: 20.0, VALIDATOR: 40.0}  # of the pod, and of a node that became Ready


class Operands(Programs):
    """Plays the pods of the GPU Operator on nodes with GPUs, once its chart is deployed."""

    def __init__(self, machines: Mapping[str, Machine], clock: Callable[[], float]) -> None:
        super().__init__(machines, clock)
        self.helm = HelmSite(changed=lambda: self._dirty.update(machines))
        self.devices: dict[str, Mapping[str, int]] = {}  # what other device plugins advertise, by node

    @abstractmethod
    def add_pod(
        self, namespace: str, name: str, node: str | None, owner: tuple[str, str], *, phase: str = "Running"
    ) -> PodObject:
        """Add a pod."""

    def _play_operands(self, node: NodeObject, machine: Machine) -> bool:
        """Bring pods and resources of a node up to the clock; return whether time alone will change them."""
        here = {
            pod.owner_name: pod for pod in self._on_node.get(node.name, {}).values() if pod.owner_kind == "DaemonSet"
        }
        runs, waits = node.ready == "True" and bool(machine.state.gpus), False
        for name, after_s in _READY_AFTER_S.items() if self.helm.runs_gpu_operator else ():
            if name not in here and runs:
                pod = self.add_pod(NAMESPACE, f"{name}-{node.name}", node.name, ("DaemonSet", name), phase="Pending")
                here[name] = pod
            if name in here:
                waits |= self._play(here[name], node, after_s)
        plugin = here.get(DEVICE_PLUGIN)
        self._offer(node, machine, plugin if plugin is not None and plugin.phase == "Running" else None)
        return waits and runs

    def _play(self, pod: PodObject, node: NodeObject, after_s: float) -> bool:
        starts = max(pod.created, node.ready_since) + after_s
        phase = "Running" if node.ready == "True" and self._clock() >= starts else "Pending"
        if phase != pod.phase:
            pod.phase = phase
            self._record("MODIFIED", pod)
        return phase == "Pending"

    def _offer(self, node: NodeObject, machine: Machine, plugin: PodObject | None) -> None:
        offered = dict(self.devices.get(node.name, {})) if node.ready == "True" else {}
        if machine.state.gpus and (plugin or GPU_RESOURCE in node.allocatable):
            offered[GPU_RESOURCE] = self._found(node, machine, plugin)
        if offered != node.allocatable:
            node.allocatable = offered
            self._record("MODIFIED", node)

    def _found(self, node: NodeObject, machine: Machine, plugin: PodObject | None) -> int:
        """Return the GPUs that the plugin tells of: those that it found when it started."""
        if plugin is None:
            node.plugin_looked = False
            return 0
        fault, anew = machine.fault(FAULT), node.plugin not in ("", plugin.uid)
        if fault and anew and not fault["persistent"]:
            machine.end_fault(FAULT)
            fault = None
        if anew or fault or not node.plugin_looked:
            node.plugin, node.plugin_looked, node.plugin_found = plugin.uid, fault is None, _devices(machine)
        return max(0, node.plugin_found - (int(fault["gpus"]) if fault else 0))


def _devices(machine: Machine) -> int:
    present = [gpu for gpu in machine.state.gpus if not gpu.lost]
    return sum(len(gpu.mig_instances) if gpu.mig_enabled else 1 for gpu in present)
