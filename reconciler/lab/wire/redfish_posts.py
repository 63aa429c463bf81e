"""Subscriptions to events that the BMC posts (EventDestination), and the posts themselves.

What is taken and refused is as in bmcweb (redfish-core/lib/event_service.hpp): a property that it does not know is
refused, and so is a filter that its EventService does not list. iLO5 and iDRAC9 list EventTypes; MegaRAC of AMI took a
subscription without any filter.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp

from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import Bmc, Document, status

TRIES: Final = 3
_POLL_S: Final = 0.05  # wall clock, as is the next
_PAUSE_S: Final = 0.2
_ANSWER_S: Final = 5.0
_FORMATS: Final = {"EventFormatTypes": ["Event", "MetricReport"]}
FILTERS: Final[Mapping[str, Document]] = {
    "types": {**_FORMATS, "EventTypesForSubscription": ["Alert", "MetricReport", "Other"]},  # iDRAC9
    "prefixes": {**_FORMATS, "RegistryPrefixes": ["Base", "OpenBMC", "ResourceEvent", "TaskEvent"]},
    "": {},
    "none": {"ServiceEnabled": False},
}
_OFFERS: Final = {"EventTypes": "EventTypesForSubscription", "RegistryPrefixes": "RegistryPrefixes"}
_KNOWN: Final = ("Context", "Destination", "HttpHeaders", "Protocol", "SubscriptionType", "DeliveryRetryPolicy")
_URL: Final = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^/ ?#:]+)(:[0-9]+)?(/[^ ?#]*)?")

Tell = Callable[[Bmc, dict[str, Any]], Document]


def checked(bmc: Bmc, body: Document) -> Document:
    """Return the properties of the subscription that is asked for. Raise Refusal."""
    offered = FILTERS[bmc.quirks.event_posts]
    if offered.get("ServiceEnabled") is False:
        raise Refusal("OperationNotAllowed")
    if len(bmc.state.subscriptions) >= bmc.quirks.most_subscriptions:
        raise Refusal("EventSubscriptionLimitExceeded")
    for name, value in body.items():
        _check(name, value, offered)
    for name in ("Destination", "Protocol"):
        if name not in body:
            raise Refusal("PropertyMissing", name, related=[name])
    if not _URL.fullmatch(str(body["Destination"])):
        raise Refusal("PropertyValueFormatError", str(body["Destination"]), "Destination", related=["Destination"])
    return {
        "SubscriptionType": "RedfishEvent",
        "DeliveryRetryPolicy": "SuspendRetries" if bmc.quirks.undelivered == "suspends" else "TerminateAfterRetries",
        "Status": status(),
        **body,
    }


def _check(name: str, value: object, offered: Document) -> None:
    """Refuse a property that is not known here, or a filter that the EventService does not list."""
    choices = offered.get(_OFFERS.get(name, ""))
    if name == "EventFormatType":
        choices = offered.get("EventFormatTypes")
    if choices is None:
        if name not in _KNOWN:
            raise Refusal("PropertyUnknown", name, related=[name])
        return
    for one in value if isinstance(value, list) else [value]:
        if one not in choices:
            raise Refusal("PropertyValueNotInList", str(one), name, related=[name])


def begin(bmc: Bmc, id_: str, tell: Tell) -> None:
    """Post what the log gets from now on, until the subscription ends."""
    bmc.posting[id_] = asyncio.get_running_loop().create_task(_post(bmc, id_, tell))
    bmc.posting[id_].add_done_callback(lambda _: bmc.posting.pop(id_, None))


async def _post(bmc: Bmc, id_: str, tell: Tell) -> None:
    sent = len(bmc.state.events)
    # It trusts any certificate, as iDRAC9 does where IgnoreCertificateErrors is set.
    connector = aiohttp.TCPConnector(ssl=False, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as client:
        while (asked := bmc.state.subscriptions.get(id_)) is not None and asked["Status"]["State"] == "Enabled":
            entries = bmc.state.events
            sent = min(sent, len(entries))  # a log that was cleared
            for entry in entries[sent:] if bmc.machine.bmc_up else ():
                event = tell(bmc, entry)
                if _is_wanted(asked, event["Events"][0]):
                    await _deliver(bmc, id_, client, event)
            sent = len(entries)
            await asyncio.sleep(_POLL_S)


def _is_wanted(asked: Document, event: Document) -> bool:
    prefixes, types = asked.get("RegistryPrefixes") or (), asked.get("EventTypes") or ()
    wanted = not prefixes or str(event["MessageId"]).partition(".")[0] in prefixes
    return wanted and (not types or event["EventType"] in types or "Other" in types)


async def _deliver(bmc: Bmc, id_: str, client: aiohttp.ClientSession, event: Document) -> None:
    """Post one event. What was not taken in TRIES tries ends the subscription, or switches it off."""
    for _ in range(TRIES):
        asked = bmc.state.subscriptions.get(id_)
        if asked is None:
            return
        try:
            body = {**event, "Context": asked.get("Context")}
            async with client.post(str(asked["Destination"]), json=body) as response:
                if response.status < 300:
                    return
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass  # it is tried again
        await asyncio.sleep(_PAUSE_S)
    if bmc.quirks.undelivered == "suspends" and id_ in bmc.state.subscriptions:
        bmc.state.subscriptions[id_]["Status"] = status(state="Disabled")
    else:
        bmc.state.subscriptions.pop(id_, None)
