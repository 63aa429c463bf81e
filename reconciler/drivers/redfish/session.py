"""One session on one BMC: requests, the login behind them, ETags. Blocking; one thread at a time.

A session is opened by the first request that needs it, kept, and deleted by `close` (pitfall B1). An expired one is
renewed once per request. Credentials that were refused are never sent again by this object (B3): accounts get locked.
Without a session service there is only Basic, and each request is a login; with one, Basic is never a way out (B2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NoReturn

import requests
from sushy.auth import AuthBase, BasicAuth, SessionAuth

from reconciler.drivers.redfish.failures import SESSION_GONE, SESSIONS_TAKEN, HttpError, decode
from reconciler.drivers.redfish.fields import Document, Unknown, link, member, path
from reconciler.drivers.redfish.wire import Wire, local
from reconciler.model.errors import DriverError, Failure

ROOT = "/redfish/v1/"
_SESSIONS = "/redfish/v1/SessionService/Sessions"


@dataclass(frozen=True, slots=True)
class Resource:
    """What a GET gave. `etag` is never empty."""

    path: str
    body: Document
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a write gave. `location`: a path on this BMC."""

    status: int
    body: Document
    location: str | None = None


class Session:
    def __init__(
        self,
        address: str,
        *,
        username: str,
        password: str,
        ca_pem: str | None,
        insecure: bool,
        timeouts: tuple[float, float],
    ) -> None:
        self.wire = Wire(address, (ca_pem, insecure), timeouts)
        self._secrets = (username, password)
        self._auth: AuthBase | None = None
        self._proven = False
        self._refused = ""
        self._root: Document | None = None
        self.gets = 0  # of resources, as asked for; what the login needs is not counted
        self.logins = 0  # tells those who remember what the BMC had that it may have started anew

    # --- requests ------------------------------------------------------------------------------------------------

    def get(self, where: str) -> Resource:
        self.gets += 1
        response = self._request("GET", where)
        body = _document(where, response)
        return Resource(where, body, _etag(response.headers.get("ETag")) or _etag(body.get("@odata.etag")))

    def post(self, where: str, data: Document) -> Reply:
        return self._write("POST", where, data, {})

    def patch(self, target: Resource, data: Document) -> Reply:
        """PATCH under the resource's ETag. BMCs disagree on ETags, so a 412 is not yet an answer (pitfall A1).

        Then the resource is read again once, and its ETag tried as it is, in its strong form, and not at all.
        """
        try:
            return self._patch(target.path, data, target.etag)
        except HttpError as error:
            if error.status != HTTPStatus.PRECONDITION_FAILED or target.etag is None:
                raise
        fresh = self.get(target.path).etag
        strong = fresh.removeprefix("W/") if fresh else None
        others = [tag for tag in dict.fromkeys((fresh, strong)) if tag not in (None, target.etag)]
        for tag in others:
            try:
                return self._patch(target.path, data, tag)
            except HttpError as error:
                if error.status != HTTPStatus.PRECONDITION_FAILED:
                    raise
        return self._patch(target.path, data, None)

    def _patch(self, where: str, data: Document, etag: str | None) -> Reply:
        return self._write("PATCH", where, data, {"If-Match": etag} if etag else {})

    def _write(self, method: str, where: str, data: Document, headers: Mapping[str, str]) -> Reply:
        response = self._request(method, where, data, headers)
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
            self.wire.rest()

    @property
    def open(self) -> bool:
        return self._auth is not None

    def _request(
        self, method: str, where: str, data: Document | None = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        self._login()
        try:
            return self._proved(where, self.wire.send(method, where, data, headers))
        except HttpError as error:
            if not (error.status == HTTPStatus.UNAUTHORIZED or error.ids & SESSION_GONE):
                raise
            if not isinstance(self._auth, SessionAuth):
                self._refuse(error)
            self._auth.reset_session_attrs()
            self._auth = self._root = None
            if not self._proven:
                raise  # a session that never worked: another one now would fare no better
        self._login()
        return self._proved(where, self.wire.send(method, where, data, headers))

    def _proved(self, where: str, response: requests.Response) -> requests.Response:
        """The root answers anybody; another answer shows that the session is good."""
        self._proven = self._proven or where != ROOT
        return response

    def _login(self) -> None:
        if self._refused:
            raise DriverError(Failure.AUTH, self._refused)
        if self._auth is not None:
            return
        if self.wire.plain:
            why = "the address is http://, which would send the password in the clear; use https://"
            raise DriverError(Failure.UNSUPPORTED, f"{self.wire.address}: {why}, or allow it with redfish.tls.insecure")
        root = self._anonymous_root()
        where = link(member(root, "Links"), "Sessions") or (_SESSIONS if "SessionService" in root or not root else None)
        username, password = self._secrets
        auth: AuthBase = SessionAuth(username, password) if where else BasicAuth(username, password)
        auth.set_context(_Login(self, where or ""), self.wire.client)
        auth.authenticate()
        self._auth = auth
        self._proven = False
        self.logins += 1

    def _anonymous_root(self) -> Document:
        """The root is served without a login, says the standard. Empty where a BMC wants one all the same."""
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
        """Log in: the token and the URI of a new session."""
        try:
            response = self.wire.send("POST", where, {"UserName": username, "Password": password}, confidential=True)
        except HttpError as error:
            if error.ids & SESSIONS_TAKEN:
                hint = "all sessions of the BMC are taken: wait, or end the others"
                raise DriverError(Failure.BUSY, f"{error.detail}; {hint}", retry_after=error.retry_after) from None
            if error.kind in (Failure.AUTH, Failure.REJECTED):
                self._refuse(error)
            raise
        token = response.headers.get("X-Auth-Token")
        if not token:
            raise DriverError(Failure.MALFORMED, f"POST {where}: the BMC accepts the login but gives no X-Auth-Token")
        try:
            body = decode(response.content)
        except Unknown:
            body = {}
        return token, local(response.headers.get("Location")) or path(body.get("@odata.id"))

    def _refuse(self, error: HttpError) -> NoReturn:
        """Remember that the credentials are wrong, and stop (B3)."""
        hint = "the credentials were refused and are not sent again, as the account might get locked; check the secret"
        self._refused = f"{error.detail}; {hint}"
        self._auth = None
        raise DriverError(Failure.AUTH, self._refused) from None


class _Login:
    """What sushy's SessionAuth expects of a service root."""

    def __init__(self, session: Session, where: str) -> None:
        self._session = session
        self._where = where

    def create_session(self, username: str, password: str) -> tuple[str, str | None]:
        return self._session.create(self._where, username, password)


def _document(where: str, response: requests.Response) -> Document:
    try:
        return decode(response.content)
    except Unknown as malformed:
        raise DriverError(Failure.MALFORMED, f"GET {where}: {malformed}") from None


def _etag(value: object) -> str | None:
    """An ETag that may be sent back: an empty one is refused as malformed (A1)."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return None
    return value.strip() if value.strip().removeprefix("W/").strip('"') else None
