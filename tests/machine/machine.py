"""The machine: QEMU with OVMF, a disk, a network card and a TPM, as libvirt runs it under software emulation."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tests.machine.bmc import DRIVE_SERIAL, OVMF, virsh
from tests.machine.console import Console
from tests.machine.namespace import BRIDGE

NAME = "gpu-v001"
UUID = "5a0e1f2c-1111-4222-8333-000000000011"
SERIAL = "SN-V001"
MAC = "52:54:00:77:00:11"
ADDRESS = "10.77.0.11"
DISK_BYTES = 8 << 30
SECTOR = 512
_SLOTS = ("root-", "verity-")

# Secure Boot is on from the first start, with our key alone in the firmware's variables.
_DOMAIN = """\
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
 <name>{name}</name><uuid>{uuid}</uuid>
 <memory unit='MiB'>2048</memory><vcpu>2</vcpu>
 <sysinfo type='smbios'>
  <system>
   <entry name='manufacturer'>QEMU</entry><entry name='product'>machine</entry>
   <entry name='serial'>{serial}</entry><entry name='uuid'>{uuid}</entry>
  </system>
 </sysinfo>
 <os>
  <type arch='x86_64' machine='q35'>hvm</type>
  <loader readonly='yes' type='pflash' secure='yes'>{ovmf}/OVMF_CODE_4M.secboot.fd</loader>
  <nvram template='{variables}'>{home}/vars.fd</nvram>
  <smbios mode='sysinfo'/>
 </os>
 <features><acpi/><smm state='on'/></features>
 <cpu mode='custom'><model>qemu64</model><feature policy='require' name='rdrand'/></cpu>
 <clock offset='utc'/>
 <on_reboot>restart</on_reboot><on_poweroff>destroy</on_poweroff><on_crash>destroy</on_crash>
 <devices>
  <emulator>/usr/bin/qemu-system-x86_64</emulator>
  <controller type='scsi' index='0' model='virtio-scsi'/>
  {disks}
  <interface type='bridge'>
   <mac address='{mac}'/><source bridge='{bridge}'/><model type='virtio'/><rom enabled='no'/>
  </interface>
  <serial type='file'><source path='{console}' append='on'/><target type='isa-serial' port='0'/></serial>
  <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>
 </devices>
 {nvme}
</domain>
"""
_DISK = """\
<disk type='file' device='disk'>
 <driver name='qemu' type='raw' cache='unsafe' discard='unmap'/><source file='{file}'/>
 <target dev='{device}' bus='scsi'/><serial>{serial}</serial>{boot}
</disk>"""

_NVME = """\
 <qemu:arg value='-drive'/><qemu:arg value='file={file},if=none,id=nvme{number},format=raw,cache=unsafe,discard=unmap'/>
 <qemu:arg value='-device'/><qemu:arg value='nvme,serial={serial},drive=nvme{number},bootindex={at},addr={at:#x}'/>
"""
_FIRST_PLACE = 0x10  # on the bus, and in the boot order


def second_drive(home: Path) -> Path:
    """Return the file of the second NVMe drive, which is there while the machine has it."""
    return home / "nvme1.raw"


@dataclass(frozen=True)
class Machine:
    """One machine, whose files are in `home`."""

    home: Path
    variables: Path  # of the firmware, as the machine is delivered
    console: Console

    @property
    def disk(self) -> Path:
        return self.home / "disk.raw"

    @property
    def firmware(self) -> Path:
        """The firmware's variables, once the machine was on."""
        return self.home / "vars.fd"

    @property
    def nvme(self) -> tuple[Path, Path]:
        """The files of two NVMe drives. Those that the machine has are there."""
        return self.home / "nvme0.raw", second_drive(self.home)

    def build(self, disks: int = 1, serial: str = DRIVE_SERIAL, nvme: Sequence[str] = ()) -> None:
        """Make the machine anew, off, with empty disks of this serial number. The BMC tells its own.

        `nvme`: serial numbers of the NVMe drives that it has, too: two at most. libvirt knows none.
        """
        entries = []
        for file in self.nvme:
            file.unlink(missing_ok=True)
        for file, _ in zip(self.nvme, nvme, strict=False):
            file.touch()
            os.truncate(file, DISK_BYTES)
        for number in range(disks):
            file = self.disk if number == 0 else self.home / f"disk{number}.raw"
            file.unlink(missing_ok=True)
            with file.open("wb") as new:
                new.truncate(DISK_BYTES)
            entries.append(
                _DISK.format(
                    file=file,
                    device=f"sd{'abc'[number]}",
                    serial=serial,
                    boot="<boot order='1'/>" if number == 0 else "",
                )
            )
        definition = self.home / "domain.xml"
        definition.write_text(
            _DOMAIN.format(
                name=NAME,
                uuid=UUID,
                serial=SERIAL,
                mac=MAC,
                ovmf=OVMF,
                variables=self.variables,
                home=self.home,
                bridge=BRIDGE,
                console=self.console.file,
                nvme=self._nvme_drives(nvme) if nvme else "",
                disks="\n  ".join(entries),
            )
        )
        virsh("define", str(definition))

    def _nvme_drives(self, serials: Sequence[str]) -> str:
        drives = [
            _NVME.format(file=file, serial=serial, number=number, at=_FIRST_PLACE + number)
            for number, (file, serial) in enumerate(zip(self.nvme, serials, strict=False))
        ]
        return f"<qemu:commandline>{''.join(drives)}</qemu:commandline>"

    def is_on(self) -> bool:
        return virsh("domstate", NAME).strip() == "running"

    def cut_power(self) -> None:
        """Take the power away, as a PDU does: QEMU is killed, if it has not ended by itself."""
        try:
            virsh("destroy", NAME)
        except AssertionError:
            if self.is_on():
                raise

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Ask QEMU itself."""
        text = json.dumps({"execute": command, "arguments": arguments})
        return json.loads(virsh("qemu-monitor-command", NAME, text))["return"]

    def sent_bytes(self) -> int:
        """Return how much the machine has written since it was switched on, also over what was there before.

        0 while it is off: what it wrote before is forgotten.
        """
        try:
            return sum(one["stats"]["wr_bytes"] for one in self.qmp("query-blockstats"))
        except AssertionError:
            if self.is_on():
                raise
            return 0

    def partitions(self) -> list[dict[str, Any]]:
        """Return the partitions of the disk's GPT, and none where it has no table."""
        done = subprocess.run(["sfdisk", "--json", str(self.disk)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return []
        found: list[dict[str, Any]] = json.loads(done.stdout)["partitiontable"]["partitions"]
        return found

    def slots(self) -> dict[str, str]:
        """Return a digest of each partition that only an install writes: no boot, boot loader or log changes it."""
        found = {}
        with self.disk.open("rb") as content:
            for part in self.partitions():
                if part["name"].startswith(_SLOTS):
                    content.seek(part["start"] * SECTOR)
                    found[part["name"]] = _digest_of(content, part["size"] * SECTOR)
        return found


def _digest_of(content: BinaryIO, size: int) -> str:
    digest = hashlib.sha256()
    while size > 0 and (block := content.read(min(size, 1 << 20))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


def holds_data(disk: Path) -> bool:
    """Return whether a disk has any byte that is not zero, however many blocks its file has."""
    with disk.open("rb") as content:
        end = content.seek(0, os.SEEK_END)
        at = 0
        while at < end:
            try:
                at = os.lseek(content.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return False  # a hole up to the end
                raise
            content.seek(at)
            block = content.read(1 << 20)
            if block.strip(b"\0"):
                return True
            at += len(block)
    return False
