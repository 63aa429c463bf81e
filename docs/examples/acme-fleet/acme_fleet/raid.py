"""The state of the software RAID that holds the operating system, and the signal that it is degraded.

/proc/mdstat shows each array as `md0 : active raid1 sda1[0] sdb1[1]`, then `... [2/2] [UU]`: members wanted and there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from reconciler.drivers.extensions import HealthSignals, HostFact, Unreadable
from reconciler.model.gate import CommandResult

_MEMBERS = re.compile(r"^(md\w+) : .*\n.*\[(\d+)/(\d+)\]", re.MULTILINE)


def _parse(answer: CommandResult) -> str:
    """Return `md0 2/2, md1 1/2`; "none" for a host without arrays."""
    if "Personalities" not in answer.stdout:
        raise Unreadable("this is no /proc/mdstat")
    return ", ".join(f"{name} {there}/{wanted}" for name, wanted, there in _MEMBERS.findall(answer.stdout)) or "none"


def _judge(facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, there, wanted in re.findall(r"(md\w+) (\d+)/(\d+)", facts["raid_state"]):
        if int(there) < int(wanted):
            yield "raid_degraded", f"array {name}: {there} of {wanted} members are there"


STATE = HostFact(api=1, command="cat /proc/mdstat", parse=_parse)
SIGNALS = HealthSignals(api=1, names=("raid_degraded",), reads=("raid_state",), judge=_judge)
