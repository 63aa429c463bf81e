"""Answer the calls of an installer (docs/reference/installer-contract.md).

The state of an attempt is read from the ledger in each call and saved before the answer, so that it is the same for
whichever leader answers. No answer, and nothing that is logged, has the token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from aiohttp import web

from reconciler.drivers.installer.host_keys import EndedError, HostKeys, TooEarlyError
from reconciler.drivers.installer.medium import Medium, UnsatisfiableError, parse_range
from reconciler.drivers.installer.pxe import MAC, PxeOffers, script
from reconciler.drivers.installer.signer import Signer, normal_key
from reconciler.model.attestor import Attestor
from reconciler.model.errors import DriverError, Failure, LeaseHeld, LedgerError, ReconcilerError
from reconciler.model.install import (
    AttemptCredential,
    AttestationBegin,
    AttestationFinish,
    ContractDocument,
    ContractError,
    InstallDocument,
    InstallStatus,
    dump_contract,
    fill_credential,
    load_contract,
)
from reconciler.model.install_progress import InstallAttempt, asked, digest_of, reported
from reconciler.model.ledger_ports import InstallStore

C = TypeVar("C", bound=ContractDocument)

SMALL_BYTES: Final = 16 * 1024  # of a status and of a key
LARGE_BYTES: Final = 4 * 1024 * 1024  # of an attestation: event logs are long
BODY_S: Final = 30.0
_CHUNK: Final = 1 << 18
_KNOWN_S: Final = 5.0  # how long a fetch of the medium goes by what the ledger said before
_TOKEN: Final = "{token:[A-Za-z0-9_-]{1,128}}"


def credential(attempt: InstallAttempt, url: str) -> bytes:
    """Return the contents of the boot medium's placeholder. ContractError: they do not fit."""
    network = load_contract(AttemptCredential, attempt.network) if attempt.network else AttemptCredential(url="")
    return fill_credential(network.model_copy(update={"url": url}))


@dataclass(frozen=True, slots=True)
class _View:
    """The boot medium of an attempt, until it is looked up again."""

    medium: Medium
    credential: bytes
    until: float


class Calls:
    """Answers installers.

    `medium`: returns the boot medium. `base`: our URL. `signer`: of host keys, None where they stay as they are.
    """

    def __init__(
        self,
        store: InstallStore,
        host_keys: HostKeys,
        *,
        medium: Callable[[], Awaitable[Medium]],
        base: Callable[[], str],
        signer: Callable[[], Signer | None],
        attestor: Attestor | None,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._host_keys = host_keys
        self._medium_now = medium
        self._base = base
        self._signer = signer
        self._attestor = attestor
        self._now = now
        self.offers = PxeOffers()
        self._views: dict[str, _View] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by digest, while it is used

    def application(self) -> web.Application:
        app = web.Application(client_max_size=LARGE_BYTES, middlewares=[_plain_errors])
        app.router.add_get(f"/{_TOKEN}/boot.iso", self._boot_medium)
        app.router.add_get(f"/boot/{MAC}/boot.ipxe", self._boot_script)
        app.router.add_get(f"/boot/{MAC}/boot.iso", self._boot_medium)
        app.router.add_get(f"/{_TOKEN}/install.json", self._document)
        app.router.add_post(f"/{_TOKEN}/status", self._status)
        app.router.add_post(f"/{_TOKEN}/hostkey", self._host_key)
        app.router.add_post(f"/{_TOKEN}/attest/begin", self._attest_begin)
        app.router.add_post(f"/{_TOKEN}/attest/finish", self._attest_finish)
        return app

    def lock(self, digest: str) -> asyncio.Lock:
        """Return the lock of an attempt: from reading it to saving it, nobody else does."""
        return self._locks.setdefault(digest, asyncio.Lock())

    def forget(self, digest: str) -> None:
        """Look the attempt up again when its medium is next asked for."""
        self._views.pop(digest, None)

    def serve(self, digest: str, medium: Medium, contents: bytes) -> None:
        self._views[digest] = _View(medium, contents, time.monotonic() + _KNOWN_S)

    # --- the boot medium ---

    async def _boot_medium(self, request: web.Request) -> web.StreamResponse:
        view = await self._view(request)
        medium = view.medium
        headers = {
            "Accept-Ranges": "bytes",
            "Cache-Control": "no-store",
            "Content-Type": "application/octet-stream",
            "ETag": medium.etag(view.credential),
        }
        begin, end, status = 0, medium.size, HTTPStatus.OK
        try:
            wanted = parse_range(request.headers.get("Range"), medium.size)
        except UnsatisfiableError:
            raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{medium.size}"}) from None
        if wanted is not None and request.headers.get("If-Range", headers["ETag"]) == headers["ETag"]:
            (begin, end), status = wanted, HTTPStatus.PARTIAL_CONTENT
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{medium.size}"
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = end - begin
        await response.prepare(request)
        if request.method != "HEAD":
            for first in range(begin, end, _CHUNK):
                await response.write(medium.read(first, min(end, first + _CHUNK), view.credential))
        return response

    async def _boot_script(self, request: web.Request) -> web.Response:
        self._offered(request)
        url = f"{self._base()}{request.path.removesuffix('ipxe')}iso"
        return web.Response(text=script(url), headers={"Cache-Control": "no-store"})

    def _offered(self, request: web.Request) -> str:
        """Return the token of the attempt that a path names by MAC address, while its installer has no document."""
        token = self.offers.token(request.match_info["mac"], request.remote or "")
        found = self._store.install(digest_of(token)) if token is not None else None
        if token is None or found is None or found.closed_at is not None or found.fetched or found.incident:
            raise web.HTTPNotFound(text="no attempt is offered to you")
        return token

    async def _view(self, request: web.Request) -> _View:
        token = request.match_info.get("token") or self._offered(request)
        digest = digest_of(token)
        view = self._views.get(digest)
        if view is not None and time.monotonic() < view.until and view.medium.unchanged():
            return view
        attempt = self._attempt(token)
        medium = view.medium if view is not None and view.medium.unchanged() else await self._medium_now()
        self.serve(digest, medium, credential(attempt, f"{self._base()}/{token}"))
        return self._views[digest]

    # --- the other calls ---

    def _attempt(self, token: str) -> InstallAttempt:
        found = self._store.install(digest_of(token))
        if found is None or found.closed_at is not None:
            raise web.HTTPNotFound(text="no such attempt")
        if found.incident:
            raise EndedError(found.incident)
        return found

    def _lock_of(self, request: web.Request) -> asyncio.Lock:
        return self.lock(digest_of(request.match_info["token"]))

    async def _document(self, request: web.Request) -> web.Response:
        async with self._lock_of(request):
            attempt = self._attempt(request.match_info["token"])
            if request.method != "HEAD":
                told = "" if attempt.fetched else "the installer fetched its document"
                self._store.save_install(asked(attempt, self._now()), self._now(), told)
        headers = {"Cache-Control": "no-store"}
        return web.Response(text=attempt.document, content_type="application/json", headers=headers)

    async def _status(self, request: web.Request) -> web.Response:
        status = load_contract(InstallStatus, await _body(request, SMALL_BYTES))
        async with self._lock_of(request):
            attempt = self._attempt(request.match_info["token"])
            after = reported(attempt, status, _document_of(attempt), self._now())
            told = ""
            if after.phase is not attempt.phase:
                told = f"the installer reports {after.phase}" + (f": {after.detail}" if after.detail else "")
            self._store.save_install(after, self._now(), told)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _host_key(self, request: web.Request) -> web.Response:
        try:
            key = normal_key((await _body(request, SMALL_BYTES)).decode("ascii", errors="replace"))
        except ValueError as error:
            raise ContractError(str(error)) from None
        async with self._lock_of(request):
            attempt = self._attempt(request.match_info["token"])
            signer = self._signer()
            if signer is None:
                raise web.HTTPNotFound(text="this server has no host CA; the host keeps its key as it is")
            document = load_contract(InstallDocument, attempt.document)
            line = await self._host_keys.certify(attempt, document, key, signer)
        return web.Response(text=line + "\n")

    async def _attest_begin(self, request: web.Request) -> web.Response:
        attestor, begin = await self._attestation(request, AttestationBegin)
        document = load_contract(InstallDocument, self._attempt(request.match_info["token"]).document)
        challenge = await attestor.begin(document, begin)
        return web.Response(text=dump_contract(challenge), content_type="application/json")

    async def _attest_finish(self, request: web.Request) -> web.Response:
        attestor, finish = await self._attestation(request, AttestationFinish)
        try:
            key = normal_key(finish.host_key)
        except ValueError as error:
            raise ContractError(f"host_key: {error}") from None
        async with self._lock_of(request):
            attempt = self._attempt(request.match_info["token"])
            verdict = await attestor.finish(load_contract(InstallDocument, attempt.document), finish)
            if not verdict.trusted:
                told = f"the machine can't be trusted: {verdict.reason}"
                self._store.save_install(replace(attempt, at=self._now()), self._now(), told)
                raise web.HTTPForbidden(text=verdict.reason)
            self._host_keys.refuse_others(attempt, key)
            told = "" if attempt.attested_key else f"the TPM vouches for host key {key}"
            self._store.save_install(replace(attempt, attested_key=key, at=self._now()), self._now(), told)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _attestation(self, request: web.Request, kind: type[C]) -> tuple[Attestor, C]:
        if self._attestor is None:
            raise web.HTTPNotFound(text="this server attests nothing")
        return self._attestor, load_contract(kind, await _body(request, LARGE_BYTES))


def _document_of(attempt: InstallAttempt) -> InstallDocument | None:
    try:
        return load_contract(InstallDocument, attempt.document)
    except ContractError:  # of an older version
        return None


async def _body(request: web.Request, limit: int) -> bytes:
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                found += chunk
                if len(found) > limit:
                    raise web.HTTPRequestEntityTooLarge(limit, len(found), text=f"more than {limit} bytes")
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the request took more than {BODY_S:g} s") from None
    return bytes(found)


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _plain_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer an error with its reason, in a line of text. 503: the installer is to ask again."""
    try:
        return await handler(request)
    except ContractError as error:
        return web.Response(status=HTTPStatus.BAD_REQUEST, text=str(error))
    except EndedError as ended:
        return web.Response(status=HTTPStatus.FORBIDDEN, text=f"this attempt was ended: {ended}")
    except TooEarlyError as early:
        return web.Response(status=HTTPStatus.CONFLICT, text=str(early))
    except DriverError as error:
        refused = error.kind in (Failure.REJECTED, Failure.AUTH)
        return web.Response(
            status=HTTPStatus.FORBIDDEN if refused else HTTPStatus.SERVICE_UNAVAILABLE, text=error.detail
        )
    except ReconcilerError as error:
        why = {LeaseHeld: "another reconciler leads now", LedgerError: "the ledger can't be used now"}
        text = why.get(type(error), "this server can't answer now")
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text)
