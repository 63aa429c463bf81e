"""Objects by which other operators maintain nodes of a lab, as the fault `maintenance` has them: by their own types.

Sources of the types: see model/maintenance.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.lab.hardware.machine import Machine
from reconciler.model.maintenance import OPERATORS, Operator

Json = dict[str, Any]

_BY_GROUP: Mapping[str, Operator] = {operator.group: operator for operator in OPERATORS}
_NAMESPACE = "operators"


def served(machines: Mapping[str, Machine], installed: frozenset[str] = frozenset()) -> tuple[Operator, ...]:
    """Return the operators whose APIs a cluster has: those that are `installed`, by group, and those at work."""
    groups = installed.union(
        str(fault["operator"]) for machine in machines.values() if (fault := machine.fault("maintenance")) is not None
    )
    return tuple(operator for operator in OPERATORS if operator.group in groups)


def objects(machines: Mapping[str, Machine], group: str) -> list[Json]:
    """Return the objects of an operator, one for each node that it maintains."""
    operator = _BY_GROUP[group]
    at_work = [
        node
        for node, machine in machines.items()
        if (fault := machine.fault("maintenance")) is not None and fault["operator"] == group
    ]
    return [_object(operator, node) for node in at_work]


def _object(operator: Operator, node: str) -> Json:
    named, body = _BODIES[operator.group](node)
    metadata: Json = {"name": named, "uid": f"{operator.group}/{node}", "resourceVersion": "1"}
    metadata |= {"namespace": _NAMESPACE} if operator.namespaced else {}
    metadata |= body.pop("metadata", {})
    head = {"kind": operator.kind, "apiVersion": f"{operator.group}/{operator.version}", "metadata": metadata}
    return head | body


def _nvidia(node: str) -> tuple[str, Json]:
    spec = {"requestorID": "nvidia.gpu.operator", "nodeName": node, "cordon": True}
    ready = {"type": "Ready", "status": "False", "reason": "Draining", "message": ""}
    return f"nvidia-operator-{node}", {"spec": spec, "status": {"conditions": [ready]}}


def _node_maintenance(node: str) -> tuple[str, Json]:
    spec = {"nodeName": node, "reason": "new fans"}
    return f"maintain-{node}", {"spec": spec, "status": {"phase": "Running", "drainProgress": 50}}


def _health_check(node: str) -> tuple[str, Json]:
    remediation = {"resource": {"kind": "SelfNodeRemediation", "name": node, "namespace": _NAMESPACE}}
    unhealthy = [{"name": node, "remediations": [remediation]}]
    return f"check-{node}", {"spec": {"minHealthy": "51%"}, "status": {"unhealthyNodes": unhealthy}}


def _self_remediation(node: str) -> tuple[str, Json]:
    """A name of its own, as an operator with several templates gives: the node is in the annotation."""
    annotated = {"annotations": {"remediation.medik8s.io/node-name": node}}
    return f"{node}-x7k2p", {
        "metadata": annotated,
        "spec": {"remediationStrategy": "Automatic"},
        "status": {"phase": "Pre-Reboot-Completed"},
    }


def _fence_agents(node: str) -> tuple[str, Json]:
    processing = {"type": "Processing", "status": "True", "reason": "RemediationStarted", "message": ""}
    return node, {"spec": {"agent": "fence_ipmilan"}, "status": {"conditions": [processing]}}


_BODIES = {
    "maintenance.nvidia.com": _nvidia,
    "nodemaintenance.medik8s.io": _node_maintenance,
    "remediation.medik8s.io": _health_check,
    "self-node-remediation.medik8s.io": _self_remediation,
    "fence-agents-remediation.medik8s.io": _fence_agents,
}
