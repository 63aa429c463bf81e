"""Decide what the ticket of each part says: pure functions from the findings of a pass to messages.

A ticket is opened when a person must exchange a part, updated in place while its evidence grows, and closed when the
node serves again: only its gate lets it. What can't be read changes nothing. Its thread goes by node and part, so that
neither another order of passes nor a lost answer makes a second one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from hashlib import sha256

from pydantic import TypeAdapter, ValidationError

from reconciler.health.ladder import REMEDIATION
from reconciler.health.placed_parts import ONLY_REPORTED, faulty_parts, kinds_read, placed_parts
from reconciler.model.desired import Fleet
from reconciler.model.drift import DriftClass
from reconciler.model.notices import Message, NoticeEvent, Severity
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.plan import Goal, NodePlan, Plan
from reconciler.model.printable import visible
from reconciler.model.records import NodeRecord
from reconciler.model.repairs import WHOLE_NODE, FaultyPart, PlacedPart, Repair, RepairPhase
from reconciler.model.tickets import Tracker
from reconciler.model.vocab import Concern
from reconciler.notify.found import Found
from reconciler.planner.node.record import is_admission

LINE = 300  # characters
LINES = 40  # of evidence, and of what was tried


@dataclass(frozen=True, slots=True)
class Need:
    """A part that a person must exchange, as a pass sees it, or a node of which nothing tells which part it is."""

    node: str
    pool: str
    persona: str
    part: PlacedPart
    why: str
    evidence: tuple[str, ...]
    tried: tuple[str, ...]
    machine: str  # maker, model, serial number


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket as its tracker was last told. `text`: digest of that; "" = nothing yet. `over_at`: None = it is open.

    `evidence`: all that was ever seen, in the order in which it came.
    """

    thread: str
    node: str
    part: PlacedPart
    since: datetime
    why: str = ""
    evidence: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    machine: str = ""
    text: str = ""
    over_at: datetime | None = None
    ended: str = ""  # how, in words


@dataclass(frozen=True, slots=True)
class TrackerState:
    """All tickets of a tracker, closed ones too: a part that fails again has its ticket opened again."""

    tickets: Mapping[str, Ticket] = field(default_factory=dict)  # by key, see `key_of`
    number: int = 0  # of messages, ever


@dataclass(frozen=True, slots=True)
class TicketNews:
    """The parts of one pass. `well`: nodes that were read in full, and serve; what else is not in `needs` waits."""

    needs: Mapping[str, Need]
    well: Mapping[str, Observed]
    repairs: Mapping[str, Repair]  # the newest of each node


def key_of(node: str, part: PlacedPart) -> str:
    """Return what makes a part one: its serial number on its node, else its slot."""
    return f"{node}/{part.kind}/{part.serial or part.place}"


# --- what a pass shows -----------------------------------------------------------------------------------------------


def find_needs(
    fleet: Fleet, plan: Plan, observation: Observation, records: Mapping[str, NodeRecord], repairs: Sequence[Repair],
    found: Found,
) -> TicketNews:  # fmt: skip
    """Return the parts that a person must exchange, and the nodes that need nobody. `repairs`: oldest first."""
    needs: dict[str, Need] = {}
    well: dict[str, Observed] = {}
    if found.blind:
        return TicketNews({}, {}, {})
    for name, node in plan.nodes.items():
        seen, desired = observation.nodes.get(name), fleet.nodes.get(name)
        if seen is None or desired is None:
            continue
        notice = found.holding.get(f"node/{name}")
        waits = notice is not None and notice.event is NoticeEvent.REPAIR
        for faulty in _faulty(fleet, node, seen, waits=waits):
            one = _need(fleet, node, seen, records.get(name), faulty)
            needs[key_of(name, faulty.part)] = one
        if node.in_service and not node.incomplete and not waits and node.goal is not Goal.REPAIR:
            well[name] = seen
    return TicketNews(needs, well, {repair.node: repair for repair in repairs})


def _faulty(fleet: Fleet, node: NodePlan, seen: Observed, *, waits: bool) -> Iterator[FaultyPart]:
    told = [item for item in node.drift if item.concern is Concern.HEALTH and item.kind is not DriftClass.IGNORED]
    ill = {item.path for item in told if item.kind is not DriftClass.REPORTED} if waits else set[str]()
    parts = faulty_parts(fleet.nodes[node.node].profile, seen, ill | ({item.path for item in told} & ONLY_REPORTED))
    yield from parts
    if waits and not parts:
        serial = seen.hot.value.serial if isinstance(seen.hot, Answered) else None
        evidence = tuple(f"{item.path.removeprefix('health.')}: {item.observed}" for item in told if item.path in ill)
        yield FaultyPart(PlacedPart(WHOLE_NODE, "", serial), evidence)


def _need(fleet: Fleet, node: NodePlan, seen: Observed, record: NodeRecord | None, faulty: FaultyPart) -> Need:
    hot = seen.hot.value if isinstance(seen.hot, Answered) else None
    known = (hot.manufacturer, hot.model, hot.serial) if hot is not None else (None, None, record and record.serial)
    machine = " ".join(str(word) for word in known if word)
    why = node.blocked.detail if node.blocked is not None else node.situation
    persona = fleet.nodes[node.node].persona
    return Need(node.node, node.pool, persona, faulty.part, why, faulty.evidence, tuple(_tried(record)), machine)


def _tried(record: NodeRecord | None) -> Iterator[str]:
    """Yield what was tried since the node last served, oldest first."""
    attempts = [] if record is None else list(record.attempts)
    last = next((at for at in range(len(attempts) - 1, -1, -1) if is_admission(attempts[at])), -1)
    for attempt in attempts[last + 1 :]:
        if attempt.cause == REMEDIATION and attempt.outcome not in ("refused", "started"):
            yield f"{attempt.at:%Y-%m-%d %H:%M} UTC {attempt.action}: {attempt.outcome}"


# --- what is told ----------------------------------------------------------------------------------------------------


def decide_tickets(
    tracker: Tracker, state: TrackerState, news: TicketNews, now: datetime, context: tuple[str, str],
    unsent: Collection[str] = (),
) -> tuple[TrackerState, tuple[Message, ...]]:  # fmt: skip
    """Return the state after this pass, and the tickets that are to change.

    `context`: name of the fleet, and id of the ledger, so that no other fleet's threads are the same. `unsent`: threads
    with a message that the tracker has not taken yet: they get the next one after it.
    """
    fleet, seed = context
    tickets = dict(state.tickets)
    for key, need in news.needs.items():
        if _takes(tracker, need):
            _grow(tickets, key, need, now, f"{seed}\n{tracker.name}\n")
    for key, ticket in tickets.items():
        if ticket.over_at is None and (ended := _ended(ticket, key, news)):
            tickets[key] = replace(ticket, over_at=now, ended=ended)
    messages: list[Message] = []
    for key, ticket in tickets.items():
        title, body = text_of(fleet, ticket, news.repairs.get(ticket.node))
        digest = sha256(f"{title}\n{body}\n{ticket.over_at is not None}".encode()).hexdigest()
        if digest == ticket.text or ticket.thread in unsent:
            continue
        number = state.number + len(messages) + 1
        over = ticket.over_at is not None
        severity = Severity.INFO if over else Severity.CRITICAL
        own = sha256(f"{seed}\n{tracker.name}\n{number}\n{digest}".encode()).hexdigest()[:32]
        messages.append(
            Message(own, tracker.channel, ticket.thread, severity, over, title, body, (f"node/{ticket.node}",))
        )
        tickets[key] = replace(ticket, text=digest)
    return TrackerState(tickets, state.number + len(messages)), tuple(messages)


def _takes(tracker: Tracker, need: Need) -> bool:
    return (not tracker.pools or need.pool in tracker.pools) and (
        not tracker.personas or need.persona in tracker.personas
    )


def _grow(tickets: dict[str, Ticket], key: str, need: Need, now: datetime, seed: str) -> None:
    """Open the ticket of a need, or add to it. That of a node as a whole becomes that of the first part to blame."""
    whole = next((other for other, one in tickets.items() if _is_open_whole(one, need.node)), None)
    if need.part.kind == WHOLE_NODE:
        open_ones = [other for other, one in tickets.items() if one.node == need.node and one.over_at is None]
        key = next(iter(open_ones), key)  # whatever part it is, the node has its ticket
    known = tickets.get(key)
    if known is None and whole is not None and whole != key:
        known = replace(tickets.pop(whole), part=need.part)
    if known is None:
        thread = sha256((seed + key).encode()).hexdigest()[:32]
        known = Ticket(thread, need.node, need.part, now)
    if known.over_at is not None:
        known = replace(known, over_at=None, ended="", since=now, evidence=(), tried=())
    tickets[key] = replace(
        known,
        why=need.why,
        evidence=_joined(known.evidence, need.evidence),
        tried=_joined(known.tried, need.tried),
        machine=need.machine or known.machine,
    )


def _is_open_whole(ticket: Ticket, node: str) -> bool:
    return ticket.node == node and ticket.part.kind == WHOLE_NODE and ticket.over_at is None


def _joined(known: tuple[str, ...], new: Sequence[str]) -> tuple[str, ...]:
    """Return all lines once. A count that has grown takes the place of the line that it grew in."""
    names = {line.partition(":")[0] for line in new}
    kept = [line for line in known if line.partition(":")[0] not in names or line in new]
    return tuple(dict.fromkeys([*kept, *new]))[-LINES:]


def _ended(ticket: Ticket, key: str, news: TicketNews) -> str:
    """Return how the need of a ticket ended; "" while it goes on, or nobody knows."""
    if key in news.needs or ticket.node not in news.well:
        return ""
    seen, part = news.well[ticket.node], ticket.part
    repair = news.repairs.get(ticket.node)
    for old, new in repair.exchanged if repair is not None and repair.phase is RepairPhase.CLOSED else ():
        if (old.kind, old.serial) == (part.kind, part.serial) and part.serial:
            return f"{part.serial} was exchanged for {new.serial or 'another part'}, which passed its gate"
    if part.serial is None or part.kind == WHOLE_NODE:
        return "the node passed its gate and serves again"
    if part.kind not in kinds_read(seen):
        return ""
    now = placed_parts(seen)
    if any((one.kind, one.serial) == (part.kind, part.serial) for one in now):
        return f"the node serves again with the same part ({part.serial}), which shows nothing any more"
    there = next((one for one in now if (one.kind, one.place) == (part.kind, part.place)), None)
    return f"{part.serial} was exchanged for {there.serial if there else 'another part'}, which passed its gate"


# --- texts -----------------------------------------------------------------------------------------------------------


def text_of(fleet: str, ticket: Ticket, repair: Repair | None) -> tuple[str, str]:
    """Return title and body in plain text, which whoever sends it escapes for its tracker."""
    part = ticket.part
    title = (
        f"{fleet}: {ticket.node}: replace {part.text}" if part.kind != WHOLE_NODE else f"{fleet}: {ticket.node}: repair"
    )
    lines = [
        f"Node:      {ticket.node}",
        f"Machine:   {ticket.machine or 'not known'}",
        f"Part:      {part.kind}",
        f"Slot:      {part.place or 'not known'}",
        f"Serial:    {part.serial or 'not known'}",
        f"Since:     {ticket.since:%Y-%m-%d %H:%M} UTC",
        f"Why:       {ticket.why}",
        *_list("Evidence", ticket.evidence),
        *_list("Tried", ticket.tried),
    ]
    if ticket.over_at is not None:
        lines += ["", f"Closed:    {ticket.over_at:%Y-%m-%d %H:%M} UTC, as {ticket.ended}"]
    elif repair is not None and repair.is_open:
        lines += ["", f"In repair: by {repair.who} since {repair.since:%Y-%m-%d %H:%M} UTC"]
    else:
        lines += ["", f"Next:      reconciler repair start {ticket.node}"]
    rma = _rma(ticket) if part.kind != WHOLE_NODE else []
    return _cut(title), "\n".join(_cut(line) for line in [*lines, *rma])


def _list(head: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{head}:", *(f"  {line}" for line in lines)] if lines else []


def _rma(ticket: Ticket) -> list[str]:
    """Return what a vendor asks for, to be pasted into its form."""
    part = ticket.part
    return [
        "",
        "For the vendor:",
        f"  We request a replacement under warranty of the {part.kind} with serial number {part.serial or 'unknown'},",
        f"  installed in slot {part.place or 'not known'} of the system {ticket.machine or 'not known'}.",
        f"  The fault was first seen on {ticket.since:%Y-%m-%d} and shows as:",
        *(f"    {line}" for line in ticket.evidence or (ticket.why,)),
        *(["  These steps did not heal it:", *(f"    {line}" for line in ticket.tried)] if ticket.tried else []),
    ]


def _cut(text: str) -> str:
    """Return one line without control characters."""
    clean = visible(text[: 4 * LINE].replace("\n", " "))
    return clean if len(clean) <= LINE else clean[: LINE - 1] + "…"


# --- the state in the ledger -----------------------------------------------------------------------------------------


def to_text(state: TrackerState) -> str:
    return _adapter().dump_json(state).decode()


def from_text(text: str) -> TrackerState:
    """Raise ValueError for what `to_text` did not write."""
    try:
        return _adapter().validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(f"the state of a tracker is damaged ({error.error_count()} errors)") from None


@cache
def _adapter() -> TypeAdapter[TrackerState]:
    return TypeAdapter(TrackerState)
