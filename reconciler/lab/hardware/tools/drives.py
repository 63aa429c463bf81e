"""lsblk, nvme-cli 2.3, hdparm 9.65, blockdev and od, as far as drives are erased with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reconciler.lab.hardware.lifecycle import HardwareRejected
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import DriveState
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, done, failed, parse_options

FIRMWARE = "GDC7302Q"
_NO_DEVICE = "No such file or directory"
_STARTS = 1 << 29  # "No-Deallocate modifies media", of sanicap
_ERASES = "2min for SECURITY ERASE UNIT. 2min for ENHANCED SECURITY ERASE UNIT."


def _names(machine: Machine) -> dict[str, DriveState]:
    """Return the drives by the names that the kernel gives them."""
    found: dict[str, DriveState] = {}
    for at, drive in enumerate(machine.state.drives):
        found[drive.kernel_name(at)] = drive
    return found


def _drive(call: Call, word: str) -> DriveState | None:
    name = word.removeprefix("/dev/")
    names = _names(call.machine)
    return names.get(name) or names.get(f"{name}n1")


def _lsblk(call: Call) -> Ran:
    columns = parse_options(call.args, {"-o": "o", "--output": "o"})[0].get("o", "NAME").lower().split(",")

    def shown(**values: Any) -> dict[str, Any]:
        return {column: values.get(column) for column in columns}

    devices = []
    for name, drive in _names(call.machine).items():
        transport = "sata" if drive.sata else "nvme"
        common = {"serial": drive.serial, "model": drive.model, "tran": transport}
        entry = shown(name=name, type="disk", size=drive.capacity_bytes, **common)
        if drive.serial == call.machine.state.booted_disk:
            parts = (("1", 1 << 29, "/boot/efi"), ("2", drive.capacity_bytes - (1 << 30), "/"))
            infix = "" if drive.sata else "p"
            entry["children"] = [
                shown(name=f"{name}{infix}{number}", type="part", size=size, mountpoint=mount, tran=transport)
                for number, size, mount in parts
            ]
        devices.append(entry)
    return done(json.dumps({"blockdevices": devices}, indent=3) + "\n")


def _nvme(call: Call) -> Ran:
    if call.args[:1] == ("version",):
        return done("nvme version 2.3 (git 2.3)\nlibnvme version 1.3 (git 1.3)\n")
    if len(call.args) < 2:
        return failed(1, "nvme-2.3\nusage: nvme <command> [<device>] [<args>]\n")
    command, device, *_ = call.args
    drive = _drive(call, device)
    if drive is None or drive.sata:
        return failed(1, f"{device}: {_NO_DEVICE}\n")
    match command:
        case "id-ctrl":
            return done(json.dumps(_id_ctrl(drive), indent=2) + "\n")
        case "get-log":
            return _get_log(call, device, drive)
        case "sanitize":
            return _sanitize(call, drive)
        case "format":
            call.machine.wipe(drive)
            return done("Success formatting namespace:1\n", seconds=20.0)
        case _:
            return failed(1, f"ERROR: Invalid sub-command '{command}'\n")


def _id_ctrl(drive: DriveState) -> dict[str, Any]:
    return {
        "vid": 5197, "ssvid": 5197, "sn": drive.serial.ljust(20), "mn": drive.model.ljust(40), "fr": FIRMWARE,
        "ver": 66560, "oacs": 23, "frmw": 23, "lpa": 14, "sanicap": drive.sanicap | (_STARTS if drive.sanicap else 0),
        "nn": 1, "oncs": 95, "fna": 4, "vwc": 6,
    }  # fmt: skip


def _get_log(call: Call, device: str, drive: DriveState) -> Ran:
    """Print a log as `nvme get-log` dumps it."""
    given, _ = parse_options(call.args[2:], {"--log-id": "id", "-i": "id", "--log-len": "len", "-l": "len"})
    if int(given.get("id", "0"), 0) != 0x81 or not drive.sanicap:
        return failed(1, "NVMe status: Invalid Log Page: The log page indicated is invalid(0x4109)\n")
    log = call.machine.sanitize_log(drive)[: int(given.get("len", "512"), 0)]
    lines = ["     " + "".join(f"{column:3x}" for column in range(16))]
    for at in range(0, len(log), 16):
        row = log[at : at + 16]
        text = "".join(chr(byte) if 33 <= byte <= 126 else "." for byte in row)
        lines.append(f'{at:04x}: {row.hex(" ")} "{text}"')
    head = f"Device:{device.removeprefix('/dev/')} log-id:129 namespace-id:0xffffffff\n"
    return done(head + "\n".join(lines) + "\n")


def _sanitize(call: Call, drive: DriveState) -> Ran:
    given, _ = parse_options(call.args[2:], {"--sanact": "action", "-a": "action"})
    try:
        call.machine.sanitize(drive, int(given.get("action", "0")))
    except HardwareRejected as refused:
        return failed(1, f"NVMe status: {refused.detail}\n")
    return done()


def _hdparm(call: Call) -> Ran:
    if call.args == ("-V",):
        return done("hdparm v9.65\n")
    device = call.args[-1] if call.args else ""
    drive = _drive(call, device)
    if drive is None or not drive.sata:
        return failed(2, f"{device}: {_NO_DEVICE}\n")
    frozen = call.machine.fault("drives_frozen") is not None
    if call.args[0] == "-I":
        return done(_identify(device, drive, frozen=frozen))
    given, _ = parse_options(
        call.args[:-1],
        {"--user-master": "user", "--security-set-pass": "set", "--security-erase": "erase",
         "--security-erase-enhanced": "erase"},
    )  # fmt: skip
    if frozen or ("erase" in given and given["erase"] != drive.password):
        return failed(5, "SECURITY_ERASE: Input/output error\n", stdout=f"\n{device}:\n")
    if "set" in given:
        drive.password = given["set"]
        return done(f'security_password: "{drive.password}"\n\n{device}:\n Issuing SECURITY_SET_PASS command\n')
    drive.sanitizes += 1
    if call.machine.spend_fault("sanitize_fails"):
        return failed(5, "SECURITY_ERASE: Input/output error\n", stdout=f"\n{device}:\n", seconds=60.0)
    drive.password = ""
    call.machine.wipe(drive)
    return done(f"\n{device}:\n Issuing SECURITY_ERASE command\n", seconds=120.0)


def _identify(device: str, drive: DriveState, *, frozen: bool) -> str:
    flags = {"enabled": bool(drive.password), "locked": False, "frozen": frozen, "expired: security count": False}
    lines = [f"\t{'' if on else 'not'}\t{name}\n" for name, on in flags.items()]
    return (
        f"\n{device}:\n\nATA device, with non-removable media\n"
        f"\tModel Number:       {drive.model:<40}\n\tSerial Number:      {drive.serial:<20}\n"
        f"\tFirmware Revision:  {FIRMWARE}\n"
        "Commands/features:\n\tEnabled\tSupported:\n\t   *\tSecurity Mode feature set\n"
        f"Security: \n\tMaster password revision code = 65534\n\t\tsupported\n{''.join(lines)}"
        f"\t\tsupported: enhanced erase\n\t{_ERASES}\nChecksum: correct\n"
    )


def _blockdev(call: Call) -> Ran:
    device = call.args[-1] if call.args else ""
    return done() if _drive(call, device) is not None else failed(1, f"blockdev: cannot open {device}: {_NO_DEVICE}\n")


def _od(call: Call) -> Ran:
    given, others = parse_options(call.args, {"-A": "radix", "-t": "type", "-j": "skip", "-N": "count"})
    device = others[-1]
    drive = _drive(call, device)
    if drive is None:
        return failed(1, f"od: {device}: {_NO_DEVICE}\n")
    if drive.sanitize_status in (2, 3):  # reads end as Sanitize In Progress or Sanitize Failed, until one ends well
        return failed(1, f"od: {device}: Input/output error\n")
    count, skip = int(given["count"]), int(given["skip"])
    data = call.machine.content(drive, skip, count)
    lines = [f" {data[at : at + 16].hex(' ')}\n" for at in range(0, count, 16)]
    return done("".join(lines))


TOOLS: Mapping[str, Tool] = {
    "lsblk": _lsblk,
    "nvme": _nvme,
    "hdparm": _hdparm,
    "blockdev": _blockdev,
    "od": _od,
}
