"""Tell which arrays of disks (Linux md) the kernel log leaves without a disk.

"recovery done" is no proof by itself: a rebuild that a second failure ended says so too, and one that ends well leaves
an array of which two disks were lost without the other one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

# drivers/md/raid1.c, raid10.c and raid5.c: as an array loses a disk, and as it is assembled. All arrays of LVM are
# called mdX, so what they are assembled with, and which of them is whole again, can't be told.
_OF = r"md/raid(?:1|10)?:(?P<device>md{name}\w{{0,40}}): "
LOST = re.compile(_OF.format(name="") + r"Disk failure on (?!loop)\S+, disabling device")
_ASSEMBLED = re.compile(_OF.format(name="(?!X)") + r".*\bactive with (?P<left>\d{1,4}) out of (?P<all>\d{1,4}) ")
SHORT = re.compile(_OF.format(name="(?!X)") + r".*\bactive with (?P<left>\d{1,4}) out of (?!(?P=left) )\d{1,4} ")
# After a failure. A spare, or a disk that was not rebuilt yet, fails by the same line as one that the array works with.
_CONTINUES = re.compile(_OF.format(name="(?!X)") + r"Operation continuing on (?P<left>\d{1,4}) devices")
_REBUILDS = re.compile(r"md: recovery of RAID array (?P<device>md(?!X)\w{1,40})")  # md.c
_REBUILT = re.compile(r"md: (?P<device>md(?!X)\w{1,40}): recovery done")
FILTER = (
    r"md.raid[0-9]*:.*(Disk failure on|Operation continuing on|active with [0-9]+ out of)|md: recovery of RAID array"
    r"|md: md[0-9A-Za-z_]+: recovery done"
)


def whole_arrays(lines: Iterable[str]) -> frozenset[str]:
    """Return the arrays that have all of their disks at the end of the log, as far as it tells."""
    missing: defaultdict[str, int] = defaultdict(int)
    all_of: dict[str, int] = {}
    rebuilds: set[str] = set()
    for line in lines:
        if "md" not in line:
            continue
        if lost := LOST.search(line):
            missing[lost["device"]] += 1
            rebuilds.discard(lost["device"])
        elif assembled := _ASSEMBLED.search(line):
            all_of[assembled["device"]] = int(assembled["all"])
            missing[assembled["device"]] = int(assembled["all"]) - int(assembled["left"])
        elif (goes_on := _CONTINUES.search(line)) and goes_on["device"] in all_of:
            missing[goes_on["device"]] = all_of[goes_on["device"]] - int(goes_on["left"])
        elif begun := _REBUILDS.search(line):
            rebuilds.add(begun["device"])
        elif (done := _REBUILT.search(line)) and done["device"] in rebuilds and missing[done["device"]] == 1:
            missing[done["device"]] = 0
    return frozenset(name for name, disks in missing.items() if disks <= 0)
