"""Hold nodes as partners for the gates of others, or for a search of the fabric, and give them back.

A hold, its charge to the budget and its entry in the journal are one step, which nothing can come between. A partner
that serves is marked only then, and looked at again: what has got work meanwhile is let go. A reconciler that is killed
leaves a mark of ours on a node to which nothing was done, and the next run lifts that like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.converge.actions.context import Stop
from reconciler.converge.actions.membership import lift_mark
from reconciler.converge.guarded_ports import TimedCluster, TimedHost
from reconciler.converge.observe import observe_node
from reconciler.converge.plan_questions import may_serve_as_before
from reconciler.converge.ports import TakenPartner
from reconciler.gate.certificate import as_certified
from reconciler.gate.fabric.partners import (
    Candidate,
    Hold,
    NoPartner,
    Partner,
    Service,
    choose_partner,
    live_holds,
    unfit,
)
from reconciler.gate.fabric.topology import Fabric
from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError
from reconciler.model.gate import Certificate, Verdict
from reconciler.model.observed import Answered, Member, Observed, Silent, was_asked
from reconciler.model.records import OWNER_ANNOTATION, Mark, read_mark
from reconciler.model.vocab import NodeState, UnknownReason
from reconciler.planner.fleet.live_permit import in_service
from reconciler.planner.node.holds import held, stopped
from reconciler.planner.node.record import treats

if TYPE_CHECKING:
    from reconciler.converge.fleet_limits import FleetLimits
    from reconciler.converge.run import Run

WAIT_S: Final = 900.0  # for a partner that can't be had now; a later run tries again
_POLL_S: Final = 15.0
_REASON: Final = "partner for the gate of "  # of a mark
_SEARCH: Final = "a search of the fabric"
CUT: Final = "to be cut off from mains with "
_UNFIT: Final = Candidate(Service.UNKNOWN, certified=False)


class PartnerPool:
    """The nodes that are held, and those that can't be since something is done to them."""

    def __init__(self, run: Run, limits: FleetLimits) -> None:
        self._run = run
        self.limits = limits
        self._holds: dict[str, Hold] = {}  # by partner
        self._acting: dict[str, str] = {}  # node -> the attempt that acts on it
        self._waiting: set[str] = set()  # nodes whose gates wait for a partner: they do nothing
        self._lock = asyncio.Lock()

    @contextmanager
    def acting(self, node: str) -> Iterator[str]:
        """Note that an action runs on a node. Yields why it may not while the node is held, "" when it may."""
        if holder := self.holder(node):
            yield f"it is held for {holder}"
            return
        self._acting[node] = ""
        try:
            yield ""
        finally:
            del self._acting[node]

    def holder(self, node: str) -> str:
        """Return the node that this one is held for, as the partner of its gate or to be cut off with it; "" = none."""
        hold = self._holds.get(node)
        return hold.node if hold is not None and self._live([hold]) else ""

    def _live(self, holds: Collection[Hold]) -> tuple[Hold, ...]:
        running = [attempt for attempt in self._acting.values() if attempt]
        return live_holds(holds, running)

    # --- taking ---

    async def take(self, gate: GatePartners, *, near: bool, avoid: Collection[str]) -> TakenPartner | NoPartner:
        """Hold a partner for a gate, and wait for one that may be had soon. Meanwhile others may test with its node."""
        clock, said = self._run.clock, ""
        self._acting[gate.node] = gate.attempt
        until = clock.monotonic() + WAIT_S
        self._waiting.add(gate.node)
        try:
            while True:
                async with self._lock:
                    found = await self._try(gate, near, set(avoid))
                    if isinstance(found, TakenPartner):
                        self._waiting.discard(gate.node)  # before another gate may choose this very node
                        return found
                if not found.wait or clock.monotonic() >= until:
                    return found
                if found.reason != said:
                    said = found.reason
                    gate.tell(f"waits for a partner: {said}")
                await clock.sleep(_POLL_S)
        finally:
            self._waiting.discard(gate.node)

    def outside(self, node: str, kind: str) -> Iterator[str]:
        """Yield the nodes that don't share a failure domain of this kind with a node."""
        nodes = self._run.fleet.nodes
        own = nodes[node].domains.get(kind)
        yield from (name for name, one in nodes.items() if own is None or one.domains.get(kind) != own)

    async def _try(self, gate: GatePartners, near: bool, avoid: set[str]) -> TakenPartner | NoPartner:
        away: list[str] = []
        others = [hold for hold in self._live(self._holds.values()) if hold.node != gate.node]
        fabric = Fabric.of_domains({name: node.domains for name, node in self._run.fleet.nodes.items()}, rails=1)
        while True:
            chosen = choose_partner(gate.node, fabric, _Candidates(self), others, self._refusal, avoid, near=near)
            if isinstance(chosen, NoPartner):
                return replace(chosen, reason="; ".join([chosen.reason, *away]), wait=chosen.wait or bool(away))
            taken = await self._hold(gate, chosen, near)
            if isinstance(taken, TakenPartner):
                return taken
            away.append(f"{chosen.name}: {taken}")
            avoid.add(chosen.name)

    async def hold(self, search: GatePartners, name: str) -> TakenPartner | str:
        """Hold this very node for a search of the fabric; return why not where it can't be held now."""
        self._acting[search.node] = search.attempt
        async with self._lock:
            if self.holder(name):
                return f"the gate of {self.holder(name)} holds it"
            found = self.candidate(name)
            if why := self.why_unfit(name, found) or unfit(name, found, self._refusal):
                return why
            return await self._hold(search, Partner(name, found.certified, found.service is not Service.OUT), near=True)

    # --- nodes that share outlets: converge/siblings.py marks and drains them ---

    def hold_together(self, gate: GatePartners, names: Collection[str]) -> str:
        """Hold all of these nodes, charged to the budget together, or none; return why not."""
        self._acting[gate.node] = gate.attempt
        busy = (f"{name} {why}" for name in names if (why := self.busy(name, gate.node)))
        if why := next(busy, "") or self.limits.charge_together(names):
            return why
        self._holds |= {name: Hold(name, gate.node, gate.attempt) for name in names}
        return ""

    def busy(self, name: str, node: str) -> str:
        """Return what keeps a node from being held for the cut of this one, "" if nothing does."""
        hold = self._holds.get(name)
        if hold is not None and hold.node != node and self._live([hold]):
            return f"is held for {hold.node or _SEARCH}"
        return "has an action or a gate of its own under way" if name in self._acting else ""

    async def let_go(self, gate: GatePartners, name: str, mark: str) -> None:
        """End such a hold, and lift the mark of this reason, "" for none: what was done to the node is judged first."""
        try:
            if mark:
                await self._lift(name, mark)
        except (DriverError, Stop) as error:
            gate.tell(f"{name} can't be given back now, and keeps its mark: {error}")
        finally:
            del self._holds[name]
            self.limits.free_partner(name)
            self.limits.on_let_go(name)

    def why_unfit(self, name: str, found: Candidate) -> str:
        """Return why a node can take no part in a search of the fabric, whatever room the budget has."""
        if found.service is Service.IDLE and not found.certified:
            return "it serves, and has no valid certificate"
        return unfit(name, found, lambda _: None) or ""

    def candidate(self, name: str) -> Candidate:
        """Return what is known of a node as a partner."""
        run, seen = self._run, self.limits.nodes.get(name)
        desired = run.fleet.nodes[name]
        record = run.ledger.node(name)
        if seen is None or desired.state is not NodeState.ACTIVE or held(desired, record, run.holds(), run.clock.now()):
            return _UNFIT
        service = self._service(seen)
        if service in (Service.UNKNOWN, Service.WORKING):
            return Candidate(service, certified=False)
        occupied = name in self._acting and name not in self._waiting
        bar = f"nobody has approved work on it, and {why}" if (why := run.bar_of(name)) else ""
        return Candidate(service, self._certified(desired, seen, record.certificate), occupied, bar)

    def _certified(self, desired: Desired, seen: Observed, certificate: Certificate | None) -> bool:
        """Return whether a node's own gate holds. Of one that was not asked yet, only what is on record is known.

        Tests that the spec has added or changed since are left out, unless those are all: the first node that is taken
        out for them would find no partner in a fleet that serves, and never come back.
        """
        if certificate is None or certificate.adopted or desired.profile.acceptance is None:
            return False  # of an adopted node, nothing was measured
        if not was_asked(seen):
            return all(result.verdict is Verdict.PASS for result in certificate.results)
        if any(isinstance(one, Silent) for one in (seen.host, seen.hot, seen.inventory)):
            return False
        # Behind another leaf it is the node that it was, and those of a new leaf have no others to test with.
        asked = replace(desired.profile, acceptance=as_certified(desired.profile.acceptance, certificate))
        anywhere = replace(desired, domains={}, profile=asked)
        return self._run.ports.gate.judge(certificate, anywhere, seen, self._run.clock).valid

    def _service(self, seen: Observed) -> Service:
        """Return the service of a node. One that somebody else has cordoned is not ours to use."""
        unread = isinstance(seen.host, Silent) and seen.host.reason is not UnknownReason.NOT_ASKED
        serves = in_service(self._run.fleet, seen)
        if unread or serves is None:
            return Service.UNKNOWN
        if self._run.fleet.settings.cluster is None:
            plan = self.limits.plan_of(seen.node)
            return Service.OUT if plan is not None and plan.in_service is False else Service.UNKNOWN
        member = None if isinstance(seen.member, Silent) else seen.member.value
        if member is None:
            return Service.OUT
        if member.work(seen.host, self._run.clock.now()):
            return Service.WORKING
        if serves:
            return Service.IDLE
        mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
        ours = mark is not None and mark.ledger == self._run.ledger.id
        return Service.OUT if ours else Service.UNKNOWN

    def _refusal(self, name: str) -> str | None:
        return self.limits.refusal_of_partner(name) or None

    async def _hold(self, gate: GatePartners, chosen: Partner, near: bool) -> TakenPartner | str:
        """Look at the node anew, and hold it if it is still what was chosen; otherwise return why not."""
        run, name = self._run, chosen.name
        desired = run.fleet.nodes[name]
        fresh = await observe_node(desired, run.ports.fabric, run.clock, run.fleet.settings)
        self.limits.see(fresh)
        await self.limits.look_at_cluster()  # nothing is awaited from here on until it is held
        if isinstance(fresh.host, Silent):
            return f"its host is silent ({fresh.host.reason})"
        now = self.candidate(name)
        if now != Candidate(now.service, chosen.certified) or (now.service is Service.IDLE) is not chosen.charges:
            return "it is no longer what it was when it was chosen"
        plan, _ = run.plan_node(desired, fresh, run.ledger.node(name))
        host = run.ports.fabric.host(desired)
        if host is None:
            return "the spec names no host address for it"
        # A search is after ill nodes too. One that still serves is left to its isolation and its repair.
        suspect = not gate.node and not chosen.charges
        if (plan.illness or plan.isolated or plan.isolation) and not suspect:
            return "it is ill"
        if chosen.charges and (why := self.limits.charge_partner(name)):
            return why
        self._holds[name] = Hold(name, gate.node, gate.attempt)
        gate.journal(tuple(sorted(hold.partner for hold in self._holds.values() if hold.node == gate.node)))
        if chosen.charges and (why := await self._take_out(gate, fresh)):
            await self.free(gate, name)
            return why
        port = TimedHost(host, run.clock, run.fleet.settings, run.ports.lease)
        return TakenPartner(desired, fresh, port, near, chosen.certified)

    async def _take_out(self, gate: GatePartners, seen: Observed) -> str:
        """Mark a node that serves, and look whether it has work now; return why it can't be a partner."""
        run, cluster = self._run, self._cluster()
        try:
            member = await cluster.member(seen.node)
            if member is None or member.unschedulable or member.work(seen.host, run.clock.now()):
                return "it has work now, or somebody has cordoned it"
            at = run.clock.now().isoformat(timespec="seconds")
            await cluster.mark(member, Mark(run.ledger.id, run.context.plan_id, gate.reason, at, cordoned=True))
            member = await cluster.member(seen.node)
        except DriverError as error:
            return f"it can't be marked: {error}"
        self._see(seen, member)
        return "" if member is not None and not member.work(seen.host, run.clock.now()) else "it has got work meanwhile"

    def _cluster(self) -> TimedCluster:
        run = self._run
        cluster = run.ports.fabric.cluster()
        assert cluster is not None, "without a cluster no node is known to be idle"
        return TimedCluster(cluster, run.clock, run.fleet.settings, run.ports.lease)

    def _see(self, seen: Observed, member: Member | None) -> None:
        self.limits.see(replace(seen, member=Answered(self._run.clock.now(), member)))

    # --- giving back ---

    async def free(self, gate: GatePartners, name: str) -> None:
        """End the hold of a gate. A mark that can't be lifted now is lifted by the work on that node."""
        hold = self._holds.get(name)
        if hold is None or hold.node != gate.node:
            return
        try:
            if self.limits.is_charged_partner(name):
                cluster = self._cluster()
                await lift_mark(cluster, name, self._run.ledger.id)
                self._see(self.limits.nodes[name], await cluster.member(name))
        except (DriverError, Stop) as error:
            gate.tell(f"{name} can't be given back now, and keeps its mark: {error}")
        finally:
            del self._holds[name]
            self.limits.free_partner(name)

    async def recover(self, gate: GatePartners, names: Collection[str]) -> None:
        """Give back the partners that a run held for this gate and died: they carry a mark that says so."""
        for name in names:
            if name in self._holds or name in self._acting or name not in self.limits.nodes:
                continue
            try:
                await self._lift(name, gate.reason)
            except (DriverError, Stop) as error:
                gate.tell(f"{name} can't be given back now, and keeps its mark: {error}")

    async def give_back_left(self, names: Collection[str]) -> None:
        """Give back those of these nodes that are marked to be held and that nobody holds: whoever held them died.

        It is for a loop that only looks, in which no work on such a node lifts the mark. One whose own gate no longer
        holds keeps it.
        """
        async with self._lock:
            for name in names:
                reason = self._left_as(name)
                if not reason or stopped(self._run.holds(), self._run.clock.now()):
                    continue
                with suppress(DriverError, Stop):  # it is still marked, and the next pass tries again
                    await self._lift(name, reason)

    def _left_as(self, name: str) -> str:
        """Return the reason of our mark on a node that nobody holds any more; "" where there is none to be lifted."""
        seen = self.limits.nodes.get(name)
        if seen is None or isinstance(seen.member, Silent) or seen.member.value is None or name in self._holds:
            return ""
        mark = read_mark(seen.member.value.annotations.get(OWNER_ANNOTATION))
        if mark is None or mark.ledger != self._run.ledger.id or not mark.reason.startswith((_REASON, _SEARCH, CUT)):
            return ""
        found, record = self.candidate(name), self._run.ledger.node(name)
        if mark.reason.startswith(CUT):  # it served, and may not even have been drained
            fit = may_serve_as_before(self.limits.plan_of(name), record, seen.member.value)
        else:  # one that was shut down as a sibling is judged by its gate alone
            whole = not any(treats(one) and one.outcome != "refused" for one in record.since_certificate)
            fit = whole and found.service is Service.OUT and found.certified
        return mark.reason if fit and not found.occupied else ""

    async def _lift(self, name: str, reason: str) -> None:
        """Lift the mark of a node that is no partner any more, if it still has this reason."""
        member = await self._cluster().member(name) if self._run.fleet.settings.cluster is not None else None
        mark = None if member is None else read_mark(member.annotations.get(OWNER_ANNOTATION))
        if mark is not None and mark.reason == reason:
            await lift_mark(self._cluster(), name, self._run.ledger.id)
            if (seen := self.limits.nodes.get(name)) is not None:
                self._see(seen, await self._cluster().member(name))


class _Candidates(Mapping[str, Candidate]):
    """The nodes of the fleet as partners, each looked at only when it is asked for."""

    def __init__(self, pool: PartnerPool) -> None:
        self._pool = pool

    def __getitem__(self, name: str) -> Candidate:
        return self._pool.candidate(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pool._run.fleet.nodes)

    def __len__(self) -> int:
        return len(self._pool._run.fleet.nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._pool._run.fleet.nodes


@dataclass(frozen=True, slots=True)
class GatePartners:
    """Partners for one gate. It implements the port of that name. `node` "": for a search of the fabric."""

    pool: PartnerPool
    node: str
    attempt: str
    journal: Callable[[tuple[str, ...]], None]  # the partners that it holds
    step: Callable[[str], None]

    @property
    def reason(self) -> str:
        """The reason of a mark on a node that is held."""
        return _REASON + self.node if self.node else _SEARCH

    async def take(self, *, near: bool, avoid: Collection[str], within: str = "") -> TakenPartner | NoPartner:
        others = self.pool.outside(self.node, within) if within else ()
        return await self.pool.take(self, near=near, avoid={*avoid, *others})

    async def free(self, partner: TakenPartner) -> None:
        await self.pool.free(self, partner.name)

    async def recover(self, names: Collection[str]) -> None:
        await self.pool.recover(self, names)

    def tell(self, text: str) -> None:
        self.step(text)
