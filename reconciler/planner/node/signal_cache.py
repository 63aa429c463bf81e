"""Compute the signals of each node once per observation, for all that look at them: evidence, storm and plan."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from reconciler.health.signals import Signal, signals
from reconciler.model.desired import Profile
from reconciler.model.observed import Observed


@dataclass(frozen=True, slots=True)
class SignalCache:
    """The signals of the latest observation of each node.

    An entry serves only the very objects that it was computed from: comparing them would take longer than computing.
    """

    _found: dict[str, tuple[Profile, Observed, tuple[Signal, ...]]] = field(default_factory=dict)

    def of(self, profile: Profile, observed: Observed) -> tuple[Signal, ...]:
        """Return all signals of a node, as `health.signals.signals` computes them."""
        known = self._found.get(observed.node)
        if known is None or known[0] is not profile or known[1] is not observed:
            known = self._found[observed.node] = (profile, observed, signals(profile, observed))
        return known[2]

    def keep(self, names: Container[str]) -> None:
        """Keep what these nodes show, and drop all else."""
        for name in [name for name in self._found if name not in names]:
            del self._found[name]
