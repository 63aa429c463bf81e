"""The type of a row in the table of actions: all that can be said of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from reconciler.health.cure import Cure
from reconciler.model.after import Kind
from reconciler.model.desired import Desired
from reconciler.model.observed import RedfishInventory
from reconciler.model.vocab import Activation, Concern, Disruption
from reconciler.planner.node import possible
from reconciler.planner.node.traits import NodeTraits, Staged, Variant


def _everywhere(_: NodeTraits) -> Iterable[Variant]:
    return (Variant(),)


def _anything(_: Cure) -> bool:
    return True


def _nothing(_: NodeTraits) -> Iterable[Staged]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """All facts about one action. Every other list of actions is derived from these fields.

    `requires`, `achieves`, `breaks` and `forbids` name conditions. `variants` adds the conditions that depend on the
    node, and yields nothing for a node on which the action makes no sense. `refusals` says why the node's BMC can't do
    it, which is known before the node is drained.
    """

    name: str
    concern: Concern
    disruption: Disruption
    seconds: float  # fixed cost of a plan; estimates come from the ledger's history
    requires: tuple[str, ...] = ()
    achieves: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()  # the action is not planned while one of them is true
    variants: Callable[[NodeTraits], Iterable[Variant]] = _everywhere
    stages: Callable[[NodeTraits], Iterable[Staged]] = _nothing  # conditions that wait for a later activation
    activates: frozenset[Activation] = frozenset()  # classes of staged settings that it brings into effect
    refusals: Callable[[Desired, RedfishInventory, Collection[str]], possible.Refusals] = possible.none
    drains: bool = False
    boots: bool = False
    flashes: bool = False  # writes firmware
    installs: bool = False  # writes an image
    boots_installer: bool = False  # so that a medium of ours may be left in the BMC
    decommissions: bool = False  # ends the machine's life in the fleet: only with a typed consent, and never undone
    repairs: bool = False  # belongs to a repair by a person
    marks: bool = False  # it can set our mark on the node
    takes_out: bool = False  # ends the node's service: planned for an ill node without a fresh inventory
    on_others: bool = False  # it works on other nodes of the serving group: the node itself goes on as it is
    harmless: bool = False  # no workload notices it, so it may run on a node in service
    retriable: bool = True  # False: the action itself waits as long as allowed, so its failure ends the node's run
    proved_by_boot: bool = False  # only a new boot id shows that it was done
    covers: frozenset[str] = frozenset()  # actions that approving this one also approves, with any target
    undoes: frozenset[str] = frozenset()  # actions that may be needed again after this one
    # Tests that it costs as a treatment, unless the profile says otherwise; None = all.
    retests: tuple[Kind, ...] | None = None
    may_heal: Callable[[Cure], bool] = _anything  # as a rung of the ladder
    is_evidence: bool = False  # nothing else shows that it was done: its attempts are never pruned
    destroys_evidence: bool = False  # as a treatment or for an exchange: what was logged and counted is gone after it
    in_order: bool = False  # in a K3s cluster, it waits for other nodes (planner/fleet/k3s_order.py)
    by_person: bool = False  # a person does it, and it is only looked whether that was done
    of_service: bool = False  # its target is the unit that the row of a signal names
    fault: str | None = None  # the lab's fault that makes it fail in a rehearsal; None: its verdict fails

    @property
    def overwrites(self) -> bool:
        """Return whether it replaces an image or firmware, which is never done twice."""
        return self.flashes or self.installs

    def renews(self, action: str) -> bool:
        """Return whether that action is tried on something new after this one, so that its failures don't count."""
        return self.overwrites and action in self.undoes
