"""The chassis: temperatures, fans and power, also as sensors; network adapters."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.lab.hardware import parts
from reconciler.lab.hardware.parts import DETECTORS as DETECTED
from reconciler.lab.hardware.parts import FANS, SUPPLIES, critical, supply_serial
from reconciler.lab.hardware.state import MachineState
from reconciler.lab.wire.redfish_protocol import (
    CHASSIS,
    MANAGER,
    ROOT,
    SYSTEM,
    Bmc,
    Document,
    Resource,
    Routes,
    collection,
    link,
    odata,
    status,
)
from reconciler.lab.wire.redfish_system import health

THERMAL = f"{CHASSIS}/Thermal"
POWER = f"{CHASSIS}/Power"
SENSORS = f"{CHASSIS}/Sensors"
ADAPTERS = f"{CHASSIS}/NetworkAdapters"
COOLING = f"{CHASSIS}/ThermalSubsystem"
LEAKS = f"{COOLING}/LeakDetection"
DETECTORS = f"{LEAKS}/LeakDetectors"


@dataclass(frozen=True, slots=True)
class Reading:
    """One sensor. `standby`: it also reads while the machine is off. `limit`: its critical threshold."""

    id: str
    kind: str  # Temperature | Rotational | Power | Voltage, values of Sensor.ReadingType
    unit: str
    value: float
    limit: float | None = None
    standby: bool = False


def readings(state: MachineState) -> list[Reading]:
    """Return this machine's sensors. Their values are constant, so that a lab's reports do not change between runs."""
    cpus = [Reading(f"CPU{n + 1}_Temp", "Temperature", "Cel", 48, 99) for n in range(state.processors)]
    gpus = [Reading(f"GPU{gpu.index + 1}_Temp", "Temperature", "Cel", 41, 92) for gpu in state.gpus if not gpu.lost]
    fans = [Reading(f"FAN{n + 1}", "Rotational", "RPM", 8400) for n in range(FANS)]
    volts = [Reading("12V", "Voltage", "V", 12.1), Reading("5VSB", "Voltage", "V", 5.1, standby=True)]
    inlet = Reading("Inlet_Temp", "Temperature", "Cel", parts.inlet(state)[0], 42, standby=True)
    return [inlet, *cpus, *gpus, *fans, *volts, Reading("PowerConsumption", "Power", "W", _watts(state), standby=True)]


def _watts(state: MachineState) -> float:
    return 45.0 if state.power == "off" else 900.0 + 130.0 * len(state.gpus)


def _value(bmc: Bmc, reading: Reading) -> float | None:
    return reading.value if reading.standby or bmc.state.power != "off" else None


def _status(bmc: Bmc, reading: Reading) -> Document:
    value = _value(bmc, reading)
    if value is None:
        return status(None, "UnavailableOffline")
    return status("Critical" if reading.limit is not None and value >= reading.limit else "OK")


def _chassis(bmc: Bmc, _: str) -> Document:
    serial, _uuid = bmc.machine.shown_identity
    return odata(CHASSIS, "Chassis.v1_14_0", "Computer System Chassis") | {
        "ChassisType": "RackMount",
        "Manufacturer": bmc.state.manufacturer,
        "Model": bmc.state.model,
        "SerialNumber": serial,
        "PartNumber": bmc.state.model,
        "AssetTag": None,
        "IndicatorLED": "Off",
        "PowerState": "Off" if bmc.state.power == "off" else "On",
        "Status": status("Critical" if parts.critical(bmc.state, "board", 0) else "OK")
        | {"HealthRollup": health(bmc.state)},
        "Thermal": link(THERMAL),
        "ThermalSubsystem": link(COOLING),
        "Power": link(POWER),
        "Sensors": link(SENSORS),
        "NetworkAdapters": link(ADAPTERS),
        "Links": {
            "ComputerSystems": [link(SYSTEM)],
            "ManagedBy": [link(MANAGER)],
            "ManagersInChassis": [link(MANAGER)],
        },
    }


def _thermal(bmc: Bmc, _: str) -> Document:
    entries: dict[str, list[Document]] = {"Temperatures": [], "Fans": []}
    for reading in readings(bmc.state):
        group = {"Temperature": "Temperatures", "Rotational": "Fans"}.get(reading.kind)
        if group is None:
            continue
        at = len(entries[group])
        entry: Document = {
            "@odata.id": f"{THERMAL}#/{group}/{at}",
            "MemberId": str(at),
            "Name": reading.id.replace("_", " "),
            "Status": _status(bmc, reading),
        }
        if group == "Fans":
            entry["Status"] = _part(bmc, "fan", at, entry["Status"])
            entry |= {"Reading": _value(bmc, reading), "ReadingUnits": "RPM", "LowerThresholdCritical": 300}
        else:
            entry |= {"ReadingCelsius": _value(bmc, reading), "UpperThresholdCritical": reading.limit}
        entries[group].append(entry)
    return odata(THERMAL, "Thermal.v1_6_2", "Thermal") | entries


def _power(bmc: Bmc, _: str) -> Document:
    watts = _watts(bmc.state)
    volts = [reading for reading in readings(bmc.state) if reading.kind == "Voltage"]
    return odata(POWER, "Power.v1_6_1", "Power") | {
        "PowerControl": [
            {
                "@odata.id": f"{POWER}#/PowerControl/0",
                "MemberId": "0",
                "Name": "System Power Control",
                "PowerConsumedWatts": watts,
                "PowerCapacityWatts": 3000 * SUPPLIES,
                "Status": status(),
            }
        ],
        "Voltages": [
            {
                "@odata.id": f"{POWER}#/Voltages/{at}",
                "MemberId": str(at),
                "Name": reading.id,
                "ReadingVolts": _value(bmc, reading),
                "Status": _status(bmc, reading),
            }
            for at, reading in enumerate(volts)
        ],
        "PowerSupplies": [
            {
                "@odata.id": f"{POWER}#/PowerSupplies/{at}",
                "MemberId": str(at),
                "Name": f"Power Supply Bay {at + 1}",
                "PowerSupplyType": "AC",
                "LineInputVoltage": 240,
                "PowerInputWatts": round(watts / SUPPLIES),
                "PowerCapacityWatts": 3000,
                "Model": "PWS-3K06G-2R",
                "SerialNumber": supply_serial(bmc.state, at),
                "Status": _part(bmc, "psu", at, status()),
            }
            for at in range(SUPPLIES)
        ],
    }


def _part(bmc: Bmc, kind: str, at: int, well: Document) -> Document:
    return status("Critical") if critical(bmc.state, kind, at) else well


def _cooling(_bmc: Bmc, _: str) -> Document:
    """Return the thermal subsystem of a liquid-cooled GB200: no fans, but leak detectors."""
    return odata(COOLING, "ThermalSubsystem.v1_3_0", "Thermal Subsystem") | {
        "LeakDetection": link(LEAKS),
        "Status": status(),
    }


def _leaks(_bmc: Bmc, _: str) -> Document:
    return odata(LEAKS, "LeakDetection.v1_0_0", "Leak Detection Systems") | {
        "LeakDetectors": link(DETECTORS),
        "Status": status(),
    }


def _detector_ids(_: Bmc) -> list[str]:
    return [f"LeakDetector_{at}" for at in range(DETECTED)]


def _detector(bmc: Bmc, id_: str) -> Document | None:
    if id_ not in _detector_ids(bmc):
        return None
    leaks = critical(bmc.state, "leak", int(id_.rsplit("_", 1)[1]))
    return odata(f"{DETECTORS}/{id_}", "LeakDetector.v1_1_0", id_.replace("_", " ")) | {
        "LeakDetectorType": "Moisture",
        "DetectorState": "Critical" if leaks else "OK",
        "Status": status("Critical", "Degraded") if leaks else status(),
    }


def _sensor(bmc: Bmc, id_: str) -> Document | None:
    reading = next((reading for reading in readings(bmc.state) if reading.id == id_), None)
    if reading is None:
        return None
    document = odata(f"{SENSORS}/{id_}", "Sensor.v1_1_1", id_.replace("_", " ")) | {
        "ReadingType": reading.kind,
        "Reading": _value(bmc, reading),
        "ReadingUnits": reading.unit,
        "Status": _status(bmc, reading),
    }
    return document | ({"Thresholds": {"UpperCritical": {"Reading": reading.limit}}} if reading.limit else {})


def _adapter_ids(bmc: Bmc) -> list[str]:
    return [nic.name for nic in bmc.state.nics if nic.rdma]


def _adapter(bmc: Bmc, id_: str) -> Document | None:
    if id_ not in _adapter_ids(bmc):
        return None
    on = bmc.state.power != "off"
    controller: Document = {"NetworkPortCount": 1}
    firmware = next((item.version for item in bmc.state.firmware.values() if item.component.startswith("nic")), None)
    if on and firmware is not None:  # A10: without power the firmware can't be read
        controller["FirmwarePackageVersion"] = firmware
    return odata(f"{ADAPTERS}/{id_}", "NetworkAdapter.v1_9_0", "Network Adapter") | {
        "Manufacturer": "NVIDIA",
        "Model": "ConnectX-7",
        "Controllers": [{"ControllerCapabilities": {"NetworkPortCount": 1}} | controller],
        "Status": status() if on else status(None, "UnavailableOffline"),
    }


ROUTES: Routes = {
    f"{ROOT}/Chassis": Resource(get=collection(f"{ROOT}/Chassis", "Chassis", "Chassis Collection", lambda _: ["1"])),
    CHASSIS: Resource(get=_chassis),
    THERMAL: Resource(get=_thermal),
    POWER: Resource(get=_power),
    COOLING: Resource(get=_cooling),
    LEAKS: Resource(get=_leaks),
    DETECTORS: Resource(get=collection(DETECTORS, "LeakDetector", "Leak Detector Collection", _detector_ids)),
    f"{DETECTORS}/*": Resource(get=_detector),
    SENSORS: Resource(
        get=collection(SENSORS, "Sensor", "Sensor Collection", lambda bmc: [r.id for r in readings(bmc.state)])
    ),
    f"{SENSORS}/*": Resource(get=_sensor),
    ADAPTERS: Resource(get=collection(ADAPTERS, "NetworkAdapter", "Network Adapter Collection", _adapter_ids)),
    f"{ADAPTERS}/*": Resource(get=_adapter),
}
