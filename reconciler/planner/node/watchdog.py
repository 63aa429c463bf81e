"""A source that has not answered for a while: neither all well nor all ill, and told as a signal of its own.

What was not read stays unknown, and nothing is done for it. But a source that stays silent watches nothing any more,
and somebody has to know. The ledger keeps since when each has been silent (converge/remember.py); a silence with a
known cause, such as a machine that is off or boots, is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from reconciler.health.signals import Signal
from reconciler.health.table import table_of
from reconciler.model.bmc_log import unread_part
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.units import format_duration
from reconciler.model.vocab import Source, UnknownReason

_BMC_SILENT, _HOST_SILENT, _FACTS_SILENT = "bmc_silent", "host_silent", "facts_silent"
_NOT_READY: Final = "kubelet_not_ready"  # of a host that answers
# Facts of a host that answers, without which most signals of its hardware can't be told -> in words.
WATCHED: Final = {"gpus": "GPUs", "xids": "kernel log", "links": "ports", "counters": "counters of errors"}
BMC_LOG: Final = "bmc_log"  # entries of the log of a BMC that answers
_NO_SILENCE: Final = frozenset(
    {UnknownReason.NOT_ASKED, UnknownReason.NOT_READ, UnknownReason.EXPLAINED, UnknownReason.CRASHED}
)


def silence_signals(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[Signal, ...]:
    """Return a signal for each source that is silent now, and has been for the window of the signal's row."""
    return tuple(_signals(desired, observed, record)) if record.silent_since else ()


def _signals(desired: Desired, observed: Observed, record: NodeRecord) -> Iterator[Signal]:
    table = table_of(desired.profile)
    for name, key, reading, source in (
        (_BMC_SILENT, "redfish", observed.hot, Source.REDFISH),
        (_HOST_SILENT, "ssh", observed.host, Source.SSH),
    ):
        if _is_silent(reading) and (how_long := _lasted(name, key, reading, desired, record)):
            yield Signal(name, _said(reading, how_long), table.rule_of(name), source)
    # By the time of `hot`: the inventory may be of an earlier pass.
    how_long = _lasted(_FACTS_SILENT, BMC_LOG, observed.hot, desired, record)
    if how_long and (why := unread_part(observed.inventory)):
        yield Signal(_FACTS_SILENT, f"for {how_long} now {why}", table.rule_of(_FACTS_SILENT), Source.REDFISH)
    if isinstance(observed.host, Answered):
        facts = observed.host.value
        for field, words in WATCHED.items():
            if getattr(facts, field) is not None:
                continue
            if how_long := _lasted(_FACTS_SILENT, field, observed.host, desired, record):
                why = facts.unknown.get(field, "no reason given")
                detail = f"its {words} could not be read for {how_long}: {why}"
                yield Signal(_FACTS_SILENT, detail, table.rule_of(_FACTS_SILENT), Source.SSH)
        member = observed.member.value if isinstance(observed.member, Answered) else None
        how_long = _lasted(_NOT_READY, "not_ready", observed.member, desired, record)
        if member is not None and not member.ready and how_long:
            detail = (
                f"its kubelet has not been ready for {how_long}: {member.reasons.get('Ready') or 'no reason given'}"
            )
            yield Signal(_NOT_READY, detail, table.rule_of(_NOT_READY), Source.KUBERNETES)


def _said(reading: Answered[Any] | Silent, how_long: str) -> str:
    if isinstance(reading, Silent) and reading.reason is UnknownReason.BUSY:
        return f"it has been busy for {how_long}: {reading.detail}"
    return f"it has not answered for {how_long}"


def _is_silent(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason not in _NO_SILENCE


def _lasted(name: str, key: str, reading: Answered[Any] | Silent, desired: Desired, record: NodeRecord) -> str:
    """Return for how long a source has been silent, in words; "" where that is less than the row's window."""
    since = record.silent_since.get(key)
    if since is None:
        return ""
    seconds = (reading.at - since).total_seconds()
    return format_duration(seconds) if seconds >= table_of(desired.profile).window_s(name) else ""
