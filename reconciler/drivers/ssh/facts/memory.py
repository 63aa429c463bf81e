"""Errors of memory modules: those that the kernel's EDAC driver has counted since the boot, and those of rasdaemon.

Both are read alone: nothing is reset, and other readers keep theirs. rasdaemon records more than a boot: what a module
did before the host went down is told after it has come up again.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult
from reconciler.model.observed import DimmErrors, DimmRecord
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

# --- rasdaemon --------------------------------------------------------------------------------------------------------

# Lines of ras-mc-ctl 0.6.8 to 0.8: "ID DATE COUNT TYPE error(s): MESSAGE at LABEL location: PLACE, addr ...". Corrected
# errors come in floods, and are counted by the hour. Warnings would end up in the middle
# of a line, so stderr stays apart. The number of all records tells whether each was understood.
RECORDS_COMMAND: Final = r"""
command -v ras-mc-ctl >/dev/null || exit 127
errors=$(ras-mc-ctl --errors) || exit 1
case $errors in
    *'Memory controller events:'*|*'No Memory errors.'*) ;;
    *) exit 1 ;;
esac
read -r up _ </proc/uptime && echo "now $(date +%s) up ${up%.*}" || exit
echo "$errors" | sed -nE \
    -e 's/^[0-9]+ (.{10} ..):..:.. ([-+]....) ([0-9]+) (Corrected) error\(s\): .* at (.*) location: ([-0-9:]+), .*/\1:00:00 \2 \3 \4 \6 \5/p' \
    -e 's/^[0-9]+ (.{19} [-+]....) ([0-9]+) (Uncorrected|Fatal|Deferred) error\(s\): .* at (.*) location: ([-0-9:]+), .*/\1 \2 \3 \5 \4/p' |
    sort | uniq -c
echo "== $(echo "$errors" | grep -cE '^[0-9]+ .* error\(s\): .* location: ') records"
"""  # noqa: E501 - a pattern of sed can't be broken
_HEAD: Final = re.compile(r"now (\d{1,12}) up (\d{1,10})")
_RECORD: Final = re.compile(
    r" *(\d{1,10}) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [-+]\d{4}) (\d{1,10}) (\w{1,20}) ([-0-9:]{1,40}) ?(.*)"
)
_RECORDS: Final = re.compile(r"== (\d{1,10}) records")
OLDEST_H: Final = 7 * 24  # what is older is not told


def parse_dimm_records(answer: CommandResult) -> Parsed[tuple[DimmRecord, ...]]:
    """Return the records of the last week. One that can't be read makes all unknown: it may be the one that counts."""
    lines = answer.stdout.splitlines()
    head = _HEAD.fullmatch(lines[0]) if lines else None
    end = _RECORDS.fullmatch(lines[-1]) if lines else None
    if head is None or end is None:
        raise Unreadable(f"no records of rasdaemon in {excerpt(answer.stdout, 80)!r}")
    now, booted = int(head[1]), int(head[1]) - int(head[2]) - 2  # whole seconds
    found: dict[tuple[str, str, str, int, bool | None], int] = {}
    read = 0
    for line in lines[1:-1]:
        row = _RECORD.fullmatch(line)
        at = None if row is None else _epoch_s(row[2])
        if row is None or at is None:
            raise Unreadable(f"{excerpt(line, 80)!r} is no record of a memory error")
        read += int(row[1])
        hours = max(0, int((now - at) // 3600))  # a clock that was set back: just now
        if hours <= OLDEST_H:
            since_boot = None if row[4] == "Corrected" else at >= booted
            key = excerpt(row[6], 80), row[5], row[4], hours, since_boot
            found[key] = found.get(key, 0) + int(row[1]) * int(row[3])
    if read != int(end[1]):
        raise Unreadable(f"{int(end[1]) - read} of {end[1]} records of memory errors are of another form")
    return Parsed(
        tuple(DimmRecord(key[0] or None, *key[1:], count) for key, count in sorted(found.items(), key=_order))
    )


def _order(item: tuple[tuple[str, str, str, int, bool | None], int]) -> tuple[str, str, str, int, bool]:
    label, place, kind, hours, since_boot = item[0]
    return label, place, kind, hours, bool(since_boot)


def _epoch_s(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z").timestamp()
    except ValueError:
        return None


DIMM_RECORDS = Fact("dimm_records", RECORDS_COMMAND, parse_dimm_records, ("dimm_records",), timeout_s=10)
