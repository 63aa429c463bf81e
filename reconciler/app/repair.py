"""The `repair` use cases: what waits for a person, and the order to exchange parts of a node.

The order is in the ledger, and whoever leads the fleet carries it out; where nobody does, this process does, as an
apply of that one node. So lease, budget, windows, holds, stop and brake are those of every run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.app.apply import ApplyJob, ApplyResult
from reconciler.app.apply import apply as apply_job
from reconciler.app.holds import check_subject
from reconciler.app.runtime import new_id, whoami
from reconciler.app.workspace import Workspace
from reconciler.health.ladder import REMEDIATION
from reconciler.health.placed_parts import ONLY_REPORTED, faulty_parts, placed_parts
from reconciler.model.desired import Desired
from reconciler.model.drift import DriftClass
from reconciler.model.errors import Refused, UsageError, did_you_mean
from reconciler.model.observed import Answered, Observed
from reconciler.model.plan import Goal, NodePlan
from reconciler.model.records import Attempt, Lease, NodeRecord
from reconciler.model.repairs import WHOLE_NODE, FaultyPart, PlacedPart, Repair, RepairPhase, Waiting
from reconciler.model.report import ApplyOutcome
from reconciler.model.tickets import PREFIX
from reconciler.model.vocab import Concern
from reconciler.notify.tickets import from_text
from reconciler.planner.node.corroboration import identity
from reconciler.planner.node.record import is_admission

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

_ASK_AGAIN_S: Final = 5.0  # of the fleet's time: how a leader's work is followed


# --- what waits ------------------------------------------------------------------------------------------------------


def waiting(workspace: Workspace) -> tuple[Waiting, ...]:
    """Return the selected nodes that wait for a person, those in repair among them."""
    observation = workspace.observe()
    with workspace.present_ledger() as ledger:
        workspace.foresee(observation, ledger)
        plan = workspace.make_plan(observation, ledger, new_id("repair", workspace.clock.now()))
        records = ledger.nodes(list(plan.nodes))
        found = [
            _waiting(workspace.fleet.nodes[name], node, observation.nodes[name], records[name], ledger)
            for name, node in plan.nodes.items()
        ]
    return tuple(one for one in found if one is not None)


def _waiting(desired: Desired, node: NodePlan, seen: Observed, record: NodeRecord, ledger: SqlLedger) -> Waiting | None:
    parts = faulty_parts(desired.profile, seen, _paths(node))
    idle = node.goal is Goal.ISOLATED and not node.changes and node.in_service is False
    if not (node.waits_for_person or idle or record.repair or (parts and _paths(node) & ONLY_REPORTED)):
        return None
    if not parts:
        parts = _known_parts(record, seen)
    why = node.blocked.detail if node.blocked is not None else node.situation
    items = [item for item in node.drift if item.concern is Concern.HEALTH and item.path in _paths(node)]
    first = [at for path, _, _, _, at in ledger.open_drift(node.node) if path in _paths(node)]
    evidence = tuple(f"{item.path.removeprefix('health.')}: {item.observed}" for item in items)
    since = min(first, default=None) or (None if record.repair is None else record.repair.since)
    tried = tuple(map(_in_words, reversed(list(_tried(record)))))
    return Waiting(
        node.node,
        node.pool,
        why,
        parts,
        since,
        tried,
        evidence,
        node.in_service,
        record.repair,
        ticket_of(ledger, node.node),
    )


def ticket_of(ledger: SqlLedger, node: str) -> str:
    """Return the addresses of the open tickets of a node; "" for none."""
    places, found = ledger.tickets(), list[str]()
    for name, text in ledger.channel_states().items():
        with suppress(ValueError):  # damaged: `run` tells it, and makes it anew
            open_ones = from_text(text).tickets.values() if name.startswith(PREFIX) else ()
            found += [one.thread for one in open_ones if one.node == node and one.over_at is None]
    return ", ".join(places[thread].url or places[thread].number for thread in found if thread in places)


def _paths(node: NodePlan) -> frozenset[str]:
    """Return the value paths of the signals that count against a node, and of those that a person looks after."""
    told = [item for item in node.drift if item.concern is Concern.HEALTH and item.kind is not DriftClass.IGNORED]
    return frozenset(item.path for item in told if item.kind is not DriftClass.REPORTED or item.path in ONLY_REPORTED)


def _known_parts(record: NodeRecord, seen: Observed) -> tuple[FaultyPart, ...]:
    """Return the parts that a repair under way names, else the node as a whole."""
    if record.repair is not None and record.repair.faulty:
        return tuple(FaultyPart(part) for part in record.repair.faulty)
    return (FaultyPart(_whole(record, seen)),)


def _whole(record: NodeRecord, seen: Observed) -> PlacedPart:
    shown = seen.hot.value.serial if isinstance(seen.hot, Answered) else None
    return PlacedPart(WHOLE_NODE, "", shown or record.serial)


def _tried(record: NodeRecord) -> Iterator[Attempt]:
    """Yield what was tried to heal the node since it last served, newest first."""
    for attempt in reversed(record.attempts):
        if is_admission(attempt):
            return
        failed_gate = attempt.action == "run_gate" and attempt.outcome == "permanent"
        if attempt.outcome != "refused" and (attempt.cause == REMEDIATION or failed_gate):
            yield attempt


def _in_words(attempt: Attempt) -> str:
    ended = "" if attempt.outcome == "done" else f" ({attempt.outcome})"
    return f"{attempt.action}{ended} at {attempt.at:%Y-%m-%d %H:%M}"


# --- the order -------------------------------------------------------------------------------------------------------


def order_start(workspace: Workspace, ledger: SqlLedger, node: str, parts: Sequence[str], reason: str) -> Repair:
    """Return the order to exchange parts of a node, which is not given yet. Nothing but reads is done.

    `parts`: as `repair list` names them, or serial numbers; none: those that the signals speak against. Raise Refused
    unless the machine behind the BMC is proved to be this node's, before anything is written to it (pitfall A14).
    """
    check_subject(workspace.fleet, node)
    desired, record = workspace.fleet.nodes[node], ledger.node(node)
    observation = workspace.observe()
    seen = observation.nodes[node]
    _check_identity(desired, seen, record)
    plan = workspace.make_plan(observation, ledger, new_id("repair", workspace.clock.now()))
    before = placed_parts(seen)
    if record.repair is not None:
        return replace(record.repair, phase=RepairPhase.OUT, told="", accepted="")
    found = tuple(one.part for one in faulty_parts(desired.profile, seen, _paths(plan.nodes[node])))
    faulty = _named(parts, before, found) if parts else found or (_whole(record, seen),)
    now = workspace.clock.now()
    return Repair(0, node, RepairPhase.OUT, whoami(), now, faulty, before, reason)


def _check_identity(desired: Desired, seen: Observed, record: NodeRecord) -> None:
    if not isinstance(seen.hot, Answered):
        raise Refused(
            f"{desired.node}: its BMC does not answer ({seen.hot.reason}), so nothing shows which machine it is"
        )
    facts = seen.host.value if isinstance(seen.host, Answered) else None
    proved, why = identity(desired, seen.hot.value, facts, record)
    if not proved:
        raise Refused(f"{desired.node}: {why}")


def _named(
    names: Sequence[str], known: Collection[PlacedPart], found: Collection[PlacedPart]
) -> tuple[PlacedPart, ...]:
    """Return the parts that a person names. Raise UsageError for a part that nobody has seen."""
    by_name = {part.name: part for part in (*known, *found)} | {part.serial: part for part in known if part.serial}
    if strange := [name for name in names if name not in by_name]:
        hint = did_you_mean(strange[0], [name for name in by_name if name])
        raise UsageError(f"no part {strange[0]!r} was read" + (f"; {hint}" if hint else ""))
    return tuple(dict.fromkeys(by_name[name] for name in names))


def give(workspace: Workspace, ledger: SqlLedger, repair: Repair) -> Repair:
    """Put the order of `order_start` into the ledger, with who gave it."""
    told = f"{whoami()} exchanges {repair.what}" + (f": {repair.reason}" if repair.reason else "")
    return ledger.save_repair(repair, told, workspace.clock.now())


def order_return(workspace: Workspace, ledger: SqlLedger, node: str, accept: str) -> Repair:
    """Say that the parts of a node are exchanged. Raise UsageError for a node that is not in repair."""
    check_subject(workspace.fleet, node)
    found = ledger.node(node).repair
    if found is None:
        raise UsageError(f"{node} is not in repair: `reconciler repair start {node}` begins one")
    returning = replace(found, phase=RepairPhase.RETURNING, told="", accepted=accept)
    told = f"{whoami()} is done" + (f", and accepts the parts as they are: {accept}" if accept else "")
    return ledger.save_repair(returning, told, workspace.clock.now())


@dataclass(frozen=True, slots=True)
class OrderRun:
    """A node whose order was given, and who carries it out: another process that leads the fleet, or this one."""

    workspace: Workspace
    ledger: SqlLedger
    node: str

    def leader(self) -> Lease | None:
        """Return the lease of whoever leads the fleet, and so carries out the order; None when nobody does."""
        return self.ledger.holder(self.workspace.fleet.settings.fleet, self.workspace.clock.now())

    def carry_out(self, command: str, wait_s: float, exit_code: Callable[[ApplyOutcome], int]) -> ApplyResult:
        """Carry out the order as a run of this process."""
        job = ApplyJob(None, wait_s, redact=False, command=command)
        return apply_job(self.workspace, self.ledger, job, exit_code)

    def follow(self, wait_s: float, sleep: Callable[[float], None]) -> Iterator[str]:
        """Yield what the leader does to the node, in words, until the order is carried out or the time is over.

        `sleep`: by seconds of the fleet's time.
        """
        clock = self.workspace.clock
        since, told = clock.now(), set[str]()
        deadline = clock.monotonic() + wait_s
        while True:
            attempts = self.ledger.node(self.node).attempts
            news = {_line(attempt): None for attempt in attempts if (attempt.ended_at or attempt.at) >= since}
            yield from [line for line in news if line not in told]
            told |= news.keys()
            if self.is_carried_out or clock.monotonic() >= deadline:
                return
            sleep(_ASK_AGAIN_S)

    @property
    def is_carried_out(self) -> bool:
        """Return whether nothing of the order is left to whoever leads: the node is off, or its parts were judged."""
        record = self.ledger.node(self.node)
        return is_off(record) or record.repair is None or record.repair.phase is RepairPhase.REFUSED


def is_off(record: NodeRecord) -> bool:
    """Return whether the node was switched off since its repair was ordered, and waits for the exchange."""
    repair = record.repair
    if repair is None or repair.phase is not RepairPhase.OUT:
        return False
    done = [one for one in record.attempts if one.action == "shut_down" and one.outcome == "done"]
    return bool(done) and done[-1].at >= (repair.changed_at or repair.since)


def _line(attempt: Attempt) -> str:
    name = f"{attempt.action}:{attempt.target}" if attempt.target else attempt.action
    return f"{name} {attempt.outcome}" + (f": {attempt.detail}" if attempt.detail else "")
