"""The log of a lab machine's BMC, as the driver reads it from the wire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from reconciler.lab.hardware.parts import MAX_RECORDS
from reconciler.model.bmc_log import kept_events
from reconciler.model.observed import BmcEvent
from reconciler.model.vocab import Health

SEVERITIES = {"OK": Health.OK, "Warning": Health.WARNING, "Critical": Health.CRITICAL}
_XID = re.compile(r"Driver Event Message.*\bXID (\d+)")


def logged(entries: Iterable[Mapping[str, Any]], epoch: datetime, now: datetime) -> tuple[tuple[BmcEvent, ...], str]:
    """Return the events that a reading keeps, and why others may have gone unread; "" if none has."""
    kept, why = kept_events([_event(one, epoch, now) for one in list(entries)[-MAX_RECORDS:]], holds=MAX_RECORDS)
    return kept, f"the log was not read whole: {why}" if why else ""


def _event(entry: Mapping[str, Any], epoch: datetime, now: datetime) -> BmcEvent:
    at, message = epoch + timedelta(seconds=float(entry["at"])), str(entry["message"])
    severity, age_s = SEVERITIES[str(entry["severity"])], (now - at).total_seconds()
    return BmcEvent(str(entry["id"]), at.isoformat(), severity, message, _kind(message), age_s)


def _kind(message: str) -> str:
    """Return the kind of an entry by the words that the lab's machines log."""
    xid = _XID.search(message)
    return "memory_ue" if message.startswith("Uncorrectable ECC") else f"xid_{xid[1]}" if xid else ""
