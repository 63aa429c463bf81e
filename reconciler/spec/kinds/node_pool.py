"""NodePool: a set of nodes with shared settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from reconciler.model.vocab import NodeState, Provision, ReimagedBy
from reconciler.spec.kinds.base import Domains, Duration, Resource, SomeNodes, TreePath
from reconciler.spec.kinds.limits import Hold, Window
from reconciler.spec.kinds.network import NodeNetwork
from reconciler.spec.kinds.serving import Serving
from reconciler.spec.kinds.settings import (
    NodeSettings,
    RootDiskRule,
    ServiceName,
    ServiceState,
    SharedSettings,
    SysctlName,
    SysctlValue,
)
from reconciler.strict_yaml.models import Model, Name, Text


class Erase(Model):
    """The data that is destroyed when a node is decommissioned."""

    serials: tuple[Text, ...] = Field(
        description="Serial numbers of the drives to erase, exactly as the machine tells them. No other drive is "
        "touched; [] erases none."
    )


class NodeEntry(NodeSettings):
    """One node, or a range of them: gpu-a[001-008]. Ranges of one entry count together and have one length."""

    name: Text = Field(description="Name of the node, or a range of names like gpu-a[001-008].")
    bmc: Text | None = Field(default=None, description="URL of the BMC, like https://10.20.0.[11-18].")
    host: Text | None = Field(default=None, description="Address for SSH, host or host:port, like 10.20.1.[11-18].")
    outlets: tuple[Text, ...] = Field(
        default=(),
        description="All outlets of rack PDUs that give the node power, as https://PDU#OUTLET, or #RACKPDU/OUTLET "
        "where one service has several; may be ranges. With them a node can be cut off from mains (ac_cycle).",
    )
    serial: Text | None = Field(default=None, description="Serial number of the system; may be a range.")
    uuid: Text | None = Field(default=None, description="System UUID. Not for ranges.")
    hostname: Text | None = Field(
        default=None, description="Desired host name; may be a range. Absent: as host.hostname of the settings says."
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
        json_schema_extra={"x-enforced": False},  # `combinations` refuses it: it knows whether the image is managed
    )
    root_disk: RootDiskRule | None = Field(default=None, description="Overrides the image's rule. Not for ranges.")
    domains: Domains = Field(default={}, description="Failure domains of the node: rack, nvlink-domain, pdu and so on.")
    state: NodeState | None = Field(
        default=None,
        description="active, quarantined, retired or decommissioned. Absent: the pool's state. decommissioned takes "
        "the node out of the fleet for good, by `apply --plan` and a typed confirmation alone; it needs `serial` and "
        "`erase`.",
    )
    provision: Provision | None = Field(
        default=None,
        description="blank: consent to wipe machines of which no system ever answered. It needs `serial` or `uuid`. "
        "It is spent when the node first enters service.",
    )
    network: NodeNetwork | None = Field(
        default=None, description="Network of the installed system, and of its installer. Not for ranges. Absent: DHCP."
    )
    erase: Erase | None = Field(default=None, description="What decommissioning erases. Not for ranges.")
    hold: Hold | None = Field(default=None, description="Forbids acting on these nodes.")

    @property
    def has_settings(self) -> bool:
        """Return whether the entry overrides any setting of the pool."""
        return not self.model_fields_set.isdisjoint(_SETTINGS)


_SETTINGS = {*NodeSettings.model_fields, "sysctls", "services"}


class Rollout(Model):
    """How a change of the spec rolls out over the pool."""

    waves: tuple[SomeNodes, ...] = Field(
        default=("1", "10%", "50%", "100%"),
        min_length=1,
        description="How many nodes have the change after each wave. All other nodes follow in a last wave.",
    )
    bake: Duration = Field(default="10m", description="How long a wave stays healthy before the next.")
    max_failures: int = Field(
        default=0, ge=0, le=1_000_000, description="Nodes that may fail; one more halts the rollout."
    )


class NodePoolSpec(SharedSettings):
    """The nodes of a pool and their shared settings."""

    state: NodeState = Field(
        default=NodeState.ACTIVE, description="active, quarantined or retired. Only active nodes are acted upon."
    )
    owner: Name | None = Field(
        default=None, description="Who is responsible for the pool, by which `notifications` of the Fleet may select."
    )
    hold: Hold | None = Field(default=None, description="Forbids acting on any node of the pool.")
    domains: Domains = Field(default={}, description="Failure domains that all nodes of the pool share.")
    nodes: tuple[NodeEntry, ...] = Field(default=(), description="Nodes of the pool.")
    inventory: TreePath | None = Field(
        default=None,
        description="CSV file of more nodes, relative to the spec directory. Its header names the columns: name, bmc, "
        "host, serial, uuid, hostname, rootDisk (a serial number), state, provision, and domains.<label>.",
    )
    windows: tuple[Window, ...] = Field(
        default=(),
        description="When nodes of this pool may be taken out of service, in addition to the Fleet's windows.",
    )
    rollout: Rollout = Field(default=Rollout(), description="How a change of the spec rolls out over the pool.")
    reimaged_by: ReimagedBy = Field(
        default=ReimagedBy.RECONCILER,
        description="person: the nodes have no BMC. They are drained and held until a person has written their image, "
        "which is seen on the host. Each needs a serial, and nothing may be declared that only a BMC can read or set.",
    )
    serving: Serving | None = Field(
        default=None,
        description="Nodes that serve together. Before one of them is drained, the others are told to serve without "
        "it and have to answer; afterwards all are told to serve together again.",
    )


class NodePool(Resource):
    """A set of nodes with shared settings."""

    kind: Literal["NodePool"] = Field(description="NodePool.")
    spec: NodePoolSpec = Field(description="Nodes of the pool and their shared settings.")
