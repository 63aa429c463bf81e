"""Sessions of one BMC: limited in number and lifetime, and kept until a client deletes them (pitfall B1)."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    id: str
    token: str
    username: str
    used_at: float


class Sessions:
    """`now` is in seconds on the machine's clock; a session ends after `timeout_s` without a request."""

    def __init__(
        self, username: str, password: str, limit: int, timeout_s: float, lock: tuple[int, float] = (0, 0.0)
    ) -> None:
        """`lock`: after how many refused logins in a row nobody is let in, 0 = never, and for how many seconds."""
        self.username = username
        self._password = password
        self._before: list[str] = []
        self._limit = limit
        self._timeout_s = timeout_s
        self._lock = lock
        self._refused_in_a_row = 0
        self._locked_until = float("-inf")
        self.refusing = False  # every login is refused, even with the right password
        self.refused = 0  # logins with wrong credentials
        self.created = 0  # sessions ever created
        self._by_token: dict[str, Session] = {}

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def open(self, now: float) -> dict[str, Session]:
        """Return the open sessions by id."""
        self._by_token = {
            token: session for token, session in self._by_token.items() if now - session.used_at <= self._timeout_s
        }
        return {session.id: session for session in self._by_token.values()}

    def login(self, username: str, now: float) -> Session | None:
        """Open a session; return None when all are taken. Call `accepts` first."""
        if len(self.open(now)) >= self._limit:
            return None
        self.created += 1
        session = Session(str(self.created), secrets.token_hex(16), username, now)
        self._by_token[session.token] = session
        return session

    def accepts(self, username: str, password: str, now: float) -> bool:
        right = hmac.compare_digest(password.encode(), self._password.encode())
        right = hmac.compare_digest(username.encode(), self.username.encode()) and right and not self.refusing
        self.refused += not right
        if not self.refusing:  # a fault, which plays another account and not our tries
            self._refused_in_a_row = 0 if right else self._refused_in_a_row + 1
        threshold, seconds = self._lock
        if not self.is_locked(now) and threshold and self._refused_in_a_row >= threshold:
            self._locked_until = now + seconds
        return right and not self.is_locked(now)

    def is_locked(self, now: float) -> bool:
        return now < self._locked_until

    def change_password(self, password: str) -> None:
        """Take another password. Sessions that are open stay so, as DSP0266 leaves it to the BMC."""
        self._before.append(self._password)
        self._password = password

    def has_used(self, password: str) -> bool:
        return password in (self._password, *self._before)

    @property
    def password(self) -> str:
        return self._password

    def authorised(self, token: str | None, basic: str | None, now: float) -> bool:
        """Check X-Auth-Token, or without one the header Authorization."""
        if token is not None:
            session = self._by_token.get(token)
            if session is None or self.refusing or now - session.used_at > self._timeout_s:
                return False
            session.used_at = now
            return True
        kind, _, text = (basic or "").partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            username, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return self.accepts(username, password, now)

    def delete(self, id_: str) -> bool:
        token = next((token for token, session in self._by_token.items() if session.id == id_), None)
        return token is not None and bool(self._by_token.pop(token))

    def forget(self) -> None:
        """Drop all sessions, because the BMC restarts."""
        self._by_token.clear()
