"""Find the signs of illness that do not count yet: those that may be old, and those that may be over in a moment.

Conditions of a node object outlive a treatment until their detector runs again. A port that trains its link, or whose
switch restarts, is soon up again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reconciler.health.signals import Signal
from reconciler.model.records import LASTS, NodeRecord
from reconciler.model.units import format_duration
from reconciler.model.vocab import Source
from reconciler.planner.node.record import stale_signals_until

_OLD: Final = "maybe from before the treatment: its detector has time to take it back"


@dataclass(frozen=True, slots=True)
class Withheld:
    """Signals that do not count yet, each with why; and until when the first of them does not."""

    signals: tuple[tuple[Signal, str], ...] = ()
    until: datetime | None = None

    @property
    def sentence(self) -> str:
        """The first, as a sentence; "" where there is none."""
        if not self.signals:
            return ""
        signal, why = self.signals[0]
        return f"{signal.detail}{', ' if why == _OLD else '; '}{why}"


def withheld(found: Sequence[Signal], record: NodeRecord, now: datetime) -> Withheld:
    """Return those of the signals found that do not count yet."""
    if not found:
        return Withheld()
    why: list[tuple[Signal, str]] = []
    ends: list[datetime] = []
    old_until = stale_signals_until(record, now)
    for signal in found:
        if old_until is not None and signal.source is Source.KUBERNETES:
            why.append((signal, _OLD))
            ends.append(old_until)
        elif (until := _lasts_until(signal, record, now)) is not None:
            why.append((signal, f"it counts when it has lasted {format_duration(signal.rule.lasts_s)}"))
            ends.append(until)
    return Withheld(tuple(why), min(ends, default=None))


def _lasts_until(signal: Signal, record: NodeRecord, now: datetime) -> datetime | None:
    """Return until when a signal has to last before it counts; None when it has, or need not."""
    if not signal.rule.lasts_s:
        return None
    since = record.silent_since.get(LASTS + signal.path)
    begun = now if since is None or since > now else since  # a clock may have been set back
    until = begun + timedelta(seconds=signal.rule.lasts_s)
    return until if until > now else None


def lasting_updates(found: Sequence[Signal], unread: tuple[str, ...], record: NodeRecord) -> Iterator[tuple[str, bool]]:
    """Yield (key, whether it is kept from now on) for signals that have to last: since when each is shown.

    `unread`: beginnings of the paths of which nothing is known now. One that was seen to be gone begins anew.
    """
    shown = {LASTS + signal.path for signal in found if signal.rule.lasts_s}
    kept = {key for key in record.silent_since if key.startswith(LASTS)}
    yield from ((key, True) for key in sorted(shown - kept))
    yield from ((key, False) for key in sorted(kept - shown) if not key.removeprefix(LASTS).startswith(unread))
