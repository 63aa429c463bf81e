"""Virtual media (pitfalls E1-E4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

SLOTS = ("Cd", "1", "2")  # Ids that slots for discs may have
BARE_SLOT = "RemovableDisk"


@dataclass(frozen=True, slots=True)
class _Slots:
    """The slots in one of the two places where BMCs keep virtual media (E4); the other place is empty."""

    path: str
    under_system: bool

    def routes(self) -> Routes:
        views = {"InsertMedia": self._insert, "EjectMedia": self._eject}
        return {
            self.path: Resource(get=collection(self.path, "VirtualMedia", "Virtual Media Collection", self._members)),
            f"{self.path}/*": Resource(get=self._slot),
            **{self._action(id_, name): self._post(id_, view) for id_ in SLOTS for name, view in views.items()},
        }

    def _action(self, id_: str, name: str) -> str:
        return f"{self.path}/{id_}/Actions/VirtualMedia.{name}"

    def _members(self, bmc: Bmc) -> list[str]:
        quirks = bmc.quirks
        if quirks.media_under_system is not self.under_system or not quirks.virtual_media:
            return []
        dummy = [quirks.media_dummy] if quirks.media_dummy else []
        return [BARE_SLOT] * quirks.media_bare_slot + dummy + [quirks.media_slot]

    def _slot(self, bmc: Bmc, id_: str) -> Document | None:
        if id_ not in self._members(bmc):
            return None
        image = bmc.machine.shown_media if id_ == bmc.quirks.media_slot else bmc.memory.get(f"medium {id_}")
        document = odata(f"{self.path}/{id_}", "VirtualMedia.v1_5_0", "Virtual Media") | {
            "MediaTypes": ["USBStick"] if id_ == BARE_SLOT else ["CD", "DVD"],
            "Image": image,
            "ImageName": None if image is None else image.rsplit("/", 1)[1],
            "Inserted": image is not None,
            "ConnectedVia": "NotConnected" if image is None else "URI",
            "WriteProtected": True,
            "Status": status(),
        }
        if id_ != BARE_SLOT:
            document["Actions"] = {
                f"#VirtualMedia.{name}": {"target": self._action(id_, name)} for name in ("InsertMedia", "EjectMedia")
            }
        return document

    def _post(self, id_: str, view: Callable[[Bmc, str, Document], None]) -> Resource:
        def post(bmc: Bmc, _: str, body: Document) -> Reply:
            if id_ not in self._members(bmc):
                raise Refusal("ResourceMissingAtURI", f"{self.path}/{id_}")
            view(bmc, id_, body)
            return Reply(204, None)

        return Resource(post=post)

    def _insert(self, bmc: Bmc, id_: str, body: Document) -> None:
        action = self._action(id_, "InsertMedia")
        if id_ == bmc.quirks.media_slot:
            _insert(bmc, body, action)
        else:
            bmc.memory[f"medium {id_}"] = required(body, action, "Image")

    def _eject(self, bmc: Bmc, id_: str, _: Document) -> None:
        if id_ == bmc.quirks.media_slot:
            bmc.machine.eject_media()
        bmc.memory.pop(f"medium {id_}", None)


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


ROUTES: Routes = {
    **_Slots(f"{MANAGER}/VirtualMedia", under_system=False).routes(),
    **_Slots(f"{SYSTEM}/VirtualMedia", under_system=True).routes(),
}
