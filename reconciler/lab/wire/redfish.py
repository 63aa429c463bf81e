"""The lab's BMC on the wire: one Redfish service over HTTPS per machine.

redfish_*.py hold the resources. This module handles each request around them: simulated silence, login,
preconditions, and the reply with its ETag. A machine's service is one small aiohttp server without router or
middleware, so that hundreds run in one process.
"""

from __future__ import annotations

import asyncio
import email
import gzip
import hashlib
import json
import ssl
from collections import Counter, deque
from datetime import UTC, datetime
from types import MappingProxyType

from aiohttp import web

from reconciler.lab.hardware.machine import HardwareRejected, Machine, Rejection
from reconciler.lab.wire import (
    redfish_accounts,
    redfish_bios,
    redfish_chassis,
    redfish_events,
    redfish_integrity,
    redfish_manager,
    redfish_media,
    redfish_parts,
    redfish_service,
    redfish_system,
    redfish_update,
)
from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import Bmc, Document, Reply, Resource, Routes
from reconciler.lab.wire.redfish_quirks import BURST_S, FROZEN_S, EtagStyle, Quirks, Silence, quirks_of_make
from reconciler.lab.wire.redfish_service import SESSIONS
from reconciler.lab.wire.redfish_sessions import Sessions

__all__ = ["Quirks", "RedfishServer"]

ROUTES: Routes = {
    **redfish_service.ROUTES,
    **redfish_accounts.ROUTES,
    **redfish_system.ROUTES,
    **redfish_bios.ROUTES,
    **redfish_parts.ROUTES,
    **redfish_media.ROUTES,
    **redfish_update.ROUTES,
    **redfish_chassis.ROUTES,
    **redfish_manager.ROUTES,
    **redfish_integrity.ROUTES,
    **redfish_events.ROUTES,
}
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RETRY_AFTER_S = "5"

_HEADERS = MappingProxyType(
    {"OData-Version": "4.0", "Cache-Control": "no-cache", "Content-Type": "application/json; charset=utf-8"}
)
_REFUSALS = {  # the views handle the other rejections, which are about values: they know the property's name
    Rejection.CONFLICT: ("ResourceInUse",),
    Rejection.IN_POST: ("UnableToModifyDuringSystemPOST",),
    Rejection.BUSY: ("ServiceTemporarilyUnavailable", "30"),
}


class RedfishServer:
    """The Redfish service of one machine. `requests` counts requests by (method, path).

    `quirks`: None = those of the machine's manufacturer. `epoch`: the date at which the machine's clock read 0.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        username: str,
        password: str,
        quirks: Quirks | None = None,
        epoch: datetime = UNIX_EPOCH,
    ) -> None:
        quirks = quirks or quirks_of_make(machine.state.manufacturer)
        machine.state.has_media, machine.state.http_boot = quirks.virtual_media, bool(quirks.http_boot)
        if quirks.http_attribute:
            machine.has_http_device(quirks.http_attribute)
        lock = (quirks.locks_after, quirks.locked_s)
        sessions = Sessions(username, password, quirks.max_sessions, quirks.session_timeout_s, lock)
        self.requests: Counter[tuple[str, str]] = Counter()
        self._bmc = Bmc(machine, quirks, sessions, epoch)
        self._boots = machine.state.bmc_boots
        self._runner: web.ServerRunner | None = None
        self._recent: deque[tuple[float, bool]] = deque()  # requests of the last BURST_S: (time, whether it is a write)
        self._frozen_until = 0.0

    @property
    def logins(self) -> int:
        """Return the number of sessions ever created."""
        return self._bmc.sessions.created

    @property
    def refused_logins(self) -> int:
        """Return how often wrong credentials were sent, which locks accounts on real BMCs (pitfall B3)."""
        return self._bmc.sessions.refused

    @property
    def password(self) -> str:
        """Return the password that the account has now."""
        return self._bmc.sessions.password

    @property
    def open_sessions(self) -> int:
        """Return the number of open sessions."""
        return len(self._bmc.sessions.open(self._bmc.machine.now))

    @property
    def event_streams(self) -> int:
        """Return the number of clients that events are streamed to."""
        return len(self._bmc.streams)

    async def start(self, ssl_context: ssl.SSLContext, host: str = "127.0.0.1", port: int = 0) -> int:
        """Start serving and return the port."""
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=ssl_context).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        for task in list(self._bmc.posting.values()):
            task.cancel()
            await asyncio.wait([task])
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # --- request handling ---

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.rstrip("/")
        self.requests[request.method, path] += 1
        quirks = self._bmc.quirks
        trouble = self._trouble()
        if trouble == "unreachable" or self._freezes(request.method):
            return await _silence(request, quirks.unreachable)
        if (slow := self._bmc.machine.fault("bmc_slow")) is not None:
            await asyncio.sleep(float(slow["seconds"]))
        raw = await request.read()
        try:
            if request.method == "GET" and path == quirks.event_stream and trouble is None:
                self._authorise(request, path)
                return await redfish_events.stream(self._bmc, request)
            reply, tag = self._answer(request, path, raw, trouble)
        except Refusal as refusal:
            reply, tag = Reply(refusal.status, refusal.body(as_list=quirks.error_info_as_list), refusal.headers), ""
        if request.method in ("PATCH", "POST") and reply.status < 300 and path != SESSIONS:
            await asyncio.sleep(quirks.slow_writes_s)
            restarts = self._bmc.machine.state.bmc_ready_at > self._bmc.machine.now
            if quirks.swallows_writes or (restarts and request.method == "PATCH"):
                return await _silence(request, quirks.unreachable)
        return self._respond(request, reply, tag, garbled=trouble == "garbage")

    def _freezes(self, method: str) -> bool:
        """Tell whether too many requests at once have frozen the BMC (pitfall A12)."""
        quirks = self._bmc.quirks
        if not quirks.most_requests and not quirks.most_writes:
            return False
        now = asyncio.get_running_loop().time()
        self._recent.append((now, method != "GET"))
        while now - self._recent[0][0] > BURST_S:
            self._recent.popleft()
        writes = sum(write for _, write in self._recent)
        if 0 < quirks.most_requests < len(self._recent) or 0 < quirks.most_writes < writes:
            self._frozen_until = now + FROZEN_S
        return now < self._frozen_until

    def _trouble(self) -> str | None:
        """Return how this request fails: unreachable | 503 | garbage, or None. Sessions handle wrong_password."""
        machine = self._bmc.machine
        restarting = machine.state.bmc_ready_at > machine.now
        trouble = machine.bmc_transport()
        if machine.state.bmc_boots != self._boots:
            self._boots = machine.state.bmc_boots
            self._bmc.sessions.forget()
        self._bmc.sessions.refusing = trouble == "wrong_password"
        return "503" if restarting and self._bmc.quirks.unavailable_in_restart else trouble

    def _answer(self, request: web.BaseRequest, path: str, raw: bytes, trouble: str | None) -> tuple[Reply, str]:
        """Return the reply and the content of its ETag; "" = no ETag."""
        if trouble == "503":
            raise Refusal("ServiceTemporarilyUnavailable", RETRY_AFTER_S, headers={"Retry-After": RETRY_AFTER_S})
        resource, member = find(path)
        method = "GET" if request.method == "HEAD" else request.method
        if resource is None or resource.public != method:
            self._authorise(request, path)
        if resource is None:
            raise Refusal("ResourceMissingAtURI", path)
        if method == "GET" and resource.get is not None:
            return self._get(request, path, resource, member)
        return self._change(request, path, raw, resource, member), ""

    def _authorise(self, request: web.BaseRequest, path: str) -> None:
        token, basic = request.headers.get("X-Auth-Token"), request.headers.get("Authorization")
        if token is None and basic is None:
            raise Refusal("NoValidSession", headers={"WWW-Authenticate": 'Basic realm="Redfish"'})
        if not self._bmc.sessions.authorised(token, basic, self._bmc.machine.now):
            raise Refusal("ResourceAtUriUnauthorized" if token is None else "NoValidSession", path)

    def _get(self, request: web.BaseRequest, path: str, resource: Resource, member: str) -> tuple[Reply, str]:
        document = self._document(path, resource, member)
        for name, value in request.query.items():
            if name == "$expand" and self._bmc.quirks.expand and value[:1] in (".", "*") and "Members" in document:
                document = document | {"Members": [self._expanded(entry) for entry in document["Members"]]}
            elif name.startswith("$"):
                raise Refusal("QueryNotSupported")
        return Reply(resource.code(document), document, {"Allow": resource.allow}), _tag(document)

    def _document(self, path: str, resource: Resource, member: str) -> Document:
        document = resource.get(self._bmc, member) if resource.get is not None else None
        if document is None:
            raise Refusal("ResourceMissingAtURI", path)
        return document

    def _expanded(self, entry: Document) -> Document:
        """Return a collection's member in full; log entries are already complete."""
        if len(entry) > 1:
            return entry
        path = entry["@odata.id"]
        resource, member = find(path)
        assert resource is not None  # this service's collections link only to its own resources
        return self._document(path, resource, member)

    def _change(self, request: web.BaseRequest, path: str, raw: bytes, resource: Resource, member: str) -> Reply:
        bmc = self._bmc
        try:
            if request.method == "PATCH" and resource.patch is not None:
                current = _tag(self._document(path, resource, member))
                _check_precondition(bmc.quirks.etags, current, request.headers.get("If-Match"))
                return resource.patch(bmc, member, _parse(raw, request.headers.get("Content-Type", "")))
            if request.method == "POST" and resource.post is not None:
                return resource.post(bmc, member, _parse(raw, request.headers.get("Content-Type", "")))
            if request.method == "DELETE" and resource.delete is not None:
                return resource.delete(bmc, member)
        except HardwareRejected as rejected:
            raise Refusal(*_REFUSALS[rejected.reason]) from rejected
        raise Refusal("OperationNotAllowed", headers={"Allow": resource.allow})

    # --- replies ---

    def _respond(self, request: web.BaseRequest, reply: Reply, tag: str, *, garbled: bool) -> web.Response:
        headers = {**_HEADERS, **reply.headers}
        compressed = self._bmc.quirks.compress and "gzip" in request.headers.get("Accept-Encoding", "")
        style = EtagStyle.WEAK if compressed else self._bmc.quirks.etags
        etag = _etag(style, tag) if tag else None
        if etag is not None:
            headers["ETag"] = etag
        if etag and request.headers.get("If-None-Match") == etag and reply.status == 200:
            return web.Response(status=304, headers={"ETag": etag})
        document = reply.document
        if document is None:
            return web.Response(status=reply.status, headers=headers)
        body = _dump({**document, "@odata.etag": etag} if etag else document)
        if garbled:
            body = body[: len(body) // 2]
        if compressed:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        return web.Response(status=reply.status, body=body, headers=headers)


def find(path: str) -> tuple[Resource | None, str]:
    """Return the resource at a path, and the last segment of the path if it is a member of a collection."""
    resource = ROUTES.get(path)
    if resource is not None:
        return resource, ""
    parent, _, member = path.rpartition("/")
    below = next((part for part in ("/Actions/", "/Certificates/") if part in path), "")
    if f"{parent}/*" in ROUTES or not below:
        return ROUTES.get(f"{parent}/*"), member
    owner, _, called = path.partition(below)  # what belongs to a member of a collection
    parent, _, member = owner.rpartition("/")
    return ROUTES.get(f"{parent}/*{below}{called}"), member


async def _silence(request: web.BaseRequest, kind: Silence) -> web.Response:
    if kind is Silence.HANG:
        await asyncio.Event().wait()  # until the client gives up, which cancels this task
    if request.transport is not None:
        request.transport.abort()
    return web.Response()  # the connection is closed; nobody reads it


def _dump(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _parse(raw: bytes, content_type: str) -> Document:
    """Return the body as an object, a form with its parts as texts. No body is {}: so clients send EjectMedia."""
    if content_type.startswith("multipart/form-data"):
        message = email.message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + raw)
        parts = [part for part in message.walk() if not part.is_multipart()]
        return {str(part.get_param("name", header="content-disposition")): str(part.get_payload()) for part in parts}
    try:
        body = json.loads(raw) if raw.strip() else {}
    except ValueError as error:
        raise Refusal("MalformedJSON") from error
    if not isinstance(body, dict):
        raise Refusal("MalformedJSON")
    return body


def _tag(document: Document) -> str:
    """Return the quoted part of an ETag. It is equal for equal content."""
    return hashlib.blake2b(_dump(document), digest_size=12).hexdigest()


def _etag(style: EtagStyle, tag: str) -> str | None:
    """Return the value of the ETag header, or None to leave it out."""
    match style:
        case EtagStyle.MISSING:
            return None
        case EtagStyle.EMPTY:
            return ""
        case EtagStyle.WEAK:
            return f'W/"{tag}"'
        case EtagStyle.STRONG | EtagStyle.REFUSED:
            return f'"{tag}"'


def _check_precondition(style: EtagStyle, tag: str, if_match: str | None) -> None:
    """Raise a 412 when If-Match fails. It compares strongly (RFC 9110, 13.1.1): a weak ETag never matches."""
    if if_match is None:
        return
    if style is EtagStyle.REFUSED or if_match.strip() not in ("*", f'"{tag}"'):
        raise Refusal("PreconditionFailed")
