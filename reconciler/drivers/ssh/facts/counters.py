"""Counters of errors that only rise while a system runs: RDMA ports, Ethernet interfaces, PCI devices.

They are read alone: nothing is reset, and other readers keep theirs. Values mean nothing by themselves (a link goes
down while it is trained at boot); planner/node/counted.py judges by how much they rise.
"""

from __future__ import annotations

import re
from typing import Final

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult
from reconciler.model.own_health import Counters

_PORT: Final = (
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors",
)  # fmt: skip
_HARDWARE: Final = ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart")
_AER: Final = {"COR": "aer_corrected", "NONFATAL": "aer_nonfatal", "FATAL": "aer_fatal"}

# What `ethtool -S` prints -> our counter, by the names of mlx5 (Linux, mellanox/mlx5/counters.rst), bnxt and ionic. The
# adapter's firmware has counted it, so no module is asked. Names of one counter add up.
STATISTICS: Final = {
    "rx_crc_errors_phy": "fcs_errors",
    "rx_fcs_err_frames": "fcs_errors",
    "frames_rx_bad_fcs": "fcs_errors",
    "rx_pcs_symbol_err_phy": "fec_uncorrected",  # what errors were left by the correction (FEC), or without one
    "rx_fec_uncorrectable_blocks": "fec_uncorrected",
    "module_high_temp": "module_hot",
    "module_bus_stuck": "module_shorted",
    "module_bad_shorted": "module_shorted",
}
# One grep for each kind of file, whatever the number of devices. A virtual interface has no device; an interface of
# IPoIB has the port's own counters.
_FILES: Final = " ".join(
    (
        *(f"class/infiniband/*/ports/*/counters/{name}" for name in _PORT),
        *(f"class/infiniband/*/ports/*/hw_counters/{name}" for name in _HARDWARE),
        "class/net/*/device/net/*/carrier_down_count",
    )
)
_CASES: Final = "|".join(f"{name}:" for name in STATISTICS)
COMMAND: Final = f"""\
command -v grep >/dev/null || exit 127
cd /sys || exit
grep -sHE '^[1-9]' {_FILES}
grep -sHE '^TOTAL_ERR_[A-Z]+ [1-9]' bus/pci/devices/*/aer_dev_*
for d in class/net/*/device; do
    [ -e "$d" ] && command -v ethtool >/dev/null || continue
    i=${{d%/device}}; i=${{i##*/}}
    ethtool -S "$i" 2>/dev/null | while read -r name value; do
        case $name in {_CASES}) [ "$value" = 0 ] || echo "ethtool/$i/$name$value" ;; esac
    done
done
echo "== read"
"""
_NAME = r"[\w.:@-]{1,40}"
_LINE = re.compile(
    rf"class/infiniband/(?P<adapter>{_NAME})/ports/(?P<port>\d{{1,3}})/(?:hw_)?counters/(?P<counter>\w{{1,40}}):(?P<a>\d{{1,20}})"
    rf"|class/net/(?P<interface>{_NAME})/device/net/{_NAME}/carrier_down_count:(?P<b>\d{{1,20}})"
    rf"|ethtool/(?P<asked>{_NAME})/(?P<statistic>{'|'.join(STATISTICS)}):(?P<d>\d{{1,20}})"
    rf"|bus/pci/devices/(?P<pci>{_NAME})/aer_dev_\w{{1,20}}:TOTAL_ERR_(?P<kind>COR|NONFATAL|FATAL) (?P<c>\d{{1,20}})"
)


def parse_counters(answer: CommandResult) -> Parsed[Counters]:
    """Return the counters that are not zero, by device. One line that can't be read makes all unknown."""
    lines = answer.stdout.splitlines()
    if not lines or lines[-1] != "== read":
        raise Unreadable(f"no end of the counters in {excerpt(answer.stdout[-80:], 80)!r}")
    found: dict[str, dict[str, int]] = {}
    for line in lines[:-1]:
        match = _LINE.fullmatch(line)
        if match is None:
            raise Unreadable(f"{excerpt(line, 80)!r} is no line about a counter")
        if match["adapter"]:
            device, name, value = f"{match['adapter']}/{match['port']}", match["counter"], match["a"]
        elif match["pci"]:
            device, name, value = match["pci"], _AER[match["kind"]], match["c"]
        elif (match["interface"] or match["asked"]).startswith("ib"):
            continue
        elif match["asked"]:
            device, name, value = match["asked"], STATISTICS[match["statistic"]], match["d"]
        else:
            device, name, value = match["interface"], "carrier_downs", match["b"]
        of_it = found.setdefault(device, {})
        of_it[name] = of_it.get(name, 0) + int(value)
    return Parsed(found)


COUNTERS = Fact("counters", COMMAND, parse_counters, ("counters",))
