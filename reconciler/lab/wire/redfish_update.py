"""Update service, firmware inventory and tasks (pitfalls A5, A6, A10, F1)."""

from __future__ import annotations

import json

from reconciler.lab.hardware.state import FirmwareState, TaskState
from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import (
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

UPDATE = f"{ROOT}/UpdateService"
INVENTORY = f"{UPDATE}/FirmwareInventory"
TASK_SERVICE = f"{ROOT}/TaskService"
TASKS = f"{TASK_SERVICE}/Tasks"
_SIMPLE_UPDATE = "UpdateService.SimpleUpdate"
_SENT = f"{UPDATE}/update-multipart"
_PREFIX = "firmware at "
_RELATED = {"bmc": MANAGER, "bios": f"{SYSTEM}/Bios"}
_ROLLBACK = "0.0.1"  # version of every rollback image
_ON_STANDBY_POWER = ("bmc", "bios", "cpld", "erot", "psu")


def _update_service(bmc: Bmc, __: str) -> Document:
    document = odata(UPDATE, "UpdateService.v1_8_4", "Update Service") | {
        "Status": status(),
        "ServiceEnabled": True,
        "FirmwareInventory": link(INVENTORY),
    }
    if bmc.quirks.firmware_sent:
        return document | {"MultipartHttpPushUri": _SENT, "MaxImageSizeBytes": 209715200, "Actions": {}}
    return document | {
        "Actions": {
            f"#{_SIMPLE_UPDATE}": {
                "target": f"{UPDATE}/Actions/{_SIMPLE_UPDATE}",
                "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"],
            }
        },
    }


def _readable(item: FirmwareState, power: str) -> bool:
    """Tell whether a component's firmware is readable; while the machine is off, standby power is needed (A10)."""
    return power != "off" or item.component.startswith(_ON_STANDBY_POWER)


def _members(bmc: Bmc) -> dict[str, tuple[FirmwareState, bool]]:
    """Return member id -> (component, whether it is the running image). iDRACs list rollback images as well."""
    found: dict[str, tuple[FirmwareState, bool]] = {}
    for id_, item in bmc.state.firmware.items():
        if bmc.quirks.firmware_ids_carry_versions:
            found[f"Previous-0-{_ROLLBACK}__{id_}"] = item, False
            found[f"Installed-0-{item.version}__{id_}"] = item, True
        else:
            found[id_] = item, True
    return found


def _item(bmc: Bmc, id_: str) -> Document | None:
    item, runs = _members(bmc).get(id_, (None, False))
    if item is None:
        return None
    readable = _readable(item, bmc.state.power)
    related = _RELATED.get(item.component)
    version = item.version if runs else _ROLLBACK
    if bmc.quirks.bios_version_decorated and item.component == "bios":
        version = f"BIOS Date: 08/04/2023 Ver {version}"
    return odata(f"{INVENTORY}/{id_}", "SoftwareInventory.v1_3_0", item.inventory_id) | {
        "Version": version if readable else None,
        "Updateable": True,
        "Status": status("OK" if readable else None, "Enabled" if readable else "UnavailableOffline"),
        "Manufacturer": bmc.state.manufacturer,
        "RelatedItem": [link(related)] if related else [],
    }


def substitute_for(url: str) -> bytes:
    """Return the file that the lab serves for a URL of the spec, and by which its BMCs know what they are sent."""
    return f"{_PREFIX}{url}\n".encode()


def _multipart_update(bmc: Bmc, body: Document) -> Reply:
    if not bmc.quirks.firmware_sent:
        raise Refusal("ResourceMissingAtURI", _SENT)
    parameters = json.loads(required(body, "UpdateService", "UpdateParameters"))
    url = required(body, "UpdateService", "UpdateFile").removeprefix(_PREFIX).strip()
    return _begin(bmc, parameters.get("Targets"), url)


def _simple_update(bmc: Bmc, body: Document) -> Reply:
    if bmc.quirks.firmware_sent:
        raise Refusal("ResourceMissingAtURI", f"{UPDATE}/Actions/{_SIMPLE_UPDATE}")
    uri = required(body, _SIMPLE_UPDATE, "ImageURI")
    if not uri.startswith(("http://", "https://")):
        raise Refusal("ActionParameterValueFormatError", uri, "ImageURI", _SIMPLE_UPDATE, related=["ImageURI"])
    return _begin(bmc, body.get("Targets"), uri)


def _begin(bmc: Bmc, targets: object, uri: str) -> Reply:
    number = bmc.machine.start_update(_target(bmc, targets, uri), uri)
    path = f"{TASKS}/{number}"
    return Reply(202, task_document(bmc, bmc.state.tasks[number]), {"Location": path})


def _target(bmc: Bmc, targets: object, uri: str) -> str:
    """Return the component to flash: the named one, or the only one that the image fits."""
    if targets is None:
        fits = sorted(bmc.machine.firmware_images.get(uri, {}))
        if len(fits) != 1:
            raise Refusal("ActionParameterMissing", _SIMPLE_UPDATE, "Targets", related=["Targets"])
        return fits[0]
    paths = targets if isinstance(targets, list) else []
    members = _members(bmc)
    named = [item for id_, (item, runs) in members.items() if runs and paths == [f"{INVENTORY}/{id_}"]]
    if not named:
        raise Refusal("ActionParameterValueNotInList", str(targets), "Targets", _SIMPLE_UPDATE, related=["Targets"])
    return named[0].inventory_id


# --- tasks ---


def _task_service(bmc: Bmc, _: str) -> Document:
    return odata(TASK_SERVICE, "TaskService.v1_1_5", "Task Service") | {
        "DateTime": bmc.date(bmc.machine.now),
        "CompletedTaskOverWritePolicy": "Oldest",
        "LifeCycleEventOnTaskStateChange": True,
        "ServiceEnabled": True,
        "Status": status(),
        "Tasks": link(TASKS),
    }


def _task(bmc: Bmc, id_: str) -> Document | None:
    task = bmc.machine.task(id_)
    if task is None or bmc.machine.now - task.started < bmc.quirks.task_late_s:
        return None
    return task_document(bmc, task)


def task_document(bmc: Bmc, task: TaskState) -> Document:
    running = task.state == "Running"
    name = f"Firmware update of {task.inventory_id}"
    if task.drive or task.component:
        name = f"Secure erase of {task.drive}" if task.drive else f"Measurements of {task.component}"
    document = odata(f"{TASKS}/{task.id}", "Task.v1_4_3", name) | {
        "TaskState": bmc.quirks.task_words.get(task.state, task.state),
        "TaskStatus": "Critical" if task.state == "Exception" else "OK",
        "PercentComplete": task.percent(bmc.machine.now),
        "StartTime": bmc.date(task.started),
        "TaskMonitor": f"{TASKS}/{task.id}",
        "HidePayload": True,
        "Messages": _messages(task),
    }
    if running:
        return document
    if task.component:  # where its answer is
        action_ = f"{ROOT}/ComponentIntegrity/{task.component}/Actions/ComponentIntegrity.SPDMGetSignedMeasurements"
        document |= {"HidePayload": False, "Payload": {"HttpHeaders": [f"Location: {action_}/data"]}}
    return document | {"EndTime": bmc.date(task.ends)}


def _messages(task: TaskState) -> list[Document]:
    if task.drive or task.component:
        return []
    id_ = {"Running": "TransferringToComponent", "Completed": "UpdateSuccessful"}.get(task.state, "ApplyFailed")
    texts = task.messages or [f"The image is being transferred to {task.inventory_id}."]
    return [
        {
            "@odata.type": "#Message.v1_0_8.Message",
            "MessageId": f"Update.1.0.{id_}",
            "Message": text,
            "MessageArgs": [task.inventory_id],
            "Severity": "Critical" if task.state == "Exception" else "OK",
            "Resolution": "None.",
        }
        for text in texts
    ]


ROUTES: Routes = {
    UPDATE: Resource(get=_update_service),
    f"{UPDATE}/Actions/{_SIMPLE_UPDATE}": action(_simple_update),
    _SENT: action(_multipart_update),
    INVENTORY: Resource(get=collection(INVENTORY, "SoftwareInventory", "Firmware Inventory Collection", _members)),
    f"{INVENTORY}/*": Resource(get=_item),
    TASK_SERVICE: Resource(get=_task_service),
    TASKS: Resource(
        get=collection(TASKS, "Task", "Task Collection", lambda bmc: [task.id for task in bmc.machine.tasks()])
    ),
    # Like iDRACs, answer 202 until the task has ended, so that the task's own URI serves as its monitor.
    f"{TASKS}/*": Resource(get=_task, code=lambda document: 200 if "EndTime" in document else 202),
}
