"""Types shared by all resources of the lab's Redfish service: documents, routes, replies.

A resource module offers ROUTES: paths to `Resource`, whose views are plain functions of a `Bmc`. All machines share
these tables; the Bmc holds what differs between them. A path that ends in `/*` covers the members of a collection:
its views get the last segment of the path, the others get "".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import MachineState
from reconciler.lab.wire.redfish_messages import SUCCESS, Refusal
from reconciler.lab.wire.redfish_quirks import Quirks
from reconciler.lab.wire.redfish_sessions import Sessions

Document = dict[str, Any]

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"
MANAGER = f"{ROOT}/Managers/1"
CHASSIS = f"{ROOT}/Chassis/1"


@dataclass(frozen=True, slots=True)
class Bmc:
    """The state of one machine's Redfish service. `epoch`: the date at which the machine's clock read 0."""

    machine: Machine
    quirks: Quirks
    sessions: Sessions
    epoch: datetime
    memory: dict[str, str] = field(default_factory=dict)  # state that only one make of BMC keeps
    posting: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by Id of the subscription
    streams: set[str] = field(default_factory=set)  # of events, which are open: the Id of the subscription of each

    @property
    def state(self) -> MachineState:
        return self.machine.state

    def date(self, seconds: float) -> str:
        """Return a time of the machine's clock as a Redfish date, without microseconds, as BMCs do (pitfall B6)."""
        return (self.epoch + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S+00:00")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    document: Document | None = field(default_factory=lambda: SUCCESS)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource. `get` returns None for a missing member. `code`: status of a GET. `public`: one without login."""

    get: Callable[[Bmc, str], Document | None] | None = None
    patch: Callable[[Bmc, str, Document], Reply] | None = None
    post: Callable[[Bmc, str, Document], Reply] | None = None
    delete: Callable[[Bmc, str], Reply] | None = None
    code: Callable[[Document], int] = lambda _: 200
    public: str = ""  # the method that needs no login

    @property
    def allow(self) -> str:
        views = {"GET": self.get, "PATCH": self.patch, "POST": self.post, "DELETE": self.delete}
        return ", ".join(method for method, view in views.items() if view)


Routes = dict[str, Resource]


def collection(
    path: str, kind: str, name: str, members: Callable[[Bmc], Iterable[str]]
) -> Callable[[Bmc, str], Document]:
    """Return the view of a collection. `members`: last segments of paths below this one, or whole paths."""

    def get(bmc: Bmc, _: str) -> Document:
        links = [link(member if member.startswith("/") else f"{path}/{member}") for member in members(bmc)]
        return {
            "@odata.type": f"#{kind}Collection.{kind}Collection",
            "@odata.id": path,
            "Name": name,
            "Members@odata.count": len(links),
            "Members": links,
        }

    return get


def action(view: Callable[[Bmc, Document], Reply]) -> Resource:
    return Resource(post=lambda bmc, _, body: view(bmc, body))


def link(path: str) -> Document:
    return {"@odata.id": path}


def odata(path: str, type_: str, name: str) -> Document:
    """Return the first properties of a document. `type_` is like "Memory.v1_11_0"."""
    return {
        "@odata.type": f"#{type_}.{type_.partition('.')[0]}",
        "@odata.id": path,
        "Id": path.rsplit("/", 1)[1],
        "Name": name,
    }


def status(health: str | None = "OK", state: str = "Enabled") -> Document:
    return {"State": state, "Health": health}


def choose(body: Document, name: str, allowed: Iterable[str], default: str) -> str:
    """Return an enumeration property of a PATCH, or `default` when it is absent. Refuse other values."""
    value = body.get(name, default)
    if not isinstance(value, str) or value not in allowed:
        raise Refusal("PropertyValueNotInList", _text(value), name, related=[name])
    return value


def only(body: Document, *writable: str) -> None:
    """Refuse a PATCH of any other property."""
    for name in body:
        if name not in writable and not name.startswith("@"):
            raise Refusal("PropertyNotWritable", name, related=[name])


def required(body: Document, action_: str, name: str, allowed: Iterable[str] | None = None) -> str:
    """Return a string parameter of an action. Refuse the request without it."""
    value = body.get(name)
    if value is None:
        raise Refusal("ActionParameterMissing", action_, name, related=[name])
    if not isinstance(value, str) or (allowed is not None and value not in allowed):
        raise Refusal("ActionParameterValueNotInList", _text(value), name, action_, related=[name])
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
