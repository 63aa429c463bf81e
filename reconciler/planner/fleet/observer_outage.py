"""Outages of the observer: when hardly any node answers, the fault is more likely on this machine (pitfall J6).

It has one network link, route, name service and VPN; the nodes have many. A pass that reaches no node proves nothing
about any, so nothing is recorded of it, nothing is concluded from it, and no action begins after it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from reconciler.model.desired import Fleet
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.vocab import UnknownReason

LEAST = 3  # nodes: fewer may well be silent for reasons of their own
_NO_SILENCE = frozenset({UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED, UnknownReason.CRASHED})
SHARE = 90  # per cent: a few may answer from somewhere near, such as this machine's own rack


def observer_outage(fleet: Fleet, observation: Observation) -> str:
    """Return a sentence that says why this pass proves nothing; "" when it does, which is the rule.

    A silent node that the cluster reports as not ready does not count: a second source confirms its outage.
    """
    asked, silent = 0, list[Observed]()
    for name, seen in observation.nodes.items():
        if name not in fleet.nodes or not (own := _own(seen)):
            continue
        asked += 1
        if all(map(_is_silent, own)) and not _missed(seen):
            silent.append(seen)
        elif (asked - len(silent)) * 100 > (100 - SHARE) * len(observation.nodes):
            return ""  # enough of them answer, whatever the rest does
    if len(silent) < LEAST or len(silent) * 100 < SHARE * asked:
        return ""
    why: Counter[str] = Counter()
    for seen in silent:
        readings: dict[str, Answered[Any] | Silent] = {"BMC": seen.hot, "host": seen.host, "cluster": seen.member}
        why.update(f"{who} {r.reason}" for who, r in readings.items() if isinstance(r, Silent) and _is_silent(r))
    told = ", ".join(f"{word} {count} times" for word, count in sorted(why.items()))
    ready = any(isinstance(seen.member, Answered) for seen in silent)
    contrast = ", while the cluster has them as ready" if ready else ""
    return (
        f"this machine can't reach {len(silent)} of {asked} nodes over any way of its own{contrast} ({told}): the "
        "fault is more likely here than there; check its network, routes, names and credentials. Nothing was recorded"
    )


def _own(seen: Observed) -> list[Answered[Any] | Silent]:
    """Return the readings that this machine asked for itself, without the cluster in between."""
    return [
        reading
        for reading in (seen.hot, seen.host)
        if isinstance(reading, Answered) or reading.reason is not UnknownReason.NOT_ASKED
    ]


def _is_silent(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason not in _NO_SILENCE


def _missed(seen: Observed) -> bool:
    """Return whether the cluster misses the node too."""
    return isinstance(seen.member, Answered) and (seen.member.value is None or seen.member.value.ready is False)
