"""A session on one BMC: requests, login, ETags. Blocking; one thread at a time.

The first request that needs a session opens it; it is kept for hours, and `close` deletes it (pitfall B1). One that the
BMC does not know any more is replaced once per request. Refused credentials are remembered for the whole process
(`login_guard`): accounts get locked (B3). Without a session service there is only Basic, and each request is a login;
with one, Basic is never a fallback (B2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus

from sushy.auth import AuthBase, BasicAuth, SessionAuth

from reconciler.drivers.redfish.failures import SESSIONS_TAKEN, HttpError, decode
from reconciler.drivers.redfish.fields import Confidential, Document, Unknown, link, member, path
from reconciler.drivers.redfish.login_guard import Account
from reconciler.drivers.redfish.transport import Answer
from reconciler.drivers.redfish.upload import Upload
from reconciler.drivers.redfish.wire import Wire, local
from reconciler.drivers.secrets import Credentials
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure

ROOT = "/redfish/v1/"
_SESSIONS = "/redfish/v1/SessionService/Sessions"
_UNKNOWN_SESSIONS_TOLERATED = 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 600.0  # of the fleet's time, after a login for which no session was left
_MOST_REFUSALS = 10  # that are counted: the pause is the longest long before
LIFETIME_S = 12 * 3600.0  # of the fleet's time


@dataclass(frozen=True, slots=True)
class Resource:
    """The answer to a GET. `etag` is never empty."""

    path: str
    body: Document
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a write. `location`: a path on this BMC."""

    status: int
    body: Document
    location: str | None = None


class Session(Confined):
    def __init__(self, wire: Wire, account: Account, now: Callable[[], datetime]) -> None:
        self.wire = wire
        self._account = account
        self._now = now
        self._auth: AuthBase | None = None
        self._credentials: Credentials | None = None  # those that the session was opened with
        self._ends: datetime | None = None
        self._proven = False
        self._refusals = 0  # logins in a row for which no session was left
        self._taken: tuple[datetime, str] | None = None  # until when none is tried again, and why
        self._unknown_sessions = 0  # in a row, that the BMC created and then did not know
        self._root: Document | None = None
        self.gets = 0  # of resources; requests of the login are not counted
        self.logins = 0  # after another login the BMC may have restarted, and number its tasks anew

    # --- requests ------------------------------------------------------------------------------------------------

    def get(self, where: str) -> Resource:
        self.gets += 1
        response = self._request("GET", where)
        body = _document(where, response)
        return Resource(where, body, _etag(response.headers.get("ETag")) or _etag(body.get("@odata.etag")))

    def post(self, where: str, data: Document | Upload, *, patience: float = 0.0) -> Reply:
        """POST. `patience`: seconds for the answer, where the default is known to be too few (pitfall A3)."""
        return self._write("POST", where, data, {}, patience)

    def patch(self, target: Resource, data: Document, *, patience: float = 0.0) -> Reply:
        """PATCH under the resource's ETag. BMCs disagree on ETags, so a 412 is not final (pitfall A1).

        After a 412 the resource is read again once, and its ETag is sent as it is, in its strong form, and left out.
        """
        try:
            return self._patch(target.path, data, target.etag, patience)
        except HttpError as error:
            if error.status != HTTPStatus.PRECONDITION_FAILED or target.etag is None:
                raise
        fresh = self.get(target.path).etag
        strong = fresh.removeprefix("W/") if fresh else None
        others = [tag for tag in dict.fromkeys((fresh, strong)) if tag not in (None, target.etag)]
        for tag in others:
            try:
                return self._patch(target.path, data, tag, patience)
            except HttpError as error:
                if error.status != HTTPStatus.PRECONDITION_FAILED:
                    raise
        return self._patch(target.path, data, None, patience)

    def _patch(self, where: str, data: Document, etag: str | None, patience: float) -> Reply:
        return self._write("PATCH", where, data, {"If-Match": etag} if etag else {}, patience)

    def delete(self, where: str) -> Reply:
        return self._write("DELETE", where, None, {}, 0.0)

    def _write(
        self, method: str, where: str, data: Document | Upload | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        response = self._request(method, where, data, headers, patience)
        try:
            body = decode(response.content) if response.content.strip() else {}
        except Unknown:
            body = {}  # the status is the answer
        return Reply(response.status_code, body, local(response.headers.get("Location")))

    # --- the session ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Delete the session, if there is one. A BMC that does not answer keeps it until it expires."""
        auth, self._auth = self._auth, None
        where = local(auth.get_session_resource_id()) if isinstance(auth, SessionAuth) else None
        if auth is None or where is None:
            return
        try:
            self.wire.send("DELETE", where)
        except DriverError:
            return  # it has expired, or the BMC is gone
        finally:
            auth.reset_session_attrs()
            self.wire.close_connections()

    @property
    def open(self) -> bool:
        return self._auth is not None

    @property
    def credentials(self) -> Credentials | None:
        """Return what the BMC let us in by; None where no session is open. With Basic, the first answer tells."""
        is_let_in = self._proven or isinstance(self._auth, SessionAuth)
        return self._credentials if is_let_in else None

    def is_of(self, found: Credentials) -> bool:
        """Say whether the BMC let us in by this password."""
        return self.credentials is not None and self.credentials.logs_in_as(found)

    def was_given(self, found: Credentials) -> None:
        """Record that the BMC is given this password, so that it may be tried even where it was refused before."""
        self._account.was_given(found)

    def accepts(self, found: Credentials, where: str) -> bool:
        """Log in beside this session, read a resource that needs a login, and log out; say whether the BMC let us."""
        alone = replace(found, previous=None)
        proof = Session(self.wire.beside(), self._account.beside(alone), self._now)
        try:
            proof.get(where)
        except DriverError as error:
            if error.kind is not Failure.AUTH:
                raise
            return False
        finally:
            proof.close()
            proof.wire.close_connections()
        return True

    @property
    def token(self) -> str | None:
        """Return the token of the open session; None without one, as with Basic."""
        return self._auth.get_session_key() if isinstance(self._auth, SessionAuth) else None

    def _request(
        self,
        method: str,
        where: str,
        data: Document | Upload | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> Answer:
        """Send a request. A session that expired, or that the BMC lost in a restart, is replaced once."""
        self._login()
        known = self._proven
        try:
            return self._send(method, where, data, headers, patience)
        except HttpError as error:
            replaceable = known and isinstance(self._auth, SessionAuth)
            if not self._refuses_us(error) or not replaceable or error.status == HTTPStatus.FORBIDDEN:
                raise self._error_for(error) from None
        self._drop()
        self._login()
        try:
            return self._send(method, where, data, headers, patience)
        except HttpError as error:
            raise self._error_for(error) from None

    def _send(
        self,
        method: str,
        where: str,
        data: Document | Upload | None,
        headers: Mapping[str, str] | None,
        patience: float,
    ) -> Answer:
        response = self.wire.send(method, where, data, headers, patience=patience)
        if (
            not self._proven and where != ROOT
        ):  # any answer but the root's, which needs no login, shows that it is valid
            self._proven, self._unknown_sessions = True, 0
            if not isinstance(self._auth, SessionAuth):
                self._account.accepted()
        return response

    def _refuses_us(self, error: HttpError) -> bool:
        """Say whether the BMC refuses the account. A 403 in a session that worked is about the resource."""
        return error.of_account and not (error.status == HTTPStatus.FORBIDDEN and self._proven)

    def _error_for(self, error: HttpError) -> DriverError:
        """Return the error to raise, and record what it says about the account.

        A session that the BMC created and does not know right afterwards is no wrong password: a BMC that has just
        started may do that once.
        """
        if not self._refuses_us(error):
            return error
        lost_session = isinstance(self._auth, SessionAuth) and error.status == HTTPStatus.UNAUTHORIZED
        self._drop()
        self._unknown_sessions += lost_session
        return (
            error
            if lost_session and self._unknown_sessions < _UNKNOWN_SESSIONS_TOLERATED
            else self._account.refused(error.detail)
        )

    def _drop(self) -> None:
        """Discard a session that the BMC does not know any more."""
        if isinstance(self._auth, SessionAuth):
            self._auth.reset_session_attrs()
        self._auth = self._root = None
        self._proven = False

    def _login(self) -> None:
        self._account.check()
        if self._auth is not None:
            if self._ends is None or self._now() < self._ends:
                return
            self.close()
        self._await_sessions()
        if self.wire.is_cleartext:
            why = "the address is http://, which would send the password in the clear; use https://"
            raise DriverError(Failure.UNSUPPORTED, f"{self.wire.address}: {why}, or allow it with redfish.tls.insecure")
        root = self._anonymous_root()
        where = link(member(root, "Links"), "Sessions") or (_SESSIONS if "SessionService" in root or not root else None)
        try:
            auth = self._authenticate(where)
        except DriverError:
            if not self._account.has_another():
                raise
            auth = self._authenticate(where)
        self._auth = auth
        self._ends = self._now() + timedelta(seconds=LIFETIME_S) if where else None
        self._proven = False
        self.logins += 1

    def _authenticate(self, where: str | None) -> AuthBase:
        """Log in, with a session where the BMC has them. The account says with which password."""
        found = self._account.credentials(self.wire.given_up)
        try:
            kind = SessionAuth if where else BasicAuth
            auth: AuthBase = kind(found.username, found.password.reveal())
            auth.set_context(_Login(self, where or ""), self.wire.client)
            auth.authenticate()
        finally:
            self._account.settle()  # with Basic, the first answer tells
        self._credentials = found
        return auth

    def _anonymous_root(self) -> Document:
        """Read the root, which the standard serves without a login. Empty where a BMC demands one all the same."""
        if self._root is None:
            try:
                self._root = _document(ROOT, self.wire.send("GET", ROOT))
            except HttpError as error:
                if error.kind is not Failure.AUTH:
                    raise
                return {}
        return self._root

    def root(self) -> Document:
        self._login()
        if self._root is None:
            self._root = self.get(ROOT).body
        return self._root

    def create(self, where: str, username: str, password: str) -> tuple[str, str | None]:
        """Log in; return token and URI of the new session."""
        try:
            response = self.wire.send("POST", where, Confidential(UserName=username, Password=password))
        except HttpError as error:
            if error.ids & SESSIONS_TAKEN:
                raise self._all_taken(error) from None
            if error.kind in (Failure.AUTH, Failure.REJECTED):
                raise self._account.refused(error.detail) from None
            raise
        self._account.accepted()
        self._refusals, self._taken = 0, None
        token = response.headers.get("X-Auth-Token")
        if not token:
            raise DriverError(Failure.MALFORMED, f"POST {where}: the BMC accepts the login but gives no X-Auth-Token")
        try:
            body = decode(response.content)
        except Unknown:
            body = {}
        return token, local(response.headers.get("Location")) or path(body.get("@odata.id"))

    def _all_taken(self, error: HttpError) -> DriverError:
        """Return the error for logins while others have all sessions, and make none before a growing pause is over."""
        self._refusals = min(self._refusals + 1, _MOST_REFUSALS)
        pause = min(max(error.retry_after or 0.0, _FIRST_PAUSE_S) * 2 ** (self._refusals - 1), _LONGEST_PAUSE_S)
        until = self._now() + timedelta(seconds=pause)
        hint = (
            f"all sessions of the BMC are taken: end those that nobody needs; not tried again before {until:%H:%M:%S}"
        )
        self._taken = (until, f"{error.detail}; {hint}")
        return DriverError(Failure.BUSY, self._taken[1], retry_after=pause)

    def _await_sessions(self) -> None:
        """Raise DriverError while it is too early to ask for a session again."""
        if self._taken is not None and (left := (self._taken[0] - self._now()).total_seconds()) > 0:
            raise DriverError(Failure.BUSY, self._taken[1], retry_after=left)


class _Login(Confined):
    """The part of a service root that sushy's SessionAuth calls."""

    def __init__(self, session: Session, where: str) -> None:
        self._session = session
        self._where = where

    def create_session(self, username: str, password: str) -> tuple[str, str | None]:
        return self._session.create(self._where, username, password)


def _document(where: str, response: Answer) -> Document:
    try:
        return decode(response.content)
    except Unknown as malformed:
        raise DriverError(Failure.MALFORMED, f"GET {where}: {malformed}") from None


def _etag(value: object) -> str | None:
    """Return an ETag that may be sent back, else None: BMCs refuse an empty one as malformed (A1)."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return None
    return value.strip() if value.strip().removeprefix("W/").strip('"') else None
