"""Parts of the system: processors, GPUs, memory, network ports, drives."""

from __future__ import annotations

from reconciler.lab.hardware import parts
from reconciler.lab.hardware.state import GpuState, MachineState, NicState
from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import (
    CHASSIS,
    SYSTEM,
    Bmc,
    Document,
    Reply,
    Resource,
    Routes,
    collection,
    link,
    odata,
    status,
)
from reconciler.lab.wire.redfish_update import TASKS, task_document

PROCESSORS = f"{SYSTEM}/Processors"
MEMORY = f"{SYSTEM}/Memory"
ETHERNET = f"{SYSTEM}/EthernetInterfaces"
STORAGE = f"{SYSTEM}/Storage"
DRIVES = f"{STORAGE}/1/Drives"


def _state(bmc: Bmc) -> Document:
    """Return the State of a part that is readable only while the machine is on."""
    return status() if bmc.state.power != "off" else status(None, "UnavailableOffline")


# --- processors and GPUs ---


def _processor_ids(bmc: Bmc) -> list[str]:
    cpus = [str(number + 1) for number in range(parts.processors(bmc.state))]
    return cpus + [f"GPU{gpu.index + 1}" for gpu in bmc.state.gpus]


def _processor(bmc: Bmc, id_: str) -> Document | None:
    if id_ not in _processor_ids(bmc):
        return None
    if id_.startswith("GPU"):
        return _gpu(bmc, bmc.state.gpus[int(id_[3:]) - 1])
    return odata(f"{PROCESSORS}/{id_}", "Processor.v1_10_0", "Processor") | {
        "ProcessorType": "CPU",
        "ProcessorArchitecture": "x86",
        "InstructionSet": "x86-64",
        "Socket": f"CPU{id_}",
        "Manufacturer": "Intel(R) Corporation",
        "Model": "Intel(R) Xeon(R) Platinum 8480+",
        "MaxSpeedMHz": 3800,
        "TotalCores": 56,
        "TotalThreads": 112,
        "Status": _state(bmc),
    }


def _gpu(bmc: Bmc, gpu: GpuState) -> Document:
    lost = bmc.state.power != "off" and gpu.lost
    return odata(f"{PROCESSORS}/GPU{gpu.index + 1}", "Processor.v1_13_0", "Processor") | {
        "ProcessorType": "GPU",
        "Manufacturer": "NVIDIA",
        "Model": gpu.name.removeprefix("NVIDIA "),
        "SerialNumber": gpu.serial,
        "UUID": gpu.uuid.removeprefix("GPU-"),
        "FirmwareVersion": gpu.vbios,
        "Location": {"PartLocation": {"LocationType": "Embedded", "ServiceLabel": f"SXM{gpu.index + 1}"}},
        "Status": status("Critical", "Absent") if lost else _state(bmc),
    }


# --- memory ---


def _dimm(bmc: Bmc, id_: str) -> Document | None:
    state = bmc.state
    if not id_.isdigit() or not 1 <= int(id_) <= state.dimms:
        return None
    locator = f"P{1 + (int(id_) - 1) * 2 // max(state.dimms, 1)}-DIMM{id_}"
    return odata(f"{MEMORY}/{id_}", "Memory.v1_11_0", "Memory") | {
        "CapacityMiB": state.memory_bytes // state.dimms // 2**20,
        "DeviceLocator": locator,
        "MemoryType": "DRAM",
        "MemoryDeviceType": "DDR5",
        "BaseModuleType": "RDIMM",
        "BusWidthBits": 80,
        "DataWidthBits": 64,
        "RankCount": 2,
        "ErrorCorrection": "SingleBitECC",
        "OperatingSpeedMhz": 4800,
        "Manufacturer": "Samsung",
        "PartNumber": "M321R8GA0BB0-CQKZJ",
        "SerialNumber": parts.dimm_serial(state, int(id_)),
        "Location": {"PartLocation": {"ServiceLabel": locator, "LocationType": "Slot"}},
        "Status": _dimm_status(state, int(id_) - 1),
    }


def _dimm_status(state: MachineState, at: int) -> Document:
    """Return the status of a DIMM. An empty slot stays listed with the data of its last module (acceptance 7)."""
    if parts.missing(state, "dimm", at):
        return status("Critical", "Absent")
    return status("Critical" if parts.critical(state, "dimm", at) else "OK")


# --- network ---


def _interfaces(bmc: Bmc) -> list[NicState]:
    return parts.listed_nics(bmc.state)


def _ethernet(bmc: Bmc, id_: str) -> Document | None:
    nic = next((nic for nic in _interfaces(bmc) if nic.name == id_), None)
    if nic is None:
        return None
    up = nic.up and bmc.state.power != "off"
    return odata(f"{ETHERNET}/{id_}", "EthernetInterface.v1_6_3", "Ethernet Interface") | {
        "MACAddress": nic.mac,
        "PermanentMACAddress": nic.mac,
        "InterfaceEnabled": True,
        "LinkStatus": "LinkUp" if up else "LinkDown",
        "SpeedMbps": round(nic.rate_gbps * 1000) if up else None,
        "FullDuplex": True,
        "Status": _state(bmc),
    }


# --- storage ---


def _storage(bmc: Bmc, id_: str) -> Document | None:
    if id_ != "1":
        return None
    drives = [link(f"{DRIVES}/{drive.id}") for drive in parts.listed_drives(bmc.state)]
    return odata(f"{STORAGE}/1", "Storage.v1_10_1", "NVMe Storage") | {
        "Status": _state(bmc),
        "Drives@odata.count": len(drives),
        "Drives": drives,
        "StorageControllers": [
            {
                "@odata.id": f"{STORAGE}/1#/StorageControllers/0",
                "MemberId": "0",
                "Name": "NVMe Controller",
                "SupportedDeviceProtocols": ["NVMe"],
                "Status": _state(bmc),
            }
        ],
        "Links": {"Enclosures": [link(CHASSIS)]},
    }


def _drive(bmc: Bmc, id_: str) -> Document | None:
    drive = next((drive for drive in parts.listed_drives(bmc.state) if drive.id == id_), None)
    if drive is None:
        return None
    sick = bmc.state.power != "off" and drive.media_errors
    failed = parts.critical(bmc.state, "drive", bmc.state.drives.index(drive))
    durable = drive.wwn.removeprefix("eui.").removeprefix("0x")
    target = f"{DRIVES}/{id_}/Actions/Drive.SecureErase"
    return odata(f"{DRIVES}/{id_}", "Drive.v1_11_1", id_) | {
        "Actions": {"#Drive.SecureErase": {"target": target}} if drive.bmc_erases else {},
        "Manufacturer": drive.model.split(" ")[0],
        "Model": drive.model,
        "SerialNumber": drive.serial,
        "CapacityBytes": drive.capacity_bytes,
        "MediaType": "SSD",
        "Protocol": "NVMe",
        "PredictedMediaLifeLeftPercent": 100 - drive.percentage_used,
        "FailurePredicted": failed or parts.predicted(bmc.state, "drive", bmc.state.drives.index(drive)),
        "Identifiers": [{"DurableName": durable, "DurableNameFormat": "EUI" if "eui." in drive.wwn else "NAA"}],
        "Links": {"Chassis": link(CHASSIS)},
        "Status": status("Critical") if failed else status("Warning") if sick else _state(bmc),
    }


def _secure_erase(bmc: Bmc, id_: str, _body: Document) -> Reply:
    drive = next((drive for drive in parts.listed_drives(bmc.state) if drive.id == id_), None)
    if drive is None or not drive.bmc_erases:
        raise Refusal("ResourceMissingAtURI", f"{DRIVES}/{id_}")
    number = bmc.machine.secure_erase(drive.serial)
    return Reply(202, task_document(bmc, bmc.state.tasks[number]), {"Location": f"{TASKS}/{number}"})


ROUTES: Routes = {
    PROCESSORS: Resource(get=collection(PROCESSORS, "Processor", "Processors Collection", _processor_ids)),
    f"{PROCESSORS}/*": Resource(get=_processor),
    MEMORY: Resource(
        get=collection(
            MEMORY, "Memory", "Memory Collection", lambda bmc: [str(at + 1) for at in range(bmc.state.dimms)]
        )
    ),
    f"{MEMORY}/*": Resource(get=_dimm),
    ETHERNET: Resource(
        get=collection(
            ETHERNET,
            "EthernetInterface",
            "Ethernet Interface Collection",
            lambda bmc: [nic.name for nic in _interfaces(bmc)],
        )
    ),
    f"{ETHERNET}/*": Resource(get=_ethernet),
    STORAGE: Resource(get=collection(STORAGE, "Storage", "Storage Collection", lambda _: ["1"])),
    f"{STORAGE}/*": Resource(get=_storage),
    f"{DRIVES}/*": Resource(get=_drive),
    f"{DRIVES}/*/Actions/Drive.SecureErase": Resource(post=_secure_erase),
}
