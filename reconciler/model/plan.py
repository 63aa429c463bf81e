"""The plan document (DESIGN 7.3). JSON under schemas/plan.json; data only, no secret ever enters it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from reconciler.model.change import Change
from reconciler.model.desired import SpecSource
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.privacy import FreeText, NodeName, Privacy, PublicText, SpecValue, Unpublished, ValuePath
from reconciler.model.releases import ReleasePlan
from reconciler.model.vocab import Certainty, Concern, Disruption, Reason

PLAN_FORMAT = "1.2"
_NONE = Disruption.NONE
_NO_ILLNESS = (DriftClass.IGNORED, DriftClass.REPORTED)


class Goal(StrEnum):
    """The goal of a node's actions."""

    NOTHING = "nothing"  # retired, quarantined, held, or nothing known well enough
    IN_SERVICE = "in_service"
    SPARE = "spare"  # certified as specified, and kept out of the work
    TESTED = "tested"  # by hand with other tests than its own, and left out of service
    CONVERGED_CORDONED = "converged_cordoned"  # a foreign cordon stands: everything but admission
    DECOMMISSIONED = "decommissioned"  # out of the fleet for good, with the declared drives erased
    REPAIR = "repair"  # a person exchanges parts: out of service and off, until they are accepted
    ISOLATED = "isolated"  # unhealthy or untrusted with no rung left: out of service, reported


class BlockCode(StrEnum):
    """Why something does not happen now."""

    STOPPED = "stopped"  # the whole fleet is: nothing begins anywhere
    DOMAIN = "domain"  # an incident of its failure domain: it is neither drained nor treated for that while it lasts
    STORM = "storm"  # too many nodes went bad at once: nothing that disrupts begins anywhere
    HELD = "held"
    QUARANTINED = "quarantined"
    RETIRED = "retired"
    DECOMMISSIONED = "decommissioned"  # it was, and its serial number has a tombstone: nothing is done to it again
    UNKNOWN = "unknown"  # a fact that the decision needs could not be read
    UNDER_WAY = "under_way"  # a boot, an installation or a detector's report, after which it is looked at again
    IDENTITY = "identity"  # the BMC answers for another machine, or for none that we know
    BUDGET = "budget"
    WINDOW = "window"  # outside of the hours in which nodes may be taken out of service
    BACKOFF = "backoff"  # an action that it needs has failed: tried again after a pause
    ROLLOUT = "rollout"  # its wave has not begun
    HALTED = "halted"  # the rollout of its pool has stopped: a person must look
    FOREIGN_CORDON = "foreign_cordon"
    FOREIGN_HOLD = "foreign_hold"  # an operator maintains it: nothing that disrupts is done until that ends
    FOREIGN_MARK = "foreign_mark"  # marked by another ledger
    IMPOSSIBLE = "impossible"  # its BMC or disk can't do what the spec asks for
    NO_PATH = "no_path"  # no sequence of actions reaches the goal; the unmet conditions are named
    ATTEMPTS = "attempts"  # the policy's attempts are used up
    GATE = "gate"  # it failed its acceptance tests, and no repair is on record
    NO_DRAIN = "no_drain"  # no drain provider: nothing disruptive may start
    CRASHED = "crashed"  # a bug of ours: nobody knows what it needs, so nothing is done to it
    JOINING = "joining"  # a change of the spec adds it: nobody contacts it before that is merged (conventions S3)

    @property
    def passes(self) -> bool:
        """Return whether time alone lifts it: the actions are planned, and start by themselves later."""
        return self in (BlockCode.BUDGET, BlockCode.WINDOW, BlockCode.BACKOFF, BlockCode.ROLLOUT)


_FOR_A_PERSON = frozenset(
    {
        BlockCode.ATTEMPTS,
        BlockCode.IMPOSSIBLE,
        BlockCode.NO_PATH,
        BlockCode.GATE,
        BlockCode.IDENTITY,
        BlockCode.NO_DRAIN,
    }
)


@dataclass(frozen=True, slots=True)
class Blocked:
    code: BlockCode
    detail: FreeText
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """`because`: the drift paths or conditions that need it. `requires`/`achieves`/`breaks`: condition names."""

    name: PublicText  # catalogue name, e.g. "set_bios" or "update_firmware"
    target: PublicText  # what of the node: "" or a firmware component
    concern: Concern
    because: tuple[FreeText, ...]
    disruption: Disruption
    estimate_s: float
    certainty: Certainty
    requires: tuple[PublicText, ...]
    achieves: tuple[PublicText, ...]
    breaks: tuple[PublicText, ...] = ()
    p90_s: float | None = None  # 90th percentile of the durations that `estimate_s` is the median of; None: no history
    waits_s: float = 0.0  # of both: what it waits for work that ends by `waits_until`, if it begins now
    waits_until: datetime | None = None  # if it begins later, it waits for less, and from then on for none

    @property
    def id(self) -> str:
        return f"{self.name}:{self.target}" if self.target else self.name


@dataclass(frozen=True, slots=True)
class NodePlan:
    """`blocked` says why actions wait or are missing; actions may be present and blocked (`BlockCode.passes`)."""

    node: NodeName
    pool: PublicText
    goal: Goal
    situation: FreeText  # one sentence: why this goal
    in_service: bool | None
    observed_at: datetime
    incomplete: tuple[FreeText, ...]  # sources or facts that could not be read, in words
    drift: tuple[DriftItem, ...]
    actions: tuple[PlannedAction, ...]
    blocked: Blocked | None
    wave: int | None  # which batch of the budget may take it: 0 = now; None = nothing to wait for
    fingerprint: PublicText
    postponed: tuple[PublicText, ...] = ()  # paths whose wave has not begun, which the actions leave out
    isolation: tuple[
        PublicText, ...
    ] = ()  # signals on whose evidence it is cordoned and marked at once, before all else
    isolated: tuple[
        PublicText, ...
    ] = ()  # signals on which our mark stands, while it has not been drained: that needs budget
    unmanaged_pods: tuple[FreeText, ...] = ()  # that its drain evicts, and that nothing starts again
    local_pods: tuple[FreeText, ...] = ()  # that its drain evicts, with the data in their emptyDir volumes
    drain_waits: tuple[FreeText, ...] = ()  # what its drain gives the work time for before it evicts, and how long
    start: datetime | None = None  # when its actions are expected to begin; None: nothing to do, or nobody can say
    end: datetime | None = None
    shared: PublicText = ""  # key of the inputs that it shares with equal nodes; "" = it has no actions
    inputs: Annotated[Mapping[str, str], Privacy.INPUTS] = field(
        default_factory=dict
    )  # its own, by path, as model.inputs says

    @property
    def disruption(self) -> Disruption:
        return max([action.disruption for action in self.actions], default=_NONE)

    @property
    def changes(self) -> bool:
        return bool(self.actions)

    @property
    def waits_for_person(self) -> bool:
        """Return whether the node is out of service, and time alone does not bring it back."""
        return self.in_service is False and self.blocked is not None and self.blocked.code in _FOR_A_PERSON

    @property
    def illness(self) -> tuple[DriftItem, ...]:
        """The signs of illness that are neither ignored nor reported only."""
        return tuple(i for i in self.drift if i.concern is Concern.HEALTH and i.kind not in _NO_ILLNESS)


def is_crashed(plan: NodePlan) -> bool:
    """Return whether the plan is empty because a bug of ours ended the planning of this node."""
    return plan.blocked is not None and plan.blocked.code is BlockCode.CRASHED


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One limit, in integers, and what uses it up: a declared budget, a floor, or the control plane's quorum."""

    scope: PublicText  # "fleet", "pool train-a", "rack r1", "persona training", "control plane"
    limit: int
    total: int
    out: tuple[PublicText, ...]  # nodes out of service already, whoever took them out; of a rate: each taking out
    rule: PublicText  # how the limit comes about, e.g. "10% of 12 = 2", "2 per 1h", "8 - 75% of 8 = 2"
    reasons: tuple[Reason, ...] = ()  # () = whatever the reason
    per_s: float | None = None  # of a rate: its period
    during: PublicText = ""  # hours at which it holds, "" = always
    active: bool = True  # False: not at this hour


@dataclass(frozen=True, slots=True)
class SpareLine:
    """The spares of one persona: nodes that are certified and kept out of the work."""

    persona: PublicText
    wanted: int
    total: int  # active nodes of the persona
    ready: tuple[PublicText, ...]
    preparing: tuple[PublicText, ...]  # kept, and not ready yet
    marginal: tuple[PublicText, ...]  # of both, those that are not promoted: something speaks against them
    failed: tuple[PublicText, ...]  # nodes that count on the reserve
    promoted: tuple[tuple[PublicText, PublicText], ...]  # (spare that goes into service, node that failed)


class WaveState(StrEnum):
    DONE = "done"  # all converged, certified, and baked
    BAKING = "baking"  # all converged and certified
    OPEN = "open"  # its nodes may go
    WAITING = "waiting"  # for the waves before it
    HALTED = "halted"


@dataclass(frozen=True, slots=True)
class Wave:
    """Part of a rollout. `start`: of the first of its nodes that is still to go; `end`: when the last has baked.

    Both as expected from estimates and budgets, or None where nobody can say.
    """

    nodes: tuple[PublicText, ...]
    state: WaveState
    detail: FreeText = ""  # what it waits for
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """A change on its way through a pool, as of now. `started_at` None: the next apply starts it."""

    pool: PublicText
    digest: PublicText
    changes: Mapping[ValuePath, tuple[SpecValue, ...]]  # path -> desired values
    waves: tuple[Wave, ...]
    rollback: bool
    started_at: datetime | None
    bake_s: float
    failed: tuple[PublicText, ...] = ()  # members that failed since it began
    left_out: tuple[PublicText, ...] = ()  # members that are held, quarantined, retired or gone
    halted: FreeText = ""  # why, in one sentence; "" = it goes on
    resume: tuple[PublicText, ...] = ()  # what would resume it
    supersedes: PublicText = ""  # digest of the rollout that it replaces


@dataclass(frozen=True, slots=True)
class WorkloadCost:
    """The cost of the drains of a plan for one workload, whose pods depend on each other.

    `pods` of `of_pods` on `nodes` nodes are evicted. `replicas`: of a LeaderWorkerSet, how many of `of_replicas` lose a
    pod, and restart whole; 0 of 0: all of its pods depend on each other, and are interrupted.
    """

    workload: FreeText  # "JobSet ml/llama"
    queue: FreeText  # of Kueue; "" = none, or its pods don't say
    pods: int
    of_pods: int
    nodes: int
    replicas: int = 0
    of_replicas: int = 0


@dataclass(frozen=True, slots=True)
class Scope:
    limit: tuple[PublicText, ...]
    exclude: tuple[PublicText, ...]
    selected: int
    total: int


@dataclass(frozen=True, slots=True)
class Incident:
    """Evidence of illness on many nodes at once: a person decides.

    Without a `cause` they are more than may be isolated for it: `scope` is "pool train-a" or "the fleet", and `nodes`
    those that show the signal and are not isolated for it. With one ("environment", "fabric") it is an incident of
    the failure domain `scope` ("rack r1"), and `nodes` those that show it there and are not treated for it.
    """

    signal: PublicText  # its value path, e.g. "health.gpu_missing"; of a failure domain all of them, with ", " between
    scope: PublicText
    nodes: tuple[PublicText, ...]
    detail: FreeText  # why nothing is done to them, and what to do
    cause: PublicText = ""

    @property
    def key(self) -> tuple[str, str]:
        """The cause or signal, and the scope: the same from the beginning of the incident to its end."""
        return self.cause or self.signal, self.scope


@dataclass(frozen=True, slots=True)
class Totals:
    nodes_with_changes: int
    nodes_disrupted: int
    nodes_blocked: int
    nodes_unknown: int
    gpu_hours_out: float
    finish_s: float  # until the last that is expected to end has ended
    nodes_out_peak: int = 0  # out of service at once, at most, whoever took them out
    nodes_out_before: int = 0  # out of service now, whoever took them out; who can't be read is not counted
    nodes_isolated: int = 0  # cordoned and marked on evidence of illness, or to be at once


@dataclass(frozen=True, slots=True)
class KnownLedger:
    """The ledger that a plan was made with: `kind` and `name` as in model.records.LedgerPlace.

    `certificates`: of how many of the plan's `nodes` it has a certificate, valid or not.
    """

    kind: PublicText
    name: Unpublished[PublicText]
    certificates: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Offline:
    """A plan for which nobody was contacted. `unjudged`: path -> nodes that the published data can't judge."""

    published_at: datetime
    unjudged: Mapping[PublicText, tuple[PublicText, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    format_version: PublicText
    tool_version: PublicText
    id: PublicText
    created_at: datetime
    expires_at: datetime
    fleet: PublicText
    source: SpecSource
    scope: Scope
    incomplete: tuple[PublicText, ...]  # nodes whose observation is incomplete
    tolerated: bool  # the incomplete ones stay within Fleet.observation.tolerate
    nodes: Mapping[NodeName, NodePlan]
    budget: tuple[BudgetLine, ...]
    totals: Totals
    fingerprint: PublicText
    insecure: tuple[PublicText, ...] = ()
    time_scale: float = 1.0
    notes: tuple[FreeText, ...] = field(default=())
    refused: tuple[FreeText, ...] = ()  # by which guards, in words; such a plan is not applied at all
    rollouts: tuple[RolloutPlan, ...] = ()
    stopped: FreeText = ""  # by whom, why and since when: nothing begins until the stop is lifted
    braked: FreeText = ""  # by the storm brake, why and since when: nothing that disrupts begins until it is lifted
    change: Change | None = None  # of a pull request: what it does, apart from what had drifted before
    incidents: tuple[Incident, ...] = ()
    workloads: tuple[WorkloadCost, ...] = ()  # that its drains interrupt
    offline: Offline | None = None  # made from what was published: it informs, and is never applied
    ledger: KnownLedger | None = None  # None: made by a version that did not say
    recipe: PublicText = ""  # of the fingerprints; "" = made by a version that bound less
    shared: Mapping[PublicText, Mapping[PublicText, PublicText]] = field(
        default_factory=dict
    )  # inputs that nodes share, by their digest
    spares: tuple[SpareLine, ...] = ()
    releases: tuple[ReleasePlan, ...] = ()  # of the cluster, in the order in which they are installed

    @property
    def changes(self) -> bool:
        nodes = any(node.changes for node in self.nodes.values())
        return nodes or any(release.changes_something for release in self.releases)
