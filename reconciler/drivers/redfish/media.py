"""Virtual media: the choice of a slot, and the payloads that makes accept (pitfalls E2-E4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, boolean, link, text, texts
from reconciler.drivers.redfish.quirks import Operation
from reconciler.drivers.redfish.session import Resource
from reconciler.drivers.redfish.tree import Tree, action
from reconciler.model.errors import DriverError, Failure

_INSERT, _EJECT = "#VirtualMedia.InsertMedia", "#VirtualMedia.EjectMedia"
_DISCS = frozenset({"CD", "DVD"})


class Media:
    """The slot for discs of one BMC, which is chosen once for insert, eject and read."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._slot: str | None = None

    def url(self) -> str | None:
        return _inserted(self.slot().body)

    def insert(self, url: str) -> None:
        slot = self.slot()
        offered = action(slot.body, _INSERT)
        patience = self._tree.behaviours().patience.get(Operation.MEDIA, 0.0)
        refusal: HttpError | None = None
        for payload in _payloads(url):
            try:
                if offered is not None:
                    self._tree.session.post(offered[0], payload, patience=patience)
                else:  # Lenovo has no action, and wants all of it in a PATCH
                    change = {"Inserted": True, "WriteProtected": True, **payload}
                    self._tree.session.patch(slot, change, patience=patience)
            except HttpError as error:
                if error.kind is not Failure.REJECTED or error.status == 409:
                    raise
                refusal = refusal or error
            else:
                return
        assert refusal is not None
        hint = "can the BMC reach it, and does it take this URL (no query, .iso at the end, trusted TLS)?"
        raise DriverError(Failure.REJECTED, f"{refusal.detail}; {hint}")

    def eject(self) -> None:
        """Eject also where the slot seems empty: Inserted may be stale (E2); a refusal then means that it is empty."""
        slot = self.slot()
        offered = action(slot.body, _EJECT)
        try:
            if offered is not None:
                self._tree.session.post(offered[0], {})
            elif _inserted(slot.body) is not None:
                self._tree.session.patch(slot, {"Inserted": False, "Image": None})
        except HttpError as error:
            if error.kind in (Failure.AUTH, Failure.BUSY) or _inserted(self.slot().body) is not None:
                raise

    def slot(self) -> Resource:
        """Return the slot; raise Unknown where the BMC has none that can be written."""
        if self._slot is not None:
            try:
                return self._tree.get(self._slot)
            except HttpError as error:
                if error.status != 404:
                    raise
        found = list(self._slots())
        if not found:
            raise Unknown("the BMC offers no virtual media for discs")
        preferred = self._tree.behaviours().media_slot
        best = max(found, key=lambda slot: (_usable(slot.body), text(slot.body, "Id") == preferred))
        if _usable(best.body) == 0:
            raise Unknown("no slot of the BMC's virtual media can be written")
        self._slot = best.path
        return best

    def _slots(self) -> Iterator[Resource]:
        """Yield slots for discs, under the system, as in the newer standard, and under its managers (E4)."""
        found = self._tree.system().body
        seen: set[str] = set()
        for holder in (found, *(self._tree.get(where).body for where in self._tree.managers(found))):
            where = link(holder, "VirtualMedia")
            if where is None or where in seen:
                continue
            seen.add(where)
            for slot in self._tree.members(where):
                if _DISCS & set(texts(slot.body, "MediaTypes")):
                    yield slot


def _usable(slot: Document) -> int:
    """Rank a slot: 2 has the insert action, 1 has no actions and takes a PATCH, 0 is for a console viewer only."""
    if action(slot, _INSERT) is not None:
        return 2
    return 0 if action(slot, _EJECT) is not None else 1


def _inserted(slot: Document) -> str | None:
    """Return the URL of the medium, None when empty. `Inserted` decides where it is given."""
    image = text(slot, "Image") or text(slot, "ImageName")
    inserted = boolean(slot, "Inserted")
    if inserted is None:
        return image
    return (image or "unnamed") if inserted else None


def _payloads(url: str) -> Iterator[dict[str, Any]]:
    """Yield payloads, the plainest first; each is tried once (E3). Supermicro X11 refuses more than the image."""
    protocol = url.split(":", 1)[0].upper()
    plain = {"Image": url}
    with_protocol = {**plain, "TransferProtocolType": protocol}
    with_method = {**with_protocol, "TransferMethod": "Stream"}
    yield plain
    yield with_protocol
    yield with_method
    yield {**with_method, "UserName": "none", "Password": "none"}  # DGX wants an account for an open server
