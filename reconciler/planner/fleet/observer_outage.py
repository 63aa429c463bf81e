"""Whether it is this machine that sees nothing: when all is dark, the observer is at fault (pitfall J6).

Its own link, route, name service or VPN is one part; the nodes' are many. A pass that reaches nobody proves nothing
about anybody, so nothing is noted of it, nothing is concluded from it, and nothing begins after it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from reconciler.model.desired import Fleet
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.vocab import UnknownReason

LEAST = 3  # nodes: fewer may well be dark on their own account
_NO_SILENCE = frozenset({UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED, UnknownReason.CRASHED})
SHARE = 90  # per cent: a few may answer from somewhere near, such as this machine's own rack


def blindness(fleet: Fleet, observation: Observation) -> str:
    """A sentence when the observer is at fault; "" as a rule.

    A node that the cluster calls not ready is dark on its own account: there is a second witness.
    """
    asked, dark = 0, list[Observed]()
    for name, seen in observation.nodes.items():
        if name not in fleet.nodes or not (own := _own(seen)):
            continue
        asked += 1
        if all(map(_silent, own)) and not _missed(seen):
            dark.append(seen)
        elif (asked - len(dark)) * 100 > (100 - SHARE) * len(observation.nodes):
            return ""  # enough of them answer, whatever the rest does
    if len(dark) < LEAST or len(dark) * 100 < SHARE * asked:
        return ""
    why: Counter[str] = Counter()
    for seen in dark:
        readings: dict[str, Answered[Any] | Silent] = {"BMC": seen.hot, "host": seen.host, "cluster": seen.member}
        why.update(f"{who} {r.reason}" for who, r in readings.items() if isinstance(r, Silent) and _silent(r))
    told = ", ".join(f"{word} {count} times" for word, count in sorted(why.items()))
    ready = any(isinstance(seen.member, Answered) for seen in dark)
    witness = ", while the cluster has them as ready" if ready else ""
    return (
        f"this machine can't reach {len(dark)} of {asked} nodes over any way of its own{witness} ({told}): the "
        "fault is more likely here than there; see to its network, routes, names and credentials. Nothing was noted"
    )


def _own(seen: Observed) -> list[Answered[Any] | Silent]:
    """What this machine asked the node itself, without the cluster between them."""
    return [
        reading
        for reading in (seen.hot, seen.host)
        if isinstance(reading, Answered) or reading.reason is not UnknownReason.NOT_ASKED
    ]


def _silent(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason not in _NO_SILENCE


def _missed(seen: Observed) -> bool:
    """Whether the cluster misses it too."""
    return isinstance(seen.member, Answered) and (seen.member.value is None or seen.member.value.ready is False)
