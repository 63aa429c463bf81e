"""The FastAPI application: probes, metrics, the API with its OpenAPI document, the page, and errors as documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reconciler import __version__
from reconciler.drivers.status import PrometheusMetrics
from reconciler.drivers.web.access import Access, AccessRefusedError, Asked
from reconciler.drivers.web.reads import reads
from reconciler.drivers.web.stream import Bell
from reconciler.drivers.web.writes import writes
from reconciler.model.access_role import AccessRole
from reconciler.model.errors import LedgerError, ReconcilerError, Refused, StalePlan, UsageError
from reconciler.model.live import FleetControl, FleetView, NoSuchNode, NotReady

_COMPRESSED: Final = 2_000  # bytes
# The one style that Observable Plot 0.6.17 puts into each drawing; a browser says what another version's digest is.
_PLOT_STYLE: Final = b"'sha256-jSYQUrW7J0b3jPqhZP9C2Xh1PyJKHKXd4s0fpGGKrww='"
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self' "
    + _PLOT_STYLE
    + b"; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_STATUSES: Final[Mapping[type[ReconcilerError], int]] = {
    NoSuchNode: 404,
    NotReady: 503,
    LedgerError: 503,
    StalePlan: 409,
    Refused: 422,
    UsageError: 422,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as RFC 9457 describes it."""

    title: str
    status: int
    detail: str


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page."""

    body: bytes
    media: str


@dataclass(frozen=True, slots=True)
class Served:
    """The things that are served. `assets`: the files of the page by their path, such as "/" and "/page.js"."""

    metrics: PrometheusMetrics
    now: Callable[[], datetime]
    view: FleetView
    control: FleetControl
    assets: Mapping[str, Asset] = field(default_factory=dict)


def application(served: Served, access: Access, bell: Bell) -> FastAPI:
    """Return the application. Its OpenAPI document is at /api/v1/openapi.json, for whoever may read."""
    errors: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (401, 403, 409, 422, 503)}
    made = FastAPI(
        title="gpu-fleet-reconciler", version=__version__, openapi_url=None, docs_url=None, redoc_url=None,
        description="What `reconciler run` knows and does. It reads; with a role, it approves, holds, releases, stops.",
        responses=errors,
    )  # fmt: skip
    made.state.access, made.state.view, made.state.bell = access, served.view, bell
    made.add_middleware(GZipMiddleware, minimum_size=_COMPRESSED, compresslevel=5)  # 9 takes twice as long
    made.add_middleware(_Headers)
    made.state.control = served.control
    made.include_router(reads)
    made.include_router(writes)
    _probes(made, served, access)
    _errors(made)
    for path, asset in served.assets.items():
        made.add_api_route(path, _serving(asset), include_in_schema=False)

    @made.get("/api/v1/openapi.json", include_in_schema=False)
    def openapi(request: Request) -> Response:
        access.caller(Asked(request.method, request.headers), AccessRole.VIEWER)
        return _json(made.openapi())

    return made


def _serving(asset: Asset) -> Callable[[Request], Response]:
    """Return what serves a file of the page, and tells a browser that has it already to keep it.

    Its tag is weak, as it is that of the file whether it is sent compressed or not.
    """
    tag = f'W/"{hashlib.sha256(asset.body).hexdigest()[:32]}"'
    headers = {"cache-control": "no-cache", "etag": tag}  # ask each time: an upgrade changes all files at once

    def get(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if tag in (one.strip() for one in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.media, headers=headers)

    return get


def _probes(made: FastAPI, served: Served, access: Access) -> None:
    """Add what probes and Prometheus ask for. Probes have no tokens: they are told no names of nodes without one."""

    @made.get("/healthz", include_in_schema=False)
    def health() -> Response:
        return Response("ok\n", media_type="text/plain")

    @made.get("/readyz", include_in_schema=False)
    def ready(request: Request) -> Response:
        status, now = served.metrics.status, served.now()
        why = status.unready(now)
        document = {"ready": not why, "why": why, "role": status.role.value}
        try:
            access.caller(Asked(request.method, request.headers), AccessRole.VIEWER)
        except AccessRefusedError:
            return _json(document, 503 if why else 200)
        last = status.last_pass
        document |= {
            "spec": {"commit": status.spec_commit, "head": status.spec_head, "trouble": status.spec_trouble},
            "last_pass": None if last is None else last.isoformat(),
            "last_pass_age_s": None if last is None else (now - last).total_seconds(),
            "stopped": status.stopped,
            "channels": {name: one.error for name, one in sorted(served.metrics.told.items())},
            "acting": dict(sorted(served.metrics.under_way.items())),
            "time_scale": status.time_scale,
        }
        return _json(document, 503 if why else 200)

    @made.get("/metrics", include_in_schema=False)
    def metrics(request: Request) -> Response:
        access.caller(Asked(request.method, request.headers), AccessRole.VIEWER)
        text, media = served.metrics.page(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media})


def _errors(made: FastAPI) -> None:
    async def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, AccessRefusedError)
        headers = {"www-authenticate": 'Bearer realm="reconciler"'} if error.status == 401 else None
        return _problem(error.status, str(error), headers)

    async def ours(_request: Request, error: Exception) -> Response:
        assert isinstance(error, ReconcilerError)
        status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 500)
        return _problem(status, " ".join(error.lines()))

    async def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return _problem(422, said)

    async def http(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _problem(error.status_code, error.detail, error.headers)

    made.add_exception_handler(AccessRefusedError, refused)
    made.add_exception_handler(ReconcilerError, ours)
    made.add_exception_handler(RequestValidationError, invalid)
    made.add_exception_handler(HTTPException, http)


def _json(document: Any, status: int = 200) -> Response:
    return Response(json.dumps(document), status, media_type="application/json; charset=utf-8")


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")


class _Headers:
    """Adds what tells browsers to ask nobody else, and to keep no answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                kept = [] if b"cache-control" in known else [(b"cache-control", b"no-store")]
                message["headers"] = [*message["headers"], *_HEADERS, *kept]
            await send(message)

        await self._app(scope, receive, with_headers)
