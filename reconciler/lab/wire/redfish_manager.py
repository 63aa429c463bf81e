"""The BMC itself, and its event log."""

from __future__ import annotations

from typing import Any

from reconciler.lab.hardware.parts import MAX_RECORDS
from reconciler.lab.wire.redfish_protocol import (
    CHASSIS,
    MANAGER,
    ROOT,
    SYSTEM,
    Bmc,
    Document,
    Reply,
    Resource,
    Routes,
    action,
    collection,
    link,
    odata,
    required,
    status,
)

SEL = f"{SYSTEM}/LogServices/Sel"
ENTRIES = f"{SEL}/Entries"
_RESETS = ("GracefulRestart", "ForceRestart")


def _manager(bmc: Bmc, _: str) -> Document:
    state = bmc.state
    firmware = next((item for item in state.firmware.values() if item.component == "bmc"), None)
    return odata(MANAGER, "Manager.v1_11_0", "Manager") | {
        "Description": "BMC",
        "ManagerType": "BMC",
        "UUID": bmc.machine.shown_identity[1],
        "Model": "ASPEED",
        "FirmwareVersion": firmware.version if firmware else None,
        "DateTime": bmc.date(bmc.machine.now),
        "DateTimeLocalOffset": "+00:00",
        "LastResetTime": bmc.date(state.bmc_ready_at),
        "Status": status(),
        "LogServices": link(f"{MANAGER}/LogServices"),
        "VirtualMedia": link(f"{MANAGER}/VirtualMedia"),
        "Links": {
            "ManagerForServers": [link(SYSTEM)],
            "ManagerForChassis": [link(CHASSIS)],
            "ActiveSoftwareImage": link(f"{ROOT}/UpdateService/FirmwareInventory/BMC"),
        },
        "Actions": {
            "#Manager.Reset": {
                "target": f"{MANAGER}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": list(_RESETS),
            }
        },
    }


def _reset(bmc: Bmc, body: Document) -> Reply:
    required(body, "Manager.Reset", "ResetType", _RESETS)
    bmc.machine.reset_bmc()
    return Reply(204, None)


# --- event log ---


def _log_service(bmc: Bmc, _: str) -> Document:
    return odata(SEL, "LogService.v1_2_0", "Health Event Log Service") | {
        "MaxNumberOfRecords": MAX_RECORDS,
        "OverWritePolicy": "WrapsWhenFull",
        "DateTime": bmc.date(bmc.machine.now),
        "DateTimeLocalOffset": "+00:00",
        "ServiceEnabled": True,
        "LogEntryType": "SEL",
        "Status": status(),
        "Entries": link(ENTRIES),
    }


def _records(bmc: Bmc) -> list[dict[str, Any]]:
    return bmc.state.events[-MAX_RECORDS:]


def _entry(bmc: Bmc, event: dict[str, Any]) -> Document:
    return odata(f"{ENTRIES}/{event['id']}", "LogEntry.v1_7_0", f"Health Event Log Entry {event['id']}") | {
        "EntryType": "SEL",
        "EntryCode": "Assert",
        "Severity": event["severity"],
        "Created": bmc.date(event["at"]),
        "SensorType": "System Event",
        "SensorNumber": 0,
        "Message": event["message"],
        "MessageId": "0x00FFFF",
    }


def _entries(bmc: Bmc, _: str) -> Document:
    """Return the log as a collection of complete entries, oldest first, as BMCs do."""
    records = _records(bmc)
    return collection(ENTRIES, "LogEntry", "Log Entry Collection", lambda _: ())(bmc, "") | {
        "Members@odata.count": len(records),
        "Members": [_entry(bmc, event) for event in records],
    }


def _one_entry(bmc: Bmc, id_: str) -> Document | None:
    return next((_entry(bmc, event) for event in _records(bmc) if event["id"] == id_), None)


ROUTES: Routes = {
    f"{ROOT}/Managers": Resource(get=collection(f"{ROOT}/Managers", "Manager", "Manager Collection", lambda _: ["1"])),
    MANAGER: Resource(get=_manager),
    f"{MANAGER}/Actions/Manager.Reset": action(_reset),
    **{
        path: Resource(get=collection(path, "LogService", "Log Service Collection", lambda _: [SEL]))
        for path in (f"{MANAGER}/LogServices", f"{SYSTEM}/LogServices")
    },
    SEL: Resource(get=_log_service),
    ENTRIES: Resource(get=_entries),
    f"{ENTRIES}/*": Resource(get=_one_entry),
}
