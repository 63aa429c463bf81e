"""`model.notices.Messenger` as Events of Kubernetes: what people are told of a node is beside its other events.

An Event is written on each node object that a message tells of, so `kubectl describe node` and whatever collects Events
show it. Its name follows from the thread of the message and the node: a later message of the thread, or a second try,
is the same Event, with one more count where its text is new. Messages that tell of no node are about the namespace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol
from urllib.parse import quote

from reconciler.drivers.kube import objects
from reconciler.drivers.kube.failures import KubeFailure
from reconciler.drivers.kube.rights import EVENT_RIGHTS, REVIEWS, Right, is_allowed
from reconciler.model.errors import DriverError, UsageError
from reconciler.model.notices import Channel, Message, NotDelivered, Severity

NAMESPACE: Final = "default"  # of Events about objects that have none, as the kubelet's
MOST_NODES: Final = 50  # Events of one message: a storm names thousands
KEY: Final = "reconciler.dev/message"  # annotation: the key of the last message that the Event tells
_NOTE: Final = 1024  # characters of an Event's message
_COMPONENT: Final = "gpu-fleet-reconciler"
_EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
_NODE: Final = "node/"


class Caller(Protocol):
    """kubectl as a client of the API server."""

    async def raw(self, verb: str, path: str, body: bytes = b"") -> bytes: ...


class NodeEvents:
    """`connect` returns kubectl for the cluster of the fleet; it raises UsageError where there is none."""

    def __init__(self, connect: Callable[[], Caller], now: Callable[[], datetime]) -> None:
        self._connect = connect
        self._now = now

    async def send(self, channel: Channel, message: Message) -> None:  # noqa: ARG002 - one cluster has one way
        """Write the Events of a message. Raise NotDelivered; those that were written stay, and are written once."""
        nodes = [key.removeprefix(_NODE) for key in message.about if key.startswith(_NODE)]
        try:
            caller = self._connect()
            for node in nodes[:MOST_NODES] or [""]:
                await self._write(caller, message, node)
        except KubeFailure as failure:
            raise NotDelivered(failure.problem.detail[:300]) from None
        except (DriverError, UsageError) as error:
            raise NotDelivered(str(error)[:300]) from None

    async def missing_rights(self) -> tuple[Right, ...]:
        """Ask the API server which rights this account lacks for that. Raise DriverError when it gives no answer."""
        caller = self._connect()
        try:
            allowed = {one: is_allowed(await caller.raw("create", REVIEWS, one.question())) for one in EVENT_RIGHTS}
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure
        return tuple(one for one, may in allowed.items() if not may)

    async def _write(self, caller: Caller, message: Message, node: str) -> None:
        name = event_name(message.thread, node)
        known = await self._known(caller, name)
        if known is None:
            uid = await self._uid(caller, node) if node else ""
            await caller.raw("create", _EVENTS, json.dumps(new_event(name, node, uid, message, self._now())).encode())
        elif (known.get("metadata") or {}).get("annotations", {}).get(KEY) != message.key:
            again = told_again(known, message, self._now())
            await caller.raw("replace", f"{_EVENTS}/{quote(name, safe='')}", json.dumps(again).encode())

    async def _known(self, caller: Caller, name: str) -> dict[str, Any] | None:
        try:
            return dict(objects.document(await caller.raw("get", f"{_EVENTS}/{quote(name, safe='')}"), "Event"))
        except KubeFailure as failure:
            if failure.problem.code == 404:
                return None
            raise

    async def _uid(self, caller: Caller, node: str) -> str:
        """Return the UID of a node object, by which `kubectl describe` finds its Events; "" where there is none."""
        try:
            found = objects.document(await caller.raw("get", f"/api/v1/nodes/{quote(node, safe='')}"), "Node")
        except KubeFailure as failure:
            if failure.problem.code == 404:
                return ""
            raise
        return str((found.get("metadata") or {}).get("uid") or "")


def event_name(thread: str, node: str) -> str:
    """Return the name of an Event: a valid object name, the same for each message of a thread about a node."""
    digest = hashlib.sha256(f"{thread}/{node}".encode()).hexdigest()[:16]
    return f"{(node or 'fleet')[:200]}.{digest}"


def new_event(name: str, node: str, uid: str, message: Message, now: datetime) -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": "Node", "name": node} | ({"uid": uid} if uid else {})
    if not node:
        about = {"apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE}
    at = _clock(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {KEY: message.key}},
        "involvedObject": about,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        **_told(message),
    }


def told_again(known: Mapping[str, Any], message: Message, now: datetime) -> dict[str, Any]:
    metadata = dict(known["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), KEY: message.key}
    count = known.get("count")
    more = (count if isinstance(count, int) else 0) + 1
    return {**known, "metadata": metadata, "count": more, "lastTimestamp": _clock(now), **_told(message)}


def _told(message: Message) -> dict[str, str]:
    normal = message.over or message.severity is Severity.INFO
    text = f"{message.title}. {message.body}".replace("\n", ". ")
    note = text if len(text) <= _NOTE else text[: _NOTE - 1] + "…"
    reason = "FleetDone" if message.over else f"Fleet{message.severity.value.title()}"
    return {"type": "Normal" if normal else "Warning", "reason": reason, "message": note}


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
