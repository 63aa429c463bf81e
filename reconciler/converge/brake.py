"""What a pass must ask before anything begins: is it this machine that sees nothing, and is there a storm?

The brake is a hold of the ledger: it survives restarts, every runner respects it, and a person lifts it. Whoever notes
a first sight asks too, or else what it noted would be too old to be news when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from reconciler.model.desired import Fleet
from reconciler.model.errors import Blind
from reconciler.model.observed import Observation
from reconciler.model.plan import Blocked
from reconciler.model.ports import Ledger
from reconciler.model.records import STORM, NodeRecord
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.storm import BAD, bad_nodes, bad_since, storm
from reconciler.planner.node.holds import braked, by_subject

OWNER = "storm brake"


def check_observer(fleet: Fleet, observation: Observation) -> None:
    """Blind when the pass proves nothing. Asked before anything of it is noted."""
    if dark := observer_outage(fleet, observation):
        raise Blind(dark)


def look_for_storm(
    ledger: Ledger, fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord], now: datetime
) -> Blocked | None:
    """The brake as it stands after this pass; set now, if this is what trips it. `records`: of the nodes looked at.

    Of nodes that were not selected the cluster alone tells.
    """
    gone = bad_nodes(fleet, observation)
    others = [name for name in gone if name not in records]
    known = {**records, **(ledger.nodes(others) if others else {})}
    _note(ledger, fleet, observation, gone, known, now)
    holds = by_subject(fleet.holds, ledger.holds())
    standing = braked(holds, now)
    found = storm(fleet, observation, gone, known, holds, now) if gone and standing is None else None
    if found is None:
        return standing
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
    """Since when nodes have been bad. Of whom nothing can be told now, what was noted before stays."""
    begun = [name for name, how in gone.items() if how and bad_since(records[name]) is None]
    noted = (name for name in observation.nodes if name in records and BAD in records[name].silent_since)
    over = [name for name in noted if name in fleet.nodes and (name in begun or name not in gone)]
    news = [*((name, BAD, False) for name in over), *((name, BAD, True) for name in begun)]
    if news:
        ledger.note_silences(news, now)
