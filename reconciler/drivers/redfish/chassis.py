"""Parts and sensors of all systems and chassis that one BMC shows.

A host's BMC shows more than the host: an HGX board is a system of its own, with a chassis for each GPU and NVSwitch;
a GB200 spreads 236 sensors over 42 chassis, of which the system names one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from reconciler.drivers.redfish import parts, sensors
from reconciler.drivers.redfish.fields import Document, last_segment, link, links, member, objects, text
from reconciler.drivers.redfish.inventory_budget import InventoryBudget
from reconciler.drivers.redfish.tree import Survey, Tree
from reconciler.model.observed import Part, Sensor

CHASSIS, SYSTEMS, SWITCHES, SENSORS = "parts.chassis", "parts.system", "parts.switch", "sensors"
SUPPLIES, FANS, LEAKS = "parts.power_supply", "parts.fan", "parts.leak_detector"
MEMORY, PROCESSORS = "parts.memory", "parts.processor"
IN_CHASSIS = (CHASSIS, SUPPLIES, FANS, LEAKS, SENSORS)


def read_parts(
    tree: Tree, host: Document, dimms: Sequence[Document] | None, survey: Survey
) -> tuple[tuple[Sensor, ...] | None, tuple[Part, ...]]:
    """Return sensors and parts. `host`: the system that runs the host; `dimms`: its memory modules, read already.

    The health of parts is read before sensors, in case the budget ends.
    """
    root = tree.session.root()
    budget = InventoryBudget(tree, survey)
    found = parts.parts("dimm", "", dimms or ())
    for system in _systems(budget, link(root, "Systems"), host):
        found += _of_system(budget, system, of_host=system is host)
    for fabric in budget.members((SWITCHES,), link(root, "Fabrics")):
        found += parts.parts("switch", _id(fabric), budget.members((SWITCHES,), link(fabric, "Switches")))
    rows: list[tuple[Document, list[Sensor]]] = []
    for chassis in _chassis(budget, root, host):
        power = budget.follow((SUPPLIES, SENSORS), chassis, "Power")
        thermal = budget.follow((FANS, SENSORS), chassis, "Thermal")
        found += parts.parts("chassis", "", [chassis])
        found += _supplies(budget, chassis, power)
        found += _cooling(budget, chassis, thermal)
        rows.append((chassis, [*sensors.of_thermal(thermal), *sensors.of_power(power)]))
    readings = [sensors.merged(_id(chassis), old, _resources(budget, chassis)) for chassis, old in rows]
    budget.close()
    if not rows:
        for name in IN_CHASSIS:
            survey.unknown.setdefault(name, "the BMC lists no chassis")
        return None, tuple(found)
    return tuple(chain.from_iterable(readings)), tuple(found)


def _id(document: Document) -> str:
    return text(document, "Id") or last_segment(str(document.get("@odata.id") or "?"))


def _systems(budget: InventoryBudget, where: str | None, host: Document) -> list[Document]:
    others = [item for item in budget.members((SYSTEMS, MEMORY, PROCESSORS), where) if _id(item) != _id(host)]
    return [host, *others]


def _of_system(budget: InventoryBudget, system: Document, *, of_host: bool) -> list[Part]:
    """Return a system's parts. The host's own health is read each pass, and its memory modules are known."""
    processors = parts.parts("processor", _id(system), budget.members((PROCESSORS,), link(system, "Processors")))
    if of_host:
        return processors
    memory = parts.parts("memory", _id(system), budget.members((MEMORY,), link(system, "Memory")))
    return [*parts.parts("system", "", [system]), *memory, *processors]


def _chassis(budget: InventoryBudget, root: Document, host: Document) -> list[Document]:
    """Return all listed chassis, and those that only the system names."""
    listed = budget.members(IN_CHASSIS, link(root, "Chassis"))
    known = {_id(item) for item in listed}
    named = [where for where in links(member(host, "Links"), "Chassis") if last_segment(where) not in known]
    unlisted = (budget.follow(IN_CHASSIS, {"Chassis": {"@odata.id": where}}, "Chassis") for where in named)
    return [*listed, *filter(None, unlisted)]


def _supplies(budget: InventoryBudget, chassis: Document, power: Document) -> Sequence[Part]:
    subsystem = budget.follow((SUPPLIES,), chassis, "PowerSubsystem")
    listed = budget.members((SUPPLIES,), link(subsystem, "PowerSupplies"))
    old = parts.parts("power_supply", _id(chassis), objects(power, "PowerSupplies"))
    return parts.better(parts.parts("power_supply", _id(chassis), listed), old)


def _cooling(budget: InventoryBudget, chassis: Document, thermal: Document) -> list[Part]:
    subsystem = budget.follow((FANS, LEAKS), chassis, "ThermalSubsystem")
    listed = parts.parts("fan", _id(chassis), budget.members((FANS,), link(subsystem, "Fans")))
    old = parts.parts("fan", _id(chassis), objects(thermal, "Fans"))
    detection = budget.follow((LEAKS,), subsystem, "LeakDetection")
    detectors = budget.members((LEAKS,), link(detection, "LeakDetectors"))
    leaks = parts.parts("leak_detector", _id(chassis), detectors, parts.leak)
    return [*parts.better(listed, old), *leaks]


def _resources(budget: InventoryBudget, chassis: Document) -> list[Sensor]:
    return list(chain.from_iterable(map(sensors.of_resource, budget.members((SENSORS,), link(chassis, "Sensors")))))
