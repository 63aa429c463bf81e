"""Nodes of which a leader has nothing to learn: they are as they were when a pass learnt nothing of them.

A pass asks each node for news: its identity, silences, illness, events, counters, and whether it is part of a storm.
Nearly always there is none. A node is quiet when it had none, and spec, record and readings are the same since. Its
answer may change by time alone, as a look at counters grows old: what is asked compares the clocks of the readings,
which are moments here and tell until when it holds. A node that shows any sign of illness, or showed one that is not
over, is never quiet. So a quiet node adds nothing to what the ledger learns, and need not be asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from reconciler.health.signals import Signal
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Observation, Observed
from reconciler.model.records import COUNTED, LOG_READ, NodeRecord
from reconciler.planner.fleet.signal_history import states_of
from reconciler.planner.fleet.tally import Tally
from reconciler.planner.node.boot_proofs import boot_signals
from reconciler.planner.node.moment import Horizon
from reconciler.planner.node.node_inputs import as_moments, values_of
from reconciler.planner.node.signal_cache import SignalCache
from reconciler.planner.node.unhealed import kept_of


@dataclass(slots=True)
class _Quiet:
    """A node without news. It has none while no clock is before `clocks`, and none has come to `until`."""

    desired: Desired
    record: NodeRecord
    seen: Observed
    values: tuple[Any, ...]
    clocks: tuple[datetime, ...]
    until: datetime


@dataclass(slots=True)
class Asked:
    """The nodes that a pass asks for news, as they are asked: their clocks are moments.

    `signals`: what they show. `quiet`: those that are asked although they are quiet, to see if that is right.
    `crashed`: those of which nobody can tell what they show.
    """

    nodes: dict[str, Observed] = field(default_factory=dict)
    signals: SignalCache = field(default_factory=SignalCache)
    quiet: frozenset[str] = frozenset()
    horizons: dict[str, Horizon] = field(default_factory=dict)
    crashed: set[str] = field(default_factory=set)


class QuietNodes:
    """Those of one leader. `states`: what all nodes of the fleet are and run, as of `states_of`."""

    def __init__(self) -> None:
        self.states: Tally[str] = Tally()
        self._quiet: dict[str, _Quiet] = {}

    def ask(
        self,
        fleet: Fleet,
        observation: Observation,
        records: Mapping[str, NodeRecord],
        now: datetime,
        signals: SignalCache,
        *,
        whole: bool = False,
    ) -> Asked:
        """Return the nodes to ask; all of them when it is `whole`."""
        asked, quiet = Asked(), set[str]()
        for name, seen in observation.nodes.items():
            desired = fleet.nodes.get(name)
            if desired is not None and self._is_quiet(desired, seen, records.get(name), now, signals):
                if not whole:
                    continue
                quiet.add(name)
            horizon = asked.horizons[name] = Horizon()
            view = asked.nodes[name] = as_moments(seen, horizon)
            if desired is not None:
                self.states.take(name, states_of(desired, seen))
                shown = _shown(desired, seen, signals)
                if shown is None:
                    asked.crashed.add(name)
                else:
                    asked.signals.hold(desired.profile, view, shown)
        asked.quiet = frozenset(quiet)
        self._keep(fleet, observation)
        return asked

    def _keep(self, fleet: Fleet, observation: Observation) -> None:
        self.states.keep(fleet.nodes)
        for name in self._quiet.keys() - fleet.nodes.keys():
            del self._quiet[name]
        for name in fleet.nodes.keys() - observation.nodes.keys():
            self.states.take(name, states_of(fleet.nodes[name], None))

    def _is_quiet(
        self, desired: Desired, seen: Observed, record: NodeRecord | None, now: datetime, signals: SignalCache
    ) -> bool:
        known = self._quiet.get(desired.node)
        if known is None or known.desired is not desired or known.record is not record:
            return False
        clocks = _clocks(seen, now)
        if not all(map(datetime.__le__, known.clocks, clocks)) or max(clocks) >= known.until:
            return False
        if known.seen is not seen:
            if values_of(seen) != known.values or _shown(desired, seen, signals) != ():
                return False
            known.seen = seen
        return True

    def learnt(
        self,
        asked: Asked,
        fleet: Fleet,
        observation: Observation,
        records: Mapping[str, NodeRecord],
        now: datetime,
        news: Collection[str],
        idle: Iterable[str],
    ) -> None:
        """Take in what came of asking. `news`: of which nodes there was any. `idle`: those that nobody works on.

        Of those that are worked on, the workers themselves learn a part.
        """
        idle = set(idle)
        for name in asked.nodes:
            desired, record, seen = fleet.nodes.get(name), records.get(name), observation.nodes[name]
            self._quiet.pop(name, None)
            if desired is None or record is None or name in news or name not in idle or name in asked.crashed:
                continue
            clocks, until = _clocks(seen, now), asked.horizons[name].until
            view = asked.nodes[name]
            shows = asked.signals.of(desired.profile, view) or boot_signals(desired, view, record)
            if not shows and until > max(clocks) and _is_clear(record):
                self._quiet[name] = _Quiet(desired, record, seen, values_of(seen), clocks, until)


def _shown(desired: Desired, seen: Observed, signals: SignalCache) -> tuple[Signal, ...] | None:
    """Return the signals that a node shows; None when finding out crashed, which costs this node alone."""
    look = partial(signals.of, desired.profile, seen)
    return of_its_own(desired.node, "looking at its health", look, _nobody_knows)


def _nobody_knows(_crash: Crash) -> None:
    return None


def _clocks(seen: Observed, now: datetime) -> tuple[datetime, ...]:
    return now, seen.hot.at, seen.host.at, seen.member.at


def _is_clear(record: NodeRecord) -> bool:
    """Return whether the ledger knows of nothing that this node suffers from, or did until lately."""
    others = (key for key in record.silent_since if key != LOG_READ and not key.startswith(COUNTED))
    return not any(others) and not kept_of(record)
