"""What the systems and chassis of one BMC hold, as far as the BMC judges it: parts and sensors.

A host's BMC shows more than the host: HGX boards are systems of their own, with chassis for each GPU and NVSwitch, and
a GB200 spreads 236 sensors over 42 chassis of which the system names one.
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
    """`host`: the system that runs the host; `dimms`: its memory modules, which are read already.

    What most depends on comes first, should the budget end: health of parts, then sensors.
    """
    root = tree.session.root()
    harvest = InventoryBudget(tree, survey)
    found = parts.parts("dimm", "", dimms or ())
    for system in _systems(harvest, link(root, "Systems"), host):
        found += _of_system(harvest, system, of_host=system is host)
    for fabric in harvest.members((SWITCHES,), link(root, "Fabrics")):
        found += parts.parts("switch", _id(fabric), harvest.members((SWITCHES,), link(fabric, "Switches")))
    rows: list[tuple[Document, list[Sensor]]] = []
    for chassis in _chassis(harvest, root, host):
        power = harvest.follow((SUPPLIES, SENSORS), chassis, "Power")
        thermal = harvest.follow((FANS, SENSORS), chassis, "Thermal")
        found += parts.parts("chassis", "", [chassis])
        found += _supplies(harvest, chassis, power)
        found += _cooling(harvest, chassis, thermal)
        rows.append((chassis, [*sensors.of_thermal(thermal), *sensors.of_power(power)]))
    readings = [sensors.together(_id(chassis), old, _resources(harvest, chassis)) for chassis, old in rows]
    harvest.close()
    if not rows:
        for name in IN_CHASSIS:
            survey.unknown.setdefault(name, "the BMC lists no chassis")
        return None, tuple(found)
    return tuple(chain.from_iterable(readings)), tuple(found)


def _id(document: Document) -> str:
    return text(document, "Id") or last_segment(str(document.get("@odata.id") or "?"))


def _systems(harvest: InventoryBudget, where: str | None, host: Document) -> list[Document]:
    others = [item for item in harvest.members((SYSTEMS, MEMORY, PROCESSORS), where) if _id(item) != _id(host)]
    return [host, *others]


def _of_system(harvest: InventoryBudget, system: Document, *, of_host: bool) -> list[Part]:
    """The host's own health is read each pass, and its memory modules are known."""
    processors = parts.parts("processor", _id(system), harvest.members((PROCESSORS,), link(system, "Processors")))
    if of_host:
        return processors
    memory = parts.parts("memory", _id(system), harvest.members((MEMORY,), link(system, "Memory")))
    return [*parts.parts("system", "", [system]), *memory, *processors]


def _chassis(harvest: InventoryBudget, root: Document, host: Document) -> list[Document]:
    """All that are listed, and those that the system names beside them."""
    listed = harvest.members(IN_CHASSIS, link(root, "Chassis"))
    known = {_id(item) for item in listed}
    named = [where for where in links(member(host, "Links"), "Chassis") if last_segment(where) not in known]
    beside = (harvest.follow(IN_CHASSIS, {"way": {"@odata.id": where}}, "way") for where in named)
    return [*listed, *filter(None, beside)]


def _supplies(harvest: InventoryBudget, chassis: Document, power: Document) -> Sequence[Part]:
    subsystem = harvest.follow((SUPPLIES,), chassis, "PowerSubsystem")
    listed = harvest.members((SUPPLIES,), link(subsystem, "PowerSupplies"))
    old = parts.parts("power_supply", _id(chassis), objects(power, "PowerSupplies"))
    return parts.better(parts.parts("power_supply", _id(chassis), listed), old)


def _cooling(harvest: InventoryBudget, chassis: Document, thermal: Document) -> list[Part]:
    subsystem = harvest.follow((FANS, LEAKS), chassis, "ThermalSubsystem")
    listed = parts.parts("fan", _id(chassis), harvest.members((FANS,), link(subsystem, "Fans")))
    old = parts.parts("fan", _id(chassis), objects(thermal, "Fans"))
    detection = harvest.follow((LEAKS,), subsystem, "LeakDetection")
    detectors = harvest.members((LEAKS,), link(detection, "LeakDetectors"))
    leaks = parts.parts("leak_detector", _id(chassis), detectors, parts.leak)
    return [*parts.better(listed, old), *leaks]


def _resources(harvest: InventoryBudget, chassis: Document) -> list[Sensor]:
    return list(chain.from_iterable(map(sensors.of_resource, harvest.members((SENSORS,), link(chassis, "Sensors")))))
