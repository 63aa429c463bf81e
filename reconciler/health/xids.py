"""Decide which XID and SXid codes are evidence of broken hardware.

The lists of codes are in signals.yaml, with their sources. A code whose remedy is "restart the application" or
"ignore" never takes a node out of service (pitfall K1). An unknown code does, because its meaning is unknown.
"""

from __future__ import annotations

from functools import cache

from reconciler.model.observed import Xid
from reconciler.spec.kinds.signals import code_set
from reconciler.spec.signals import is_guarded, packaged, row_for


@cache
def _codes() -> tuple[frozenset[int], ...]:
    """Return the codes of applications, and of switches: corrected, harmless if non-fatal, and never harmless."""
    lists = packaged().codes
    all_ = (lists.application, lists.switch_corrected, lists.switch_non_fatal, lists.switch_not_harmless)
    return tuple(code_set(one.codes) for one in all_)


def reset_answers(name: str) -> bool:
    """Return whether a signal is that of an XID whose remedy is a reset of the GPU."""
    kind, _, code = name.partition("_")
    return kind == "xid" and code.isdecimal() and int(code) in _answered_by_reset()


@cache
def _answered_by_reset() -> frozenset[int]:
    return code_set(packaged().codes.reset.codes)


def is_hardware(xid: Xid, ignored: tuple[int, ...] = ()) -> bool:
    """Return whether this code is evidence of broken hardware. `ignored` are the codes that the policy names."""
    if xid.code in ignored:
        return False
    application, corrected, non_fatal, not_harmless = _codes()
    if not xid.switch:
        return xid.code not in application and not _taken_back(xid)
    if xid.code in not_harmless or xid.fatal:
        return True
    return xid.code not in corrected and not (xid.fatal is False and xid.code in non_fatal)


def isolates(code: int) -> bool:
    """Return whether the row of an XID in the package isolates at once: a gate fails for it, whoever ignores it."""
    row = row_for(f"xid_{code}", packaged().signals)
    return row is not None and is_guarded(row)


def _taken_back(xid: Xid) -> bool:
    """Return whether XID 154, which names the recovery action that a GPU needs, names none: the last one counts."""
    return xid.code == 154 and xid.text.rstrip().endswith("(None)")
