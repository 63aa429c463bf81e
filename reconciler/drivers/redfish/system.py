"""Decode a ComputerSystem's document for the hot read. Pure. Readers raise Unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    health,
    member,
    missing,
    need,
    quote,
    stated,
    text,
    texts,
)
from reconciler.drivers.redfish.quirks import Quirks
from reconciler.model.observed import BootOverride
from reconciler.model.vocab import BootPhase, Health, Power

TARGETS = "BootSourceOverrideTarget@Redfish.AllowableValues"
_OVERRIDE = ("BootSourceOverrideEnabled", "BootSourceOverrideTarget", "BootSourceOverrideMode", TARGETS)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POWER = {"On": Power.ON, "Off": Power.OFF, "PoweringOn": Power.POWERING_ON, "PoweringOff": Power.POWERING_OFF}
_PROGRESS = {
    "PrimaryProcessorInitializationStarted": BootPhase.POST,
    "BusInitializationStarted": BootPhase.POST,
    "MemoryInitializationStarted": BootPhase.POST,
    "SecondaryProcessorInitializationStarted": BootPhase.POST,
    "PCIResourceConfigStarted": BootPhase.POST,
    "SystemHardwareInitializationComplete": BootPhase.POST,
    "SetupEntered": BootPhase.POST,
    "OSBootStarted": BootPhase.OS_BOOTING,
    "OSRunning": BootPhase.OS_RUNNING,
}
_OEM_PROGRESS = {"OsIsRunning": BootPhase.OS_RUNNING}  # BlueField-3


def serial(system: Document, quirks: Quirks | None) -> str:
    """Return the serial that DMI shows inside the host. The make decides which property holds it (pitfall A13)."""
    if quirks is None:
        raise Unknown("nothing says who made this system, so it is open which property holds its serial")
    return need(system, quirks.serial_property, stated)


def uuid(system: Document) -> str:
    found = need(system, "UUID", text).lower()
    if not _UUID.fullmatch(found) or set(found) <= set("0-") or set(found) <= set("f-"):
        raise Unknown(f"UUID is {quote(repr(found))}")
    return found


def power(system: Document) -> Power:
    word = need(system, "PowerState", text)
    if word not in _POWER:
        raise Unknown(f"PowerState is {quote(repr(word))}")
    return _POWER[word]


def boot_phase(system: Document, quirks: Quirks | None) -> BootPhase:
    """Return how far the boot has come. A system that is off is OFF, whatever it shows of its last boot."""
    if power(system) is Power.OFF:
        return BootPhase.OFF
    if quirks is None:
        raise Unknown("nothing says who made this system, and makes differ in what they show of a boot")
    progress = member(system, "BootProgress")
    word = text(progress, "LastState")
    found = _PROGRESS.get(word or "")
    if word == "OEM":
        word = text(progress, "OemLastState")
        found = _OEM_PROGRESS.get(word or "")
    if word in quirks.stuck_at:
        raise Unknown(f"BootProgress stays at {word} on this make")
    found = found or _post_state(system, quirks.post_state)
    if found is None:
        raise Unknown(f"BootProgress is {quote(repr(word))}" if word else "the BMC reports no BootProgress")
    return found


def _post_state(system: Document, states: Mapping[str, BootPhase]) -> BootPhase | None:
    vendors = (section for section in member(system, "Oem").values() if isinstance(section, dict))
    words = (text(section, "PostState") for section in vendors)
    return next((states[word] for word in words if word is not None and word in states), None)


def boot_section(system: Document, settings: Document) -> Document:
    """Return Boot, overlaid with the settings object's: AMI and OpenBMC keep the override there."""
    staged = member(settings, "Boot")
    return {**member(system, "Boot"), **{name: staged[name] for name in _OVERRIDE if name in staged}}


def boot_override(boot: Document) -> BootOverride:
    enabled = need(boot, "BootSourceOverrideEnabled", text)
    target = text(boot, "BootSourceOverrideTarget")
    if target is None and enabled != "Disabled":
        raise Unknown(missing(boot, "BootSourceOverrideTarget"))
    return BootOverride(enabled, target or "None", texts(boot, TARGETS))


def rollup(system: Document) -> Health:
    found = health(system)
    if found is None:
        raise Unknown(f"{missing(system, 'Status')}, which has no health")
    return found


def order_property(boot: Document) -> str:
    """Return the property that holds the boot order."""
    return "AliasBootOrder" if text(boot, "BootOrderPropertySelection") == "AliasBootOrder" else "BootOrder"


def boot_order(system: Document) -> tuple[str, ...]:
    """Return the persistent boot order: references of boot options, or aliases where the BMC orders by these."""
    boot = member(system, "Boot")
    name = order_property(boot)
    order = texts(boot, name)
    if not isinstance(boot.get(name), list) or len(order) != len(boot[name]):
        raise Unknown(missing(boot, name))
    return order
