"""Send one request to one BMC; return its answer, or raise what went wrong. Blocking; one thread at a time."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.utils import requote_uri

from reconciler.drivers.redfish.bmc_gate import RequestGaps
from reconciler.drivers.redfish.failures import ConnectionFailed, connection_error, http_error
from reconciler.drivers.redfish.fields import Confidential, Document, path, quote
from reconciler.drivers.redfish.transport import Answer, Transport, connector, send_file, tls_context
from reconciler.drivers.redfish.upload import Upload
from reconciler.drivers.requests_log import telling
from reconciler.model.errors import DriverError, Failure

_OF_A_GET = {"Accept-Encoding": "identity", "OData-Version": "4.0"}  # compression makes ETags weak


class _Failed(Exception):
    """A status of 300 or more. Raised in sushy's callback, so that sushy neither repeats nor renews by itself."""

    def __init__(self, response: Answer) -> None:
        super().__init__()
        self.response = response


class Wire:
    """HTTP to one BMC. `trust`: CA certificates; whether to trust any. `timeouts`: to connect and read, in seconds."""

    def __init__(
        self, address: str, trust: tuple[str | None, bool], timeouts: tuple[float, float], gaps: RequestGaps
    ) -> None:
        parts = urlsplit(address)
        self.address = f"{parts.scheme}://{parts.netloc}"
        self.is_cleartext = parts.scheme != "https" and not trust[1]
        self.answer_count = 0  # HTTP errors too: they show that the BMC is there
        self._trust = trust
        self._timeouts = timeouts
        self.gaps = gaps
        self._made: tuple[Any, Transport] | None = None
        self._aborted = threading.Event()

    def beside(self) -> Wire:
        """Return another connection to the same BMC, which is given up together with this one."""
        other = Wire(self.address, self._trust, self._timeouts, self.gaps)
        other.is_cleartext, other._aborted = self.is_cleartext, self._aborted
        return other

    @property
    def client(self) -> Any:
        """sushy's Connector, which its authentication classes take."""
        return self._parts()[0]

    @property
    def verifies(self) -> bool:
        """Say whether a certificate must be trusted."""
        return not self._trust[1]

    @property
    def tls(self) -> ssl.SSLContext:
        """The context of every connection to this BMC."""
        return self._parts()[1].context

    def close_connections(self) -> None:
        if self._made is not None:
            self._made[1].close()

    def abort(self) -> None:
        """End the request that is under way, and let no other start. Called from another thread."""
        self._aborted.set()
        if self._made is not None:
            self._made[1].shut()

    def resume(self) -> None:
        self._aborted.clear()

    def given_up(self) -> bool:
        return self._aborted.is_set()

    def _judge(self, response: requests.Response | Answer) -> None:
        self.answer_count += 1
        if response.status_code >= HTTPStatus.MULTIPLE_CHOICES:
            raise _Failed(_answer(response))

    def _parts(self) -> tuple[Any, Transport]:
        """Create connector and transport on first use: ten thousand idle ones would cost a second, and memory."""
        if self._made is None:
            try:
                context = tls_context(*self._trust)
            except ssl.SSLError as error:
                raise DriverError(Failure.AUTH, f"the CA certificates can't be read: {quote(error)}") from None
            transport = Transport(context, self._timeouts[1], self._aborted)
            self._made = connector(self.address, transport, self._timeouts, self._judge), transport
        return self._made

    def send(
        self,
        method: str,
        where: str,
        data: Document | Upload | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        patience: float = 0.0,
    ) -> Answer:
        """Send one request. `patience`: seconds for its answer, where it is known to take longer than others.

        A GET that loses its connection is sent once more: BMCs close idle connections at any time. Other methods get a
        new connection: if the BMC closed a used one meanwhile, nobody could tell whether the write arrived.
        """
        confidential = isinstance(data, Confidential)
        if method != "GET":
            self.close_connections()
        self.gaps.wait(method, self._aborted)
        self._parts()[1].read_timeout = max(self._timeouts[1], patience)
        try:
            return self._told(method, where, data, headers)
        except ConnectionFailed as lost:
            if method == "DELETE" or (
                method == "POST" and confidential
            ):  # the session's end and the login: they change nothing on the node
                raise DriverError(lost.kind, f"{method} {where}: {lost.detail}") from None
            raise connection_error(method, where, lost) from None
        except _Failed as answer:
            response = answer.response
            raise http_error(
                method, where, response.status_code, response.content, response.headers, confidential=confidential
            ) from None
        finally:
            self.gaps.record(method)

    def _told(
        self, method: str, where: str, data: Document | Upload | None, headers: Mapping[str, str] | None
    ) -> Answer:
        with telling(self.address, f"{method} {where}", reads=method == "GET") as told:
            try:
                try:
                    answer = self._once(method, where, data, headers)
                except ConnectionFailed as lost:
                    if method != "GET" or not lost.sent or lost.kind is not Failure.UNREACHABLE:
                        raise
                    self.close_connections()
                    answer = self._once(method, where, data, headers)
            except _Failed as failed:
                told.answer = str(failed.response.status_code)
                raise
            told.answer = str(answer.status_code)
            return answer

    def _once(
        self, method: str, where: str, data: Document | Upload | None, headers: Mapping[str, str] | None
    ) -> Answer:
        client = self._parts()[0]
        if isinstance(data, Upload):
            try:
                answer = send_file(client, self.address + where, data)
            except OSError as error:  # of the network's, the transport makes ConnectionFailed
                why = f"our copy of the file can't be read: {error.strerror}"
                raise ConnectionFailed(Failure.UNREACHABLE, why, sent=False) from error
            self._judge(answer)
            return _answer(answer)
        options = {"headers": dict(headers or {}), "allow_redirects": False}
        match method:
            case "GET":
                return self._get(where, options)
            case "POST":
                found = client.post(where, data=data, **options)
            case "PATCH":
                found = client.patch(where, data=data, **options)
            case _:
                found = client.delete(where, **options)
        return _answer(found)

    def _get(self, where: str, options: dict[str, Any]) -> Answer:
        try:
            return self._plain_get(where, options)
        except _Failed as answer:
            status, location = answer.response.status_code, local(answer.response.headers.get("Location"))
            if status == HTTPStatus.NOT_ACCEPTABLE:  # some HPE Gen10 Plus serve registries compressed or not at all
                return _answer(self.client.get(where, **{**options, "headers": {"Accept-Encoding": None}}))
            if status in (301, 302, 307, 308) and location is not None:  # A13; once, and never to another host
                return self._plain_get(location, options)
            raise

    def _plain_get(self, where: str, options: dict[str, Any]) -> Answer:
        """GET with the headers of sushy's session, past it. Where each request carries the password, it does it."""
        client, transport = self._parts()
        session: requests.Session = client._session
        if session.auth is not None:
            return _answer(client.get(where, **options))
        headers = {str(name): str(value) for name, value in session.headers.items()} | _OF_A_GET | options["headers"]
        found = transport.get(self.address, requote_uri(where), headers, self._timeouts[0])
        self._judge(found)
        return found


def _answer(found: requests.Response | Answer) -> Answer:
    return found if isinstance(found, Answer) else Answer(found.status_code, found.headers, found.content)


def local(value: object) -> str | None:
    """Return the path of a Location, which may be absolute and name the BMC by another address than ours."""
    if not isinstance(value, str):
        return None
    try:
        parts = urlsplit(value)
    except ValueError:
        return None
    return path(parts.path + (f"?{parts.query}" if parts.query else ""))
