"""Decide which XID and SXid codes are evidence of broken hardware, and which signal each raises.

The lists of codes are in signals.yaml, with their sources. A code whose remedy is "restart the application" or
"ignore" never takes a node out of service (pitfall K1). An unknown code does, because its meaning is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Final

from reconciler.health.table import HealthTable
from reconciler.model.kernel_log import POWER_SMOOTHING_BACK, POWER_SMOOTHING_GONE, RECOVERY_ACTION_CHANGED
from reconciler.model.observed import Xid
from reconciler.spec.kinds.signals import code_set
from reconciler.spec.signals import is_guarded, packaged, row_for

NON_FATAL: Final = "xid_nonfatal_"  # what the names of signals begin with, before the code
AGAIN: Final = "xid_again_"
# What a code says of its GPU, where the number tells nobody.
_MEANINGS: Final = {
    POWER_SMOOTHING_GONE: "it smooths its power no more, as it was too hot or waited too long",
    164: "what smooths its power is nearly worn out",
    165: "what smooths its power is worn out",
}


@dataclass(frozen=True, slots=True)
class _Codes:
    """The lists of signals.yaml."""

    application: frozenset[int]
    reset: frozenset[int]
    link_non_fatal: frozenset[int]
    switch_corrected: frozenset[int]
    switch_non_fatal: frozenset[int]
    switch_not_harmless: frozenset[int]


@cache
def _codes() -> _Codes:
    lists = packaged().codes
    return _Codes(**{one.name: code_set(getattr(lists, one.name).codes) for one in fields(_Codes)})


def signal_of(xid: Xid, ignored: Collection[int] = ()) -> str:
    """Return the name of the signal that an Xid or SXid raises; "" = none. `ignored`: codes that the policy names."""
    if xid.code in ignored:
        return ""
    if is_hardware(xid):
        return f"xid_{xid.code}"
    return f"{NON_FATAL}{xid.code}" if _calls_itself_harmless(xid) else ""


def words_of(xid: Xid) -> str:
    """Return what an Xid says, beyond its number; "" = nothing that a person could use."""
    said = xid.text if xid.code == RECOVERY_ACTION_CHANGED else _MEANINGS.get(xid.code, "")
    return f": {said}" if said and not xid.switch else ""


def again(xids: Sequence[Xid], table: HealthTable, ignored: Collection[int] = ()) -> Iterator[tuple[str, str]]:
    """Yield name and detail for codes of applications that came again at one place alone: it may be the hardware.

    The place is the GPU, or a part of it that the line names. An application's fault moves with its work, so codes of
    several places are its own.
    """
    for xid in xids:
        places, name = {burst.place for burst in xid.bursts}, f"{AGAIN}{xid.code}"
        alone = sum(one.code == xid.code and not one.switch for one in xids) == 1
        if len(places) != 1 or not alone or xid.switch or xid.code in ignored:
            continue
        at, times = [burst.uptime_s for burst in xid.bursts], max(math.ceil(table.threshold(name)), 1)
        near = [last - first for first, last in zip(at, at[times - 1 :], strict=False)]
        if any(took <= table.window_s(name) for took in near):
            where = ", ".join(filter(None, (xid.device, *places)))
            told = f"XID {xid.code} came {len(at)} times at {where}, and nowhere else on this node"
            yield name, f"{told}: the program that runs there, or this GPU, which a gate would show"


def reset_answers(name: str) -> bool:
    """Return whether a signal is that of an XID whose remedy is a reset of the GPU."""
    kind, _, code = name.partition("_")
    return kind == "xid" and code.isdecimal() and int(code) in _codes().reset


def is_hardware(xid: Xid, ignored: tuple[int, ...] = ()) -> bool:
    """Return whether this code is evidence of broken hardware. `ignored` are the codes that the policy names."""
    if xid.code in ignored:
        return False
    codes = _codes()
    if not xid.switch:
        return xid.code not in codes.application and not _taken_back(xid) and not _calls_itself_harmless(xid)
    if xid.code in codes.switch_not_harmless or xid.fatal:
        return True
    return xid.code not in codes.switch_corrected and not (xid.fatal is False and xid.code in codes.switch_non_fatal)


def _calls_itself_harmless(xid: Xid) -> bool:
    """Return whether an Xid of a link says that it is not fatal. Drivers before and since 575 write the word alike."""
    return xid.fatal is False and not xid.switch and xid.code in _codes().link_non_fatal


def is_withdrawn(code: int, told: Sequence[Xid]) -> bool:
    """Return whether the log says by itself that what a code told is over: a log that has rotated says nothing."""
    if code == POWER_SMOOTHING_GONE:
        return any(xid.code == POWER_SMOOTHING_BACK for xid in told)
    return any(xid.code == code and _taken_back(xid) for xid in told)


def isolates(code: int) -> bool:
    """Return whether the row of an XID in the package isolates at once: a gate fails for it, whoever ignores it."""
    row = row_for(f"xid_{code}", packaged().signals)
    return row is not None and is_guarded(row)


def _taken_back(xid: Xid) -> bool:
    """Return whether XID 154, which names the recovery action that a GPU needs, names none: the last one counts."""
    return xid.code == RECOVERY_ACTION_CHANGED and xid.text.rstrip().endswith("(None)")
