"""Start firmware updates, and read tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.drivers.redfish import devices, tasks
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, boolean, last_segment, need_link, text
from reconciler.drivers.redfish.power import allowable
from reconciler.drivers.redfish.quirks import Operation, Quirks
from reconciler.drivers.redfish.tree import Tree, action
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import BmcTask

_UPDATE = "#UpdateService.SimpleUpdate"


def start_update(tree: Tree, inventory_id: str, url: str) -> str:
    """Start an update; return its task's URI. AMBIGUOUS where the BMC names no task: the version will tell."""
    service, offered = update_service(tree)
    target = _target(tree, need_link(service, "FirmwareInventory"), inventory_id)
    patience = tree.behaviours().patience.get(Operation.FIRMWARE, 0.0)
    refusal: HttpError | None = None
    for payload in _payloads(url, target, allowable(tree, offered[1], "TransferProtocol")):
        try:
            reply = tree.session.post(offered[0], payload, patience=patience)
        except HttpError as error:
            if error.kind is not Failure.REJECTED or not _about_form(error):
                raise
            refusal = refusal or error
            continue
        uri = tasks.task_of_reply(reply.body, reply.location)
        if uri is None:
            raise DriverError(Failure.AMBIGUOUS, f"the BMC took the update of {inventory_id} but names no task for it")
        return uri
    assert refusal is not None
    raise refusal


def update_service(tree: Tree) -> tuple[Document, tuple[str, Document]]:
    """Return the update service, and the target and the description of its action."""
    service = tree.follow(tree.session.root(), "UpdateService").body
    offered = action(service, _UPDATE)
    if offered is None:
        raise Unknown("the BMC offers no UpdateService.SimpleUpdate: it may need a licence (F6)")
    if boolean(service, "ServiceEnabled") is False:
        raise Unknown("the BMC's update service is disabled: enable it (F6)")
    return service, offered


def ways(tree: Tree) -> tuple[str, ...]:
    """Return all ways that the BMC offers to bring in firmware."""
    service = tree.follow(tree.session.root(), "UpdateService").body
    simple = ("SimpleUpdate",) if action(service, _UPDATE) is not None else ()
    return (*simple, *(name for name in ("MultipartHttpPushUri", "HttpPushUri") if text(service, name)))


def _target(tree: Tree, where: str, inventory_id: str) -> str:
    """Return the URI of the component, found by the last part of a URI, or by the quirk's firmware id (Dell)."""
    listed = [uri for uri, _ in tree.listed(where)]
    found = next((uri for uri in listed if last_segment(uri) == inventory_id), None)
    if found is not None:
        return found
    quirks = tree.quirks(tree.system().body)
    if quirks is not None and quirks.firmware_id is not None:
        found = next((uri for uri in listed if _key(uri, quirks) == inventory_id), None)
    if found is None:
        raise DriverError(Failure.REJECTED, f"GET {where}: the BMC lists no firmware {inventory_id!r}")
    return found


def _key(uri: str, quirks: Quirks) -> str | None:
    return devices.firmware_key({"Id": last_segment(uri)}, quirks)


def _payloads(url: str, target: str, protocols: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield payloads; each is tried once."""
    scheme = url.split(":", 1)[0].upper()
    full: dict[str, Any] = {"ImageURI": url, "Targets": [target]}
    if not protocols or scheme in protocols:
        yield {**full, "TransferProtocol": scheme}
    yield full
    # Without a target the image says what it is for; images are made for one component.
    yield {"ImageURI": url, **({"TransferProtocol": scheme} if scheme in protocols else {})}


def _about_form(error: HttpError) -> bool:
    """Say whether a parameter, not the image, is refused."""
    return any(error.mentions(word) for word in ("Targets", "TransferProtocol"))


def read_task(tree: Tree, uri: str) -> BmcTask | None:
    try:
        found = tree.get(uri)
    except HttpError as error:
        if error.status in (404, 410):
            return None
        raise
    return tasks.task(uri, found.body, tree.behaviours())
