"""The port through which a pass reads its nodes: shard by shard, in this process or on the workers of an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from reconciler.model.desired import Desired, Settings
from reconciler.model.observed import Answered, HostFacts, Observed, RedfishHot, RedfishInventory, Silent

SITE: Final = "site"  # the failure domain that says whose workers reach a node


class Readings(NamedTuple):
    """The answers of one node's BMC and host."""

    hot: Answered[RedfishHot] | Silent
    inventory: Answered[RedfishInventory] | Silent
    host: Answered[HostFacts] | Silent


@dataclass(frozen=True, slots=True)
class ObserveShard:
    """A part of the nodes of one site that a pass reads. `key`: the same for the same nodes in each pass.

    `before`: of the nodes whose inventory may be kept, what was observed before. `after_s`, `over_s`: seconds of fleet
    time until its reads begin, and over which they are spread. `deadline_s`: wall-clock seconds from then on after
    which nobody waits for what is left of it.
    """

    key: str
    site: str
    settings: Settings
    nodes: Mapping[str, Desired]
    before: Mapping[str, Observed]
    deadline_s: float
    after_s: float = 0.0
    over_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ShardSeen:
    """Nodes of a shard that were read. `insecure`: sentences on logins, as of Fabric.insecure_logins."""

    key: str
    nodes: Mapping[str, Readings]
    insecure: tuple[str, ...] = ()


class Observer(Protocol):
    """Reads nodes. It keeps sessions and earlier readings, and has no right to write anything."""

    def observe(self, shards: Sequence[ObserveShard]) -> AsyncGenerator[ShardSeen]:
        """Yield each node of each shard once, as they are read; leave it with `aclosing`.

        A shard that can't be read, or is late, is Silent nodes with the reason; the others go on.
        """

    async def close(self) -> None:
        """End its own connections. Never raises."""
