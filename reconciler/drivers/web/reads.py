"""The routes of /api/v1 that read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from reconciler.drivers.web.access import Access, Asked, Caller
from reconciler.drivers.web.stream import CLIENTS, Bell, EventStream
from reconciler.model.access_role import AccessRole
from reconciler.model.fleet_overview import FleetOverview
from reconciler.model.live import (
    Approvals,
    Changes,
    CurrentRun,
    DayHours,
    FeedEntry,
    FleetView,
    NodeDetail,
    NodeLine,
    PoolLine,
    RolloutPast,
)
from reconciler.model.plan import Incident, RolloutPlan
from reconciler.model.records import Hold, JournalEntry
from reconciler.model.spread import Spreads
from reconciler.model.status import NodeStatus

_BEARER: Final = HTTPBearer(auto_error=False, description="A token of --token. Reading on loopback needs none.")
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Entries, oldest first; as `text/event-stream`, a stream of `entry` and `changed` events",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def access_of(request: Request) -> Access:
    found: Access = request.app.state.access
    return found


def view_of(request: Request) -> FleetView:
    found: FleetView = request.app.state.view
    return found


def needs(role: AccessRole) -> Callable[..., Caller]:
    """Return a dependency that lets in whoever has the role."""

    def check(
        request: Request, _token: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)] = None
    ) -> Caller:
        return access_of(request).caller(Asked(request.method, request.headers), role)

    return check


View = Annotated[FleetView, Depends(view_of)]
Viewer = Annotated[Caller, Depends(needs(AccessRole.VIEWER))]
reads = APIRouter(prefix="/api/v1", dependencies=[Depends(needs(AccessRole.VIEWER))])


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def answer(kind: Any, value: Any, status: int = 200) -> Response:
    """Return a value as JSON, written once by pydantic: FastAPI would check and copy five thousand nodes first."""
    return Response(_adapter(kind).dump_json(value), status, media_type="application/json")


@reads.get("/session", tags=["access"], response_model=dict[str, str])
def session(request: Request, caller: Viewer) -> Mapping[str, str]:
    """Return who you are, your role, and the CSRF token that a browser behind a proxy sends with writes."""
    return {"name": caller.name, "role": caller.role.value, "csrf": access_of(request).csrf(caller)}


@reads.get("/fleet", tags=["fleet"], response_model=FleetOverview)
def fleet(view: View) -> Response:
    """Return the status of the fleet, the document of `reconciler status -o json`."""
    return answer(FleetOverview, view.overview())


@reads.get("/run", tags=["fleet"], response_model=CurrentRun)
def run(view: View) -> Response:
    """Return what the loop does now: the nodes at work, with action, step, percent, since and what comes next."""
    return answer(CurrentRun, view.current_run())


@reads.get("/changes", tags=["fleet"], response_model=Changes)
def changes(view: View, since: Annotated[str, Query(max_length=80)] = "") -> Response:
    """Return what the loop does now, and the nodes whose lines have changed since a version of an earlier answer."""
    return answer(Changes, view.changes(since))


@reads.get("/pools", tags=["fleet"], response_model=Sequence[PoolLine])
def pools(view: View) -> Response:
    """Return the pools, with the matrix of versions of image and firmware."""
    return answer(Sequence[PoolLine], view.pools())


@reads.get("/nodes", tags=["nodes"], response_model=Sequence[NodeLine])
def nodes(view: View, pool: str | None = None, status: Annotated[list[NodeStatus] | None, Query()] = None) -> Response:
    """Return the nodes, of one pool or of some statuses."""
    found = [
        line for line in view.nodes() if (pool is None or line.pool == pool) and (not status or line.status in status)
    ]
    return answer(Sequence[NodeLine], found)


@reads.get("/nodes/{name}", tags=["nodes"], response_model=NodeDetail)
def node(view: View, name: str) -> Response:
    """Return all about one node: desired and observed values, their difference, plan, certificate, holds, history."""
    return answer(NodeDetail, view.node(name))


@reads.get("/nodes/{name}/history", tags=["nodes"], response_model=Sequence[JournalEntry])
def history(view: View, name: str, last: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """Return the newest entries of the journal about a node, oldest first."""
    return answer(Sequence[JournalEntry], view.history(name, last))


@reads.get("/incidents", tags=["fleet"], response_model=Sequence[Incident])
def incidents(view: View) -> Response:
    """Return evidence of illness on many nodes at once, about which a person decides."""
    return answer(Sequence[Incident], view.incidents())


@reads.get("/rollouts", tags=["fleet"], response_model=Sequence[RolloutPlan])
def rollouts(view: View) -> Response:
    """Return the changes that are on their way through pools, wave by wave."""
    return answer(Sequence[RolloutPlan], view.rollouts())


@reads.get("/rollouts/past", tags=["fleet"], response_model=Sequence[RolloutPast])
def rollouts_past(view: View) -> Response:
    """Return when the nodes of each wave of the rollouts were converged to the change; up to a minute old."""
    return answer(Sequence[RolloutPast], view.rollouts_past())


@reads.get("/measured", tags=["fleet"], response_model=Spreads)
def measured(view: View) -> Response:
    """Return how what the gate measured is spread, beside the bars of today; up to a minute old."""
    return answer(Spreads, view.measured())


@reads.get("/availability", tags=["fleet"], response_model=Sequence[DayHours])
def availability(view: View, days: Annotated[int, Query(ge=1, le=90)] = 30) -> Response:
    """Return the node-hours of each of the last days, the oldest first; up to a minute old."""
    return answer(Sequence[DayHours], view.availability(days))


@reads.get("/approvals", tags=["fleet"], response_model=Approvals)
def approvals(view: View) -> Response:
    """Return the plans of nodes that wait for somebody's approval, with their fingerprints."""
    return answer(Approvals, view.approvals())


@reads.get("/holds", tags=["fleet"], response_model=Sequence[Hold])
def holds(view: View) -> Response:
    """Return the holds in force, the stop of the fleet among them."""
    return answer(Sequence[Hold], view.holds())


@reads.get("/events", tags=["fleet"], response_model=Sequence[FeedEntry], responses=_STREAM)
async def events(
    request: Request, view: View, after: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100, last_event_id: Annotated[str | None, Header()] = None,
) -> Any:  # fmt: skip
    """Return entries of the journal after one, or the newest; to a client that accepts event streams, without end."""
    if "text/event-stream" not in request.headers.get("accept", ""):
        found: Sequence[FeedEntry] = await run_in_threadpool(view.events, after, limit)
        return answer(Sequence[FeedEntry], found)
    bell: Bell = request.app.state.bell
    if bell.clients >= CLIENTS:
        raise HTTPException(503, f"{CLIENTS} streams are open, which is all: close one")
    if last_event_id is not None and last_event_id.isdecimal():
        after = int(last_event_id)
    asked = Asked(request.method, request.headers)
    return EventStream(bell, after, lambda: access_of(request).caller(asked, AccessRole.VIEWER))
