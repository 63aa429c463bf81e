"""Alarms of pluggable modules, of optics and cables: what `ethtool -m` says of those whose port has had trouble.

To read a module's memory, the adapter talks to it over I2C, which takes 0.1 s and more, and of some drivers delays
traffic (intel/ethernet-linux-ixgbe issue 28); it also clears the flags of QSFP modules (SFF-8636 and CMIS: latched,
cleared when read), which others may read as well. So modules of ports that are well are left alone. A port has had
trouble that is up, and in this boot went down more than twice, or got damaged frames. What a port that is down receives
says nothing: nobody may have cabled it, and its far end may be off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult

# A virtual function has the module of its port, which is read there.
COMMAND: Final = """\
cd /sys/class/net || exit
for d in */device; do
    i=${d%/device}
    [ -e "$d" ] && [ ! -e "$d/physfn" ] && read -r up 2>/dev/null <"$i/carrier" && [ "$up" = 1 ] || continue
    read -r downs 2>/dev/null <"$i/carrier_down_count" || downs=0
    read -r damaged 2>/dev/null <"$i/statistics/rx_crc_errors" || damaged=0
    [ "$downs" -gt 2 ] || [ "$damaged" -gt 0 ] || continue
    if said=$(ethtool -m "$i" 2>/dev/null); then
        echo "== $i"
        printf '%s\\n' "$said" | grep -i 'alarm.*: on *$'
    else
        echo "== $i unread"
    fi
done
:
"""
_HEAD: Final = re.compile(r"== (?P<interface>[\w.:@-]{1,40})(?P<unread> unread)?")
# SFP: "Laser rx power low alarm : On"; QSFP and OSFP, with spaces that align it: "... alarm   (Channel 1) : On".
_ALARM: Final = re.compile(r"\s*(?P<alarm>[A-Za-z][\w ()/-]{0,70}\balarm\b[\w ()/-]{0,30}?)\s*:\s*on\s*", re.IGNORECASE)
_MOST: Final = 64  # alarms of one module: eight lanes, four quantities, high and low


def parse_modules(answer: CommandResult) -> Parsed[Mapping[str, tuple[str, ...]]]:
    """Return the alarms that are on, by interface, of the modules that were read. Notes name those that were not."""
    found: dict[str, list[str]] = {}
    unread: dict[str, str] = {}
    here: list[str] | None = None
    for line in answer.stdout.splitlines():
        if head := _HEAD.fullmatch(line):
            here = found.setdefault(head["interface"], [])
            if head["unread"]:
                del found[head["interface"]]
                unread[f"module_alarms.{head['interface']}"] = "unsupported: ethtool -m does not read its module"
        elif here is None:
            raise Unreadable(f"no interface before {excerpt(line, 80)!r}")
        elif (alarm := _ALARM.fullmatch(line)) and len(here) < _MOST:
            here.append(" ".join(alarm["alarm"].split()))
    return Parsed({interface: tuple(alarms) for interface, alarms in found.items() if alarms}, unread)


MODULES = Fact("modules", COMMAND, parse_modules, ("module_alarms",), timeout_s=10)
