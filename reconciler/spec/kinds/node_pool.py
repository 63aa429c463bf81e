"""NodePool: nodes, and what they pin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from reconciler.model.vocab import NodeState
from reconciler.spec.kinds.base import Domains, Duration, Resource, SomeNodes, TreePath
from reconciler.spec.kinds.limits import Hold, Window
from reconciler.spec.kinds.settings import (
    NodeSettings,
    RootDiskRule,
    ServiceName,
    ServiceState,
    SharedSettings,
    SysctlName,
    SysctlValue,
)
from reconciler.strict_yaml.models import Model, Text


class NodeEntry(NodeSettings):
    """One node, or a range of them: gpu-a[001-008]. Ranges of one entry count together and have one length."""

    name: Text = Field(description="Name of the node, or a range of names like gpu-a[001-008].")
    bmc: Text | None = Field(default=None, description="URL of the BMC, like https://10.20.0.[11-18].")
    host: Text | None = Field(default=None, description="Address for SSH, host or host:port, like 10.20.1.[11-18].")
    serial: Text | None = Field(default=None, description="Serial number of the system; may be a range.")
    uuid: Text | None = Field(default=None, description="System UUID. Not for ranges.")
    hostname: Text | None = Field(
        default=None, description="Host name to have; may be a range. Absent: as settings say."
    )
    sysctls: Mapping[SysctlName, SysctlValue | None] = Field(
        default={}, description="Laid over host.sysctls of the pool."
    )
    services: Mapping[ServiceName, ServiceState | None] = Field(
        default={}, description="Laid over host.services of the pool."
    )
    host_key: Text | None = Field(
        default=None,
        description="A pinned SSH host key. A node whose image is managed can't have one.",
        json_schema_extra={"x-enforced": False},  # refused by `references`, which knows whether the image is managed
    )
    root_disk: RootDiskRule | None = Field(default=None, description="Overrides the image's rule. Not for ranges.")
    domains: Domains = Field(default={}, description="Failure domains of the node: rack, nvlink-domain, pdu ...")
    state: NodeState | None = Field(default=None, description="active, quarantined or retired. Absent: as the pool.")
    hold: Hold | None = Field(default=None, description="Forbids acting on these nodes.")

    @property
    def has_settings(self) -> bool:
        """Whether it overrides anything that nodes of the pool share."""
        return not self.model_fields_set.isdisjoint(_SETTINGS)


_SETTINGS = {*NodeSettings.model_fields, "sysctls", "services"}


class Rollout(Model):
    """How a change spreads over the pool."""

    waves: tuple[SomeNodes, ...] = Field(
        default=("1", "10%", "50%", "100%"),
        min_length=1,
        description="How many nodes have it after each wave; what is left goes last.",
    )
    bake: Duration = Field(default="10m", description="How long a wave stays healthy before the next.")
    max_failures: int = Field(
        default=0, ge=0, le=1_000_000, description="Nodes that may fail; one more halts the rollout."
    )


class NodePoolSpec(SharedSettings):
    """Nodes, and what they pin."""

    state: NodeState = Field(
        default=NodeState.ACTIVE, description="active; quarantined or retired nodes are not acted upon."
    )
    hold: Hold | None = Field(default=None, description="Forbids acting on any node of the pool.")
    domains: Domains = Field(default={}, description="Failure domains that all nodes of the pool share.")
    nodes: tuple[NodeEntry, ...] = Field(default=(), description="Nodes of the pool.")
    inventory: TreePath | None = Field(
        default=None,
        description="CSV file of more nodes, relative to the spec directory. Its header names the columns: name, bmc, "
        "host, serial, uuid, hostname, rootDisk (a serial number), state, and domains.<label>.",
    )
    windows: tuple[Window, ...] = Field(
        default=(), description="When nodes of this pool may be taken out of service, beside what the Fleet says."
    )
    rollout: Rollout = Field(default=Rollout(), description="How a change of the spec spreads over the pool.")


class NodePool(Resource):
    """Nodes, and what they pin."""

    kind: Literal["NodePool"] = Field(description="NodePool.")
    spec: NodePoolSpec = Field(description="Nodes, and what they pin.")
