"""What the running system says about itself: identity, image, services, sysctls, kernel log."""

from __future__ import annotations

import json
import re

from reconciler.lab.wire.facts.question import Question
from reconciler.lab.wire.facts.shell import operands, option
from reconciler.model.gate import CommandResult

_DRIVER_LINES = re.compile(r"NVRM|SXid|nvidia-nvswitch|AER|EDAC|Hardware Error|mlx5")  # the filter of the contract


def hostname(asked: Question) -> CommandResult:
    return CommandResult(0, f"{asked.system.hostname}\n")


def kernel(asked: Question) -> CommandResult:
    return CommandResult(0, f"{asked.image.kernel}\n")


def boot_id(asked: Question) -> CommandResult:
    return CommandResult(0, f"{asked.system.boot_id}\n")


def uptime(asked: Question) -> CommandResult:
    up = asked.now - asked.system.booted_at
    idle = up * 112 * 0.97  # summed over processors
    return CommandResult(0, f"{up:.2f} {idle:.2f}\n")


def dmi(asked: Question) -> CommandResult:
    """The kernel prints the UUID in lower case, whatever the vendor does."""
    return CommandResult(0, f"{asked.state.serial}\n{asked.state.uuid.lower()}\n")


def os_release(asked: Question) -> CommandResult:
    image = asked.image
    ubuntu = (
        'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\n'
        'VERSION="22.04.5 LTS (Jammy Jellyfish)"\nVERSION_CODENAME=jammy\nID=ubuntu\nID_LIKE=debian\n'
        'HOME_URL="https://www.ubuntu.com/"\nSUPPORT_URL="https://help.ubuntu.com/"\n'
        'BUG_REPORT_URL="https://bugs.launchpad.net/ubuntu/"\nUBUNTU_CODENAME=jammy\n'
    )
    ours = f"IMAGE_ID={image.image}\nIMAGE_VERSION={image.version}\n" if image.image else ""
    return CommandResult(0, ubuntu + ours)


def image(asked: Question) -> CommandResult:
    disk = asked.image
    if not disk.image:  # nothing that we installed
        return CommandResult(1, "", "cat: /etc/reconciler/image.json: No such file or directory\n")
    document = {key: getattr(disk, key) for key in ("image", "version", "sha256", "root_disk", "nonce")}
    return CommandResult(0, json.dumps(document, indent=2) + "\n")


def root_disk(asked: Question) -> CommandResult:
    """lsblk -J -s: the partition that / is on, and below it the disk that it is a part of."""
    name, drive = asked.root_drive
    disk = {"name": name, "type": "disk", "serial": drive.serial, "wwn": drive.wwn}
    part = {"name": f"{name}p2", "type": "part", "serial": None, "wwn": drive.wwn, "children": [disk]}
    return CommandResult(0, json.dumps({"blockdevices": [part]}, indent=3) + "\n")


def secure_boot(asked: Question) -> CommandResult:
    return CommandResult(0, f"SecureBoot {'enabled' if asked.state.secure_boot else 'disabled'}\n")


def kernel_log(asked: Question) -> CommandResult:
    """Of a kernel whose driver did not load there is no line, and grep then exits with 1."""
    lines = [line for line in asked.system.kernel_log if _DRIVER_LINES.search(line)]
    return CommandResult(0 if lines else 1, "".join(f"{line}\n" for line in lines))


def services(asked: Question) -> CommandResult:
    """systemctl show of the units that the command names; one that does not exist is inactive and has no file."""
    wanted = option(asked.command, "-p", "--property").split(",")
    units = operands(asked.command, "systemctl", valued=frozenset({"-p", "--property"}))
    blocks = []
    for unit in units[1:]:
        name = unit.removesuffix(".service")
        enabled = asked.image.services.get(name)
        properties = {
            "Id": f"{name}.service",
            "Names": f"{name}.service",
            "LoadState": "not-found" if enabled is None else "loaded",
            "ActiveState": "active" if asked.system.services_active.get(name) else "inactive",
            "UnitFileState": "" if enabled is None else "enabled" if enabled else "disabled",
        }
        blocks.append("".join(f"{key}={value}\n" for key, value in properties.items() if key in wanted))
    return CommandResult(0, "\n".join(blocks))


def sysctls(asked: Question) -> CommandResult:
    known = asked.system.sysctls
    keys = operands(asked.command, "sysctl")
    out = "".join(f"{key} = {known[key]}\n" for key in keys if key in known)
    missing = [key.replace(".", "/") for key in keys if key not in known]
    err = "".join(f"sysctl: cannot stat /proc/sys/{key}: No such file or directory\n" for key in missing)
    return CommandResult(255 if missing else 0, out, err)
