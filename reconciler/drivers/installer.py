"""Serve install documents over HTTP, one URL per attempt (DESIGN 7.5).

GET /<token>/boot.iso       the boot medium, streamed from the location in the spec
GET /<token>/install.json   the document of this attempt

The token is the only credential, as for every network installer: it is unguessable, lives for one attempt, and the
document carries no secret but the nonce. URLs have no query and end in .iso, as BMCs demand (pitfall E3).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from reconciler.model.desired import InstallerPolicy
from reconciler.model.errors import DriverError, Failure

_CHUNK = 1 << 18


class HttpInstaller:
    """Implements ports.Installer. It listens from the first document on, until `close`."""

    def __init__(self, policy: InstallerPolicy) -> None:
        self._policy = policy
        self._documents: dict[str, str] = {}
        self._fetched: set[str] = set()
        self._runner: web.AppRunner | None = None
        self._base = ""
        self._starting = asyncio.Lock()

    async def publish(self, token: str, document: Mapping[str, Any]) -> str:
        """Serve a document; return the URL of its boot medium. REJECTED when the spec's address can't be used."""
        await self._start()
        self._documents[token] = json.dumps(document, sort_keys=True)
        return f"{self._base}/{token}/boot.iso"

    async def withdraw(self, token: str) -> None:
        self._documents.pop(token, None)
        self._fetched.discard(token)

    async def fetched(self, token: str) -> bool:
        return token in self._fetched

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _start(self) -> None:
        async with self._starting:
            if self._runner is not None:
                return
            app = web.Application()
            app.router.add_get("/{token}/install.json", self._document)
            app.router.add_get("/{token}/boot.iso", self._medium)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            host, _, port = self._policy.listen.rpartition(":")
            try:
                await web.TCPSite(runner, host, int(port)).start()
            except OSError as error:
                await runner.cleanup()
                raise DriverError(
                    Failure.REJECTED,
                    f"can't serve install documents on {self._policy.listen}: {error.strerror}; "
                    "another run may hold it, or Fleet.installer.listen names an address that this machine lacks",
                ) from error
            self._runner = runner
            bound = runner.addresses[0]
            self._base = self._policy.url or f"http://{bound[0]}:{bound[1]}"

    async def _document(self, request: web.Request) -> web.Response:
        token = request.match_info["token"]
        document = self._documents.get(token)
        if document is None:
            raise web.HTTPNotFound(text="no such attempt")
        self._fetched.add(token)
        return web.Response(text=document, content_type="application/json")

    async def _medium(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["token"] not in self._documents:
            raise web.HTTPNotFound(text="no such attempt")
        if "://" not in self._policy.iso:
            return web.FileResponse(Path(self._policy.iso))
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=None, connect=10)) as session,
                session.get(self._policy.iso) as upstream,
            ):
                if upstream.status != web.HTTPOk.status_code:
                    raise web.HTTPBadGateway(text=f"{self._policy.iso} answers {upstream.status}")
                response.content_length = upstream.content_length
                await response.prepare(request)
                async for chunk in upstream.content.iter_chunked(_CHUNK):
                    await response.write(chunk)
        except ClientError as error:
            if response.prepared:
                with contextlib.suppress(ConnectionResetError):
                    await response.write_eof()
                return response
            raise web.HTTPBadGateway(text=f"{self._policy.iso}: {error}") from error
        await response.write_eof()
        return response
