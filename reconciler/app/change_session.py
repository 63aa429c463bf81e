"""The world of `plan --base`: two revisions, of which the earlier one alone says where anything is."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reconciler.app.gc_pause import put_off
from reconciler.app.scope import select
from reconciler.app.session import Session
from reconciler.cli.options import Common
from reconciler.model.change import Change
from reconciler.model.desired import Fleet, LineOrigin
from reconciler.model.errors import SpecError, UsageError, read_position
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan, Scope
from reconciler.model.ports import Recollection
from reconciler.planner.fleet.revisions import at_once, forgotten, joining, wanted, watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ChangeSession(Session):
    """What `head` wants (None: the work tree), planned for the nodes of `base`, which are reached as base says."""

    def __init__(self, common: Common, base: str, head: str | None) -> None:
        super().__init__(common)
        self._revisions = base, head

    @cached_property
    def base(self) -> Fleet:
        return self._at(self._revisions[0])

    @cached_property
    def head(self) -> Fleet:
        return self._at(self._revisions[1])

    def _at(self, rev: str | None) -> Fleet:
        try:
            return self.fleet_at(rev)
        except SpecError as error:
            if rev is None:
                raise
            told = (replace(d, at=replace(d.at, file=f"{rev}:{d.at.file}")) for d in error.diagnostics)
            raise SpecError(tuple(told)) from None

    @cached_property
    def fleet(self) -> Fleet:
        """The desired values of head at the endpoints of base."""
        return wanted(self.base, self.head)

    @cached_property
    def watched(self) -> Fleet:
        return watched(self.base, self.head)

    @cached_property
    def selected(self) -> Sequence[str]:
        """Names at either revision: what leaves can be selected too."""
        gone = {name: self.base.nodes[name] for name in forgotten(self.base, self.head)}
        either = replace(self.fleet, nodes={**self.fleet.nodes, **gone})
        return select(either, self.common.limit, self.common.exclude)[0]

    @cached_property
    def selection(self) -> tuple[list[str], Scope]:
        """Those that can be looked at: at both revisions."""
        new = set(joining(self.base, self.head))
        named = [name for name in self.selected if name in self.head.nodes]
        scope = Scope(self.common.limit, self.common.exclude, len(named), len(self.head.nodes))
        return [name for name in named if name not in new], scope

    def make_plan(self, observation: Observation, ledger: Recollection, plan_id: str) -> Plan:
        from reconciler.planner.fleet.plan_request import take_snapshot
        from reconciler.planner.fleet.planner import plan_fleet
        from reconciler.planner.fleet.spec_change import change_of, with_change

        now, names = self.clock.now(), self.selection[0]

        def plan_of(fleet: Fleet, **changes: Any) -> Plan:
            snapshot = replace(take_snapshot(ledger, fleet, names), **changes)
            with put_off():
                return plan_fleet(fleet, observation, snapshot, now, self.plan_request(fleet, ledger, plan_id))

        before = plan_of(at_once(self.base), known=(), rollouts={})
        after = whole = plan_of(self.fleet, known=self._known(ledger))
        if after.rollouts:
            whole = plan_of(at_once(self.fleet), known=(), rollouts={})
        records = ledger.nodes(names)
        change = change_of(
            self.base, self.head, (before, whole), observation, records, selected=frozenset(self.selected)
        )
        made = with_change(after, self.head, replace(change, origins=self._origins(change)))
        return replace(made, notes=(*made.notes, *self._behind()))

    def _known(self, ledger: Recollection) -> tuple[str, ...]:
        """Whose absence a guard counts: those that the ledger knows; of a new ledger, those of base."""
        if len(self.selected) < len(self.head.nodes.keys() | self.base.nodes.keys()):
            return ()
        return tuple(ledger.known()) or tuple(self.base.nodes)

    def _origins(self, change: Change) -> Mapping[str, LineOrigin]:
        """Who set the lines that cause something."""
        from reconciler.drivers.git import origins

        places = {place for found in change.set_by.values() for place in found}
        found = origins(self.head.source, [position for place in places if (position := read_position(place)).line])
        return {str(at): origin for at, origin in found.items()}

    def _behind(self) -> tuple[str, ...]:
        """What base has and head lacks looks as if the change undid it."""
        from reconciler.drivers.git import commits_lacking

        base, head = self._revisions
        lacking = commits_lacking(self.common.spec, base, head or "HEAD")
        if not lacking:
            return ()
        commits = "1 commit" if lacking == 1 else f"{lacking} commits"
        return (
            f"head lacks {commits} of base that changed the spec, and seems to undo what they did: merge base first",
        )


def session_for(common: Common, base: str | None, head: str | None) -> Session:
    """The world of one revision, or of a change from one to another."""
    check_revisions(common, base, head)
    return Session(common) if base is None else ChangeSession(common, base, head)


def check_revisions(common: Common, base: str | None, head: str | None) -> None:
    if base is None and head is not None:
        raise UsageError("--head is what a change leads to: say with --base from where, or use --rev")
    if base is not None and common.rev is not None:
        raise UsageError("--rev is one revision, --base and --head are two: use one or the other")
