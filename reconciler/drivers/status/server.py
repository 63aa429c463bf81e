"""Serve GET /healthz, /readyz and /metrics.

/healthz    200 while the process answers: a slow pass or a standby is no reason to restart it
/readyz     200 or 503 with a reason, as JSON
/metrics    for Prometheus

Whoever reaches the port can read everything, so the default is loopback. It shows names of nodes and pools, and no
secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from aiohttp import web

from reconciler.drivers.status.metrics import PrometheusMetrics
from reconciler.model.errors import UsageError

LISTEN: Final = "127.0.0.1:8090"
_SHUTDOWN_S: Final = 1.0


class StatusServer:
    """The server. `listen`: host:port, [v6]:port, or :port for every address; port 0 lets the system choose."""

    def __init__(self, metrics: PrometheusMetrics, now: Callable[[], datetime], listen: str = LISTEN) -> None:
        self._metrics = metrics
        self._now = now
        self._listen = listen
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Start to listen; return the URL. UsageError when the address is malformed or can't be used."""
        host, colon, port = self._listen.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise UsageError(f"{self._listen!r} is no address to listen on: give host:port, like {LISTEN}")
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._page)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
        except OSError as error:
            await runner.cleanup()
            raise UsageError(f"can't serve the status on {self._listen}: {error.strerror or error}") from error
        self._runner = runner
        bound = runner.addresses[0]
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        return f"http://{name}:{bound[1]}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        status, now = self._metrics.status, self._now()
        why = status.unready(now)
        document = {
            "ready": not why,
            "why": why,
            "role": status.role.value,
            "spec": {"commit": status.spec_commit, "head": status.spec_head, "trouble": status.spec_trouble},
            "last_pass": None if status.last_pass is None else status.last_pass.isoformat(),
            "last_pass_age_s": None if status.last_pass is None else (now - status.last_pass).total_seconds(),
            "stopped": status.stopped,
            "channels": {name: one.error for name, one in sorted(self._metrics.told.items())},
            "acting": dict(sorted(self._metrics.under_way.items())),
            "time_scale": status.time_scale,
        }
        return web.json_response(document, status=503 if why else 200)

    async def _page(self, request: web.Request) -> web.Response:
        """Encode on a thread: ten thousand nodes take 0.1 s, which would delay calls to BMCs."""
        page, media = await asyncio.to_thread(self._metrics.page, request.headers.get("Accept", ""))
        response = web.Response(body=page, headers={"Content-Type": media})
        response.enable_compression()
        return response
