"""A ticket per part, never two, whatever the order of passes, crashes and errors of the tracker; each need is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.drivers.tickets.trackers import SETTLES, TrackerMessenger
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.errors import DriverError, Failure
from reconciler.model.notices import Message, NotDelivered
from reconciler.model.observed import Answered, Observed, Part, Silent
from reconciler.model.repairs import WHOLE_NODE, PlacedPart
from reconciler.model.tickets import Tracker, TrackerKind
from reconciler.model.vocab import Health, UnknownReason
from reconciler.notify.tickets import Need, TicketNews, TrackerState, decide_tickets, from_text, key_of, to_text
from tests import builders as b

T0 = datetime(2026, 11, 2, 8, tzinfo=UTC)
NODES = ("gpu-1", "gpu-2")
SLOTS = ("A1", "A2")
TRACKER = Tracker("t", TrackerKind.GITHUB, "token")


class Died(BaseException):
    """The process dies here."""


@dataclass
class Clock:
    at: datetime = T0

    def now(self) -> datetime:
        return self.at


@dataclass
class World:
    """A tracker and the parts of two nodes. `issues`: [thread, open, title, created_at], each ever created."""

    clock: Clock = field(default_factory=Clock)
    store: MemoryLedger = field(default_factory=lambda: MemoryLedger("m"))
    issues: list[list[Any]] = field(default_factory=list)
    mode: str = "works"
    faulty: dict[tuple[str, str], int] = field(default_factory=dict)  # node, slot -> generation of the part
    unclear: set[str] = field(default_factory=set)  # nodes of which nobody can say which part it is
    generations: Counter[tuple[str, str]] = field(default_factory=Counter)
    needed: set[str] = field(default_factory=set)  # serial numbers that some pass has seen as faulty

    # --- the tracker ---

    async def find(self, thread: str) -> tuple[str, str] | None:
        """Show an issue a minute after it was created, as an index that lags."""
        if self.mode == "refuses":
            raise DriverError(Failure.UNREACHABLE, "away")
        shown = [n for n, one in enumerate(self.issues) if one[0] == thread and self.clock.at - one[3] >= SETTLES / 2]
        return (str(shown[0]), "") if shown else None

    async def create(self, message: Message) -> tuple[str, str]:
        if self.mode == "lost before":
            raise DriverError(Failure.AMBIGUOUS, "no answer")
        self.issues.append([message.thread, True, message.title, self.clock.at])
        if self.mode == "lost after":
            raise DriverError(Failure.AMBIGUOUS, "no answer")
        if self.mode == "dies":
            raise Died
        return str(len(self.issues) - 1), ""

    async def update(self, number: str, message: Message) -> None:
        if self.mode in ("refuses", "lost before"):
            raise DriverError(Failure.UNREACHABLE, "away")
        self.issues[int(number)][1:3] = not message.over, message.title
        if self.mode == "dies":
            raise Died

    async def close(self) -> None:
        pass

    # --- the reconciler ---

    def serial(self, node: str, slot: str) -> str:
        return f"{node}-{slot}-{self.generations[node, slot]}"

    def passes(self) -> None:
        needs = {}
        for node, slot in self.faulty:
            whole = node in self.unclear
            part = PlacedPart(WHOLE_NODE) if whole else PlacedPart("dimm", slot, self.serial(node, slot))
            if not whole:
                self.needed.add(self.serial(node, slot))
            needs[key_of(node, part)] = Need(node, "p", "x", part, "ill", ("ecc: many",), (), "Acme")
        well = {node: self.observed(node) for node in NODES if not any(name == node for name, _ in self.faulty)}
        self.decide(TicketNews(needs, well, {}))

    def decide(self, news: TicketNews) -> None:
        """Decide from what the ledger has, as a process that has just started."""
        text = self.store.channel_states().get(TRACKER.channel)
        state = TrackerState() if text is None else from_text(text)
        unsent = {one.message.thread for one in self.store.unsent()}
        after, messages = decide_tickets(TRACKER, state, news, self.clock.at, ("demo", "seed"), unsent)
        self.store.save_notices(TRACKER.channel, to_text(after), messages, self.clock.at)

    def observed(self, node: str) -> Observed:
        parts = tuple(Part("dimm", slot, Health.OK, self.serial(node, slot)) for slot in SLOTS)
        silent = Silent(T0, UnknownReason.NOT_ASKED)
        return Observed(node, silent, Answered(T0, b.inventory(parts=parts)), silent, silent)

    def sends(self, mode: str) -> None:
        """Try the oldest message once. A process that dies leaves it in the outbox."""
        unsent = self.store.unsent()
        if not unsent:
            return
        self.mode, one = mode, unsent[0].message
        desk = TrackerMessenger(lambda _: self, self.store, self.clock)  # type: ignore[arg-type]
        with suppress(Died):
            try:
                asyncio.run(desk.send(TRACKER, one))
            except NotDelivered as error:
                self.store.message_failed(one.key, str(error), self.clock.at)
            else:
                self.store.message_sent(one.key, self.clock.at)

    def settle(self) -> None:
        for _ in range(12):
            self.passes()
            self.clock.at += SETTLES + timedelta(seconds=1)
            self.sends("works")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fails"), st.sampled_from(NODES), st.sampled_from(SLOTS), st.booleans()),
        st.tuples(st.just("exchanged"), st.sampled_from(NODES), st.sampled_from(SLOTS)),
        st.tuples(st.just("known"), st.sampled_from(NODES)),
        st.tuples(st.just("passes")),
        st.tuples(st.just("blind")),
        st.tuples(st.just("sends"), st.sampled_from(("works", "refuses", "lost before", "lost after", "dies"))),
        st.tuples(st.just("waits"), st.integers(1, 300)),
    ),
    max_size=40,
)


@given(STEPS)
@settings(deadline=None, max_examples=150)
def test_a_ticket_per_part_and_never_two(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for step in steps:
        match step:
            case ("fails", node, slot, unclear):
                world.faulty[node, slot] = 1
                world.unclear |= {node} if unclear else set()
            case ("exchanged", node, slot):
                world.faulty.pop((node, slot), None)
                world.generations[node, slot] += 1
            case ("known", node):
                world.unclear.discard(node)
            case ("passes",):
                world.passes()
            case ("blind",):
                world.decide(TicketNews({}, {}, {}))
            case ("sends", mode):
                world.sends(mode)
            case ("waits", seconds):
                world.clock.at += timedelta(seconds=seconds)
        assert max(Counter(thread for thread, *_ in world.issues).values(), default=0) <= 1, "two tickets of one thread"
    world.unclear.clear()
    world.settle()
    tickets = from_text(world.store.channel_states()[TRACKER.channel]).tickets
    assert max(Counter(thread for thread, *_ in world.issues).values(), default=0) <= 1
    parts = Counter((one.node, one.part.serial) for one in tickets.values() if one.part.serial)
    assert max(parts.values(), default=0) <= 1, "two tickets of one part"
    for node, slot in world.faulty:
        (one,) = [t for t in tickets.values() if t.part.serial == world.serial(node, slot)]
        [issue] = [issue for issue in world.issues if issue[0] == one.thread]
        assert issue[1], "it waits for a person, and its ticket is open"
        assert world.serial(node, slot) in issue[2]
    still = {world.serial(node, slot) for node, slot in world.faulty}
    for ticket in tickets.values():
        open_ = [issue for issue in world.issues if issue[0] == ticket.thread and issue[1]]
        if ticket.part.serial not in still and not any(node == ticket.node for node, _ in world.faulty):
            assert not open_, "what is exchanged has no open ticket"
    assert {one.part.serial for one in tickets.values()} >= world.needed, "every need that a pass saw has its ticket"
