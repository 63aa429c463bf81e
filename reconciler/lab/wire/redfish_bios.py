"""BIOS attributes: the values in force, and those pending for the next POST."""

from __future__ import annotations

from reconciler.lab.hardware import bios
from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import (
    ROOT,
    SYSTEM,
    Bmc,
    Document,
    Reply,
    Resource,
    Routes,
    action,
    choose,
    link,
    odata,
    only,
)
from reconciler.lab.wire.redfish_service import BIOS_REGISTRY

BIOS = f"{SYSTEM}/Bios"
SETTINGS = f"{BIOS}/Settings"
CLEAR_PENDING = f"{SETTINGS}/Actions/Oem/DellManager.ClearPending"
APPLY_TIME = "@Redfish.SettingsApplyTime"


def _bios(bmc: Bmc, _: str) -> Document:
    firmware = next((item.inventory_id for item in bmc.state.firmware.values() if item.component == "bios"), "BIOS")
    settings: Document = {"@odata.type": "#Settings.v1_3_0.Settings", "SettingsObject": link(SETTINGS)}
    if bmc.quirks.settings_apply_time:
        settings["SupportedApplyTimes"] = ["OnReset"]
    return odata(BIOS, "Bios.v1_1_1", "BIOS Configuration Current Settings") | {
        "AttributeRegistry": BIOS_REGISTRY,
        "Attributes": bmc.state.bios | bmc.state.pending_bios if bmc.quirks.settings_shown_early else bmc.state.bios,
        "@Redfish.Settings": settings,
        "Actions": {"#Bios.ResetBios": {"target": f"{BIOS}/Actions/Bios.ResetBios"}},
        "Links": {"ActiveSoftwareImage": link(f"{ROOT}/UpdateService/FirmwareInventory/{firmware}")},
    }


def _settings(bmc: Bmc, _: str) -> Document:
    pending = bmc.state.pending_bios
    document = odata(SETTINGS, "Bios.v1_1_1", "BIOS Configuration Pending Settings") | {
        "AttributeRegistry": BIOS_REGISTRY,
        "Attributes": bmc.state.bios | pending if bmc.quirks.settings_complete else pending,
    }
    if bmc.quirks.settings_apply_time:
        document[APPLY_TIME] = {
            "@odata.type": "#Settings.v1_3_0.PreferredApplyTime",
            "ApplyTime": "OnReset",
            "ApplyTime@Redfish.AllowableValues": ["OnReset"],
        }
    if bmc.quirks.settings_clearable:
        document["Actions"] = {"Oem": {"#DellManager.ClearPending": {"target": CLEAR_PENDING}}}
    return document


def _patch_settings(bmc: Bmc, _: str, body: Document) -> Reply:
    """Stage attributes. Setting one to the value in force removes its pending change."""
    only(body, "Attributes")
    apply_time = body.get(APPLY_TIME)
    if apply_time is not None:
        if not bmc.quirks.settings_apply_time:
            raise Refusal("PropertyUnknown", APPLY_TIME, related=[APPLY_TIME])
        choose(apply_time if isinstance(apply_time, dict) else {}, "ApplyTime", ["OnReset"], "")
    attributes = body.get("Attributes")
    if not isinstance(attributes, dict) or not attributes:
        raise Refusal("PropertyMissing", "Attributes", related=["Attributes"])
    for name, value in attributes.items():
        if name not in bmc.machine.registry:
            raise Refusal("PropertyUnknown", name, related=[f"Attributes/{name}"])
        if not isinstance(value, str | int) or not bmc.machine.registry[name].accepts(value):
            raise Refusal("PropertyValueNotInList", str(value), name, related=[f"Attributes/{name}"])
    bmc.machine.stage_bios(attributes)
    return Reply()


def _clear_pending(bmc: Bmc, _: Document) -> Reply:
    if not bmc.quirks.settings_clearable:
        raise Refusal("ResourceMissingAtURI", CLEAR_PENDING)
    bmc.machine.clear_pending_bios()
    return Reply()


def _reset_bios(bmc: Bmc, _: Document) -> Reply:
    bmc.machine.stage_bios(bios.defaults(bmc.machine.registry))
    return Reply()


ROUTES: Routes = {
    BIOS: Resource(get=_bios),
    SETTINGS: Resource(get=_settings, patch=_patch_settings),
    CLEAR_PENDING: action(_clear_pending),
    f"{BIOS}/Actions/Bios.ResetBios": action(_reset_bios),
}
