"""Compute what each node's reading tells of its health once, for all that ask: evidence, storm, incidents and plan."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from reconciler.health.signals import Signal, signals, unread_signals
from reconciler.model.desired import Profile
from reconciler.model.observed import Observed


@dataclass(slots=True)
class _Told:
    """A reading with what it tells; None: nobody has asked."""

    profile: Profile
    observed: Observed
    signals: tuple[Signal, ...] | None = None
    unread: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SignalCache:
    """Keeps what the latest reading of each node tells.

    An entry serves only the very objects that it was computed from: comparing them would take longer than computing.
    """

    _told: dict[str, _Told] = field(default_factory=dict)

    def hold(self, profile: Profile, observed: Observed, shown: tuple[Signal, ...]) -> SignalCache:
        """Take from elsewhere that this reading shows these signals."""
        self._told[observed.node] = _Told(profile, observed, shown)
        return self

    def of(self, profile: Profile, observed: Observed) -> tuple[Signal, ...]:
        """Return all signals of a node, as `health.signals.signals` computes them."""
        told = self._of_reading(profile, observed)
        if told.signals is None:
            told.signals = signals(profile, observed)
        return told.signals

    def unread(self, profile: Profile, observed: Observed) -> tuple[str, ...]:
        """Return what can't be confirmed, as `health.signals.unread_signals` computes it."""
        told = self._of_reading(profile, observed)
        if told.unread is None:
            told.unread = unread_signals(profile, observed)
        return told.unread

    def _of_reading(self, profile: Profile, observed: Observed) -> _Told:
        told = self._told.get(observed.node)
        if told is None or told.profile is not profile or told.observed is not observed:
            told = self._told[observed.node] = _Told(profile, observed)
        return told

    def keep(self, names: Container[str]) -> None:
        """Keep what these nodes show, and drop all else."""
        for name in [name for name in self._told if name not in names]:
            del self._told[name]
