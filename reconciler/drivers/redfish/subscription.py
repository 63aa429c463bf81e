"""A subscription to the events that a BMC posts (EventDestination; DSP0266, "Event service"). Blocking.

BMCs keep few (OpenBMC and iDRAC9 20), and forget them: OpenBMC in a restart (openbmc/bmcweb#164), iDRAC9 switches one
off after three posts that failed (dell/iDRAC-Redfish-Scripting#370). So ours is found again by its token, which the BMC
itself keeps in Context and Destination: neither a restart of the reconciler nor another leader makes a second one.

What the EventService lists decides what is sent. EventTypes (before 1.3; iLO5, iDRAC9, AMI) and RegistryPrefixes
(since; iLO6, OpenBMC) exclude each other, and OpenBMC refuses a property that it does not know.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, boolean, last_segment, member, need_link, text, texts
from reconciler.drivers.redfish.tree import Tree, is_content
from reconciler.model.errors import DriverError, Failure
from reconciler.model.event_tokens import CONTEXT

_TOKEN: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")
_ILLNESS: Final = ("Alert", "StatusChange")  # of EventTypes; an Alert is "a condition which requires attention"
_NOISE: Final = frozenset({"Base", "HeartbeatEvent", "TaskEvent", "Telemetry"})  # registries that tell of no illness
_GONE: Final = (404, 410)
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of ours. `token`: what its posts must carry; nobody can guess it."""

    uri: str
    token: str


def posts_to(tree: Tree) -> str:
    """Return the URI of the collection of subscriptions. Raise Unknown where this BMC posts no events."""
    service = _service(tree)
    _filters(service)
    return need_link(service, "Subscriptions")


def subscribe(tree: Tree, owner: str, base: str) -> Subscription:
    """Return our only subscription that posts to `base`/token, an old one where there is one.

    Others of `owner` are deleted. Raise Unknown where the BMC posts no events, and DriverError when it refuses.
    """
    service = _service(tree)
    filters = _filters(service)
    where = need_link(service, "Subscriptions")
    found = list(_ours(tree, where, owner))
    fit = [one for uri, one in found if _is_fit(one, base, _token(one))]
    keep = next((uri for uri, one in found if fit and one is fit[0]), None)
    for uri, _ in found:
        if uri != keep:
            _delete(tree, uri)
    if keep is not None:
        return Subscription(keep, _token(fit[0]))
    return _create(tree, where, f"{owner}-{secrets.token_hex(16)}", base, filters)


def is_kept(tree: Tree, subscription: Subscription) -> bool:
    """Say whether the BMC still has a subscription, under its URI and switched on."""
    try:
        found = tree.get(subscription.uri).body
    except HttpError as error:
        if error.status in _GONE:
            return False
        raise
    return _token(found) == subscription.token and _is_on(found)


def unsubscribe(tree: Tree, owner: str) -> int:
    """Delete all subscriptions of `owner`; return how many there were. Raise DriverError when one is left."""
    try:
        where = need_link(_service(tree), "Subscriptions")
    except Unknown:
        return 0
    found = [uri for uri, _ in _ours(tree, where, owner)]
    for uri in found:
        _delete(tree, uri)
    if found and (left := [uri for uri, _ in _ours(tree, where, owner)]):
        raise DriverError(Failure.CONFLICT, f"DELETE {left[0]}: it was accepted, and the subscription is still there")
    return len(found)


def _service(tree: Tree) -> Document:
    return tree.follow(tree.session.root(), "EventService").body


def _filters(service: Document) -> Document:
    """Return the properties by which this service is asked for events of illness."""
    if boolean(service, "ServiceEnabled") is False:
        raise Unknown("its EventService is turned off (ServiceEnabled)")
    chosen: dict[str, object] = {}
    formats, types = texts(service, "EventFormatTypes"), texts(service, "EventTypesForSubscription")
    if formats and "Event" not in formats:
        raise Unknown(f"its EventService posts no events, only {', '.join(formats)}")
    if formats:
        chosen["EventFormatType"] = "Event"
    if types:
        chosen["EventTypes"] = [kind for kind in types if kind in _ILLNESS] or [
            kind for kind in types if kind != "MetricReport"
        ]
        return chosen
    prefixes = texts(service, "RegistryPrefixes")
    telling = [prefix for prefix in prefixes if prefix not in _NOISE]
    if telling and len(telling) < len(prefixes):  # without the property it posts all
        chosen["RegistryPrefixes"] = telling
    return chosen


def _ours(tree: Tree, where: str, owner: str) -> Iterator[tuple[str, Document]]:
    for uri, item in tree.expanded(where):
        try:
            found = item if is_content(item) else tree.get(uri).body
        except HttpError as error:
            if error.status in _GONE or error.kind is Failure.REJECTED:
                continue  # somebody else's, which ended meanwhile or is shown to its owner alone
            raise
        if _token(found).startswith(f"{owner}-"):
            yield uri, found


def _token(found: Document) -> str:
    """Return the token in a subscription's Context or, where a BMC does not show that, its Destination; else ""."""
    for shown in (text(found, "Context") or "", last_segment(text(found, "Destination") or "")):
        if _TOKEN.fullmatch(shown.removeprefix(CONTEXT)):
            return shown.removeprefix(CONTEXT)
    return ""


def _is_fit(found: Document, base: str, token: str) -> bool:
    return _is_on(found) and _address(text(found, "Destination") or "") == _address(f"{base}/{token}")


def _address(url: str) -> tuple[str, str | None, int | None, str]:
    """Return what of a URL counts: BMCs leave out or add a default port, and letters of hosts may change case."""
    try:
        parts = urlsplit(url)
        return parts.scheme.lower(), parts.hostname, parts.port or _PORTS.get(parts.scheme.lower()), parts.path
    except ValueError:
        return "", None, None, url


def _is_on(found: Document) -> bool:
    return (text(member(found, "Status"), "State") or "Enabled") == "Enabled"


def _create(tree: Tree, where: str, token: str, base: str, filters: Document) -> Subscription:
    plain = {"Destination": f"{base}/{token}", "Context": CONTEXT + token, "Protocol": "Redfish"}
    try:
        reply = tree.session.post(where, {**plain, **filters})
    except HttpError as error:
        if error.kind is not Failure.REJECTED or not filters:
            raise
        reply = tree.session.post(where, plain)  # AMI's MegaRAC takes these three
    # HTTP 200 proves nothing, and AMI answers with the @odata.id of the collection.
    for uri, found in _ours(tree, where, token.partition("-")[0]):
        if _token(found) == token:
            return Subscription(uri, token)
    if reply.location is not None:
        _delete(tree, reply.location)  # else each try would leave one more
    raise DriverError(Failure.MALFORMED, f"POST {where}: the subscription was accepted, and the BMC does not list it")


def _delete(tree: Tree, uri: str) -> None:
    try:
        tree.session.delete(uri)
    except HttpError as error:
        if error.status not in _GONE:
            raise
