"""Checks of what is read: facts of the system, the inventory, and what the BMC says that it can write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reconciler.drivers.redfish import staging
from reconciler.drivers.redfish.conformance.protocol import Probe
from reconciler.drivers.redfish.event_stream import event_source
from reconciler.drivers.redfish.fields import Document, Unknown
from reconciler.drivers.redfish.subscription import posts_to
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.abilities import Ability
from reconciler.model.conformance import Check, CheckOutcome, CheckResult
from reconciler.model.observed import RedfishHot, RedfishInventory


@dataclass(frozen=True, slots=True)
class Reading:
    """A fact that the driver reads. `field`: of the hot read, or else of the inventory.

    `shown`: the property of the system that offers it; where the BMC has that, a fact without a value is a failure.
    `required`: it is a failure in any case.
    """

    check: Check
    field: str
    shown: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the driver read from one BMC."""

    system: Document
    hot: RedfishHot
    inventory: RedfishInventory
    known_make: bool

    def value(self, field: str) -> tuple[Any, str]:
        """Return a fact and, where it has no value, the reason."""
        holder = self.hot if hasattr(self.hot, field) else self.inventory
        return getattr(holder, field), holder.unknown.get(field, "")


def _fact(name: str, where: str, without: str, *pitfalls: str) -> Check:
    return Check(name, where, without, pitfalls)


READINGS: Final = (
    Reading(
        _fact(
            "serial",
            "ComputerSystem.SerialNumber",
            "it refuses every write: it can't tell whose BMC this is",
            "A13",
            "A14",
        ),
        "serial",
        required=True,
    ),
    Reading(
        _fact(
            "uuid",
            "DSP0266 9.4.2 GUID and UUID values; ComputerSystem.UUID",
            "the serial number alone says whose BMC this is",
            "A14",
        ),
        "uuid",
        "UUID",
    ),
    Reading(
        _fact("power-state", "ComputerSystem.PowerState", "it switches nothing: no action may be proved", "A7"),
        "power",
        required=True,
    ),
    Reading(
        _fact(
            "boot-progress",
            "ComputerSystem.BootProgress",
            "it waits for SSH, or for as long as the profile says, in place of the end of POST",
            "A8",
        ),
        "boot_phase",
        "BootProgress",
    ),
    Reading(
        _fact("health", "DSP0266 9.5.15 Status", "the parts speak for themselves, without the BMC's own summary"),
        "health",
        "Status",
    ),
    Reading(
        _fact(
            "locator-led",
            "ComputerSystem.LocationIndicatorActive or IndicatorLED",
            "a person who exchanges a part gets no light to find the machine by",
        ),
        "indicator",
        "LocationIndicatorActive",
    ),
    Reading(
        _fact(
            "tasks",
            "DSP0266 12.2 Asynchronous operations",
            "it does not see jobs of others, and knows an update by the version alone",
            "A5",
            "A6",
            "D10",
        ),
        "tasks",
    ),
    Reading(
        _fact(
            "pending-bios",
            "DSP0266 9.9 Settings resource",
            "it stages no BIOS setting, since it can't see what waits already",
            "A11",
            "G3",
        ),
        "pending_bios",
        "Bios",
    ),
    Reading(_fact("bios", "Bios.Attributes", "BIOS settings of the spec stay unknown", "G1"), "bios", "Bios"),
    Reading(
        _fact("secure-boot-state", "SecureBoot.SecureBootCurrentBoot", "Secure Boot of the spec stays unknown"),
        "secure_boot",
        "SecureBoot",
    ),
    Reading(
        _fact(
            "boot-order-state", "ComputerSystem.Boot.BootOrder", "the boot order of the spec stays unknown", "D1", "D7"
        ),
        "boot_order",
    ),
    Reading(
        _fact("firmware-inventory", "DSP0266 12.6 Update Service", "firmware of the spec stays unknown", "F1", "F12"),
        "firmware",
    ),
    Reading(_fact("memory", "Memory.CapacityMiB", "memory of the spec stays unknown"), "memory_bytes", "Memory"),
    Reading(
        _fact("processors", "ComputerSystem.ProcessorSummary", "processors of the spec stay unknown"), "processors"
    ),
    Reading(_fact("nics", "EthernetInterface", "NICs are known from the host alone"), "nics", "EthernetInterfaces"),
    Reading(_fact("drives", "Storage.Drives", "drives are known from the host alone", "L4"), "drives", "Storage"),
    Reading(
        _fact("event-log", "LogService.Entries", "faults that the BMC logged are not seen", "B6"),
        "events",
        "LogServices",
    ),
    Reading(
        _fact("manager", "Manager.FirmwareVersion and DateTime", "the BMC's own version and clock are unknown", "B6"),
        "manager",
    ),
    Reading(
        _fact("sensors", "Thermal, Power or Sensors of the Chassis", "heat, fans and supplies are not watched"),
        "sensors",
    ),
)

# By ability: the check of what the BMC says it takes.
ABILITIES: Final = {
    Ability.POWER: _fact(
        "power",
        "DSP0266 7.11 POST (Action); ComputerSystem.Reset",
        "no action that switches or restarts this machine is planned",
        "A9",
        "C3",
    ),
    Ability.BMC_RESET: _fact(
        "bmc-reset", "Manager.Reset", "a BMC that hangs, or whose firmware is staged, needs a person", "F3"
    ),
    Ability.BIOS: _fact(
        "bios-settings", "DSP0266 9.9 Settings resource", "BIOS settings are compared and not written", "G1", "G2"
    ),
    Ability.SECURE_BOOT: _fact("secure-boot", "SecureBoot.SecureBootEnable", "Secure Boot is compared and not written"),
    Ability.BOOT_ORDER: _fact(
        "boot-order", "ComputerSystem.Boot.BootOrder", "the boot order is compared and not written", "D7"
    ),
    Ability.BOOT_ONCE: _fact(
        "boot-once",
        "DSP0266 9.8.1 Allowable values; BootSourceOverrideTarget",
        "it installs no image by virtual media",
        "D1",
        "D2",
        "D5",
    ),
    Ability.MEDIA: _fact(
        "virtual-media",
        "VirtualMedia.InsertMedia",
        "it installs by HTTP boot or PXE, if these are offered",
        "E2",
        "E3",
        "E4",
    ),
    Ability.HTTP_BOOT: _fact(
        "http-boot", "ComputerSystem.Boot.HttpBootUri", "it installs by virtual media or PXE", "D11"
    ),
    Ability.PXE_BOOT: _fact(
        "pxe-boot", "ComputerSystem.Boot.BootSourceOverrideTarget", "it installs by virtual media or HTTP boot", "D5"
    ),
    Ability.FIRMWARE: _fact(
        "firmware-update", "DSP0266 12.6 Update Service", "firmware is compared and not written", "F6", "F8"
    ),
    Ability.MEASUREMENTS: _fact(
        "measurements",
        "ComponentIntegrity.SPDMGetSignedMeasurements",
        "a spec that declares measurements of components admits no such node",
    ),
}
MAKE: Final = _fact(
    "known-make",
    "ComputerSystem.Manufacturer",
    "it keeps to the standard, and has neither serial number nor end of boot from this BMC",
    "A15",
)
REGISTRY: Final = _fact(
    "bios-registry", "DSP0266 9.11 Registries", "values are tried unseen, and the BMC refuses them", "G1"
)
STREAM: Final = _fact(
    "event-stream", "DSP0266 12.1.2 Open an SSE connection", "faults are seen in the next pass, not at once"
)
POSTS: Final = _fact(
    "event-posts",
    "DSP0266 12.1 Eventing; EventDestination",
    "where it has no event-stream either, faults are seen in the next pass, not at once",
)


def _registry(tree: Tree) -> str:
    known = staging.limits(tree, tree.follow(tree.system().body, "Bios").body)
    if not known:
        raise Unknown("no attribute registry is served")
    return f"{len(known)} attributes are described"


def _stream(tree: Tree) -> str:
    source = event_source(tree)
    if source is None:
        raise Unknown("no stream of events, or it is turned off")
    return source.where


PROBES: Final[tuple[tuple[Check, Probe], ...]] = ((REGISTRY, _registry), (STREAM, _stream), (POSTS, posts_to))


def facts_of(hot: RedfishHot, inventory: RedfishInventory, tree: Tree) -> Facts:
    system = tree.system().body
    return Facts(system, hot, inventory, tree.quirks(system) is not None)


def judge(facts: Facts) -> list[CheckOutcome]:
    """Return the outcomes of all checks of readings. Pure."""
    found = [_judge_make(facts), *(_judge_reading(one, facts) for one in READINGS)]
    abilities = facts.inventory.abilities
    for ability, check in ABILITIES.items():
        broken = facts.inventory.unknown.get(f"abilities.{ability}")
        lack = "" if abilities is None else abilities.lacks.get(ability.value, "")
        if broken or abilities is None:
            found.append(CheckOutcome(check, CheckResult.FAIL, broken or "not read"))
        else:
            found.append(CheckOutcome(check, CheckResult.NOT_OFFERED if lack else CheckResult.PASS, lack))
    return found


def _judge_make(facts: Facts) -> CheckOutcome:
    maker, why = facts.value("manufacturer")
    return CheckOutcome(MAKE, CheckResult.PASS if facts.known_make else CheckResult.NOT_OFFERED, maker or why)


def _judge_reading(reading: Reading, facts: Facts) -> CheckOutcome:
    value, why = facts.value(reading.field)
    if value is not None:
        return CheckOutcome(reading.check, CheckResult.PASS)
    # An error of a request, which begins with its method, is one of a resource that the BMC itself linked to.
    offered = reading.required or why.startswith("GET ") or facts.system.get(reading.shown) is not None
    return CheckOutcome(reading.check, CheckResult.FAIL if offered else CheckResult.NOT_OFFERED, why)
