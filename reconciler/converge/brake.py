"""The storm brake: nothing that disrupts begins while too many nodes went bad at once (pitfalls C5, J5).

The brake is a hold in the ledger: it survives restarts, every runner respects it, and a person lifts it. Every command
that records when a node was first seen bad looks for a storm too: a later one would take that record for old news.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from reconciler.model.desired import Fleet
from reconciler.model.observed import Observation
from reconciler.model.plan import Blocked
from reconciler.model.ports import Ledger
from reconciler.model.records import STORM, NodeRecord
from reconciler.planner.fleet.storm import BAD, bad_nodes, bad_since, storm
from reconciler.planner.node.holds import braked, by_subject

OWNER = "storm brake"


def look_for_storm(
    ledger: Ledger, fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord], now: datetime
) -> Blocked | None:
    """Set the storm brake if this observation trips it, and return why disruption is held back; None when it is not.

    `records`: those of the nodes that were looked at. Of the other nodes only the cluster's view is known.
    """
    gone = bad_nodes(fleet, observation)
    others = [name for name in gone if name not in records]
    known = {**records, **(ledger.nodes(others) if others else {})}
    _note(ledger, fleet, observation, gone, known, now)
    holds = by_subject(fleet.holds, ledger.holds())
    braked_before = braked(holds, now)
    found = storm(fleet, observation, gone, known, holds, now) if gone and braked_before is None else None
    if found is None:
        return braked_before
    ledger.hold(STORM, found.sentence, OWNER, None, now)
    return braked(by_subject((), ledger.holds()), now)


def _note(
    ledger: Ledger,
    fleet: Fleet,
    observation: Observation,
    gone: Mapping[str, str | None],
    records: Mapping[str, NodeRecord],
    now: datetime,
) -> None:
    """Record since when nodes have been bad. What was recorded of a node stays while nothing is known of it."""
    begun = [name for name, how in gone.items() if how and bad_since(records[name]) is None]
    noted = (name for name in observation.nodes if name in records and BAD in records[name].silent_since)
    over = [name for name in noted if name in fleet.nodes and (name in begun or name not in gone)]
    news = [*((name, BAD, False) for name in over), *((name, BAD, True) for name in begun)]
    if news:
        ledger.note_silences(news, now)
