"""How the nodes that a worker is to plan travel to it, and how the plans come back: equal ones once."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from reconciler.drivers.engine.answers import Digests, Known
from reconciler.model.observed import Answered, Member, Observed, Silent
from reconciler.model.observer_port import Readings
from reconciler.planner.node.shard_plans import PlanShard, QuietPlan

_FAST: Final = 1  # zlib's level
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Read(NamedTuple):
    """The readings of a node that are meant, and what the leader read of it. `times`: in the order of Readings."""

    digests: Digests
    times: tuple[datetime, ...]
    member: Answered[Member | None] | Silent


@dataclass(frozen=True, slots=True)
class PlanTask:
    """Nodes to plan, without what their worker has read of them."""

    shard: PlanShard
    read: Mapping[str, Read]

    @classmethod
    def of(cls, shard: PlanShard, digests: Mapping[str, Digests]) -> PlanTask:
        seen = shard.seen
        read = {name: Read(own, _times(seen[name]), seen[name].member) for name, own in digests.items()}
        return cls(replace(shard, seen={}), read)

    def packed(self) -> bytes:
        return zlib.compress(pickle.dumps(self, pickle.HIGHEST_PROTOCOL), _FAST)

    @staticmethod
    def unpacked(data: bytes) -> PlanTask:
        found: PlanTask = pickle.loads(zlib.decompress(data))  # noqa: S301 - whoever may send tasks runs code here anyway
        return found

    def with_readings(self, last: Mapping[str, Known]) -> PlanShard:
        """Return the shard as it is planned: of the nodes whose last readings here are those that the leader means."""
        seen = {}
        for name, meant in self.read.items():
            known = last.get(name)
            if known is not None and known.digests == meant.digests and _at(known.readings) == meant.times:
                seen[name] = Observed(name, *known.readings, meant.member)
        return replace(self.shard, seen=seen)


def packed_plans(plans: Mapping[str, QuietPlan]) -> bytes:
    """Return plans as they travel. Those that are equal but for node and time travel once."""
    distinct: dict[bytes, int] = {}
    rows = []
    for name, quiet in plans.items():
        plan = pickle.dumps(replace(quiet.plan, node="", observed_at=_EPOCH), pickle.HIGHEST_PROTOCOL)
        rows.append((name, distinct.setdefault(plan, len(distinct)), quiet.valid_until))
    return zlib.compress(pickle.dumps((list(distinct), rows), pickle.HIGHEST_PROTOCOL), _FAST)


def unpacked_plans(data: bytes, seen: Mapping[str, Observed]) -> dict[str, QuietPlan]:
    """Return the plans of the nodes in `seen`."""
    distinct, rows = pickle.loads(zlib.decompress(data))  # noqa: S301 - whoever works for this scheduler runs code here
    plans = list(map(pickle.loads, distinct))
    return {
        name: QuietPlan(replace(plans[at], node=name, observed_at=seen[name].hot.at), valid_until)
        for name, at, valid_until in rows
    }


def _times(seen: Observed) -> tuple[datetime, ...]:
    return _at(Readings(seen.hot, seen.inventory, seen.host))


def _at(readings: Readings) -> tuple[datetime, ...]:
    return tuple(one.at for one in readings)
