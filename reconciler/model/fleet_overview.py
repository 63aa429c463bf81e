"""The status of a fleet as a document: how it stands now, and what runs. Data only; render/ makes it text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.model.desired import SpecSource
from reconciler.model.plan import BlockCode, BudgetLine, Incident, Scope, SpareLine
from reconciler.model.privacy import FreeText, NodeName, PublicText
from reconciler.model.releases import ReleasePlan
from reconciler.model.status import NodeStatus

STATUS_FORMAT = "1.0"
_AS_ASKED = frozenset({NodeStatus.CONVERGED, NodeStatus.SET_ASIDE})


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """The number of nodes of each status. A node of which nobody can say whether it serves is in neither count."""

    nodes: int
    in_service: int
    out: int
    statuses: Mapping[NodeStatus, int]

    @property
    def as_asked(self) -> int:
        """Nodes that are as specified, or that the spec sets aside."""
        return sum(many for status, many in self.statuses.items() if status in _AS_ASKED)


@dataclass(frozen=True, slots=True)
class K3sOverview:
    """The K3s of a cluster that the spec builds, of the selected nodes.

    `members`: servers whose host has a member of etcd. `spare`: how many of those that are Ready etcd can lose; below 0
    it has no quorum; None: a server's host was not read, or the state is in a database. `ending`: nodes with a
    certificate that ends within 60 days, which K3s renews when it starts again.
    `first_end`: when the first certificate of all ends, and on which node; None where no host was read that has one.
    """

    servers: int
    servers_ready: int
    agents: int
    agents_ready: int
    members: int
    spare: int | None
    database: PublicText  # HOST:PORT; "" = the state is in etcd
    ending: tuple[PublicText, ...]
    first_end: tuple[datetime, NodeName] | None = None


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The cluster as its API server tells it. `trouble`: why it could not be read; the counts are then of nobody."""

    cluster: PublicText
    version: FreeText  # of the API server; "" = it did not say
    trouble: FreeText
    ready: int  # of the selected nodes
    not_ready: int
    cordoned: int  # by whoever
    absent: int  # known not to be members
    kubelets: Mapping[PublicText, int]  # version -> nodes
    control_plane_ready: int
    control_plane: int
    k3s: K3sOverview | None = None


@dataclass(frozen=True, slots=True)
class RolloutOverview:
    """A change on its way through a pool. `wave`: the first that is not done, from 1; `done`: nodes in those before."""

    pool: PublicText
    wave: int
    waves: int
    done: int
    nodes: int
    rollback: bool
    halted: FreeText  # why; "" = it goes on
    end: datetime | None  # as expected; None: nobody can say


@dataclass(frozen=True, slots=True)
class Work:
    """An action that a run has begun and not ended. `far`: how far it is; "" where nothing tells.

    `since`: when it began, or a later run went on with it. `end`: when the node is expected to be done with this and
    what follows; None where nobody can say.
    """

    node: NodeName
    action: PublicText
    far: FreeText
    since: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A node that time alone does not bring on."""

    node: NodeName
    pool: PublicText
    status: NodeStatus
    code: BlockCode | None
    why: FreeText


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease on the fleet, and the end of it unless it is renewed."""

    scope: PublicText
    holder: FreeText
    since: datetime | None
    until: datetime


@dataclass(frozen=True, slots=True)
class FleetOverview:
    """The status of the selected nodes. `silent`: source and reason -> nodes whose reading lacks."""

    format_version: PublicText
    tool_version: PublicText
    fleet: PublicText
    source: SpecSource
    generated_at: datetime
    started_at: datetime  # of the observation
    finished_at: datetime
    scope: Scope
    counts: NodeCounts
    pools: Mapping[PublicText, NodeCounts]
    isolated: int
    incomplete: tuple[PublicText, ...]
    tolerated: bool
    budget: tuple[BudgetLine, ...]
    work: tuple[Work, ...]
    holders: tuple[Holder, ...]
    rollouts: tuple[RolloutOverview, ...]
    incidents: tuple[Incident, ...]
    trouble: tuple[Trouble, ...]
    clusters: tuple[ClusterOverview, ...]
    silent: Mapping[PublicText, int]
    finish_s: float  # until what is planned is expected to be done; 0.0 = nothing is, or nobody can say
    refused: tuple[FreeText, ...] = ()  # by which guards: the next run would do nothing
    stopped: FreeText = ""  # by whom, why and since when
    braked: FreeText = ""
    insecure: tuple[PublicText, ...] = ()
    time_scale: float = 1.0
    notes: tuple[FreeText, ...] = field(default=())
    spares: tuple[SpareLine, ...] = ()
    releases: tuple[ReleasePlan, ...] = ()  # Helm releases of the cluster

    @property
    def changes(self) -> bool:
        """Return whether a node is not as the spec asks for, out of service, or at work, or a release differs."""
        if any(one.changes_something for one in self.releases):
            return True
        return self.counts.as_asked < self.counts.nodes or self.counts.out > 0 or bool(self.work)

    @property
    def needs_person(self) -> bool:
        """Return whether something stands still until a person looks."""
        halted = any(rollout.halted for rollout in self.rollouts)
        unread = any(cluster.trouble for cluster in self.clusters)
        return bool(self.stopped or self.braked or self.refused or self.incidents or self.trouble or halted or unread)
