"""Events that the BMC pushes: the EventService, its stream (DSP0266, Server-Sent Events) and its subscriptions.

The documents are those of OpenBMC (bmcweb, redfish-core/lib/event_service.hpp) and iDRAC9 (stmcginnis/gofish,
oem/dell/eventservice_test.go); an event has what bmcweb's getEventLogJson sends.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from reconciler.lab.wire import redfish_posts
from reconciler.lab.wire.redfish_manager import ENTRIES
from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import (
    ROOT,
    SYSTEM,
    Bmc,
    Document,
    Reply,
    Resource,
    Routes,
    collection,
    link,
    odata,
    status,
)

SERVICE = f"{ROOT}/EventService"
SUBSCRIPTIONS = f"{SERVICE}/Subscriptions"
POLL_S = 0.05  # wall clock: a BMC hands an event on at once
_FILTERS = {"": "Event", "EventFormatType eq Event": "Event", "EventFormatType eq MetricReport": "MetricReport"}


def _service(bmc: Bmc, _: str) -> Document:
    quirks = bmc.quirks
    document = odata(SERVICE, "EventService.v1_5_0", "Event Service") | {
        "ServiceEnabled": True,
        "Status": status(),
        "DeliveryRetryAttempts": redfish_posts.TRIES,
        "DeliveryRetryIntervalSeconds": 30,
        "Subscriptions": link(SUBSCRIPTIONS),
        **redfish_posts.FILTERS[quirks.event_posts],
    }
    if not quirks.event_stream:
        return document
    filters = {name: name == "EventFormatType" for name in ("EventFormatType", "MessageId", "OriginResource")}
    return document | {"ServerSentEventUri": quirks.event_stream, "SSEFilterPropertiesSupported": filters}


def _subscription(bmc: Bmc, id_: str) -> Document | None:
    document = odata(f"{SUBSCRIPTIONS}/{id_}", "EventDestination.v1_7_0", f"Event Destination {id_}")
    if id_ in bmc.streams:
        return document | {"Protocol": "Redfish", "SubscriptionType": "SSE", "EventFormatType": "Event"}
    found = bmc.state.subscriptions.get(id_)
    return None if found is None else document | {"HttpHeaders": [], **found}


def _ids(bmc: Bmc) -> list[str]:
    return sorted({*bmc.streams, *bmc.state.subscriptions}, key=int)


def _subscribe(bmc: Bmc, _: str, body: Document) -> Reply:
    asked = redfish_posts.checked(bmc, body)
    id_ = str(max(map(int, _ids(bmc)), default=0) + 1)
    bmc.state.subscriptions[id_] = asked
    redfish_posts.begin(bmc, id_, _told)
    return Reply(201, _subscription(bmc, id_), {"Location": f"{SUBSCRIPTIONS}/{id_}"})


def _unsubscribe(bmc: Bmc, id_: str) -> Reply:
    if bmc.state.subscriptions.pop(id_, None) is None:
        raise Refusal("ResourceMissingAtURI", f"{SUBSCRIPTIONS}/{id_}")
    return Reply(204, None)


async def stream(bmc: Bmc, request: web.BaseRequest) -> web.StreamResponse:
    """Send what the log gets from now on, until the client or the BMC goes. Raise Refusal where it can't begin."""
    if len(bmc.streams) >= bmc.quirks.most_event_streams:
        raise Refusal("EventSubscriptionLimitExceeded")
    wanted = _FILTERS.get(request.query.get("$filter", ""))
    if wanted is None:
        raise Refusal("QueryNotSupported")
    id_ = str(max(map(int, _ids(bmc)), default=0) + 1)
    bmc.streams.add(id_)
    try:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        sent = len(bmc.state.events)
        while bmc.machine.bmc_up:
            entries = bmc.state.events
            sent = min(sent, len(entries))  # a log that was cleared
            for entry in entries[sent:] if wanted == "Event" else ():
                await response.write(_event(bmc, entry))
            sent = len(entries)
            await asyncio.sleep(POLL_S)
        return response
    finally:
        bmc.streams.discard(id_)


def _event(bmc: Bmc, entry: dict[str, Any]) -> bytes:
    """Return an event as bmcweb frames it: indented JSON, so that each line of it is a `data` field."""
    lines = json.dumps(_told(bmc, entry), indent=2).split("\n")
    return "".join([f"id: {entry['id']}\n", *(f"data: {line}\n" for line in lines), "\n"]).encode()


def _told(bmc: Bmc, entry: dict[str, Any]) -> Document:
    ill = entry["severity"] != "OK"
    told = {
        "EventId": entry["id"],
        "EventTimestamp": bmc.date(entry["at"]),
        "EventType": "Alert" if ill else "Event",
        "LogEntry": link(f"{ENTRIES}/{entry['id']}"),
        "MemberId": entry["id"],
        "Message": entry["message"],
        "MessageArgs": [],
        "MessageId": f"ResourceEvent.1.0.{'ResourceErrorsDetected' if ill else 'ResourceStatusChangedOK'}",
        "MessageSeverity": entry["severity"],
        "OriginOfCondition": link(SYSTEM),
    }
    return {"@odata.type": "#Event.v1_7_0.Event", "Events": [told], "Id": entry["id"], "Name": "Event Log"}


ROUTES: Routes = {
    SERVICE: Resource(get=_service),
    SUBSCRIPTIONS: Resource(
        get=collection(SUBSCRIPTIONS, "EventDestination", "Event Subscriptions", _ids), post=_subscribe
    ),
    f"{SUBSCRIPTIONS}/*": Resource(get=_subscription, delete=_unsubscribe),
}
