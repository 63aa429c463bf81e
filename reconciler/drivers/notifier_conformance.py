"""Checks of what sends messages to people, over the driver of channels: Apprise, or the notifier of an extension.

It is given the address of a web server on loopback in place of its secret, so that nobody gets a message. Only what
writes sends to the channel itself.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from reconciler.drivers.extensions.notifiers import DEADLINE_S
from reconciler.drivers.loopback_receiver import Received, Receiver
from reconciler.drivers.probes import Probe, WrongAnswerError, expect, run_probes
from reconciler.model.conformance import Check, CheckOutcome, CheckResult, ConformanceReport
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.notices import Channel, Message, NotDelivered, Severity

HOLD_S: Final = DEADLINE_S + 10.0  # a request is answered by then, so that what knows no deadline ends at all
_TICK_S: Final = 0.05
_HELD_UP_S: Final = 2.0  # as in the service: by then nodes, leases and signals have waited
_INJECTED: Final = "x-injected"
_HOSTILE: Final = f'"quoted" \\ {{{{braces}}}} <b>bold</b> & \u00fc\u202e\r\n{_INJECTED}: yes\r\n\r\nend of the title'

Send = Callable[[Message], Awaitable[None]]


@dataclass
class Bench:
    """`check`, `real`: of the channel as it is declared. `local`: sends to the receiver by the address that it gets."""

    channel: Channel
    check: Callable[[], str]
    real: Send
    local: Callable[[str, str], Send]
    receiver: Receiver | None
    takes: str = ""  # what takes the messages, in words

    def __post_init__(self) -> None:
        self.token = secrets.token_hex(12)
        self.said = list[str]()  # of messages that were not taken

    def message(self, title: str, *, key: str = "", thread: str = "", over: bool = False) -> Message:
        key = key or f"conformance-{secrets.token_hex(8)}"
        body = "This is a test by `reconciler conformance notifier`. Nothing happened, and there is nothing to do."
        return Message(key, self.channel.name, thread or key, Severity.INFO, over, title, body)

    async def received(self, *messages: Message) -> list[Received]:
        """Return what arrives of messages."""
        assert self.receiver is not None
        before = len(self.receiver.received)
        send = self.local(self.receiver.address, self.token)
        for message in messages:
            try:
                await send(message)
            except NotDelivered as error:
                raise WrongAnswerError(f"a message that the receiver took was not delivered: {error}") from error
        return self.receiver.received[before:]

    async def refused(self, address: str) -> None:
        """Keep what is said of a message that nobody takes at an address."""
        try:
            await self.local(address, self.token)(self.message("Refused"))
        except NotDelivered as error:
            self.said.append(str(error))
            return
        raise WrongAnswerError("it says nothing of a message that was not taken: raise NotDelivered")


# --- what stays on this machine --------------------------------------------------------------------------------------


async def _loads(bench: Bench) -> None:
    before = len(bench.receiver.received) if bench.receiver else 0
    try:
        bench.takes = bench.check()
    except (NotDelivered, UsageError) as error:
        raise WrongAnswerError(str(error)) from error
    expect(len(bench.receiver.received if bench.receiver else ()) == before, "it sends before it has a message")


async def _sends(bench: Bench) -> None:
    message = bench.message("Conformance of gpu-a001")
    found = [one for one in await bench.received(message) if one.has(message.title) and one.has(message.body[:40])]
    expect(len(found) > 0, "neither the title nor the text arrives")
    expect(len(found) == 1, f"one message arrives {len(found)} times")


async def _key(bench: Bench) -> None:
    message = bench.message("Sent twice")
    found = await bench.received(message, message)
    if not found or not all(one.has(message.key) for one in found):
        raise DriverError(Failure.UNSUPPORTED, "requests do not have Message.key, by which a receiver drops a second")


async def _thread(bench: Bench) -> None:
    begun = bench.message("gpu-a001 is isolated", thread=f"thread-{secrets.token_hex(6)}")
    ended = replace(begun, key=f"{begun.key}-over", over=True, title="gpu-a001 is back")
    found = await bench.received(begun, ended)
    if not found or not all(one.has(begun.thread) for one in found):
        raise DriverError(Failure.UNSUPPORTED, "requests do not have Message.thread, by which a receiver finds its own")
    expect(any(one.has(ended.title) for one in found), "the message that tells of the end does not arrive")


async def _hostile(bench: Bench) -> None:
    found = await bench.received(bench.message(_HOSTILE))
    expect(bool(found), "a title with quotes and line breaks does not arrive")
    for one in found:
        expect(_INJECTED not in one.headers, "a line break in a title becomes a header of its own")
        try:
            one.document()
        except ValueError as error:
            raise WrongAnswerError(f"a title with quotes makes it JSON that nobody can read: {error}") from error
    expect(any(one.has("end of the title") for one in found), "a title is cut where it has a line break")


async def _refusal(bench: Bench) -> None:
    assert bench.receiver is not None
    for status in (403, 500):
        bench.receiver.status = status
        try:
            await bench.refused(bench.receiver.address)
        except WrongAnswerError as wrong:
            raise WrongAnswerError(f"HTTP {status}: {wrong}") from wrong
        finally:
            bench.receiver.status = 204


async def _away(bench: Bench) -> None:
    with socket.socket() as nobody:  # bound, and not listening: a connection to it is refused
        nobody.bind(("127.0.0.1", 0))
        await bench.refused(f"127.0.0.1:{nobody.getsockname()[1]}")


async def _secret(bench: Bench) -> None:
    """Search all that was said so far: of refusals, of an address where nobody listens, of a receiver that hangs."""
    expect(bool(bench.said), "it said nothing of messages that were not taken")
    kept = all(bench.token not in one for one in bench.said)
    expect(kept, "the reason why a message was not delivered has the token of the channel's URL in it")


async def _deadline(bench: Bench) -> None:
    """A receiver that takes the connection and says nothing: the notifier gives up, and holds nobody up meanwhile."""
    assert bench.receiver is not None
    bench.receiver.open.clear()
    longest, began = 0.0, time.monotonic()

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            longest = max(longest, time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    try:
        await asyncio.sleep(2 * _TICK_S)
        await bench.refused(bench.receiver.address)
        await asyncio.sleep(2 * _TICK_S)
    finally:
        bench.receiver.open.set()
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
    expect(longest < _HELD_UP_S, f"the service stood still for {longest:.1f} s: await what sends, or give it a thread")
    took = time.monotonic() - began
    expect(took < DEADLINE_S + 5, f"it gives up after {took:.0f} s")


# --- what sends to the channel itself --------------------------------------------------------------------------------


async def _write(bench: Bench) -> None:
    begun = bench.message(f"Test of the channel {bench.channel.name}")
    ended = replace(begun, key=f"{begun.key}-over", over=True, title=f"{begun.title}: ended")
    for message in (begun, ended):
        try:
            await bench.real(message)
        except NotDelivered as error:
            raise WrongAnswerError(str(error)) from error


_API: Final = "reconciler/drivers/extensions/api.py: Notifier"
_NOTICES: Final = "reconciler/model/notices.py"
LOADS: Final[Probe[Bench]] = (Check("loads", f"{_NOTICES}: Messenger", "nobody is told anything"), _loads)
LOCAL: Final[tuple[Probe[Bench], ...]] = (
    (Check("sends", _API, "nobody is told anything"), _sends),
    (Check("key", f"{_NOTICES}: Message.key", "a message that is sent again is shown again"), _key),
    (Check("thread", f"{_NOTICES}: Message.thread", "the end of a matter is a message of its own"), _thread),
    (Check("hostile-text", f"{_NOTICES}: Message.title", "a machine's words act on the receiver"), _hostile),
    (Check("refusal", f"{_NOTICES}: NotDelivered", "a message is lost, and nobody knows"), _refusal),
    (Check("away", f"{_NOTICES}: NotDelivered", "a message is lost, and nobody knows"), _away),
    (Check("deadline", _API, "the service stands still while a receiver hangs"), _deadline),
    (Check("secret-kept", f"{_NOTICES}: NotDelivered holds no secret", "tokens stand in reports and logs"), _secret),
)  # fmt: skip
WRITES: Final[tuple[Probe[Bench], ...]] = (
    (Check("write-message", _API, "nobody is told anything", writes="a message to the channel, and that it has ended"),
     _write),
)  # fmt: skip
ALL: Final = tuple(check for check, _ in (LOADS, *LOCAL, *WRITES))


async def check_notifier(bench: Bench, *, writes: bool) -> ConformanceReport:
    """Try the checks. Without `writes` nobody gets a message."""
    found = await run_probes((LOADS,), bench, writes=False)
    if found[0].result is not CheckResult.PASS:
        why = "the notifier does not load"
        rest = tuple(CheckOutcome(check, CheckResult.NOT_TRIED, why) for check, _ in (*LOCAL, *WRITES))
        return ConformanceReport("notifier", bench.channel.name, (*found, *rest))
    if bench.receiver is None:
        found += tuple(CheckOutcome(check, CheckResult.NOT_TRIED, "needs --receiver") for check, _ in LOCAL)
    else:
        found += await run_probes(LOCAL, bench, writes=False)
    found += await run_probes(WRITES, bench, writes=writes)
    return ConformanceReport("notifier", bench.channel.name, found, {"by": bench.takes})
