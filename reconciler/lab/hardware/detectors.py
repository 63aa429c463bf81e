"""Conditions of a node object that detectors set, as node-problem-detector does: by themselves, anew after a boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reconciler.lab.hardware.cluster_objects import Condition, NodeObject
from reconciler.lab.hardware.machine import Machine


def detected(node: NodeObject, machine: Machine, now: float) -> Mapping[str, Condition]:
    """Conditions as detectors leave them. While none runs nobody takes anything back, though the machine is off."""
    fault = machine.fault("node_condition")
    if (fault is None and not node.conditions) or not machine.detector_runs:
        return node.conditions
    found, boot_id = dict(node.conditions), machine.system().boot_id
    for kind, condition in node.conditions.items():
        if condition.status != condition.good and condition.boot_id != boot_id:
            found[kind] = replace(condition, status=condition.good, reason="NoProblem", message="", since=now)
    if fault is not None:
        kind, status, reason, message = (str(fault[key]) for key in ("type", "status", "reason", "message"))
        before = node.conditions.get(kind)
        since = now if before is None or before.status != status else before.since
        found[kind] = Condition(status, reason, message, since, "False" if status == "True" else "True")
    return found
