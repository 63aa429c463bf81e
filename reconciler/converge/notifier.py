"""Tell people what the passes of a leader find (DESIGN 13, invariant 23).

What a pass decides and its messages are in the ledger before the pass is over; a task sends what is in the outbox.
So a restart or another leader goes on with both: a message that was sent as the process died is sent again, with the
same key. A channel gets one message at a time, in order. One that fails is tried again after ever longer pauses, and
holds up neither the loop nor another channel.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from reconciler.converge.clock_steps import STEP
from reconciler.converge.events import LoopTold, Progress
from reconciler.model.crash import of_its_own, of_its_own_async
from reconciler.model.desired import Fleet
from reconciler.model.notices import (
    Channel,
    ChannelStatus,
    Message,
    Messenger,
    NotDelivered,
    NoticeStore,
    Recipient,
    Unsent,
)
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.ports import Clock, Metrics
from reconciler.model.records import NodeRecord
from reconciler.model.tickets import PREFIX, Tracker
from reconciler.notify.decide import Context, decide
from reconciler.notify.found import Found, find
from reconciler.notify.state import ChannelState, from_text, to_text
from reconciler.notify.tickets import TrackerState, decide_tickets, find_needs
from reconciler.notify.tickets import from_text as tickets_from_text
from reconciler.notify.tickets import to_text as tickets_text

AGAIN_S = 30.0  # after the first try that failed; doubled after each further one
LONGEST_S = 3600.0
POLL_S = 30.0
SAVED = timedelta(minutes=10)  # how old the ledger's state of a channel may be that is told nothing


@dataclass(frozen=True, slots=True)
class PassNews:
    """The results of a pass. `outage`: as of ObservationPass."""

    fleet: Fleet
    plan: Plan
    observation: Observation
    records: Mapping[str, NodeRecord]
    outage: str


class Notifier:
    """Tells people through the channels of the spec, for one term of leadership. `messenger` None: tells nobody."""

    def __init__(
        self, ledger: NoticeStore, messenger: Messenger | None, clock: Clock, metrics: Metrics, progress: Progress
    ) -> None:
        self._ledger = ledger
        self._messenger = messenger
        self._clock = clock
        self._metrics = metrics
        self._progress = progress
        self._recipients: Mapping[str, Recipient] = {}  # by their names in the outbox
        self._texts: dict[str, str] | None = None  # states as the ledger has them; None: not read yet
        self._states: dict[str, ChannelState] = {}
        self._trackers: dict[str, TrackerState] = {}
        self._saved: dict[str, datetime] = {}  # when the state of a channel was saved
        self._status: dict[str, ChannelStatus] = {}
        self._decided: tuple[datetime, float] | None = None  # the last pass, by both clocks
        self._wake = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._tries: dict[str, asyncio.Task[None]] = {}  # by channel

    def passed(self, news: PassNews) -> None:
        """Decide what a pass has to tell, and put it into the outbox. A bug in that stops nothing else."""
        if self._messenger is None:
            return
        doing = "deciding what people are told"
        of_its_own("notifications", doing, lambda: self._pass(news), lambda _crash: None)
        if self._sending is None and self._recipients:
            self._sending = asyncio.create_task(self._send())

    def check(self) -> None:
        """Raise what ended the sending: an error of the ledger, or a lost lease."""
        if self._sending is not None and self._sending.done():
            self._sending.result()

    async def close(self) -> None:
        """Stop sending. What is not sent stays in the outbox."""
        tasks = [task for task in (self._sending, *self._tries.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- deciding ----------------------------------------------------------------------------------------------------

    def _pass(self, news: PassNews) -> None:
        declared, trackers = news.fleet.settings.notifications, news.fleet.settings.tickets
        self._read(declared, trackers)
        now, states = self._clock.now(), self._states
        context = Context(
            news.fleet.settings.fleet,
            self._ledger.id,
            {name: (node.pool, node.persona) for name, node in news.fleet.nodes.items()} if declared else {},
        )
        unsent = self._ledger.unsent() if declared or trackers else ()
        backlog = Counter(one.message.channel for one in unsent)
        search = self._ledger.last_search() if declared else None
        seen: dict[datetime, Found] = {}
        for channel in declared:
            known = states.get(channel.name) or ChannelState(seen_at=now)
            if known.seen_at not in seen:
                seen[known.seen_at] = find(
                    news.plan, news.observation, news.records, since=self._by_clock_now(known.seen_at, now),
                    outage=news.outage,
                    fabric=search.open if search else (),
                )  # fmt: skip
            state, messages = decide(channel, known, seen[known.seen_at], now, context, backlog=backlog[channel.name])
            self._save(channel, known, state, messages, now)
            states[channel.name] = state
        self._decided = now, self._clock.monotonic()
        if trackers:
            self._pass_tickets(news, trackers, now, {one.message.thread for one in unsent})

    def _by_clock_now(self, seen_at: datetime, now: datetime) -> datetime:
        """Return the time of an earlier pass by the wall clock as it goes now, where it was set since."""
        if self._decided is None or self._decided[0] != seen_at:
            return seen_at
        at = now - timedelta(seconds=self._clock.monotonic() - self._decided[1])
        return at if abs(at - seen_at) > STEP else seen_at

    def _pass_tickets(
        self, news: PassNews, trackers: Sequence[Tracker], now: datetime, unsent: Collection[str]
    ) -> None:
        found = find(news.plan, news.observation, news.records, since=now, outage=news.outage)
        shown = find_needs(news.fleet, news.plan, news.observation, news.records, self._ledger.repairs(), found)
        context = news.fleet.settings.fleet, self._ledger.id
        for tracker in trackers:
            known = self._trackers.get(tracker.channel) or TrackerState()
            state, messages = decide_tickets(tracker, known, shown, now, context, unsent)
            if state != known:
                self._ledger.save_notices(tracker.channel, tickets_text(state), messages, now)
                self._wake.set()
            self._trackers[tracker.channel] = state

    def _read(self, declared: Sequence[Channel], trackers: Sequence[Tracker]) -> None:
        """Read the states of all recipients once, and forget those that the spec has no more."""
        recipients: dict[str, Recipient] = {channel.name: channel for channel in declared}
        recipients |= {tracker.channel: tracker for tracker in trackers}
        if self._texts is None:
            self._texts = dict(self._ledger.channel_states())
            for name, text in self._texts.items():
                self._parse(name, text)
        known = self._states.keys() | self._trackers.keys()
        if known - recipients.keys():
            self._ledger.drop_channels(list(recipients))
            for name in known - recipients.keys():
                self._states.pop(name, None)
                self._trackers.pop(name, None)
        self._recipients = recipients

    def _parse(self, name: str, text: str) -> None:
        """Read a state of the ledger. One that is damaged is a new one: better told twice than never.

        A ticket is not opened twice for that: its tracker is asked for its thread, which stays the same.
        """
        try:
            if name.startswith(PREFIX):
                self._trackers[name] = tickets_from_text(text)
            else:
                self._states[name] = from_text(text)
        except ValueError as error:
            self._tell(f"channel {name}: {error}; what goes on is told again", problem=True)
            if not name.startswith(PREFIX):
                self._states[name] = ChannelState(seen_at=self._clock.now())

    def _save(
        self, channel: Channel, before: ChannelState, state: ChannelState, messages: Sequence[Message], now: datetime
    ) -> None:
        """Save what has changed. The time alone is saved now and then: thousands of notices are megabytes."""
        name = channel.name
        same = replace(before, seen_at=state.seen_at) == state
        if same and name in self._saved and now - self._saved[name] < SAVED:
            return
        self._ledger.save_notices(name, to_text(state), messages, now)
        self._saved[name] = now
        if messages:
            self._wake.set()

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _send(self) -> None:
        """Send what is in the outbox, until cancelled."""
        while True:
            for name in [name for name, task in self._tries.items() if task.done()]:
                self._tries.pop(name).result()
            due = self._start()
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._clock.real_seconds(due)):
                    await self._wake.wait()

    def _start(self) -> float:
        """Start to send the oldest message of each channel that is due; return the seconds until another one is."""
        now, due = self._clock.now(), POLL_S
        unsent = self._ledger.unsent()
        count = Counter(one.message.channel for one in unsent)
        first: dict[str, Unsent] = {}
        for one in unsent:
            first.setdefault(one.message.channel, one)
        for name, recipient in self._recipients.items():
            status = self._status.get(name, ChannelStatus())
            self._status[name] = replace(status, unsent=count[name])
            one_first = first.get(name)
            if one_first is None or name in self._tries:
                continue
            pause = (one_first.next_at - now).total_seconds() if one_first.next_at is not None else 0.0
            if 0 < pause <= LONGEST_S:  # a longer one is of a clock that was set back
                due = min(due, pause)
                self._status[name] = replace(self._status[name], error=one_first.error)
                continue
            task = self._tries[name] = asyncio.create_task(self._try(name, recipient, one_first))
            task.add_done_callback(lambda _: self._wake.set())
        self._metrics.channels(dict(self._status))
        return max(due, 0.1)

    async def _try(self, name: str, recipient: Recipient, unsent: Unsent) -> None:
        message, status = unsent.message, self._status[name]
        doing = "telling people"
        work = partial(self._sent, recipient, message)
        error = await of_its_own_async("notifications", doing, work, lambda crash: crash.sentence)
        if error:
            pause = timedelta(seconds=min(AGAIN_S * 2 ** min(unsent.tries, 10), LONGEST_S))
            self._ledger.message_failed(message.key, error, self._clock.now() + pause)
            self._status[name] = replace(status, failures=status.failures + 1, error=error)
            if not status.error:
                self._tell(f"channel {name} was not told, and is tried again: {error}", problem=True)
            return
        self._ledger.message_sent(message.key, self._clock.now())
        self._status[name] = replace(status, sent=status.sent + 1, error="")
        if status.error:
            self._tell(f"channel {name} works again")
        self._tell(f"channel {name} was told: {message.title}")

    async def _sent(self, recipient: Recipient, message: Message) -> str:
        """Send a message; return why it was not taken, or ""."""
        assert self._messenger is not None
        try:
            await self._messenger.send(recipient, message)
        except NotDelivered as error:
            return str(error) or "it was not taken"
        return ""

    def _tell(self, message: str, *, problem: bool = False) -> None:
        self._progress(LoopTold("notice", message, problem))
