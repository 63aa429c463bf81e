"""Errors of memory modules that the kernel's EDAC driver has counted since the host booted.

The counters are read alone: nothing is reset, and other readers keep theirs.
"""

from __future__ import annotations

import re

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult
from reconciler.model.observed import DimmErrors
from reconciler.model.vocab import UnknownReason

# Controllers that know no modules count by rank. The count of all modules tells "no error" from "no driver".
COMMAND = """
n=0
for d in /sys/devices/system/edac/mc/mc*/dimm* /sys/devices/system/edac/mc/mc*/rank*; do
    ce= ue= label=
    read -r ce <"$d/dimm_ce_count" && read -r ue <"$d/dimm_ue_count" || continue
    read -r label <"$d/dimm_label"
    n=$((n + 1))
    [ "$ce $ue" = "0 0" ] || echo "${d#/sys/devices/system/edac/mc/} $ce $ue $label"
done 2>/dev/null
echo "== $n modules"
"""
_ROW = re.compile(r"(mc\d{1,4}/(?:dimm|rank)\d{1,4}) (\d{1,10}) (\d{1,10})(?: (.*))?")
_END = re.compile(r"== (\d{1,6}) modules")


def parse_dimm_errors(answer: CommandResult) -> Parsed[tuple[DimmErrors, ...]]:
    """Return the modules with errors. A line that can't be read makes all unknown: it may be about one of them."""
    lines = answer.stdout.splitlines()
    end = _END.fullmatch(lines[-1]) if lines else None
    if end is None:
        raise Unreadable(f"no count of modules in {excerpt(answer.stdout, 80)!r}")
    if not int(end[1]):
        raise Unreadable("no EDAC driver of the kernel shows a memory module", UnknownReason.UNSUPPORTED)
    rows = []
    for line in lines[:-1]:
        row = _ROW.fullmatch(line)
        if row is None:
            raise Unreadable(f"{excerpt(line, 80)!r} is no line about a memory module")
        rows.append(DimmErrors(row[1], excerpt(row[4] or "", 80) or None, int(row[2]), int(row[3])))
    return Parsed(tuple(rows))


DIMM_ERRORS = Fact("dimm_errors", COMMAND, parse_dimm_errors, ("dimm_errors",))
