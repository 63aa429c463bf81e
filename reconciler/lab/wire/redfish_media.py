"""Virtual media (pitfalls E1-E4)."""

from __future__ import annotations

from reconciler.lab.hardware.machine import HardwareRejected, Rejection
from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import (
    MANAGER,
    SYSTEM,
    Bmc,
    Document,
    Reply,
    Resource,
    Routes,
    collection,
    odata,
    required,
    status,
)

SLOT = "Cd"
BARE_SLOT = "RemovableDisk"


def slots(path: str, *, under_system: bool) -> Routes:
    """The routes under one of the two places where BMCs keep virtual media (E4); the other place is empty."""
    insert, eject = f"{path}/{SLOT}/Actions/VirtualMedia.InsertMedia", f"{path}/{SLOT}/Actions/VirtualMedia.EjectMedia"

    def members(bmc: Bmc) -> list[str]:
        if bmc.quirks.media_under_system is not under_system:
            return []
        return [BARE_SLOT] * bmc.quirks.media_bare_slot + [SLOT]

    def slot(bmc: Bmc, id_: str) -> Document | None:
        if id_ not in members(bmc):
            return None
        shown = bmc.machine.shown_media if id_ == SLOT else None
        document = odata(f"{path}/{id_}", "VirtualMedia.v1_5_0", "Virtual Media") | {
            "MediaTypes": ["CD", "DVD"] if id_ == SLOT else ["USBStick"],
            "Image": shown,
            "ImageName": None if shown is None else shown.rsplit("/", 1)[1],
            "Inserted": shown is not None,
            "ConnectedVia": "NotConnected" if shown is None else "URI",
            "WriteProtected": True,
            "Status": status(),
        }
        if id_ == SLOT:
            document["Actions"] = {
                "#VirtualMedia.InsertMedia": {"target": insert},
                "#VirtualMedia.EjectMedia": {"target": eject},
            }
        return document

    def insert_media(bmc: Bmc, _: str, body: Document) -> Reply:
        if not members(bmc):
            raise Refusal("ResourceMissingAtURI", insert)
        _insert(bmc, body, insert)
        return Reply(204, None)

    def eject_media(bmc: Bmc, _: str, __: Document) -> Reply:
        if not members(bmc):
            raise Refusal("ResourceMissingAtURI", eject)
        bmc.machine.eject_media()
        return Reply(204, None)

    return {
        path: Resource(get=collection(path, "VirtualMedia", "Virtual Media Collection", members)),
        f"{path}/*": Resource(get=slot),
        insert: Resource(post=insert_media),
        eject: Resource(post=eject_media),
    }


def _insert(bmc: Bmc, body: Document, action: str) -> None:
    url = required(body, action, "Image")
    if bmc.quirks.media_protocol_required:
        required(body, action, "TransferProtocolType", ["HTTP", "HTTPS"])
    malformed = Refusal("ActionParameterValueFormatError", url, "Image", action, related=["Image"])
    if not url.endswith(bmc.quirks.media_suffix):
        raise malformed
    try:
        bmc.machine.insert_media(url)
    except HardwareRejected as rejected:
        if rejected.reason is Rejection.INVALID:
            raise malformed from rejected
        raise


ROUTES: Routes = slots(f"{MANAGER}/VirtualMedia", under_system=False) | slots(
    f"{SYSTEM}/VirtualMedia", under_system=True
)
