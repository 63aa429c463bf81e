"""Decide which XID and SXid codes are evidence of broken hardware.

Codes and buckets are from NVIDIA's XID catalogue (immediate action) and the Fabric Manager guide D.4-D.6. A code whose
remedy is "restart the application" or "ignore" never takes a node out of service (pitfall K1). An unknown code does,
because its meaning is unknown.
"""

from __future__ import annotations

from reconciler.model.observed import Xid

_RANGES = (range(39, 42), range(70, 73), range(75, 78), range(82, 87), range(96, 106), range(126, 136))
# Codes of the RESTART_APP and IGNORE buckets.
APPLICATION = frozenset(
    {
        8,
        11,
        13,
        25,
        31,
        32,
        37,
        38,
        43,
        44,
        45,
        60,
        63,
        66,
        67,
        68,
        69,
        78,
        80,
        88,
        89,
        92,
        93,
        94,
        106,
        107,
        121,
        137,
        139,
    }
    | {141, 152, 153, 157, 160, 161}
    | {code for codes in _RANGES for code in codes}
)
# Codes that the kernel log calls non-fatal, but which are not harmless: 12028 stalls NVLink traffic, 11004 is a
# partition, 19084 requires a reset of all GPUs and switches.
NOT_HARMLESS = frozenset({11004, 12028, 19084})
# Single-bit and corrected errors, and replays (D.4).
CORRECTED = frozenset(
    {11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 20001, 20009, 20012, 22013, 24001, 24002, 24003}
)


def is_hardware(xid: Xid, ignored: tuple[int, ...] = ()) -> bool:
    """Return whether this code is evidence of broken hardware. `ignored` are the codes that the policy names."""
    if xid.code in ignored:
        return False
    if not xid.switch:
        return xid.code not in APPLICATION and not _taken_back(xid)
    if xid.code in NOT_HARMLESS or xid.fatal:
        return True
    return xid.code not in CORRECTED and not (xid.fatal is False and 19000 <= xid.code < 20000)


def _taken_back(xid: Xid) -> bool:
    """Return whether XID 154, which names the recovery action that a GPU needs, names none: the last one counts."""
    return xid.code == 154 and xid.text.rstrip().endswith("(None)")
