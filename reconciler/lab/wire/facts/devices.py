"""Network, RDMA and NVMe devices, as ip, sysfs and nvme-cli show them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from reconciler.lab.hardware.error_counters import OF_HARDWARE, error_counters, module_alarms
from reconciler.lab.hardware.host_network import interface
from reconciler.lab.hardware.parts import dimm_errors as shown_dimm_errors
from reconciler.lab.hardware.state import SPARE_THRESHOLD, DriveState, NicState
from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.gate import CommandResult

LOOPBACK = {
    "ifindex": 1,
    "ifname": "lo",
    "flags": ["LOOPBACK", "UP", "LOWER_UP"],
    "mtu": 65536,
    "qdisc": "noqueue",
    "operstate": "UNKNOWN",
    "linkmode": "DEFAULT",
    "group": "default",
    "txqlen": 1000,
    "link_type": "loopback",
    "address": "00:00:00:00:00:00",
    "broadcast": "00:00:00:00:00:00",
}
_AER = {
    "aer_corrected": ("correctable", "COR"),
    "aer_nonfatal": ("nonfatal", "NONFATAL"),
    "aer_fatal": ("fatal", "FATAL"),
}
# As mlx5 names them in `ethtool -S`.
_STATISTICS = {
    "fcs_errors": "rx_crc_errors_phy",
    "fec_uncorrected": "rx_pcs_symbol_err_phy",
    "module_hot": "module_high_temp",
    "module_shorted": "module_bad_shorted",
}
_GENERATIONS = {100.0: "4X EDR", 200.0: "4X HDR", 400.0: "4X NDR", 800.0: "4X XDR"}


def links(context: FactContext) -> CommandResult:
    """Print `ip -j link`: the Ethernet ports, and the IPoIB interfaces of the RDMA ports, which are InfiniBand here."""
    rows = [LOOPBACK, *(_link(at, nic) for at, nic in enumerate(context.state.nics, start=2))]
    return CommandResult(0, json.dumps(rows, separators=(",", ":")) + "\n")


def _link(index: int, nic: NicState) -> dict[str, object]:
    return {
        "ifindex": index,
        "ifname": interface(nic),
        "flags": ["BROADCAST", "MULTICAST", "UP", *(["LOWER_UP"] if nic.up else ["NO-CARRIER"])],
        "mtu": 4092 if nic.rdma else 1500,
        "qdisc": "mq",
        "operstate": "UP" if nic.up else "DOWN",
        "linkmode": "DEFAULT",
        "group": "default",
        "txqlen": 256 if nic.rdma else 1000,
        "link_type": "infiniband" if nic.rdma else "ether",
        "address": nic.mac.lower(),
        "broadcast": "ff:ff:ff:ff:ff:ff",
    }


def rdma(context: FactContext) -> CommandResult:
    """Print one line per port, from state, phys_state, rate and link_layer below /sys/class/infiniband."""
    return CommandResult(0, "".join(f"{_port(nic)}\n" for nic in context.state.nics if nic.rdma))


def _port(nic: NicState) -> str:
    if not nic.up:
        return f"{nic.name} 1 1: DOWN | 2: Polling | 10 Gb/sec (4X SDR) | InfiniBand"
    generation = _GENERATIONS.get(nic.trained_gbps, "4X")
    return f"{nic.name} 1 4: ACTIVE | 5: LinkUp | {nic.trained_gbps:g} Gb/sec ({generation}) | InfiniBand"


def nvme(context: FactContext) -> CommandResult:
    """Print `nvme smart-log -o json` of each drive, after a line with its name."""
    blocks = [
        f"== /dev/{name} {drive.serial} {drive.model}\n{json.dumps(_smart(drive), indent=2) if drive.smart else ''}\n"
        for name, drive in context.drives
        if not drive.sata
    ]
    return CommandResult(0, "".join(blocks))


def disks(context: FactContext) -> CommandResult:
    """Print `smartctl -j -i -H -A` of each SATA drive, after a line with its name; smartctl 7.3's fields."""
    blocks = [
        f"== /dev/{name}\n{json.dumps(_report(name, drive), indent=2) if drive.smart else ''}\n"
        for name, drive in context.drives
        if drive.sata
    ]
    return CommandResult(0, "".join(blocks))


def dimm_errors(context: FactContext) -> CommandResult:
    """Print the modules with errors, and how many EDAC counts for."""
    rows = [f"{one.place} {one.corrected} {one.uncorrected} {one.label}\n" for one in shown_dimm_errors(context.state)]
    return CommandResult(0, "".join(rows) + f"== {context.state.dimms} modules\n")


def dimm_records(context: FactContext) -> CommandResult:
    """Print what rasdaemon has recorded, as our command sums it up: corrected errors by the hour."""
    now, booted = int(context.now), int(context.system.booted_at)
    rows = Counter(
        f"{datetime.fromtimestamp(at // 3600 * 3600 if kind == 'Corrected' else at, UTC):%Y-%m-%d %H:%M:%S %z} "
        f"{count} {kind} {place} {label}"
        for at, label, place, kind, count in context.image.memory_errors
    )
    lines = [f"{times:7} {row}\n" for row, times in sorted(rows.items())]
    return CommandResult(0, f"now {now} up {now - booted}\n{''.join(lines)}== {rows.total()} records\n")


def counters(context: FactContext) -> CommandResult:
    """Print the counters that are not zero, as grep finds them in sysfs."""
    found = error_counters(context.state, context.now)
    lines = [f"{path}{value}\n" for device, of_it in found.items() for path, value in _files(device, of_it)]
    return CommandResult(0, "".join(lines) + "== read\n")


def modules(context: FactContext) -> CommandResult:
    """Print the alarms that are on as `ethtool -m` does for an SFP, of the ports that had trouble."""
    found = module_alarms(context.state).items()
    lines = [f"== {interface}\n" + "".join(f"\t{one:<41} : On\n" for one in alarms) for interface, alarms in found]
    return CommandResult(0, "".join(lines))


def _files(device: str, counters: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for name, value in counters.items():
        if name in _AER:
            file, total = _AER[name]
            yield f"bus/pci/devices/{device}/aer_dev_{file}:TOTAL_ERR_{total} ", value
        elif name in _STATISTICS:
            yield f"ethtool/{device}/{_STATISTICS[name]}:", value
        elif name == "carrier_downs":
            yield f"class/net/{device}/device/net/{device}/carrier_down_count:", value
        else:
            adapter, _, port = device.partition("/")
            folder = "hw_counters" if name in OF_HARDWARE else "counters"
            yield f"class/infiniband/{adapter}/ports/{port}/{folder}/{name}:", value


def _report(name: str, drive: DriveState) -> dict[str, object]:
    return {
        "json_format_version": [1, 0],
        "device": {"name": f"/dev/{name}", "info_name": f"/dev/{name} [SAT]", "type": "sat", "protocol": "ATA"},
        "model_name": drive.model,
        "serial_number": drive.serial,
        "smart_support": {"available": True, "enabled": True},
        "smart_status": {"passed": not drive.critical_warning},
        "ata_smart_attributes": {
            "revision": 1,
            "table": [
                {"id": number, "name": label, "raw": {"value": count, "string": str(count)}}
                for number, label, count in (
                    (5, "Reallocated_Sector_Ct", 0),
                    (197, "Current_Pending_Sector", drive.media_errors),
                    (198, "Offline_Uncorrectable", 0),
                )
            ],
        },
    }


def _smart(drive: DriveState) -> dict[str, int]:
    return {
        "critical_warning": drive.critical_warning,
        "temperature": 309,
        "avail_spare": drive.available_spare,
        "spare_thresh": SPARE_THRESHOLD,
        "percent_used": drive.percentage_used,
        "endurance_grp_critical_warning_summary": 0,
        "data_units_read": 178037231,
        "data_units_written": 92868348,
        "host_read_commands": 5808178366,
        "host_write_commands": 2427350778,
        "controller_busy_time": 6954,
        "power_cycles": 99,
        "power_on_hours": 12424,
        "unsafe_shutdowns": 49,
        "media_errors": drive.media_errors,
        "num_err_log_entries": drive.media_errors,
        "warning_temp_time": 0,
        "critical_comp_time": 0,
        "temperature_sensor_1": 309,
        "thm_temp1_trans_count": 0,
        "thm_temp2_trans_count": 0,
        "thm_temp1_total_time": 0,
        "thm_temp2_total_time": 0,
    }
