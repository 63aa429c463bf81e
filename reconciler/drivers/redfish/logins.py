"""What BMCs made of our secrets: the memory that keeps one process from locking accounts (pitfall B3).

- A BMC that refused a secret is not asked by anybody in this process who would send it the same, until the cool-down
  is over: then one caller may try once. Another value of the secret may be tried at once.
- When three BMCs refuse a value that none has accepted, or that they accepted before, the secret itself is suspected:
  no other BMC sees it until the cool-down is over, and then one; those that refused it stand back another cool-down, or
  they might always come first. While no BMC has accepted a value lately, no more than
  three see it at a time, since a pass asks many at once.

Values are compared by a digest that only this process can make.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reconciler.drivers.redfish.breaker import clock_time
from reconciler.drivers.secrets import Credentials
from reconciler.model.errors import DriverError, Failure

COOL_DOWN_S = 1800.0  # vendors lock for five minutes to an hour, and count failures over as long
SUSPECT_AFTER = 3
_LATELY = timedelta(minutes=5)
_LOOK_UP_S = 0.2  # how soon somebody who waits for others' logins notices that nobody waits for him

Value = bytes


@dataclass(slots=True)
class _Refusal:
    """Of one value by one BMC."""

    at: datetime
    until: datetime
    node: str
    said: str


@dataclass(slots=True)
class _Standing:
    """Of one value of one secret."""

    accepted_by: set[str] = field(default_factory=set)
    accepted_at: datetime | None = None
    refused_by: dict[str, str] = field(default_factory=dict)  # BMC -> node, since it was last accepted
    on_their_way: set[str] = field(default_factory=set)
    suspected_until: datetime | None = None

    def counts(self, address: str) -> bool:
        """Whether a refusal tells against the secret: a BMC that never took it may just have another password."""
        return not self.accepted_by or address in self.accepted_by

    def crowded(self, now: datetime) -> bool:
        """That enough BMCs are finding out whether the value is right."""
        doubtful = self.accepted_at is None or now - self.accepted_at > _LATELY or bool(self.refused_by)
        return doubtful and len(self.on_their_way | self.refused_by.keys()) >= SUSPECT_AFTER


class Logins:
    """One per process. Its accounts are used from many threads."""

    def __init__(self, now: Callable[[], datetime], *, cool_down_s: float = COOL_DOWN_S) -> None:
        self.now = now
        self.cool_down = timedelta(seconds=cool_down_s)
        self.changed = threading.Condition()
        self.refusals: dict[tuple[str, Value], _Refusal] = {}
        self._standings: dict[tuple[str, Value], _Standing] = {}
        self._key = secrets.token_bytes(32)

    def account(self, address: str, *, node: str, secret: str, read: Callable[[], Credentials]) -> Account:
        """`read` gives the secret's value as it is now; `secret` is its name."""
        return Account(self, address, node, secret, read)

    def standing(self, secret: str, value: Value) -> _Standing:
        return self._standings.setdefault((secret, value), _Standing())

    def digest(self, found: Credentials) -> Value:
        text = f"{len(found.username)} {found.username}{found.password.reveal()}"
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=16).digest()


class Account:
    """One secret on one BMC, as one node's driver sees it. One thread at a time."""

    def __init__(self, logins: Logins, address: str, node: str, secret: str, read: Callable[[], Credentials]) -> None:
        self.secret = secret
        self._logins = logins
        self._address = address
        self._node = node
        self._read = read
        self._value: Value | None = None
        self._asking = False

    def check(self) -> None:
        """Before any request: DriverError AUTH while this BMC is not to be asked with what it refused."""
        refusals = self._logins.refusals
        if not refusals or (self._value is not None and (self._address, self._value) not in refusals):
            return
        self._value = self._logins.digest(self._read())  # people mend secrets
        refusal = refusals.get((self._address, self._value))
        if refusal is not None and self._logins.now() < refusal.until:
            raise self._closed(refusal)

    def credentials(self, gone: Callable[[], bool]) -> Credentials:
        """To be sent now; then say what came of it, `accepted` or `refused`, and `settle`.

        DriverError AUTH when they may not be sent. Waits while others find out about them; `gone`: nobody waits for
        this login any more.
        """
        logins, found = self._logins, self._read()
        value = self._value = logins.digest(found)
        with logins.changed:
            while not self._may_go(value):
                logins.changed.wait(_LOOK_UP_S)
                if gone():
                    raise DriverError(Failure.UNREACHABLE, "the login was given up before it was sent")
        self._asking = True
        return found

    def _may_go(self, value: Value) -> bool:
        """Whether it is this login's turn, which is taken with it. At the end of a cool-down, the first one's."""
        logins, now = self._logins, self._logins.now()
        refusal = logins.refusals.get((self._address, value))
        if refusal is not None and now < refusal.until:
            raise self._closed(refusal)
        standing = logins.standing(self.secret, value)
        if standing.suspected_until is not None:
            until = standing.suspected_until
            if self._address in standing.refused_by:
                until += logins.cool_down
            if now < until:
                raise self._suspected(standing, until)
            standing.suspected_until = now + logins.cool_down
        elif standing.crowded(now) and self._address not in standing.refused_by:
            return False
        if refusal is not None:
            refusal.until = now + logins.cool_down
        standing.on_their_way.add(self._address)
        return True

    def accepted(self) -> None:
        with self._decided() as standing:
            standing.accepted_by.add(self._address)
            standing.accepted_at = self._logins.now()
            standing.refused_by.clear()
            standing.suspected_until = None
            self._logins.refusals.pop((self._address, self._value or b""), None)

    def refused(self, said: str) -> DriverError:
        """Remember it. The error says what to do."""
        assert self._value is not None
        logins, now = self._logins, self._logins.now()
        with self._decided() as standing:
            refusal = _Refusal(now, now + logins.cool_down, self._node, said)
            logins.refusals[self._address, self._value] = refusal
            if standing.counts(self._address):
                standing.refused_by[self._address] = self._node
            if len(standing.refused_by) >= SUSPECT_AFTER:
                standing.suspected_until = now + logins.cool_down
        return self._closed(refusal)

    def settle(self) -> None:
        """After a login. Where the BMC did not say what it makes of it, whoever comes next may try."""
        if not self._asking:
            return
        now = self._logins.now()
        with self._decided() as standing:
            refusal = self._logins.refusals.get((self._address, self._value or b""))
            if refusal is not None:
                refusal.until = now
            if standing.suspected_until is not None:
                standing.suspected_until = now

    def _decided(self) -> _Turn:
        self._asking = False
        return _Turn(self._logins, self._logins.standing(self.secret, self._value or b""), self._address)

    # --- what people read ------------------------------------------------------------------------------------------

    def _closed(self, refusal: _Refusal) -> DriverError:
        now = self._logins.now()
        at, until = clock_time(refusal.at, now), clock_time(refusal.until, now)
        asked = "" if refusal.node == self._node else f", asked for {refusal.node},"
        detail = (
            f"BMC {self._address} of {self._node}{asked} refused secret {self.secret!r} at {at}; it is not sent again"
            f" before {until}, as accounts get locked: check the account on the BMC, and the secret, of which another"
            f" value is tried at once ({refusal.said})"
        )
        return DriverError(Failure.AUTH, detail, retry_after=(refusal.until - now).total_seconds())

    def _suspected(self, standing: _Standing, end: datetime) -> DriverError:
        now = self._logins.now()
        until = clock_time(end, now)
        who = ", ".join(f"{address} ({node})" for address, node in list(standing.refused_by.items())[:SUSPECT_AFTER])
        detail = (
            f"BMC {self._address} of {self._node} was not asked: {len(standing.refused_by)} BMCs refused secret"
            f" {self.secret!r} and none accepted it since; it goes to no other before {until}, so that a wrong secret"
            f" locks no fleet: correct it, and it is tried at once (refused by {who})"
        )
        return DriverError(Failure.AUTH, detail, retry_after=(end - now).total_seconds())


class _Turn:
    """The end of a login: under the lock, and told to those who wait."""

    def __init__(self, logins: Logins, standing: _Standing, address: str) -> None:
        self._logins = logins
        self._standing = standing
        self._address = address

    def __enter__(self) -> _Standing:
        self._logins.changed.acquire()
        self._standing.on_their_way.discard(self._address)
        return self._standing

    def __exit__(self, *_: object) -> None:
        self._logins.changed.notify_all()
        self._logins.changed.release()
