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
from reconciler.model.kernel_log import POWER_SMOOTHING_BACK, POWER_SMOOTHING_GONE, RECOVERY_ACTION_CHANGED, XidBurst
from reconciler.model.observed import KernelEvent, Xid

FALLEN_OFF_THE_BUS = 79
MAX_BURSTS = 50  # of one Xid
_TEXT_LIMIT = 300

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6})\b"
    r"(?:, pid=[^,]*)?(?:, name=[^,]*)?,?\s*(?P<rest>.*)"
)
_SXID = re.compile(
    r"SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6})\b"
    r"(?:, (?P<severity>Fatal|Non-fatal)\b)?,?\s*(?P<rest>.*)"
)
# NVLink 5, with one or more blanks: "NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x", "RLW_RXPIPE Nonfatal XC1 i0 Link 13".
_OF_LINK = re.compile(r"\w+ +(?P<severity>Fatal|Nonfatal) +XC ?\d")
# Of Xids whose place matters, where in the GPU they say that it was: "(GPC 0, TPC 4, SM 0)" of 13; 31 is the GPU's.
_PLACES = {13: re.compile(r"\((?P<place>GPC \d{1,3}, TPC \d{1,3})\b"), 31: re.compile(r"(?P<place>)")}
# In one to three lines, of which the first names the GPU: "The NVIDIA GPU <pci>", "(PCI ID: ...) installed in this
# system has", "fallen off the bus and is not responding to commands."
_GPU_FELL = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]+(?::[0-9a-fA-F]+)+(?:\.[0-7])?):?"
    r" .*fallen off the bus"
)
_GPU_NAMED = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F:.]+)")
_FELL = re.compile(r"NVRM: (?:GPU has )?fallen off the bus")

_FILTER = "NVRM: Xid|SXid|fallen off the bus|NVRM: The NVIDIA GPU|" + kernel_events.FILTER
TELLING = re.compile(_FILTER.encode())  # lines that a signal may be in

# awk reads the whole log and prints a count of its lines at the end, which tells "no message" from "no log". It prints
# each message of a device at most 200 times, so that a burst can't push others out of the limited answer; one that the
# line calls fatal is another message, and 200 later lines pass that begin a burst at their place. Other lines
# count as the same message when only time, process, sequence and hexadecimal numbers differ; at most 400 of a kind are
# printed. Of reports of the firmware (APEI) only those of errors that were not corrected are: thousands of others in a
# boot are normal, and each has a number of its own.
# A reset of GPUs begins all counts anew: what comes after it must be seen.
COMMAND = r"""
pick() {
    awk '
        function part(pattern) { return match($0, pattern) ? substr($0, RSTART, RLENGTH) : "" }
        /reconciler-gpu-reset/ { split("", seen); split("", later); split("", last); print substr($0, 1, 500); next }
        /@FILTER@/ {
            key = part("S?Xid [(][^)]*[)]: [0-9]+")
            if (key != "") {
                key = key part("[ ,](Fatal|Non-?fatal)[ ,]")
                place = key part("[(]GPC [0-9]+, TPC [0-9]+")
                at = part("^[[] *[0-9]+[.][0-9]+[]]") != "" ? substr($0, 2) + 0 : -1
                begins = at >= 0 && (!(place in last) || at < last[place] || at > last[place] + @BURST@)
                last[place] = at
                if (seen[key]++ >= 200 && !(begins && later[key]++ < 200)) next
            } else {
                if (/event severity:/) {
                    live = /[{][0-9]+[}]\[Hardware Error\]: event severity: (fatal|recoverable)/
                    if (!live) next
                }
                if (/section_type: memory error/ && !live) next
                kind = part("@EVENTS@")
                gsub(/[0-9]+/, "", kind)
                key = $0
                sub(/^\[[^]]*\] */, "", key)
                gsub(/0x[0-9a-fA-F]+|pid [0-9]+|seq=[0-9]+|[{][0-9]+[}]| [0-9a-f]+$/, "", key)
                if (seen[key]++ >= 200 || others[kind]++ >= 400) next
            }
            print substr($0, 1, 500)
        }
        END { if (!NR) exit 1; print "== " NR " lines" }'
}
journalctl -q -k -b -o short-monotonic --no-pager 2>/dev/null | pick || dmesg | pick
"""
_EVENTS_IN_QUOTES = kernel_events.FILTER.replace("\\", "\\\\")  # awk reads a string before it reads the expression
COMMAND = COMMAND.replace("@FILTER@", _FILTER).replace("@EVENTS@", _EVENTS_IN_QUOTES)
COMMAND = COMMAND.replace("@BURST@", f"{kernel_events.BURST_S:.0f}")


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
            _add_burst(found, match, line, bursts)
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
            since = tuple([burst for burst in xid.bursts if burst not in known.bursts])
            left[key] = replace(xid, count=xid.count - known.count, bursts=since)
            if xid == known:
                del left[key]
    return left, {device: was for device, was in before.items() if device not in devices}


def _add(found: _Found, match: re.Match[str], *, switch: bool, count: int) -> None:
    code, device = int(match["code"]), _device(match["pci"])
    text = match["rest"][:_TEXT_LIMIT]
    said = match if switch else _OF_LINK.match(text)
    severity = None if said is None else said["severity"]
    fatal = None if severity is None else severity == "Fatal"
    known = found.get((switch, code, device))
    if code == POWER_SMOOTHING_BACK and not switch:
        found.pop((False, POWER_SMOOTHING_GONE, device), None)
    if known is None:
        found[switch, code, device] = Xid(code, device, count, switch, fatal, text)
        return
    # The first line says what happened, but each Xid 154 replaces the one before, and a fatal line tells most.
    latest = (code == RECOVERY_ACTION_CHANGED and not switch) or (fatal is True and not known.fatal)
    found[switch, code, device] = replace(
        known,
        count=known.count + count,
        fatal=_worse(known.fatal, fatal, switch=switch),
        text=text if latest or not known.count else known.text,
    )


def _worse(one: bool | None, other: bool | None, *, switch: bool) -> bool | None:
    """Return what two lines call themselves together: an Xid without the word may be fatal, an SXid is continued."""
    if one is None or other is None:
        known = other if one is None else one
        return known if switch or known else None
    return one or other


def _add_burst(found: _Found, match: re.Match[str], line: str, bursts: kernel_events.Bursts) -> None:
    """Keep when a burst of an Xid began at its place, where line and Xid tell both."""
    code, device = int(match["code"]), _device(match["pci"])
    named = _PLACES[code].search(match["rest"]) if code in _PLACES else None
    at = kernel_events.uptime_s(line)
    if named is not None and at is not None and bursts.begins((code, device, named["place"]), line):
        xid = found[False, code, device]
        found[False, code, device] = replace(xid, bursts=(*xid.bursts, XidBurst(named["place"], at))[-MAX_BURSTS:])


def _add_fallen(found: _Found, pci: str, line: str) -> None:
    """Add an Xid 79, unless the GPU has one: both lines are about the same event."""
    device = _device(pci)
    fallen = Xid(FALLEN_OFF_THE_BUS, device, 0, text=line[line.index("NVRM: ") + 6 :][:_TEXT_LIMIT])
    found.setdefault((False, FALLEN_OFF_THE_BUS, device), fallen)


def _device(pci: str) -> str:
    return pci_address(pci) or pci.upper()


KERNEL_LOG = Fact("kernel_log", COMMAND, parse_kernel_log, ("xids", "kernel_events"), timeout_s=10)
