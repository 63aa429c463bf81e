"""Say of the whole fleet how it is, in a word of Argo CD's, and keep a ConfigMap at it.

Argo CD gives an Application the worst health of the objects that its repository declares, and knows no more of a
Deployment than whether its pods run. The leader writes here how the fleet is; deploy/argo-cd has the script by which
Argo CD reads it. It runs that whenever the object changes and at each refresh (every three minutes by default) and
gives it os.time: so the instant of the last write tells when nobody leads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from reconciler.app.kept_object import Kept
from reconciler.drivers.kube import HealthMap
from reconciler.model.errors import DriverError
from reconciler.model.status import FleetStatus, LoopStatus, NodeStatus, Role

ANEW_S: Final = 300.0  # the script takes an object that is older than three of these for nobody's
_LOOK_S: Final = 30.0  # each look counts all nodes
_NAMED: Final = 5  # nodes
_LONGEST: Final = 500  # characters of a message
_UNDER_WAY: Final = (NodeStatus.ACTING, NodeStatus.WAITING, NodeStatus.PLANNED)


class HealthWord(StrEnum):
    """Argo CD's (gitops-engine, pkg/health)."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    SUSPENDED = "Suspended"
    DEGRADED = "Degraded"


@dataclass(frozen=True, slots=True)
class FleetHealth:
    """`commit`: of the spec in force."""

    word: HealthWord
    message: str
    commit: str


def fleet_health(loop: LoopStatus, fleet: FleetStatus | None, now: datetime) -> FleetHealth:
    """Return how the fleet is by its last pass: worst what waits for a person, then what is under way.

    Nodes that are held, set aside or not known make it no worse: a person has asked for it, or the next pass tells.
    `now`: by the fleet's clock.
    """
    word, message = _found(loop, fleet, now)
    return FleetHealth(word, message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…", loop.spec_commit)


def _found(loop: LoopStatus, fleet: FleetStatus | None, now: datetime) -> tuple[HealthWord, str]:
    unready = loop.unready(now)
    if not loop.spec_commit:
        return (HealthWord.DEGRADED if loop.spec_trouble else HealthWord.PROGRESSING), unready
    if loop.stopped and (fleet is None or loop.stopped != fleet.braked):  # the storm brake stops it, too
        return HealthWord.SUSPENDED, f"the fleet is stopped: {loop.stopped}"
    if fleet is None or loop.last_pass is None:
        return HealthWord.PROGRESSING, "the first pass has not ended"
    if wrong := [*([unready] if unready else []), *_for_people(loop, fleet)]:
        return HealthWord.DEGRADED, "; ".join(wrong)
    counts = Counter(node.status for node in fleet.nodes.values())
    said = ", ".join(f"{counts[one]} {one.value.replace('_', ' ')}" for one in NodeStatus if counts[one])
    under_way = any(counts[status] for status in _UNDER_WAY)
    return (HealthWord.PROGRESSING if under_way else HealthWord.HEALTHY), f"nodes: {said or 'none'}"


def _for_people(loop: LoopStatus, fleet: FleetStatus) -> list[str]:
    blocked = sorted(name for name, node in fleet.nodes.items() if node.status is NodeStatus.BLOCKED)
    named = ", ".join(blocked[:_NAMED]) + (f" and {len(blocked) - _NAMED} more" if len(blocked) > _NAMED else "")
    found = {
        f"the newest commit is not in force: {loop.spec_trouble}": loop.spec_trouble,
        f"the storm brake is on: {fleet.braked}": fleet.braked,
        f"rollouts are halted: {', '.join(fleet.halted)}": fleet.halted,
        f"a person must look at {named}: reconciler explain NODE": blocked,
    }
    return [text for text, there in found.items() if there]


def kept_health(
    target: HealthMap,
    loop: Callable[[], LoopStatus],
    fleet: Callable[[], FleetStatus | None],
    now: Callable[[], datetime],
) -> Kept[FleetHealth]:
    """Return what keeps the ConfigMap at the fleet's health for as long as this process leads."""

    def value() -> FleetHealth | None:
        return fleet_health(loop(), fleet(), now()) if loop().role is Role.LEADER else None

    def trouble(_health: FleetHealth, error: DriverError) -> str:
        return (
            f"{target.place} does not say how the fleet is, and Argo CD will take it for one that nobody leads: "
            f"{error}. The pod needs a way to the API server (networkPolicy.egress), and the right to patch that "
            "ConfigMap"
        )

    return Kept(value, lambda health: target.write(_data(health)), "health_map", trouble, _LOOK_S, ANEW_S)


def _data(health: FleetHealth) -> Mapping[str, str]:
    at = int(time.time())  # by the wall clock, as Argo CD compares it, whatever time a lab has
    return {"health": health.word.value, "message": health.message, "commit": health.commit, "at": str(at)}
