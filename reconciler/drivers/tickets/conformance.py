"""Checks of a tracker of the Fleet, over the driver that keeps its tickets: opened once, found again, and closed.

Only a search reads. What writes opens one ticket under a marker of its own, and leaves it closed: no tracker's API
deletes one for every account.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.drivers.probes import Probe, WrongAnswerError, expect, run_probes
from reconciler.drivers.tickets.trackers import SETTLES, Client
from reconciler.model.conformance import Check, ConformanceReport
from reconciler.model.errors import DriverError, Failure
from reconciler.model.notices import Message, Severity
from reconciler.model.ports import Clock
from reconciler.model.tickets import Tracker, TrackerKind

_POLL_S: Final = 2.0
_BODY: Final = "This is a test by `reconciler conformance tickets`. Nothing is broken, and there is nothing to do."
_HOSTILE: Final = "``` @everyone {noformat} h1. *bold* <img> #1 [x](y) \u00fc"


@dataclass
class Bench:
    """`number`: of the ticket that was opened. `open`: whether it was left so."""

    client: Client
    tracker: Tracker
    clock: Clock
    thread: str = field(default_factory=lambda: secrets.token_hex(16))
    number: str = ""
    open: bool = False

    def message(self, *, over: bool = False, body: str = _BODY) -> Message:
        title = f"Conformance of the tracker {self.tracker.name}"
        return Message(secrets.token_hex(8), self.tracker.channel, self.thread, Severity.INFO, over, title, body)

    @property
    def ticket(self) -> str:
        if not self.number:
            raise DriverError(Failure.UNSUPPORTED, "no ticket was opened to try it with")
        return self.number

    async def update(self, message: Message) -> None:
        await self.client.update(self.ticket, message)
        self.open = not message.over


async def _nobodys(bench: Bench) -> None:
    try:
        found = await bench.client.find(secrets.token_hex(16))
    except DriverError as error:
        if error.kind is Failure.UNSUPPORTED:  # no tracker may lack a search: it is the place that is not there
            raise DriverError(Failure.UNREACHABLE, error.detail) from None
        raise
    expect(found is None, f"for a marker that no ticket has it finds {found}")


async def _opens(bench: Bench) -> None:
    bench.number, _ = await bench.client.create(bench.message(body=_HOSTILE))
    bench.open = True
    expect(bool(bench.number), "a ticket has no number")


async def _finds(bench: Bench) -> None:
    """Look for as long as the reconciler waits before it opens a second one: indexes lag."""
    ours, until = bench.ticket, bench.clock.monotonic() + SETTLES.total_seconds()
    if bench.tracker.kind is TrackerKind.WEBHOOK:
        raise DriverError(Failure.UNSUPPORTED, "a web server is not asked: it must take `ticket` for the same one")
    while (found := await bench.client.find(bench.thread)) is None and bench.clock.monotonic() < until:
        await bench.clock.sleep(_POLL_S)
    if found is None:
        raise WrongAnswerError(f"ticket {ours} is not found by its marker within {SETTLES.total_seconds():g} s")
    expect(found[0] == ours, f"ticket {found[0]} is found by the marker of {ours}")


async def _updates(bench: Bench) -> None:
    message = bench.message(body=f"{_BODY}\n{_HOSTILE}\n{'evidence ' * 500}")
    await bench.update(message)
    await bench.update(message)  # as after an answer that was lost


async def _closes(bench: Bench) -> None:
    for over in (True, True, False, False, True):  # each may be said again
        await bench.update(bench.message(over=over))
    if bench.tracker.kind is not TrackerKind.WEBHOOK:
        found = await bench.client.find(bench.thread)
        expect(found is not None and found[0] == bench.ticket, f"closed it is found as {found}")


async def _gone(bench: Bench) -> None:
    if bench.tracker.kind is TrackerKind.WEBHOOK:
        raise DriverError(Failure.UNSUPPORTED, "a web server does not say that it has lost one")
    ours = bench.ticket
    nobodys = f"{ours.rpartition('-')[0]}-999999999".lstrip("-")
    await _lacking(bench.client.update(nobodys, replace(bench.message(), over=True)), nobodys)


async def _lacking(call: Awaitable[None], number: str) -> None:
    try:
        await call
    except DriverError as error:
        if error.kind is not Failure.UNSUPPORTED:
            raise
        return
    raise WrongAnswerError(f"ticket {number}, which nobody has, is updated")


_PORT: Final = "reconciler/drivers/tickets/trackers.py: Client"
_TICKET: Final = "the ticket of the suite, which is closed in the end"
PROBES: Final[tuple[Probe[Bench], ...]] = (
    (Check("not-there", f"{_PORT}.find", "nothing is told: the account may not search"), _nobodys),
    (Check("write-open", f"{_PORT}.create", "no tickets", writes="one ticket, which is closed in the end"), _opens),
    (Check("write-find", f"{_PORT}.find", "after a lost answer there are two tickets", writes=_TICKET), _finds),
    (Check("write-update", f"{_PORT}.update", "a ticket lacks new evidence", writes=_TICKET), _updates),
    (Check("write-close", f"{_PORT}.update", "tickets stay open, or are opened anew", writes=_TICKET), _closes),
    (Check("write-gone", f"{_PORT}: UNSUPPORTED", "a deleted ticket is never opened anew", writes="nothing"), _gone),
)  # fmt: skip
ALL: Final = tuple(check for check, _ in PROBES)


async def check_tracker(client: Client, tracker: Tracker, clock: Clock, *, writes: bool) -> ConformanceReport:
    """Try the checks. Without `writes` no ticket is opened; what was opened is closed, however they end."""
    bench = Bench(client, tracker, clock)
    try:
        found = await run_probes(PROBES, bench, writes=writes)
    finally:
        if bench.open:
            with suppress(DriverError):  # the checks have told of it
                await bench.update(bench.message(over=True))
    about = {"kind": tracker.kind.value} | ({"ticket": f"ticket {bench.number}"} if bench.number else {})
    if bench.open:
        about["left"] = "which is left open: close it"
    return ConformanceReport("tickets", tracker.name, found, about)
