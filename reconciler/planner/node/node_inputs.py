"""Everything that the plan of one node is made from, but for the clocks: a kept plan serves equal inputs only.

The plan is computed from these inputs and from nothing else, so none can be missing among them. What is the same for
all nodes of a pass is the `Basis`. What machines tell anew in each pass and no plan uses, as their uptime, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final

from reconciler.health.peer_ports import PoolPorts
from reconciler.health.signals import Signal
from reconciler.model.desired import Desired, Fleet, IgnoreRule
from reconciler.model.observed import Answered, HostFacts, Member, Observed, RedfishHot, RedfishInventory, Silent
from reconciler.model.records import NodeRecord
from reconciler.planner.node.conditions import Context
from reconciler.planner.node.holds import Holds
from reconciler.planner.node.moment import Horizon, Moment
from reconciler.planner.node.signal_cache import SignalCache
from reconciler.planner.node.unhealed import kept_of

_DOWN: Final = frozenset({"ssh", "not_ready"})  # silences without which no host is taken for down


class _Snapshot:
    """Splits snapshots of one kind into their values, and those that are told anew in each pass."""

    def __init__(self, kind: type[Any], **anew: Any) -> None:
        """`anew`: the fields that are told anew, each with its value where none is told."""
        self._kind, self._names = kind, tuple(one.name for one in fields(kind) if one.name not in anew)
        self._anew = tuple(anew.items())
        self.values, self.told_anew = attrgetter(*self._names), attrgetter(*anew, "__class__")

    def made(self, values: tuple[Any, ...], told_anew: tuple[Any, ...] = ()) -> Any:
        """Return the snapshot with these values; () = nothing was told anew."""
        other = zip(self._anew, told_anew, strict=False) if told_anew else ((one, one[1]) for one in self._anew)
        return self._kind(**dict(zip(self._names, values, strict=True)), **{name: value for (name, _), value in other})


_HOST: Final = _Snapshot(HostFacts, uptime_s=None, clock=None)  # signals are made of them, and proofs of a boot
_MEMBER: Final = _Snapshot(Member, resource_version="")  # guards writes, which read the object again


@dataclass(frozen=True, slots=True)
class Basis:
    """The inputs of all nodes' plans: they are all made anew when any of these is another one.

    The version of the code does, too: what is kept does not outlive its process.
    """

    fleet: Fleet
    ledger: str
    signatures: Mapping[tuple[str, str], bool | None]
    endpoints: str
    holds: Holds
    ignored: tuple[IgnoreRule, ...]  # the rules that are valid now

    def serves(self, other: Basis) -> bool:
        """Return whether plans that were made on this basis hold on another one. A spec that was read again is new."""
        return other.fleet is self.fleet and replace(other, fleet=self.fleet) == self


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """The inputs of one node's plan.

    `host`, `member`: their values, without what is told anew; `told_anew`: that of the host, where it matters.
    `signals`: those that were read. `incidents`: which failure domain causes which of them. `neighbours`: the failure
    domains of the node in which another host answers, where that matters. `peers`: the ports of its pool, where one of
    its own is down.
    """

    desired: Desired
    record: NodeRecord
    hot: RedfishHot | Silent
    inventory: Answered[RedfishInventory] | Silent  # with its time: its events have an age
    host: tuple[Any, ...] | Silent
    told_anew: tuple[Any, ...]
    member: tuple[Any, ...] | Silent | None
    signals: tuple[Signal, ...]
    incidents: Mapping[str, str]
    neighbours: frozenset[str]
    peers: PoolPorts | None
    resets_bmc: bool = False  # it is chosen for that
    rotates_password: bool = False  # of its BMC: it is chosen for that too

    @classmethod
    def of(cls, desired: Desired, seen: Observed, record: NodeRecord, context: Context) -> NodeInputs:
        host: Any = seen.host if isinstance(seen.host, Silent) else seen.host.value
        member: Any = seen.member if isinstance(seen.member, Silent) else seen.member.value
        facts = host if isinstance(host, HostFacts) else None
        timed = facts is not None and (facts.dimm_errors or kept_of(record))
        return cls(
            desired,
            record,
            seen.hot if isinstance(seen.hot, Silent) else seen.hot.value,
            seen.inventory,
            host if facts is None else _HOST.values(facts),
            _HOST.told_anew(facts) if timed else (),
            _MEMBER.values(member) if isinstance(member, Member) else member,
            context.signals.of(desired.profile, seen),
            context.of_domain.get(desired.node) or {},
            _neighbours(desired, record, context),
            context.pool_ports.get(desired.pool) if facts is not None and _has_port_down(facts) else None,
            context.bmc_to_reset == desired.node,
            desired.node in context.passwords_to_rotate,
        )

    @property
    def depends_on_others(self) -> bool:
        """Tell whether what was read of other nodes enters."""
        silent = isinstance(self.hot, Silent)  # others decide whether its BMC is reset
        return self.peers is not None or silent or self.record.silent_since.keys() >= _DOWN

    def observed(self, seen: Observed, horizon: Horizon) -> Observed:
        """Return what is planned from: these values, as told at the times of `seen`."""
        host: Any = self.host if isinstance(self.host, Silent) else _HOST.made(self.host, self.told_anew)
        member: Any = self.member if not isinstance(self.member, tuple) else _MEMBER.made(self.member)
        return Observed(
            self.desired.node,
            _answer(self.hot, seen.hot, horizon),
            self.inventory,
            _answer(host, seen.host, horizon),
            _answer(member, seen.member, horizon),
        )

    def context(self, of_all: Context, now: Moment, planned: Observed) -> Context:
        """Return what the plan takes of a pass: of other nodes only what is named here. `planned`: by `observed`."""
        return replace(
            of_all,
            now=now,
            neighbours_answer=self.neighbours,
            signals=SignalCache().hold(self.desired.profile, planned, self.signals),
            incidents=(),
            of_domain={self.desired.node: self.incidents},
            pool_ports={} if self.peers is None else {self.desired.pool: self.peers},
            bmc_to_reset=self.desired.node if self.resets_bmc else "",
            passwords_to_rotate=frozenset({self.desired.node} if self.rotates_password else ()),
        )


def values_of(seen: Observed) -> tuple[Any, ...]:
    """Return what was read of a node, without the times, and without what machines tell anew in each pass.

    Whether they tell that at all is among it.
    """
    host: Any = seen.host if isinstance(seen.host, Silent) else seen.host.value
    member: Any = seen.member if isinstance(seen.member, Silent) else seen.member.value
    return (
        seen.hot if isinstance(seen.hot, Silent) else seen.hot.value,
        seen.inventory,
        (*_HOST.values(host), host.uptime_s is None, host.clock is None) if isinstance(host, HostFacts) else host,
        _MEMBER.values(member) if isinstance(member, Member) else member,
    )


def as_moments(seen: Observed, horizon: Horizon) -> Observed:
    """Return the same readings, whose times note in the horizon until when what is decided by them holds."""
    readings: list[Any] = [
        one if isinstance(one, Silent) else _answer(one.value, one, horizon)
        for one in (seen.hot, seen.host, seen.member)
    ]
    hot, host, member = readings
    return Observed(seen.node, hot, seen.inventory, host, member)


def _answer(value: Any, reading: Answered[Any] | Silent, horizon: Horizon) -> Any:
    return value if isinstance(value, Silent) else Answered(Moment(reading.at, horizon), value)


def _has_port_down(facts: HostFacts) -> bool:
    return any(link.up is False for link in facts.links or ())


def _neighbours(desired: Desired, record: NodeRecord, context: Context) -> frozenset[str]:
    """Return what tells a host that is down from an observer that is cut off; nothing while neither is suspected."""
    if not record.silent_since.keys() >= _DOWN:
        return frozenset()
    return context.neighbours_answer & {f"{label}={value}" for label, value in desired.domains.items()}
