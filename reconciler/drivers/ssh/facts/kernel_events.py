"""Kernel log lines about hardware other than Xids: a closed list of kinds, each with the kernel's patterns.

Left out on purpose: corrected errors, "Machine check events logged" (which also follows corrected ones), records of the
previous boot (BERT prints them without the "{n}" of a live report), and lines of mlx5 that only give context:
insufficient power, a failed ACCESS_REG, "Cable unplugged".
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace

from reconciler.drivers.ssh.facts import md_arrays
from reconciler.drivers.ssh.facts.gpu import pci_address
from reconciler.model.observed import KernelEvent
from reconciler.model.vocab import KernelEventKind as Kind

MAX_EVENTS = 200
BURST_S = 180.0  # lines of one kind and device that follow one another within this time are one event
TEXT_LIMIT = 300
_PCI = r"(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_LONG = r"(?:[3-9]\d\d|\d{4,9})"  # more than five minutes
_DISK = r"(?P<device>(?!loop)[\w!.-]{1,40})"
_NVME = r"nvme (?P<device>nvme\d{1,4})"
_UNCORRECTED = r"Uncorrect(?:ed|able) \(Fatal\)"

# The first match counts. `device`: the device that the line names, if any.
_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.GPU_INIT_FAILED, re.compile(rf"NVRM: (?:GPU {_PCI}: )?RmInitAdapter failed!")),
    (Kind.PCIE_FATAL, re.compile(rf"AER: (?:Multiple )?{_UNCORRECTED} error (?:message )?received(?: from|:) {_PCI}")),
    (Kind.PCIE_FATAL, re.compile(rf"{_PCI}: (?:AER: )?(?:PCIe|CXL) Bus Error: severity={_UNCORRECTED}")),
    (Kind.MEMORY_UE, re.compile(r"EDAC (?P<device>MC\d{1,3}): \d{1,9} UE\b")),
    (Kind.MEMORY_UE, re.compile(r"mce: Uncorrected hardware memory error")),
    (Kind.MEMORY_UE, re.compile(r"Memory failure: 0x[0-9a-f]+: .*due to hardware memory corruption")),
    (Kind.MACHINE_CHECK, re.compile(r"\[Hardware Error\]: (?P<device>CPU \d{1,5}): Machine Check Exception: ")),
    (Kind.MACHINE_CHECK, re.compile(r"\[Hardware Error\]: Uncorrected, software (?:restartable|containable) error")),
    (Kind.MACHINE_CHECK, re.compile(r"\{\d+\}\[Hardware Error\]: event severity: fatal")),
    (Kind.NIC_FAILED, re.compile(rf"mlx5_core {_PCI}: .*timeout\. Will cause a leak of a command resource")),
    (Kind.NIC_FAILED, re.compile(rf"mlx5_core {_PCI}: .*(?:device's health compromised|health poll failed)")),
    (Kind.NIC_FAILED, re.compile(rf"mlx5_core(?: {_PCI})?: .*unrecoverable")),
    (Kind.NIC_MODULE, re.compile(rf"(?:mlx5_core {_PCI}: |mlx5_core: |mlx5_port_).*Port module event\[error\]")),
    # Linux, drivers/gpu/drm/amd/amdgpu: amdgpu_ras.c, amdgpu_ras_eeprom.c, amdgpu_device.c, amdgpu_job.c. Totals ("in
    # total in umc block") are printed of zero, too, so they don't count.
    (Kind.GPU_INIT_FAILED, re.compile(rf"amdgpu {_PCI}: .*Fatal error during GPU init")),
    (Kind.AMD_UNCORRECTABLE, re.compile(rf"amdgpu {_PCI}: .*\buncorrectable hardware error\(\w+\) detected")),
    (
        Kind.AMD_UNCORRECTABLE,
        re.compile(rf"amdgpu {_PCI}: .*\b[1-9]\d{{0,18}} (?:new )?uncorrectable hardware errors detected in (?!total)"),
    ),
    (Kind.AMD_BAD_PAGES, re.compile(rf"amdgpu {_PCI}: .*Saved bad pages \d+ reaches threshold value")),
    (Kind.AMD_BAD_PAGES, re.compile(rf"amdgpu {_PCI}: .*RAS records:\d+ exceed threshold:")),
    (Kind.AMD_RESET_FAILED, re.compile(rf"amdgpu {_PCI}: .*(?:GPU reset end with ret = -\d|GPU reset\(\d+\) failed)")),
    (Kind.AMD_RING_TIMEOUT, re.compile(rf"amdgpu {_PCI}: .*ring [\w.]{{1,40}} timeout, signaled")),
    (Kind.AMD_RING_TIMEOUT, re.compile(r"amdgpu_job_timedout.*ring (?P<device>[\w.]{1,40}) timeout, signaled")),
    # The kernel repeats the line, with a longer time each: others than the driver's wait for disks and network.
    (Kind.TASK_HUNG, re.compile(rf"INFO: task (?P<device>nvidia[\w.-]{{0,40}}):\d+ blocked for more than {_LONG} s")),
    # Linux, fs/ext4/super.c and fs/xfs/xfs_fsops.c. A loop device is a file, which tests and containers break at will.
    (Kind.FS_READ_ONLY, re.compile(rf"EXT4-fs \({_DISK}\): Remounting filesystem read-only")),
    (Kind.FS_READ_ONLY, re.compile(rf"XFS \({_DISK}\): .*[Ss]hutting down filesystem")),
    # Linux, drivers/nvme/host/pci.c, before and since 6.6 (I/O tag ... opcode). "completion polled" is a lost
    # interrupt: the drive had answered. A drive of the network (rdma.c) has the line without what follows from it.
    (Kind.NVME_TIMEOUT, re.compile(rf"{_NVME}: I/O .*\bQID \d+ timeout, (?:aborting|(?:reset|disable) controller)")),
    (Kind.NVME_TIMEOUT, re.compile(rf"{_NVME}: controller is down; will reset: CSTS=")),
    (Kind.NVME_TIMEOUT, re.compile(rf"{_NVME}: (?:Removing after probe|Disabling device after reset) failure")),
    (Kind.MD_DEGRADED, md_arrays.LOST),
    (Kind.MD_DEGRADED, md_arrays.SHORT),
)  # fmt: skip
# As dmesg prints it, or journalctl with the host's name; lines of other programs than the kernel are not asked for.
_TIME = re.compile(r"^\[(?!Hardware Error)\s*(?P<uptime>\d{1,12}\.\d{1,9})?[^\]]*\] *(?:\S+ kernel: )?")
_LIVE = re.compile(r"\{\d+\}\[Hardware Error\]: event severity: (fatal|recoverable)")
_MEMORY = re.compile(r"\{\d+\}\[Hardware Error\]:\s+section_type: memory error")
# The lines that awk passes on, as an extended regular expression; the list above decides.
FILTER = (
    r"RmInitAdapter failed|\(Fatal\)|EDAC MC[0-9]+: [0-9]+ UE|Uncorrected hardware memory error"
    r"|hardware memory corruption|Machine Check Exception|Uncorrected, software"
    r"|event severity: (fatal|recoverable|corrected|info)"
    r"|section_type: memory error|leak of a command resource|health compromised|health poll failed|unrecoverable"
    r"|Port module event\[error\]|INFO: task nvidia"
    r"|Fatal error during GPU init|uncorrectable hardware error|Saved bad pages|RAS records:[0-9]"
    r"|Remounting filesystem read-only|hutting down filesystem"
    r"|QID [0-9]+ timeout, (abort|reset|disable)|controller is down; will reset"
    r"|Removing after probe failure|Disabling device after reset failure"
    rf"|{md_arrays.FILTER}"
    r"|GPU reset end with ret = -|GPU reset\([0-9]+\) failed|ring [a-z0-9_.]+ timeout,"
)


class Bursts:
    """The time of the last line about each thing. Lines without a time are each of its own."""

    def __init__(self) -> None:
        self._last: dict[Hashable, float] = {}

    def begins(self, key: Hashable, line: str) -> bool:
        """Return whether a line begins a burst, or is in one of an earlier line about the same thing."""
        at, last = uptime_s(line), self._last.get(key)
        if at is None:
            return True
        self._last[key] = at
        return last is None or not 0 <= at - last <= BURST_S


def uptime_s(line: str) -> float | None:
    """Return the time of a line, in seconds since the boot; None where it has none."""
    match = _TIME.match(line)
    return None if match is None or match["uptime"] is None else float(match["uptime"])


def text_of(line: str) -> str:
    """Return a line without its time and host, as short as an event keeps it."""
    return _TIME.sub("", line)[:TEXT_LIMIT].rstrip()


def kernel_events(lines: Sequence[str]) -> tuple[KernelEvent, ...]:
    """Return at most MAX_EVENTS events by kind and device, each with the text of its first line."""
    found: dict[tuple[Kind, str], KernelEvent] = {}
    bursts = Bursts()
    severity = ""  # the severity of the hardware error whose sections follow
    for line in lines:
        if "event severity:" in line:
            live = _LIVE.search(line)
            severity = live[1] if live else ""
        if _MEMORY.search(line) and severity:
            _add(found, Kind.MEMORY_UE, "", line, bursts)
            continue
        for kind, pattern in _KINDS:
            if match := pattern.search(line):
                device = match.groupdict().get("device") or ""
                _add(found, kind, pci_address(device) or device, line, bursts)
                break
    for array in md_arrays.whole_arrays(lines):
        found.pop((Kind.MD_DEGRADED, array), None)
    return tuple(found.values())


def _add(found: dict[tuple[Kind, str], KernelEvent], kind: Kind, device: str, line: str, bursts: Bursts) -> None:
    text, is_new = text_of(line), bursts.begins((kind, device), line)
    known = found.get((kind, device))
    if known is not None:
        found[kind, device] = replace(known, count=known.count + is_new)
    elif len(found) < MAX_EVENTS:
        found[kind, device] = KernelEvent(kind, device, 1, text)
