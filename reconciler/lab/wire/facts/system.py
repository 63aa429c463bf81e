"""Facts of the running system: identity, image, services, sysctls, kernel log."""

from __future__ import annotations

import json
import re
import shlex

from reconciler.lab.hardware.tools import slots
from reconciler.lab.wire.facts.context import FactContext
from reconciler.lab.wire.facts.shell import operands, option
from reconciler.model.gate import CommandResult

_ROW = re.compile(r"ROW[0-9]+=")
_DRIVER_LINES = re.compile(
    r"NVRM|SXid|nvidia|AER|EDAC|Hardware Error|mlx5|amdgpu|EXT4-fs|nvme|md/raid|reconciler-gpu-reset"
)  # the filter in the design


def hostname(context: FactContext) -> CommandResult:
    return CommandResult(0, f"{context.system.hostname}\n")


def kernel(context: FactContext) -> CommandResult:
    return CommandResult(0, f"{context.image.kernel}\n")


def boot_id(context: FactContext) -> CommandResult:
    return CommandResult(0, f"{context.system.boot_id}\n")


def uptime(context: FactContext) -> CommandResult:
    up = context.now - context.system.booted_at
    idle = up * 112 * 0.97  # summed over processors
    return CommandResult(0, f"{up:.2f} {idle:.2f}\n")


def dmi(context: FactContext) -> CommandResult:
    """Print the DMI identity. The kernel prints the UUID in lower case, even if the vendor does not."""
    return CommandResult(0, f"{context.state.serial}\n{context.state.uuid.lower()}\n")


def os_release(context: FactContext) -> CommandResult:
    image = context.image
    ubuntu = (
        'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\n'
        'VERSION="22.04.5 LTS (Jammy Jellyfish)"\nVERSION_CODENAME=jammy\nID=ubuntu\nID_LIKE=debian\n'
        'HOME_URL="https://www.ubuntu.com/"\nSUPPORT_URL="https://help.ubuntu.com/"\n'
        'BUG_REPORT_URL="https://bugs.launchpad.net/ubuntu/"\nUBUNTU_CODENAME=jammy\n'
    )
    ours = f"IMAGE_ID={image.image}\nIMAGE_VERSION={image.version}\n" if image.image else ""
    return CommandResult(0, ubuntu + ours)


def image(context: FactContext) -> CommandResult:
    disk = context.image
    if not disk.image:  # not installed by the reconciler
        return CommandResult(1, "", "cat: /etc/reconciler/image.json: No such file or directory\n")
    return CommandResult(0, json.dumps(slots.record_of(slots.installed_last(context.state)), indent=2) + "\n")


def slot_records(context: FactContext) -> CommandResult:
    """Print the kernel's command line and the records of the slots, and the programs that are missing."""
    records = slots.files(context.state).values()
    missing = [f"lacks {name}\n" for name in context.image.lacks] if records else []
    return CommandResult(0, slots.command_line(context.image) + "".join([*records, *missing]))


def root_disk(context: FactContext) -> CommandResult:
    """Print `lsblk -J -s`: the partition of /, and below it its disk."""
    name, drive = context.root_drive
    disk = {"name": name, "type": "disk", "serial": drive.serial, "wwn": drive.wwn}
    part = {"name": f"{name}p2", "type": "part", "serial": None, "wwn": drive.wwn, "children": [disk]}
    return CommandResult(0, json.dumps({"blockdevices": [part]}, indent=3) + "\n")


def secure_boot(context: FactContext) -> CommandResult:
    return CommandResult(0, f"SecureBoot {'enabled' if context.state.secure_boot else 'disabled'}\n")


def kernel_log(context: FactContext) -> CommandResult:
    """Print the driver's kernel lines. Without a loaded driver there are none, and grep exits with 1."""
    lines = [line for line in context.system.kernel_log if _DRIVER_LINES.search(line)]
    return CommandResult(0 if lines else 1, "".join(f"{line}\n" for line in lines))


def kernel_rows(context: FactContext) -> CommandResult:
    """Print the lines that hold a text which the command exports as ROW1, ROW2 ..., as its awk does."""
    texts = [word.partition("=")[2] for word in shlex.split(context.command) if _ROW.match(word)]
    lines = context.system.kernel_log
    found = [f"{at} {line}" for line in lines for at, text in enumerate(texts, 1) if text in line.lower()]
    return CommandResult(0, "".join(f"{line}\n" for line in (*found, f"== {len(lines)} lines")))


def services(context: FactContext) -> CommandResult:
    """Print `systemctl show` of the named units. One that does not exist is inactive and has no file."""
    wanted = option(context.command, "-p", "--property").split(",")
    units = operands(context.command, "systemctl", valued=frozenset({"-p", "--property"}))
    blocks = []
    for unit in units[1:]:
        name = unit.removesuffix(".service")
        enabled = context.image.services.get(name)
        properties = {
            "Id": f"{name}.service",
            "Names": f"{name}.service",
            "LoadState": "not-found" if enabled is None else "loaded",
            "ActiveState": "active" if context.system.services_active.get(name) else "inactive",
            "UnitFileState": "" if enabled is None else "enabled" if enabled else "disabled",
        }
        blocks.append("".join(f"{key}={value}\n" for key, value in properties.items() if key in wanted))
    return CommandResult(0, "\n".join(blocks))


def sysctls(context: FactContext) -> CommandResult:
    known = context.system.sysctls
    keys = operands(context.command, "sysctl")
    out = "".join(f"{key} = {known[key]}\n" for key in keys if key in known)
    missing = [key.replace(".", "/") for key in keys if key not in known]
    err = "".join(f"sysctl: cannot stat /proc/sys/{key}: No such file or directory\n" for key in missing)
    return CommandResult(255 if missing else 0, out, err)
