"""The storm brake: nothing that disrupts begins while too many nodes went bad at once (pitfalls C5, J5).

The brake is a hold in the ledger: it survives restarts, every runner respects it, and a person lifts it. Only `apply`
and `run` set it, and only they record when a node was first seen bad: what they see they act upon, while a slow CI job
that plans or reports would else stop the fleet for everybody. A plan shows the brake that they would set.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from reconciler.model.desired import Fleet
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.ports import Ledger, Recollection
from reconciler.model.records import BAD, NO_CLUSTER, STORM, Hold, NodeRecord
from reconciler.planner.fleet.storm import Storm, bad_nodes, bad_since, storm
from reconciler.planner.node.holds import braked, by_subject
from reconciler.planner.node.signal_cache import SignalCache

OWNER = "storm brake"
FORESEEN = "storm brake, which the next apply or run sets"


def look_for_storm(
    ledger: Ledger,
    fleet: Fleet,
    observation: Observation,
    records: Mapping[str, NodeRecord],
    now: datetime,
    signals: SignalCache | None = None,
) -> set[str]:
    """Set the storm brake if this observation trips it, and return the nodes that are newly bad, or no longer are.

    `records`: those of the nodes that were looked at. Of the other nodes only the cluster's view is known. `signals`:
    shared with others that ask what nodes show.
    """
    gone, known = _bad_nodes(ledger, fleet, observation, records, signals)
    noted = _note(ledger, fleet, observation, gone, known, now)
    found = _new_storm(ledger, fleet, observation, gone, known, now)
    if found is not None:
        ledger.hold(STORM, found.sentence, OWNER, None, now)
    return noted


def foreseen_brake(
    ledger: Recollection, fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord], now: datetime
) -> Hold | None:
    """Return the brake that `look_for_storm` would set, and write nothing; None when it would set none."""
    gone, known = _bad_nodes(ledger, fleet, observation, records)
    found = _new_storm(ledger, fleet, observation, gone, known, now)
    return None if found is None else Hold(0, STORM, found.sentence, FORESEEN, now)


def _bad_nodes(
    ledger: Recollection,
    fleet: Fleet,
    observation: Observation,
    records: Mapping[str, NodeRecord],
    signals: SignalCache | None = None,
) -> tuple[Mapping[str, str | None], Mapping[str, NodeRecord]]:
    """Return the nodes that are bad and how (None: that is not known, or expected), and the records of all."""
    gone = bad_nodes(fleet, observation, signals=signals)
    others = [name for name in gone if name not in records]
    known = {**records, **(ledger.nodes(others) if others else {})}
    if any(NO_CLUSTER in known[name].silent_since for name in gone):
        gone = bad_nodes(fleet, observation, known, signals)
    return gone, known


def _new_storm(
    ledger: Recollection,
    fleet: Fleet,
    observation: Observation,
    gone: Mapping[str, str | None],
    records: Mapping[str, NodeRecord],
    now: datetime,
) -> Storm | None:
    """Return the storm that the brake is not set for yet."""
    holds = by_subject(fleet.holds, ledger.holds())
    return storm(fleet, observation, gone, records, holds, now) if gone and braked(holds, now) is None else None


def _note(
    ledger: Ledger,
    fleet: Fleet,
    observation: Observation,
    gone: Mapping[str, str | None],
    records: Mapping[str, NodeRecord],
    now: datetime,
) -> set[str]:
    """Record since when nodes have been bad; that stays while nothing is known of them. Return those with news."""
    begun = [name for name, how in gone.items() if how and bad_since(records[name]) is None]
    known = [name for name in observation.nodes if name in records and name in fleet.nodes]
    noted = (name for name in known if BAD in records[name].silent_since)
    over = [(name, BAD, False) for name in noted if name in begun or name not in gone]
    without = (name for name in known if NO_CLUSTER in records[name].silent_since)
    joined = (name for name in without if name not in gone or _is_ready(observation.nodes[name]))
    news = [*over, *((name, NO_CLUSTER, False) for name in joined), *((name, BAD, True) for name in begun)]
    if news:
        ledger.note_silences(news, now)
    return {name for name, _, _ in news}


def _is_ready(seen: Observed) -> bool:
    """Return whether a node is a Ready member: whatever else is wrong with it, it is in a cluster."""
    return isinstance(seen.member, Answered) and seen.member.value is not None and bool(seen.member.value.ready)
