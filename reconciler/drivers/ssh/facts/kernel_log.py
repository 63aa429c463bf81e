"""Xid and SXid messages, and other lines about hardware, in the kernel log since boot. Their bursts are counted.

The grammar is wider than in NVIDIA's documents: old drivers leave out "PCI:", some messages end with the code, SXid
lines may lack a severity or be a continuation, and a GPU can fall off the bus without the word Xid (counted as 79).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from reconciler.drivers.ssh.facts import kernel_events
from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable
from reconciler.drivers.ssh.facts.gpu import pci_address
from reconciler.model import gpu_reset
from reconciler.model.gate import CommandResult
from reconciler.model.observed import KernelEvent, Xid

FALLEN_OFF_THE_BUS = 79
RECOVERY_ACTION_CHANGED = 154
_TEXT_LIMIT = 300

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6})\b"
    r"(?:, pid=[^,]*)?(?:, name=[^,]*)?,?\s*(?P<rest>.*)"
)
_SXID = re.compile(
    r"SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6})\b"
    r"(?:, (?P<severity>Fatal|Non-fatal)\b)?,?\s*(?P<rest>.*)"
)
# In one to three lines, of which the first names the GPU: "The NVIDIA GPU <pci>", "(PCI ID: ...) installed in this
# system has", "fallen off the bus and is not responding to commands."
_GPU_FELL = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]+(?::[0-9a-fA-F]+)+(?:\.[0-7])?):?"
    r" .*fallen off the bus"
)
_GPU_NAMED = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F:.]+)")
_FELL = re.compile(r"NVRM: (?:GPU has )?fallen off the bus")

# awk reads the whole log and prints a count of its lines at the end, which tells "no message" from "no log". It prints
# each message of a device at most 200 times, so that a burst can't push others out of the limited answer. Other lines
# count as the same message when only time, process and hexadecimal numbers differ; at most 2000 of them are printed.
# A reset of GPUs begins all counts anew: what comes after it must be seen.
COMMAND = r"""
pick() {
    awk '
        /reconciler-gpu-reset/ { split("", seen); print substr($0, 1, 500); next }
        /NVRM: Xid|SXid|fallen off the bus|NVRM: The NVIDIA GPU|@FILTER@/ {
            key = $0
            if (match($0, /S?Xid \([^)]*\): [0-9]+/)) {
                if (seen[substr($0, RSTART, RLENGTH)]++ >= 200) next
            } else {
                sub(/^\[[^]]*\] */, "", key)
                gsub(/0x[0-9a-fA-F]+|pid [0-9]+| [0-9a-f]+$/, "", key)
                if (seen[key]++ >= 200 || others++ >= 2000) next
            }
            print substr($0, 1, 500)
        }
        END { if (!NR) exit 1; print "== " NR " lines" }'
}
journalctl -q -k -b -o short-monotonic --no-pager 2>/dev/null | pick || dmesg | pick
""".replace("@FILTER@", kernel_events.FILTER)


_Found = dict[tuple[bool, int, str], Xid]


@dataclass(frozen=True, slots=True)
class KernelLog:
    xids: tuple[Xid, ...]
    events: tuple[KernelEvent, ...]


def parse_kernel_log(answer: CommandResult) -> Parsed[KernelLog]:
    found: _Found = {}
    before: dict[str, _Found] = {}
    bursts = kernel_events.Bursts()
    named = ""
    lines = [line.rstrip() for line in answer.stdout.splitlines()]
    for line in lines:
        if match := _XID.search(line):
            _add(found, match, switch=False, count=int(bursts.begins(match.group("pci", "code"), line)))
        elif match := _SXID.search(line):
            first = not match["rest"].startswith("Data {") and bursts.begins(("S", *match.group("pci", "code")), line)
            _add(found, match, switch=True, count=int(first))
        elif match := _GPU_FELL.search(line):
            _add_fallen(found, match["pci"], line)
        elif match := _GPU_NAMED.search(line):
            named = match["pci"]
        elif _FELL.search(line):
            _add_fallen(found, named, line)
        elif (reset := gpu_reset.read(line)) is not None:
            found, before = _after_reset(found, before, *reset)
            bursts = kernel_events.Bursts()  # what a reset did not end is another event, however soon it comes
    if not answer.stdout.strip():
        raise Unreadable("the kernel log is empty: it was cleared, has rotated or may not be read")
    # An Xid with only continuation lines, whose first line was rotated away, happened at least once.
    xids = tuple(xid if xid.count else replace(xid, count=1) for xid in found.values())
    return Parsed(KernelLog(xids, kernel_events.kernel_events(lines)))


def _after_reset(
    found: _Found, before: dict[str, _Found], word: str, devices: tuple[str, ...]
) -> tuple[_Found, dict[str, _Found]]:
    """Return what is left of the messages after a line of a reset, and those known as each device's reset began."""
    if word == gpu_reset.BEGINS:
        return found, before | {device: dict(found) for device in devices}
    left = dict(found)
    for key, xid in found.items():
        switch, _, device = key
        known = before.get(gpu_reset.SWITCHES if switch else device, {}).get(key)
        if known is not None and (gpu_reset.SWITCHES if switch else device) in devices:
            left[key] = replace(xid, count=xid.count - known.count)
            if xid == known:
                del left[key]
    return left, {device: was for device, was in before.items() if device not in devices}


def _add(found: _Found, match: re.Match[str], *, switch: bool, count: int) -> None:
    code, device = int(match["code"]), _device(match["pci"])
    text = match["rest"][:_TEXT_LIMIT]
    severity = match["severity"] if switch else None
    fatal = None if severity is None else severity == "Fatal"
    known = found.get((switch, code, device))
    if known is None:
        found[switch, code, device] = Xid(code, device, count, switch, fatal, text)
        return
    # The first line says what happened, but each Xid 154 replaces the one before.
    latest = code == RECOVERY_ACTION_CHANGED and not switch
    found[switch, code, device] = replace(
        known,
        count=known.count + count,
        fatal=known.fatal if fatal is None else fatal or bool(known.fatal),
        text=text if latest or not known.count else known.text,
    )


def _add_fallen(found: _Found, pci: str, line: str) -> None:
    """Add an Xid 79, unless the GPU has one: both lines are about the same event."""
    device = _device(pci)
    fallen = Xid(FALLEN_OFF_THE_BUS, device, 0, text=line[line.index("NVRM: ") + 6 :][:_TEXT_LIMIT])
    found.setdefault((False, FALLEN_OFF_THE_BUS, device), fallen)


def _device(pci: str) -> str:
    return pci_address(pci) or pci.upper()


KERNEL_LOG = Fact("kernel_log", COMMAND, parse_kernel_log, ("xids", "kernel_events"), timeout_s=10)
