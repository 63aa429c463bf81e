"""The workspace of `plan --base`: a change between two revisions, of which the earlier gives all addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reconciler.app.node_selection import select_nodes
from reconciler.app.ports import FleetRequest, Frontend
from reconciler.app.runtime import paused_garbage_collection
from reconciler.app.workspace import Workspace
from reconciler.drivers.git import commits_lacking, origins
from reconciler.model.change import Change
from reconciler.model.desired import Fleet, LineOrigin
from reconciler.model.errors import SpecError, read_position
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan, Scope
from reconciler.model.ports import Recollection
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.revisions import at_once, forgotten, joining, wanted, watched
from reconciler.planner.fleet.spec_change import change_of, with_change

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Revisions:
    """A change of the spec from `base` to `head`, which is the work tree when it is None."""

    base: str
    head: str | None


class ChangeWorkspace(Workspace):
    """A change of the spec: `head`, planned for the nodes of `base`, with the addresses and secrets of `base`."""

    def __init__(self, request: FleetRequest, revisions: Revisions, frontend: Frontend) -> None:
        super().__init__(request, frontend)
        self._revisions = revisions

    @cached_property
    def base(self) -> Fleet:
        return self._at(self._revisions.base)

    @cached_property
    def head(self) -> Fleet:
        return self._at(self._revisions.head)

    def _at(self, rev: str | None) -> Fleet:
        try:
            return self.fleet_at(rev)
        except SpecError as error:
            if rev is None:
                raise
            located = (replace(d, at=replace(d.at, file=f"{rev}:{d.at.file}")) for d in error.diagnostics)
            raise SpecError(tuple(located)) from None

    @cached_property
    def fleet(self) -> Fleet:
        """The desired values of `head` at the endpoints of `base`."""
        return wanted(self.base, self.head)

    @cached_property
    def watched(self) -> Fleet:
        return watched(self.base, self.head)

    @cached_property
    def selected(self) -> Sequence[str]:
        """The selected names of both revisions, since a node that leaves the fleet can be selected too."""
        gone = {name: self.base.nodes[name] for name in forgotten(self.base, self.head)}
        either = replace(self.fleet, nodes={**self.fleet.nodes, **gone})
        return select_nodes(either, self.request.limit, self.request.exclude)[0]

    @cached_property
    def selection(self) -> tuple[list[str], Scope]:
        """The selected nodes of both revisions, which alone can be observed, and the scope of a document."""
        new = set(joining(self.base, self.head))
        named = [name for name in self.selected if name in self.head.nodes]
        scope = Scope(self.request.limit, self.request.exclude, len(named), len(self.head.nodes))
        return [name for name in named if name not in new], scope

    def make_plan(self, observation: Observation, ledger: Recollection, plan_id: str) -> Plan:
        now = self.clock.now()

        def plan_of(fleet: Fleet, **changes: Any) -> Plan:
            snapshot = replace(self.snapshot(fleet, ledger), **changes)
            with paused_garbage_collection():
                return plan_fleet(fleet, observation, snapshot, now, self.plan_request(fleet, ledger, plan_id))

        before = plan_of(at_once(self.base), known=(), rollouts={})
        after = whole = plan_of(self.fleet, known=self._known(ledger))
        if after.rollouts:
            whole = plan_of(at_once(self.fleet), known=(), rollouts={})
        records = ledger.nodes(self.selection[0])
        change = change_of(
            self.base, self.head, (before, whole), observation, records, selected=frozenset(self.selected)
        )
        made = with_change(after, self.head, replace(change, origins=self._origins(change)))
        return replace(made, notes=(*made.notes, *self._behind()), ledger=self.known_ledger(ledger))

    def _known(self, ledger: Recollection) -> Sequence[str]:
        """Return the nodes whose absence a guard counts: those in the ledger, or those of `base` for a new ledger."""
        if len(self.selected) < len(self.head.nodes.keys() | self.base.nodes.keys()):
            return ()
        return tuple(ledger.known()) or tuple(self.base.nodes)

    def _origins(self, change: Change) -> Mapping[str, LineOrigin]:
        """Return the commit of each line that causes a change: position -> origin."""
        places = {place for found in change.set_by.values() for place in found}
        found = origins(self.head.source, [position for place in places if (position := read_position(place)).line])
        return {str(at): origin for at, origin in found.items()}

    def _behind(self) -> tuple[str, ...]:
        """Return a note when `head` lacks commits of `base`, which would look as if the change reverted them."""
        lacking = commits_lacking(self.request.spec, self._revisions.base, self._revisions.head or "HEAD")
        if not lacking:
            return ()
        commits = "1 commit" if lacking == 1 else f"{lacking} commits"
        return (
            f"head lacks {commits} of base that changed the spec, and seems to undo what they did: merge base first",
        )
