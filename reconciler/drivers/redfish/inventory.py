"""The inventory: what changes seldom, read on first sight, after writes, and before decisions (DESIGN section 5).

Fields are independent: one that a BMC lacks or can't tell is unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from reconciler.diff.boot_order import words
from reconciler.drivers.redfish import abilities, bios, boot, devices, drives, events, hot, integrity
from reconciler.drivers.redfish.chassis import read_parts
from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    absent,
    link,
    need_link,
    text,
)
from reconciler.drivers.redfish.logs import read_log
from reconciler.drivers.redfish.quirks import Quirks
from reconciler.drivers.redfish.tree import Survey, Tree
from reconciler.model.observed import AttributeValue, BmcEvent, Drive, FirmwareItem, Nic, RedfishInventory


def read_inventory(tree: Tree) -> RedfishInventory:
    with tree.snapshot():
        return _read(tree)


def _read(tree: Tree) -> RedfishInventory:
    host = tree.system()
    found = host.body
    quirks = tree.quirks(found)
    survey = Survey()
    dimms = survey.read("dimms", lambda: _bodies(tree, need_link(found, "Memory")))
    modules = None if dimms is None else survey.read("dimms", lambda: devices.memory(dimms))
    manager_body = survey.read("manager", lambda: tree.manager(found).body)
    manager = None if manager_body is None else survey.read("manager", lambda: devices.manager(manager_body))
    order = survey.read("boot_order", lambda: boot.read_order(tree, host))
    inventory = RedfishInventory(
        bios=survey.read("bios", lambda: _bios(tree, found, quirks)),
        secure_boot=survey.read("secure_boot", lambda: boot.secure_boot(tree.follow(found, "SecureBoot").body)),
        boot_order=None if order is None else words(order.options),
        firmware=survey.read("firmware", lambda: _firmware(tree, quirks, survey)),
        memory_bytes=(modules and modules[1]) or survey.read("memory_bytes", lambda: devices.summary_bytes(found)),
        dimms=modules[0] if modules else None,
        processors=survey.read("processors", lambda: _processors(tree, found)),
        nics=survey.read("nics", lambda: _nics(tree, found)),
        drives=survey.read("drives", lambda: _drives(tree, found)),
        sensors=None,
        events=survey.read("events", lambda: _events(tree, found, manager_body or {}, survey)),
        manager=manager,
        boot_options=None if order is None else order.options,
        staged_boot_order=() if order is None else order.staged,
        abilities=abilities.read_abilities(tree, host, survey),
        integrity=survey.read("integrity", lambda: integrity.read_components(tree)),
        unknown=survey.unknown,
    )
    sensors, parts = read_parts(tree, found, dimms, survey)
    told = inventory.events
    if told is not None and (of_boards := survey.read("events.boards", lambda: _of_boards(tree, found, survey))):
        told = (*of_boards, *told)
    return replace(inventory, sensors=sensors, parts=parts, events=told)


def _bodies(tree: Tree, where: str) -> list[Document]:
    return [resource.body for resource in tree.members(where)]


def _bios(tree: Tree, found: Document, quirks: Quirks | None) -> Mapping[str, AttributeValue]:
    values = bios.attributes(tree.follow(found, "Bios").body)
    if quirks is not None and quirks.pending_is_delta:
        # These show a pending value as if it were in force (A11): until the boot, the value is unknown.
        waiting = hot.pending(tree, found, quirks)
        return {name: value for name, value in values.items() if name not in waiting}
    return values


def _firmware(tree: Tree, quirks: Quirks | None, survey: Survey) -> Mapping[str, FirmwareItem]:
    items: dict[str, FirmwareItem] = {}
    for document in _bodies(tree, firmware_collection(tree)):
        key = devices.firmware_key(document, quirks)
        if key is None:
            continue
        item = survey.read(f"firmware.{key}", partial(devices.firmware_item, document, quirks))
        if item is None:
            continue
        if key in items and items[key].version != item.version:
            survey.unknown[f"firmware.{key}"] = f"listed as both {items[key].version} and {item.version}"
        items[key] = item
    return {key: item for key, item in items.items() if f"firmware.{key}" not in survey.unknown}


def firmware_collection(tree: Tree) -> str:
    return need_link(tree.follow(tree.session.root(), "UpdateService").body, "FirmwareInventory")


def _processors(tree: Tree, found: Document) -> int:
    try:
        return devices.processors(found)
    except Unknown as gap:
        if link(found, "Processors") is None:
            raise
        listed = _bodies(tree, need_link(found, "Processors"))
        count = sum(text(item, "ProcessorType") == "CPU" and not absent(item) for item in listed)
        if not count:
            raise Unknown(f"{gap}, and no processor is listed") from None
        return count


def _nics(tree: Tree, found: Document) -> tuple[Nic, ...]:
    listed = _bodies(tree, need_link(found, "EthernetInterfaces"))
    return tuple(devices.nic(item) for item in listed if not absent(item) and not devices.leads_to_bmc(item))


def _drives(tree: Tree, found: Document) -> tuple[Drive, ...]:
    return tuple(devices.drive(item, name) for item, name in drives.documents(tree, found))


def _events(tree: Tree, found: Document, manager: Document, survey: Survey) -> tuple[BmcEvent, ...]:
    told, unread = read_log(tree, found, manager)
    if unread:
        survey.unknown["events"] = unread
    return told


def _of_boards(tree: Tree, host: Document, survey: Survey) -> tuple[BmcEvent, ...]:
    """Return what the logs of all boards say. One that can't be read costs its own events only."""
    of_each = [
        survey.read("events.boards", partial(_board_events, tree, board.body, survey)) for board in tree.boards(host)
    ]
    return tuple(event for found in of_each for event in found or ())


def _board_events(tree: Tree, board: Document, survey: Survey) -> tuple[BmcEvent, ...]:
    """Return what the log of a board says of its GPUs and NVSwitches: (S)Xids outlive the host's kernel log there.

    Other entries are of parts that are read themselves. Ages are by the clock of the board's own manager.
    """
    if link(board, "LogServices") is None:
        return ()
    told, unread = read_log(tree, board, tree.manager(board).body)
    if unread:
        survey.unknown["events.boards"] = unread
    return tuple(
        [
            replace(found, id=f"{text(board, 'Id')}/{found.id}")
            for found in told
            if found.kind.startswith((events.XID, events.SXID))
        ]
    )
