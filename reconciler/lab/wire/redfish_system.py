"""The computer system: identity, power, boot, secure boot."""

from __future__ import annotations

import zlib
from typing import Any

from reconciler.lab.hardware import parts
from reconciler.lab.hardware.machine import HardwareRejected, Rejection
from reconciler.lab.hardware.parts import processors
from reconciler.lab.hardware.state import MachineState
from reconciler.lab.wire.redfish_messages import Refusal
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
    choose,
    collection,
    link,
    odata,
    only,
    required,
    status,
)

BOOT_OPTIONS = f"{SYSTEM}/BootOptions"
FUTURE = f"{SYSTEM}/SD"
SECURE_BOOT = f"{SYSTEM}/SecureBoot"

RESETS = {
    "On": "on",
    "ForceOff": "force_off",
    "GracefulShutdown": "graceful_off",
    "GracefulRestart": "graceful_restart",
    "ForceRestart": "force_restart",
    "PowerCycle": "power_cycle",
}
_POWER = {"on": "On", "off": "Off", "powering_off": "PoweringOff"}
_PROGRESS = {
    "off": "None",
    "post": "PCIResourceConfigStarted",
    "installer": "OSBootStarted",  # a BMC can't tell an installer from another system
    "os_booting": "OSBootStarted",
    "os_running": "OSRunning",
}
_POST_STATE = {"off": "PowerOff", "post": "InPost"}
_OVERRIDE = ["BootSourceOverrideTarget", "BootSourceOverrideEnabled", "BootSourceOverrideMode"]
_BOOT_ENTRIES = {  # alias -> reference and title; others get a number of their own
    "Hdd": ("Boot0001", "UEFI Hard Disk"),
    "Pxe": ("Boot0002", "UEFI Network Card"),
    "Cd": ("Boot0003", "UEFI USB CD/DVD"),
    "UefiHttp": ("Boot0004", "UEFI HTTP Network Card"),
}
_NIC = "PciRoot(0x7)/Pci(0x1,0x1)/Pci(0x0,0x0)/MAC(B83FD2D7F74A,0x1)/IPv4(0.0.0.0)"
_DEVICE_PATHS = {
    "Hdd": "HD(1,GPT,6634D938-1211-4F7A-89C6-A35A60BE1E4A,0x800,0x219800)/\\EFI\\ubuntu\\shimx64.efi",
    "Pxe": _NIC,
    "Cd": "PciRoot(0x0)/Pci(0x14,0x0)/USB(0xD,0x0)/CDROM(0x0)",
    "UefiHttp": f"{_NIC}/Uri()",
}


def health(state: MachineState) -> str:
    return parts.rollup(state)


def _system(bmc: Bmc, _: str) -> Document:
    state = bmc.state
    serial, uuid = bmc.machine.shown_identity
    rollup = health(state)
    parts = {
        name: link(f"{SYSTEM}/{name}")
        for name in ("Processors", "Memory", "EthernetInterfaces", "Storage", "LogServices", "SecureBoot", "Bios")
    }
    bios = next((item.version for item in state.firmware.values() if item.component == "bios"), None)
    document = odata(SYSTEM, "ComputerSystem.v1_14_0", "System") | {
        "Description": "Description of server",
        "SystemType": "Physical",
        "Manufacturer": state.manufacturer,
        "Model": state.model,
        "SerialNumber": f"CN{serial[::-1]}" if bmc.quirks.serial_in_sku else serial,
        "SKU": serial if bmc.quirks.serial_in_sku else "0x1D1415D9",
        "PartNumber": state.model,
        "UUID": uuid,
        **_indicator(bmc),
        "BiosVersion": bios,
        "PowerState": _POWER[bmc.machine.shown_power()],
        "Status": status(rollup) | {"HealthRollup": rollup},
        "ProcessorSummary": {"Count": processors(state), "Status": status() | {"HealthRollup": "OK"}},
        "MemorySummary": {
            "TotalSystemMemoryGiB": state.memory_bytes // 2**30,
            "MemoryMirroring": "System",
            "Status": status() | {"HealthRollup": "OK"},
        },
        "Boot": _boot(bmc, settable=not bmc.quirks.boot_in_settings),
        **parts,
        "Links": {"Chassis": [link(CHASSIS)], "ManagedBy": [link(MANAGER)]},
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": list(RESETS),
            }
        },
        # The content, and with it the ETag, changes whenever anything below this system changes.
        "Oem": {"Lab": {"@odata.type": "#LabSystem.v1_0_0.System", "Revision": state.etag}},
    }
    if bmc.quirks.boot_in_settings:
        document["@Redfish.Settings"] = {"@odata.type": "#Settings.v1_2_2.Settings", "SettingsObject": link(FUTURE)}
    if bmc.quirks.media_under_system:
        document["VirtualMedia"] = link(f"{SYSTEM}/VirtualMedia")
    if bmc.quirks.post_state:
        document["Oem"]["Hpe"] = {"PostState": _POST_STATE.get(state.phase, "FinishedPost")}
    elif bmc.quirks.boot_progress:
        stuck = state.phase not in ("off", "post") and bmc.quirks.boot_progress_stuck
        document["BootProgress"] = {
            "LastState": stuck or _PROGRESS[state.phase],
            "LastStateTime": bmc.date(state.phase_since),
        }
    return document


# --- boot ---


def _entry(alias: str) -> tuple[str, str]:
    """Return the reference and the title of a boot entry."""
    return _BOOT_ENTRIES.get(alias) or (f"Boot{0x1000 | zlib.crc32(alias.encode()) & 0xFFF:04X}", f"UEFI {alias}")


def _entries(bmc: Bmc) -> dict[str, str]:
    """Return the machine's boot entries in order: reference -> alias."""
    return {_entry(alias)[0]: alias for alias in bmc.state.boot_order}


def _targets(bmc: Bmc) -> dict[str, str]:
    """Return this BMC's values for the override's target -> the machine's boot device."""
    http = {"UefiHttp": "UefiHttp"} if bmc.state.http_boot else {}
    return {"None": "None", "Pxe": "Pxe", bmc.quirks.media_target: "Cd", "Hdd": "Hdd", **http}


def _override(bmc: Bmc) -> Document:
    state = bmc.state
    targets = _targets(bmc)
    return {
        "BootSourceOverrideEnabled": state.boot_override_enabled,
        "BootSourceOverrideMode": bmc.memory.get("boot mode", "UEFI"),
        "BootSourceOverrideTarget": next(word for word, device in targets.items() if device == state.boot_override),
        **({"HttpBootUri": state.http_boot_uri} if bmc.quirks.http_boot else {}),
    }


def _allowable(bmc: Bmc) -> Document:
    allowable = {"Enabled": ["Disabled", "Once"], "Mode": ["UEFI"], "Target": list(_targets(bmc))}
    return {f"BootSourceOverride{name}@Redfish.AllowableValues": words for name, words in allowable.items()}


def _boot(bmc: Bmc, *, settable: bool) -> Document:
    return {
        **_override(bmc),
        **(_allowable(bmc) if settable else {}),
        "BootOptions": link(BOOT_OPTIONS),
        "BootNext": None,
        "BootOrder": list(_entries(bmc)),
    }


def _future(bmc: Bmc, _: str) -> Document | None:
    """Return the system's settings object."""
    if not bmc.quirks.boot_in_settings:
        return None
    return odata(FUTURE, "ComputerSystem.v1_14_0", "System") | {"Boot": _override(bmc) | _allowable(bmc)}


# --- the locator LED ---


def _indicator(bmc: Bmc) -> Document:
    """Return the LED as the recorded trees of these makes show it: Supermicro and GB200 by both properties."""
    lit = bmc.state.indicator
    if lit is None:
        return {}
    rest = "Lit" if bmc.quirks.indicator == "lit_at_rest" else "Off"
    shown = {"IndicatorLED": ("Lit" if bmc.quirks.indicator == "no_blink" else "Blinking") if lit else rest}
    return shown | ({"LocationIndicatorActive": lit} if bmc.quirks.indicator == "both" else {})


def _patch_indicator(bmc: Bmc, body: Document) -> Reply:
    only(body, *_indicator(bmc))
    if "LocationIndicatorActive" in body:
        if not isinstance(body["LocationIndicatorActive"], bool):
            raise Refusal("PropertyValueTypeError", str(body["LocationIndicatorActive"]), "LocationIndicatorActive")
        bmc.machine.set_indicator(body["LocationIndicatorActive"])
        return Reply()
    words = {"Blinking": True, "Lit": True, "Off": False}
    if bmc.quirks.indicator == "lit_at_rest":
        words = {"Blinking": True, "Lit": False}
    if bmc.quirks.indicator == "no_blink":
        del words["Blinking"]
    bmc.machine.set_indicator(words[choose(body, "IndicatorLED", list(words), "")])
    return Reply()


def _patch_system(bmc: Bmc, _: str, body: Document) -> Reply:
    if body.keys() & {"IndicatorLED", "LocationIndicatorActive"}:
        return _patch_indicator(bmc, body)
    return _patch_boot(bmc, body, [] if bmc.quirks.boot_in_settings else _settable(bmc), ["BootOrder"])


def _patch_future(bmc: Bmc, _: str, body: Document) -> Reply:
    return _patch_boot(bmc, body, _settable(bmc), [])


def _settable(bmc: Bmc) -> list[str]:
    return [*_OVERRIDE, "HttpBootUri"] if bmc.quirks.http_boot else _OVERRIDE


def _patch_boot(bmc: Bmc, body: Document, override: list[str], order: list[str]) -> Reply:
    """Set the given properties only: a target alone does not enable the override (pitfall D1)."""
    only(body, "Boot")
    boot = body.get("Boot")
    if not isinstance(boot, dict) or not boot:
        raise Refusal("PropertyMissing", "Boot", related=["Boot"])
    only(boot, *override, *order)
    if bmc.quirks.http_boot == "taken" and "HttpBootUri" in boot:
        bmc.machine.set_http_boot_uri(str(boot["HttpBootUri"]))
    if "BootOrder" in boot:
        _set_boot_order(bmc, boot["BootOrder"])
    if set(boot) & {*override} - {"HttpBootUri"}:
        current, targets = _override(bmc), _targets(bmc)
        _set_boot_mode(bmc, boot)
        target = choose(boot, "BootSourceOverrideTarget", targets, current["BootSourceOverrideTarget"])
        once = ["Disabled", "Once"]
        enabled = choose(boot, "BootSourceOverrideEnabled", once, current["BootSourceOverrideEnabled"])
        bmc.machine.set_boot_override(targets[target], enabled)
    return Reply()


def _set_boot_mode(bmc: Bmc, boot: Document) -> None:
    if "BootSourceOverrideMode" not in boot:
        if bmc.quirks.boot_mode == "required":
            raise Refusal("PropertyMissing", "BootSourceOverrideMode", related=["Boot/BootSourceOverrideMode"])
        if bmc.quirks.boot_mode == "flips":
            bmc.memory["boot mode"] = "Legacy"
    else:
        bmc.memory["boot mode"] = choose(boot, "BootSourceOverrideMode", ["UEFI"], "UEFI")


def _set_boot_order(bmc: Bmc, order: Any) -> None:
    """Set the boot order, which must hold exactly the present entries."""
    entries = _entries(bmc)
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(entries):
        raise Refusal("PropertyValueNotInList", str(order), "BootOrder", related=["Boot/BootOrder"])
    bmc.machine.set_boot_order([entries[item] for item in order])


def _boot_option(bmc: Bmc, id_: str) -> Document | None:
    alias = _entries(bmc).get(id_)
    if alias is None:
        return None
    title = _entry(alias)[1]
    return odata(f"{BOOT_OPTIONS}/{id_}", "BootOption.v1_0_4", title) | {
        "BootOptionReference": id_,
        "BootOptionEnabled": True,
        "DisplayName": title,
        "UefiDevicePath": _DEVICE_PATHS.get(alias, ""),
        "Alias": alias if bmc.quirks.boot_aliases else None,
    }


# --- power ---


def _reset(bmc: Bmc, body: Document) -> Reply:
    kind = required(body, "ComputerSystem.Reset", "ResetType", RESETS)
    try:
        bmc.machine.power(RESETS[kind])
    except HardwareRejected as rejected:
        if rejected.reason is not Rejection.CONFLICT:
            raise
        if bmc.quirks.power_conflict == 400:
            raise Refusal("InvalidOperationForSystemState") from rejected
        raise Refusal("PSU501" if kind == "On" else "PSU502") from rejected
    return Reply(204, None)


# --- secure boot ---


def _secure_boot(bmc: Bmc, _: str) -> Document:
    state = bmc.state
    wanted = state.secure_boot if state.pending_secure_boot is None else state.pending_secure_boot
    return odata(SECURE_BOOT, "SecureBoot.v1_1_0", "SecureBoot") | {
        "SecureBootEnable": wanted,
        "SecureBootCurrentBoot": "Enabled" if state.secure_boot else "Disabled",
        "SecureBootMode": "DeployedMode",
        "Actions": {"Oem": {}},
    }


def _patch_secure_boot(bmc: Bmc, _: str, body: Document) -> Reply:
    only(body, "SecureBootEnable")
    enable = body.get("SecureBootEnable")
    if not isinstance(enable, bool):
        raise Refusal("PropertyValueTypeError", str(enable), "SecureBootEnable", related=["SecureBootEnable"])
    bmc.machine.set_secure_boot(enable)
    return Reply()


ROUTES: Routes = {
    f"{ROOT}/Systems": Resource(
        get=collection(f"{ROOT}/Systems", "ComputerSystem", "Computer System Collection", lambda _: ["1"])
    ),
    SYSTEM: Resource(get=_system, patch=_patch_system),
    FUTURE: Resource(get=_future, patch=_patch_future),
    f"{SYSTEM}/Actions/ComputerSystem.Reset": action(_reset),
    BOOT_OPTIONS: Resource(get=collection(BOOT_OPTIONS, "BootOption", "Boot Option Collection", _entries)),
    f"{BOOT_OPTIONS}/*": Resource(get=_boot_option),
    SECURE_BOOT: Resource(get=_secure_boot, patch=_patch_secure_boot),
}
