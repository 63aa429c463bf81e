"""Remember the secrets that BMCs refused, so that one process locks no account (pitfall B3).

- A BMC that refused a secret is not sent the same value again by anybody in this process until the cool-down is over.
  Then one caller may try once. Another value of the secret may be tried at once.
- When three BMCs refuse a value that no BMC has accepted, or that they accepted before, the secret itself is suspected.
  No further BMC is sent it until the cool-down is over, and then one is. Those that refused it wait for a second
  cool-down, or they might always come first.
- While a password is being changed, the secret has the new one and the one before. A BMC is sent the new one, and the
  other only where it refused that: each once in a cool-down.
- While no BMC has accepted a value lately, at most three are sent it at a time, since a pass logs in to many at once.

Values are compared by a keyed digest that only this process can make.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reconciler.drivers.redfish.breaker import clock_time
from reconciler.drivers.secrets import Credentials
from reconciler.model.errors import DriverError, Failure

COOL_DOWN_S = 1800.0  # vendors lock for five minutes to an hour, and count failures over as long
SUSPECT_AFTER = 3
_LATELY = timedelta(minutes=5)
_POLL_S = 0.2  # how soon a login that waits for others notices that its caller gave up

Value = bytes


@dataclass(slots=True)
class _Refusal:
    """A BMC's refusal of one value."""

    at: datetime
    until: datetime
    node: str
    detail: str


@dataclass(slots=True)
class _ValueState:
    """The answers of BMCs to one value of one secret."""

    accepted_by: set[str] = field(default_factory=set)
    accepted_at: datetime | None = None
    refused_by: dict[str, str] = field(default_factory=dict)  # BMC -> node, since the value was last accepted
    in_flight: set[str] = field(default_factory=set)
    suspected_until: datetime | None = None

    def counts_against_secret(self, address: str) -> bool:
        """Say whether this BMC's refusal makes the secret suspect: one that never took it may have another password."""
        return not self.accepted_by or address in self.accepted_by

    def is_crowded(self, now: datetime) -> bool:
        """Say whether enough BMCs are already finding out if the value is right."""
        doubtful = self.accepted_at is None or now - self.accepted_at > _LATELY or bool(self.refused_by)
        return doubtful and len(self.in_flight | self.refused_by.keys()) >= SUSPECT_AFTER


class LoginGuard:
    """The refusals that one process has met. Its accounts are used from many threads."""

    def __init__(self, now: Callable[[], datetime], *, cool_down_s: float = COOL_DOWN_S) -> None:
        self.now = now
        self.cool_down = timedelta(seconds=cool_down_s)
        self.changed = threading.Condition()
        self.refusals: dict[tuple[str, Value], _Refusal] = {}
        self._states: dict[tuple[str, Value], _ValueState] = {}
        self._key = secrets.token_bytes(32)

    def account(self, address: str, *, node: str, secret: str, read: Callable[[], Credentials]) -> Account:
        """Return the account on one BMC. `secret` is the secret's name; `read` returns its present value."""
        return Account(self, address, node, secret, read)

    def state(self, secret: str, value: Value) -> _ValueState:
        return self._states.setdefault((secret, value), _ValueState())

    def digest(self, found: Credentials) -> Value:
        text = f"{len(found.username)} {found.username}{found.password.reveal()}"
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=16).digest()


class Account:
    """A secret on a BMC, used by one node's driver. One thread at a time."""

    def __init__(
        self, guard: LoginGuard, address: str, node: str, secret: str, read: Callable[[], Credentials]
    ) -> None:
        self.secret = secret
        self._guard = guard
        self._address = address
        self._node = node
        self._read = read
        self._value: Value | None = None
        self._logging_in = False

    def check(self) -> None:
        """Raise DriverError AUTH, before any request, while this BMC has refused the present value."""
        refusals = self._guard.refusals
        if not refusals or (self._value is not None and (self._address, self._value) not in refusals):
            return
        _, value = self._choose()  # people correct secrets
        refusal = refusals.get((self._address, value))
        if refusal is not None and self._guard.now() < refusal.until:
            raise self._refused_error(refusal)

    def credentials(self, given_up: Callable[[], bool]) -> Credentials:
        """Return credentials to be sent now. Then call `accepted` or `refused`, and `settle`.

        Waits while other BMCs find out about the value; `given_up` says that nobody waits for this login any more.
        DriverError AUTH when they may not be sent.
        """
        guard, (found, value) = self._guard, self._choose()
        with guard.changed:
            while not self._may_send(value):
                guard.changed.wait(_POLL_S)
                if given_up():
                    raise DriverError(Failure.UNREACHABLE, "the login was given up before it was sent")
        self._logging_in = True
        return found

    def _choose(self) -> tuple[Credentials, Value]:
        """Choose the password to log in with: the one before where the BMC refused the new one."""
        found = self._read()
        before = [] if found.previous is None else [Credentials(found.username, found.previous)]
        both = [(one, self._guard.digest(one)) for one in (found, *before)]
        chosen = next((one for one in both if not self._is_refused(one[1])), both[0])
        self._value = chosen[1]
        return chosen

    def _is_refused(self, value: Value) -> bool:
        refusal = self._guard.refusals.get((self._address, value))
        return refusal is not None and self._guard.now() < refusal.until

    def has_another(self) -> bool:
        """Return whether the BMC refused the password that was sent last, and may take the other one."""
        sent = self._value
        return sent is not None and self._is_refused(sent) and not self._is_refused(self._choose()[1])

    def beside(self, found: Credentials) -> Account:
        """Return the same account with a password of its own, to be tried."""
        return Account(self._guard, self._address, self._node, self.secret, lambda: found)

    def was_given(self, found: Credentials) -> None:
        """Record that the BMC was given this password: that it refused it before says nothing any more."""
        self._guard.refusals.pop((self._address, self._guard.digest(found)), None)

    def _may_send(self, value: Value) -> bool:
        """Reserve the login and return True, or return False to wait. After a cool-down only the first caller may."""
        guard, now = self._guard, self._guard.now()
        refusal = guard.refusals.get((self._address, value))
        if refusal is not None and now < refusal.until:
            raise self._refused_error(refusal)
        state = guard.state(self.secret, value)
        if state.suspected_until is not None:
            until = state.suspected_until
            if self._address in state.refused_by:
                until += guard.cool_down
            if now < until:
                raise self._suspected_error(state, until)
            state.suspected_until = now + guard.cool_down
        elif state.is_crowded(now) and self._address not in state.refused_by:
            return False
        if refusal is not None:
            refusal.until = now + guard.cool_down
        state.in_flight.add(self._address)
        return True

    def accepted(self) -> None:
        """Record that the BMC took the credentials."""
        with self._ended() as state:
            state.accepted_by.add(self._address)
            state.accepted_at = self._guard.now()
            state.refused_by.clear()
            state.suspected_until = None
            self._guard.refusals.pop((self._address, self._value or b""), None)

    def refused(self, detail: str) -> DriverError:
        """Record a refusal, and return an error that says what to do."""
        assert self._value is not None
        guard, now = self._guard, self._guard.now()
        with self._ended() as state:
            refusal = _Refusal(now, now + guard.cool_down, self._node, detail)
            guard.refusals[self._address, self._value] = refusal
            if state.counts_against_secret(self._address):
                state.refused_by[self._address] = self._node
            if len(state.refused_by) >= SUSPECT_AFTER:
                state.suspected_until = now + guard.cool_down
        return self._refused_error(refusal)

    def settle(self) -> None:
        """End a login. Where the BMC gave no verdict, the next caller may try."""
        if not self._logging_in:
            return
        now = self._guard.now()
        with self._ended() as state:
            refusal = self._guard.refusals.get((self._address, self._value or b""))
            if refusal is not None:
                refusal.until = now
            if state.suspected_until is not None:
                state.suspected_until = now

    @contextmanager
    def _ended(self) -> Iterator[_ValueState]:
        """End this login under the lock, and wake those who wait for it."""
        self._logging_in = False
        with self._guard.changed:
            state = self._guard.state(self.secret, self._value or b"")
            state.in_flight.discard(self._address)
            try:
                yield state
            finally:
                self._guard.changed.notify_all()

    # --- messages --------------------------------------------------------------------------------------------------

    def _refused_error(self, refusal: _Refusal) -> DriverError:
        now = self._guard.now()
        at, until = clock_time(refusal.at, now), clock_time(refusal.until, now)
        asked = "" if refusal.node == self._node else f", asked for {refusal.node},"
        detail = (
            f"BMC {self._address} of {self._node}{asked} refused secret {self.secret!r} at {at}; it is not sent again"
            f" before {until}, as accounts get locked: check the account on the BMC, and the secret, of which another"
            f" value is tried at once ({refusal.detail})"
        )
        return DriverError(Failure.AUTH, detail, retry_after=(refusal.until - now).total_seconds())

    def _suspected_error(self, state: _ValueState, end: datetime) -> DriverError:
        now = self._guard.now()
        until = clock_time(end, now)
        who = ", ".join(f"{address} ({node})" for address, node in list(state.refused_by.items())[:SUSPECT_AFTER])
        detail = (
            f"BMC {self._address} of {self._node} was not asked: {len(state.refused_by)} BMCs refused secret"
            f" {self.secret!r} and none accepted it since; it goes to no other before {until}, so that a wrong secret"
            f" locks no fleet: correct it, and it is tried at once (refused by {who})"
        )
        return DriverError(Failure.AUTH, detail, retry_after=(end - now).total_seconds())
