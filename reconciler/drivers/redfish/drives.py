"""Find the drives of a system, and let the BMC erase one of them."""

from __future__ import annotations

from itertools import chain

from reconciler.drivers.redfish import tasks
from reconciler.drivers.redfish.devices import SECURE_ERASE
from reconciler.drivers.redfish.fields import Document, Unknown, absent, link, links, need_link, objects, quote, stated
from reconciler.drivers.redfish.tree import Tree, action
from reconciler.model.errors import DriverError, Failure


def documents(tree: Tree, found: Document) -> list[tuple[Document, str]]:
    """Return the drives of Storage, which have serials, or else of SimpleStorage, each with what names it there."""
    if link(found, "Storage") is not None:
        storages = [resource.body for resource in tree.members(need_link(found, "Storage"))]
        uris = chain.from_iterable(links(item, "Drives") for item in storages)
        items, name = [tree.get(uri).body for uri in dict.fromkeys(uris)], "Id"
    else:
        storages = [resource.body for resource in tree.members(need_link(found, "SimpleStorage"))]
        items, name = list(chain.from_iterable(objects(item, "Devices") for item in storages)), "Name"  # without Id
    return [(item, name) for item in items if not absent(item)]


def secure_erase(tree: Tree, serial: str) -> str:
    """Start Drive.SecureErase on the drive with exactly this serial number; return its task's URI.

    AMBIGUOUS where the BMC names no task: nothing would show how the erase ended.
    """
    drives = [item for item, _ in documents(tree, tree.system().body) if stated(item, "SerialNumber") == serial]
    if len(drives) != 1:
        raise DriverError(Failure.REJECTED, f"{len(drives) or 'no'} drives have the serial number {quote(serial)}")
    offered = action(drives[0], SECURE_ERASE)
    if offered is None:
        raise Unknown(f"the BMC offers no Drive.SecureErase for drive {quote(serial)}")
    reply = tree.session.post(offered[0], {})
    uri = tasks.task_of_reply(reply.body, reply.location)
    if uri is None:
        raise DriverError(Failure.AMBIGUOUS, f"the BMC took the erase of {quote(serial)} but names no task for it")
    return uri
