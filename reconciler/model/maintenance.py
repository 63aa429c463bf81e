"""The objects by which other operators maintain nodes: which API serves them, and which nodes each of them names.

Groups, versions, fields and annotations are those of the operators' own types: NVIDIA's maintenance operator
(Mellanox/maintenance-operator, api/v1alpha1), and of medik8s node-maintenance-operator (api/v1beta1),
node-healthcheck-operator, self-node-remediation and fence-agents-remediation (api/v1alpha1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.model.privacy import FreeText, PublicText, Unpublished

# Where an operator has several templates, its objects don't have the names of their nodes (medik8s/common).
_NODE_NAME: Final = "remediation.medik8s.io/node-name"

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class MaintenanceRequest:
    """An object that says that its operator maintains the node, or waits to. `state`: in that operator's words."""

    who: PublicText
    kind: PublicText  # with its API group: nodemaintenances.maintenance.nvidia.com
    name: Unpublished[FreeText] = ""
    state: Unpublished[FreeText] = ""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator's objects. `names`: yields of one object the nodes that it maintains, each with the state of it."""

    who: str
    group: str
    version: str
    resource: str
    kind: str
    namespaced: bool
    names: Callable[[Document], Iterator[tuple[str, str]]]

    @property
    def full_name(self) -> str:
        return f"{self.resource}.{self.group}"

    def requests(self, item: Document) -> Iterator[tuple[str, MaintenanceRequest]]:
        """Yield (node, request) of an object as the API server has it."""
        metadata = _map(item, "metadata")
        name = "/".join(filter(None, (_text(metadata, "namespace"), _text(metadata, "name"))))
        for node, state in self.names(item):
            if node:
                yield node, MaintenanceRequest(self.who, self.full_name, name, state)

    def unreadable(self, why: str) -> MaintenanceRequest:
        """Return what stands for every node where these objects may not be read: whom they name is not known."""
        return MaintenanceRequest(self.who, self.full_name, "", why)


def _of_nvidia(item: Document) -> Iterator[tuple[str, str]]:
    """An object is a request until its requestor has removed it, whatever its operator has made of it yet."""
    spec, conditions = _map(item, "spec"), _map(item, "status").get("conditions")
    ready = next((one for one in conditions or () if isinstance(one, Mapping) and one.get("type") == "Ready"), {})
    yield _text(spec, "nodeName"), ", ".join(filter(None, (_text(spec, "requestorID"), _text(ready, "reason"))))


def _of_medik8s(item: Document) -> Iterator[tuple[str, str]]:
    spec, status = _map(item, "spec"), _map(item, "status")
    yield _text(spec, "nodeName"), ", ".join(filter(None, (_text(spec, "reason"), _text(status, "phase"))))


def _of_remediation(item: Document) -> Iterator[tuple[str, str]]:
    metadata = _map(item, "metadata")
    node = _text(_map(metadata, "annotations"), _NODE_NAME) or _text(metadata, "name")
    yield node, _text(_map(item, "status"), "phase")


def _of_health_check(item: Document) -> Iterator[tuple[str, str]]:
    """A node is listed until its last remediation is removed; versions before 0.4 list only those under way."""
    status = _map(item, "status")
    for one in status.get("unhealthyNodes") or ():
        if isinstance(one, Mapping) and one.get("remediations"):
            yield _text(one, "name"), "remediates it"
    for node in _map(status, "inFlightRemediations"):
        yield node, "remediates it"


OPERATORS: Final = (
    Operator(
        "NVIDIA's maintenance operator", "maintenance.nvidia.com", "v1alpha1", "nodemaintenances", "NodeMaintenance",
        True, _of_nvidia,
    ),
    Operator(
        "medik8s' node maintenance", "nodemaintenance.medik8s.io", "v1beta1", "nodemaintenances", "NodeMaintenance",
        False, _of_medik8s,
    ),
    Operator(
        "medik8s' health check", "remediation.medik8s.io", "v1alpha1", "nodehealthchecks", "NodeHealthCheck",
        False, _of_health_check,
    ),
    Operator(
        "medik8s' self node remediation", "self-node-remediation.medik8s.io", "v1alpha1", "selfnoderemediations",
        "SelfNodeRemediation", True, _of_remediation,
    ),
    Operator(
        "medik8s' fence agents", "fence-agents-remediation.medik8s.io", "v1alpha1", "fenceagentsremediations",
        "FenceAgentsRemediation", True, _of_remediation,
    ),
)  # fmt: skip


def _map(holder: Document, key: str) -> Document:
    value = holder.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(holder: Document, key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""
