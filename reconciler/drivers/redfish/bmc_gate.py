"""Access to one BMC: one call at a time, gaps between requests, a circuit breaker, and a probe of its port.

A gate is shared by all nodes of a process that name the same address. Reads take turns too: BMCs freeze under parallel
requests (pitfall A12). Threads are few and BMCs are many, so that a dead BMC must not hold any (A2): before one that
did not answer last time is called, its port is probed on the event loop, and no caller waits long for that.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

from reconciler.drivers.redfish.breaker import Breaker
from reconciler.drivers.redfish.fields import quote
from reconciler.drivers.redfish.login_guard import COOL_DOWN_S, LoginGuard
from reconciler.drivers.redfish.quirks import Table, packaged
from reconciler.model.errors import DriverError, Failure

PROBE_WAIT_S = 1.0  # for the port of a BMC that was silent: live ones take milliseconds


class BmcRegistry:
    """The gates, refused logins and quirks of all BMCs of one process. One per fabric.

    `now`: a clock that nobody sets, for pauses. `dates`: the wall clock, by which readings are dated as those of all
    other sources are; None: the same one.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        *,
        dates: Callable[[], datetime] | None = None,
        cool_down_s: float = COOL_DOWN_S,
        quirks: Table | None = None,
    ) -> None:
        self.now = now
        self.dates = dates or now
        self.quirks = quirks or packaged()
        self.login_guard = LoginGuard(now, cool_down_s=cool_down_s)
        self._gates: dict[str, BmcGate] = {}

    def gate(self, address: str, connect_timeout: float) -> BmcGate:
        """Return the gate of a BMC, however its address is written. The first caller's timeout counts."""
        parts = urlsplit(address)
        key = f"{(parts.hostname or '').lower()} {port_of(address)}"
        found = self._gates.get(key)
        if found is None:
            found = self._gates[key] = BmcGate(f"{parts.scheme}://{parts.netloc}", connect_timeout, self.now)
            found.gaps.set(self.quirks.standard.read_gap, self.quirks.standard.write_gap)
        return found


def port_of(address: str) -> int:
    parts = urlsplit(address)
    return parts.port or (443 if parts.scheme == "https" else 80)


class RequestGaps:
    """Gaps between requests to one BMC, in wall-clock seconds. One thread at a time."""

    def __init__(self) -> None:
        self._read_gap_s = self._write_gap_s = 0.0
        self._last = self._last_write = float("-inf")

    def set(self, read_gap_s: float, write_gap_s: float) -> None:
        """Set the gap before any request, and the gap between writes."""
        self._read_gap_s, self._write_gap_s = read_gap_s, write_gap_s

    def wait(self, method: str, given_up: threading.Event) -> None:
        """Wait until the next request is due, or until its caller gives up."""
        due = self._last + self._read_gap_s
        if method != "GET":
            due = max(due, self._last_write + self._write_gap_s)
        left = due - time.monotonic()
        if left > 0:
            given_up.wait(left)

    def record(self, method: str) -> None:
        self._last = time.monotonic()
        if method != "GET":
            self._last_write = self._last


class BmcGate:
    """Admits calls to one BMC. `lock` is held during a call."""

    def __init__(self, address: str, connect_timeout: float, now: Callable[[], datetime]) -> None:
        self.address = address
        self.lock = asyncio.Lock()
        self.gaps = RequestGaps()
        self.answers: bool | None = None  # whether it answered the last call; None: not called yet
        self._connect_timeout = connect_timeout
        self._now = now
        self._breaker = Breaker(address)
        self._probe: asyncio.Task[DriverError | None] | None = None
        self._probed_at = 0.0
        self._port_is_open = False  # by a probe since the last call

    def check(self) -> None:
        """Raise DriverError UNREACHABLE while the circuit breaker is open."""
        self._breaker.check(self._now())

    def answered(self, *, fully: bool = True) -> None:
        """Record that the BMC answered; `fully`: every request of the call."""
        self.answers, self._port_is_open = fully, False
        self._breaker.answered()

    def given_up(self) -> None:
        """Record that a caller gave up waiting."""
        self.answers = self._port_is_open = False

    def missed(self, why: str) -> None:
        self.given_up()
        self._breaker.missed(why, self._now())

    def expect_absence(self, seconds: float) -> None:
        """Keep the breaker's pauses short for so many fleet seconds: the BMC restarts, or may, at our request."""
        self._breaker.expect_absence(seconds, self._now())

    async def admit(self) -> None:
        """Check before a call that the BMC is there. DriverError UNREACHABLE where it is not. Callers share a probe."""
        self.check()
        if self.answers or self._port_is_open:
            return
        probe, self._probe = self._probe, None
        if probe is None or (probe.done() and (probe.cancelled() or probe.result() is not None)):
            probe = asyncio.create_task(self._probe_port())
            self._probed_at = time.monotonic()
        self._probe = probe  # it continues if its caller gives up
        left = max(0.0, self._probed_at + PROBE_WAIT_S - time.monotonic())
        await asyncio.wait([probe], timeout=left if self._breaker.misses else None)
        if not probe.done() or probe.cancelled():
            why = f"no connection within {PROBE_WAIT_S:g} s, and none at the last call; it is being tried"
            raise DriverError(Failure.UNREACHABLE, f"{self.address}: {why}")
        self._probe = None
        error = probe.result()
        if error is not None:
            raise error
        self._port_is_open = True

    async def _probe_port(self) -> DriverError | None:
        """Connect to the port, and return what is wrong, which counts as a miss. No thread is held."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, writer = await asyncio.open_connection(urlsplit(self.address).hostname, port_of(self.address))
        except TimeoutError:
            why = f"no connection within {self._connect_timeout:g} s; check the network, and that the BMC has power"
        except OSError as error:
            why = f"no connection: {_reason(error)}; check address and port"
        else:
            writer.close()
            return None
        self.missed(f"{self.address}: {why}")
        return DriverError(Failure.UNREACHABLE, f"{self.address}: {why}")

    def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None


def _reason(error: OSError) -> str:
    """Return the reason of a failed connection: in `strerror` asyncio writes the address instead."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else quote(error.strerror or error)
