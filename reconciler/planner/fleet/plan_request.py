"""The inputs of a fleet's plan besides the spec and an observation: what the ledger knows, and what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.model.desired import Fleet
from reconciler.model.plan import Scope
from reconciler.model.ports import Recollection
from reconciler.model.records import CHANGES, Hold, NodeRecord, Rollout
from reconciler.planner.fleet.taken_out import has_rates
from reconciler.planner.node.estimates import Estimates


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The part of a ledger, read at one moment, that a plan needs.

    `records`: by node name, and under CHANGES plus the fleet's name that of the fleet's changes.
    `known`: nodes with applied values; those that the spec does not name any more are about to be forgotten.
    `rollouts`: the newest of each pool.
    """

    id: str
    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    known: tuple[str, ...] = ()
    holds: tuple[Hold, ...] = ()
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)

    def record(self, node: str) -> NodeRecord:
        """Return the node's record; an empty one for a node that the ledger has never seen."""
        return self.records.get(node) or NodeRecord(node)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan: its id, the nodes, and what they are judged by besides the spec.

    `signatures`: (image, version) -> whether the signature verifies; None when that can't be told.
    `selected`: names of the nodes to plan; None = all. The others still count against the budget.
    `endpoints`: SHA-256 digest of the --endpoints file; "" = none is used.
    """

    id: str
    signatures: Mapping[tuple[str, str], bool | None]
    selected: Sequence[str] | None = None
    scope: Scope | None = None
    estimates: Estimates = field(default_factory=Estimates)
    endpoints: str = ""

    def names(self, fleet: Fleet) -> list[str]:
        """Return the names of the nodes to plan, in the order of the spec."""
        return list(fleet.nodes if self.selected is None else filter(set(self.selected).__contains__, fleet.nodes))


def take_snapshot(ledger: Recollection, fleet: Fleet, names: Sequence[str]) -> LedgerSnapshot:
    """Read what a plan of the nodes `names` needs. A plan of some nodes forgets none, so `known` is left empty."""
    return LedgerSnapshot(
        id=ledger.id,
        records=ledger.nodes(records_needed(fleet, names)),
        known=tuple(ledger.known()) if len(names) == len(fleet.nodes) else (),
        holds=tuple(ledger.holds()),
        rollouts=ledger.rollouts(),
    )


def records_needed(fleet: Fleet, names: Sequence[str]) -> Sequence[str]:
    """Return the names of the records that a plan of the nodes `names` needs.

    A rate counts how often any node was taken out of service, and a rollout concerns a whole pool.
    """
    changes = CHANGES + fleet.settings.fleet
    if len(names) == len(fleet.nodes) or has_rates(fleet.settings):
        return [*fleet.nodes, changes]
    pools = {fleet.nodes[name].pool for name in names}
    return [*(name for name, node in fleet.nodes.items() if node.pool in pools), changes]
