"""The way to one BMC: who may ask it now, and how fast. Shared by all nodes of a process that name its address.

One call at a time, reads too: BMCs freeze under parallel requests (pitfall A12). Threads are few and BMCs are many, so
that a dead one must not hold any (A2): before one that did not answer last time is asked, its port is tried on the
event loop, and nobody waits long for that.
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
from reconciler.drivers.redfish.logins import COOL_DOWN_S, Logins
from reconciler.drivers.redfish.quirks import Table, packaged
from reconciler.model.errors import DriverError, Failure

GLANCE_S = 1.0  # for the port of a BMC that was silent: live ones take milliseconds


class BmcRegistry:
    """What one process knows of all its BMCs: one per fabric."""

    def __init__(
        self, now: Callable[[], datetime], *, cool_down_s: float = COOL_DOWN_S, quirks: Table | None = None
    ) -> None:
        self.now = now
        self.quirks = quirks or packaged()
        self.logins = Logins(now, cool_down_s=cool_down_s)
        self._doors: dict[str, BmcGate] = {}

    def door(self, address: str, connect_timeout: float) -> BmcGate:
        """Of a BMC, in whatever spelling. The first timeout holds."""
        parts = urlsplit(address)
        key = f"{(parts.hostname or '').lower()} {port_of(address)}"
        found = self._doors.get(key)
        if found is None:
            found = self._doors[key] = BmcGate(f"{parts.scheme}://{parts.netloc}", connect_timeout, self.now)
            found.pace.rest(self.quirks.standard.read_gap, self.quirks.standard.write_gap)
        return found


def port_of(address: str) -> int:
    parts = urlsplit(address)
    return parts.port or (443 if parts.scheme == "https" else 80)


class Pace:
    """Rests between requests, in wall-clock seconds. One thread at a time."""

    def __init__(self) -> None:
        self._read_gap_s = self._write_gap_s = 0.0
        self._last = self._last_write = float("-inf")

    def rest(self, read_gap_s: float, write_gap_s: float) -> None:
        """How long, from now on: before any request, and between writes."""
        self._read_gap_s, self._write_gap_s = read_gap_s, write_gap_s

    def keep(self, method: str, given_up: threading.Event) -> None:
        """Wait until the BMC may be asked; cut short when nobody waits for the answer."""
        due = self._last + self._read_gap_s
        if method != "GET":
            due = max(due, self._last_write + self._write_gap_s)
        left = due - time.monotonic()
        if left > 0:
            given_up.wait(left)

    def note(self, method: str) -> None:
        self._last = time.monotonic()
        if method != "GET":
            self._last_write = self._last


class BmcGate:
    """Of one BMC."""

    def __init__(self, address: str, connect_timeout: float, now: Callable[[], datetime]) -> None:
        self.address = address
        self.turn = asyncio.Lock()
        self.pace = Pace()
        self.answers: bool | None = None  # at the last call; None: not asked yet
        self._connect_timeout = connect_timeout
        self._now = now
        self._breaker = Breaker(address)
        self._trial: asyncio.Task[DriverError | None] | None = None
        self._tried_at = 0.0
        self._is_open = False  # its port, when it was tried since the last call

    def check(self) -> None:
        """DriverError UNREACHABLE while the BMC is left alone."""
        self._breaker.check(self._now())

    def answered(self, *, fully: bool = True) -> None:
        """`fully`: to all that it was asked."""
        self.answers, self._is_open = fully, False
        self._breaker.answered()

    def given_up(self) -> None:
        """By a caller who would not wait for the answer any more."""
        self.answers = self._is_open = False

    def missed(self, why: str) -> None:
        self.given_up()
        self._breaker.missed(why, self._now())

    def excuse(self, seconds: float) -> None:
        """It was told to restart, or may by itself: fleet seconds that this may take."""
        self._breaker.excuse(seconds, self._now())

    async def knock(self) -> None:
        """Before a call. DriverError UNREACHABLE where nobody is there. Those who come together find out together."""
        self.check()
        if self.answers or self._is_open:
            return
        trial, self._trial = self._trial, None
        if trial is None or (trial.done() and (trial.cancelled() or trial.result() is not None)):
            trial = asyncio.create_task(self._try_port())
            self._tried_at = time.monotonic()
        self._trial = trial  # goes on, should its caller give up
        glance = max(0.0, self._tried_at + GLANCE_S - time.monotonic())
        await asyncio.wait([trial], timeout=glance if self._breaker.misses else None)
        if not trial.done() or trial.cancelled():
            why = f"no connection within {GLANCE_S:g} s, and none at the last call; it is being tried"
            raise DriverError(Failure.UNREACHABLE, f"{self.address}: {why}")
        self._trial = None
        error = trial.result()
        if error is not None:
            raise error
        self._is_open = True

    async def _try_port(self) -> DriverError | None:
        """What is wrong with the port, if anything is; that counts as a miss. No thread is held."""
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
        if self._trial is not None:
            self._trial.cancel()
            self._trial = None


def _reason(error: OSError) -> str:
    """asyncio writes the address in place of the reason."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else quote(error.strerror or error)
