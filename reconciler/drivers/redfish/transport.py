"""Sockets, TLS and limits under sushy's Connector.

The Connector repeats any failed request, writes too: up to three times with sleeps after a lost connection, and by its
own table after errors of the BMC. A write that is sent twice is worse than one that failed (pitfall A3), and sleeps are
the caller's decision. It repeats on exceptions of `requests` and its own; this transport raises ConnectionFailed, and
`response_callback` raises for an error status before sushy sees it. So sushy never repeats anything.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.client import BadStatusLine, RemoteDisconnected
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from sushy.connector import Connector
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from reconciler.drivers.redfish.failures import ConnectionFailed
from reconciler.drivers.redfish.fields import quote
from reconciler.drivers.redfish.upload import Upload
from reconciler.model.errors import Failure

_LARGEST_BODY = 16 * 2**20  # BIOS registries are the largest: some 3 MB
_CHUNK = 2**16
_WHERE = "check address and port"
_STALL_S = 60.0  # how long a BMC may take for the next piece of a file


class Aborted(Exception):
    """Raised in a call that its caller gave up."""


@lru_cache(maxsize=64)
def tls_context(ca_pem: str | None, insecure: bool) -> ssl.SSLContext:
    """Return a context that trusts only `ca_pem`, or what the system trusts. Ignores the environment (pitfall B5)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=ca_pem)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate in the file is trusted, root or not
    return context


@dataclass(frozen=True, slots=True)
class Answer:
    """Holds what a BMC answered. The names of `headers` are found in any case."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class Transport(HTTPAdapter):
    """Connections to one BMC, used by one thread at a time. Nothing more is sent once `aborted` is set."""

    def __init__(self, context: ssl.SSLContext, read_timeout: float, aborted: threading.Event) -> None:
        self.context = context
        self.read_timeout = read_timeout  # of the next requests
        self._aborted = aborted
        self._live: weakref.WeakSet[HTTPConnection] = weakref.WeakSet()
        super().__init__(pool_connections=1, pool_maxsize=1)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, self._tls(host["scheme"])

    def _tls(self, scheme: str) -> dict[str, Any]:
        required = self.context.verify_mode == ssl.CERT_REQUIRED
        tls = {"ssl_context": self.context, "cert_reqs": "CERT_REQUIRED" if required else "CERT_NONE"}
        return tls if scheme == "https" else {}

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing: the context decides whom to trust; the base class would add the bundle of `certifi`."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        return self._with_tracked_connections(super().get_connection_with_tls_context(*args, **kwargs))

    def _with_tracked_connections(self, pool: Any) -> Any:
        if isinstance(pool.ConnectionCls, type):
            pool.ConnectionCls = self._tracked(pool.ConnectionCls)
        return pool

    def _tracked(self, kind: Callable[..., HTTPConnection]) -> Callable[..., HTTPConnection]:
        def create(*args: Any, **kwargs: Any) -> HTTPConnection:
            connection = kind(*args, **kwargs)
            self._live.add(connection)
            return connection

        return create

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        if self._aborted.is_set():
            raise Aborted
        try:
            connect, _ = kwargs["timeout"]
            options = {**kwargs, "stream": True, "timeout": (connect, self.read_timeout)}
            response = super().send(request, *args, **options)
            body = self._body(response.raw)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            if self._aborted.is_set():
                raise Aborted from error
            raise failed(error, self.read_timeout) from error
        response.raw = urllib3.HTTPResponse(BytesIO(body), status=response.status_code, preload_content=False)
        return response

    def get(self, address: str, where: str, headers: Mapping[str, str], connect_timeout: float) -> Answer:
        """GET over the connection that requests would use, without the half of the CPU that it and sushy take."""
        if self._aborted.is_set():
            raise Aborted
        parts = urlsplit(address)
        pool = self._with_tracked_connections(
            self.poolmanager.connection_from_host(parts.hostname, parts.port, parts.scheme, self._tls(parts.scheme))
        )
        timeout = urllib3.Timeout(connect=connect_timeout, read=self.read_timeout)
        try:
            raw = pool.urlopen(
                "GET", where, headers=headers, timeout=timeout, retries=False, redirect=False,
                assert_same_host=False, preload_content=False, decode_content=False,
            )  # fmt: skip
            return Answer(raw.status, raw.headers, self._body(raw))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if self._aborted.is_set():
                raise Aborted from error
            raise failed(error, self.read_timeout) from error

    def _body(self, raw: Any) -> bytes:
        """Read the body within limits of size and time: a socket's timeout starts anew with each byte."""
        deadline = time.monotonic() + self.read_timeout
        parts: list[bytes] = []
        size = 0
        while chunk := raw.read1(_CHUNK, decode_content=True):
            parts.append(chunk)
            size += len(chunk)
            if size > _LARGEST_BODY or time.monotonic() > deadline:
                raw.close()
                slow = size <= _LARGEST_BODY
                kind = Failure.TIMEOUT if slow else Failure.MALFORMED
                why = f"trickles for over {self.read_timeout:g} s" if slow else f"exceeds {_LARGEST_BODY >> 20} MiB"
                raise ConnectionFailed(kind, f"the answer {why}", sent=True)
        return b"".join(parts)

    def shut(self) -> None:
        """End the request that is under way. Called from another thread."""
        for connection in list(self._live):
            live = connection.sock
            if live is not None:
                try:
                    socket.socket.shutdown(live, socket.SHUT_RDWR)  # SSLSocket's own would first forget its TLS state
                except OSError:
                    continue  # closed meanwhile


def connector(address: str, transport: Transport, timeouts: tuple[float, float], judge: Callable[[Any], None]) -> Any:
    """Return sushy's Connector over our transport. Only its private requests session allows that."""
    connect, read = timeouts
    verified = transport.context.verify_mode == ssl.CERT_REQUIRED
    made = Connector(
        address,
        verify=verified,
        response_callback=judge,
        default_request_timeout=read,
        connect_timeout=connect,
    )
    session: requests.Session = made._session
    session.trust_env = False  # no proxies, no .netrc, no REQUESTS_CA_BUNDLE (pitfall B5)
    session.mount("https://", transport)
    session.mount("http://", transport)
    # All requests of one call share a connection; sushy opens one per request. None is kept between calls, because
    # BMCs fail under connections that stay open (a note in sushy, from the field).
    del session.headers["Connection"]
    return made


def send_file(client: Any, url: str, upload: Upload) -> requests.Response:
    """POST a file piece by piece through the session of sushy's Connector, which itself sends nothing but JSON."""
    session: requests.Session = client._session
    headers = {"Content-Type": upload.content_type, "OData-Version": "4.0", "Accept-Encoding": "identity"}
    return session.post(url, data=upload, headers=headers, timeout=(_STALL_S, _STALL_S), allow_redirects=False)


def failed(error: Exception, read_timeout: float) -> ConnectionFailed:
    """Return what an exception of requests, urllib3 or a socket means."""
    causes = list(_causes(error))
    certificate = next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        why = quote(certificate.verify_message or certificate)
        hint = "give the CA that signed it (redfish.tls.ca), with the address in the certificate's alternative names"
        return ConnectionFailed(Failure.AUTH, f"the BMC's certificate is not trusted: {why}; {hint}", sent=False)
    if any(isinstance(cause, NewConnectionError) for cause in causes):  # a ConnectTimeoutError, too, to urllib3
        refusal = next((cause for cause in causes if isinstance(cause, OSError)), error)
        return ConnectionFailed(Failure.UNREACHABLE, f"no connection: {quote(refusal)}; {_WHERE}", sent=False)
    if any(isinstance(cause, requests.ConnectTimeout | ConnectTimeoutError) for cause in causes):
        hint = "check the network, and that the BMC has power"
        return ConnectionFailed(Failure.UNREACHABLE, f"no connection in time; {hint}", sent=False)
    if any(isinstance(cause, requests.Timeout | TimeoutError | urllib3.exceptions.TimeoutError) for cause in causes):
        hint = "the BMC hangs: reset it if this stays"
        return ConnectionFailed(Failure.TIMEOUT, f"no answer within {read_timeout:g} s; {hint}", sent=True)
    if any(isinstance(cause, BadStatusLine) and not isinstance(cause, RemoteDisconnected) for cause in causes):
        return ConnectionFailed(Failure.MALFORMED, f"the answer is not HTTP; {_WHERE}", sent=True)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return ConnectionFailed(Failure.UNREACHABLE, f"TLS failed: {quote(causes[-1])}; {_WHERE}", sent=True)
    return ConnectionFailed(Failure.UNREACHABLE, f"the connection was lost: {quote(causes[-1])}", sent=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and all that it wraps, in arguments and chains, outermost first."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        chained = (*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__)
        waiting.extend(item for item in chained if isinstance(item, BaseException))
