"""Rollouts: a change of the spec spreads over a pool in waves, a canary first, each after the last (DESIGN 7.2).

A wave begins when the one before it is converged, certified and has baked. Waves hold back `pending` drift only. The
ledger records a rollout, with its order of nodes, when its first node begins; how far it has come is read from the
nodes each time, so that it survives the process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from reconciler.gate.certificate import digest_of
from reconciler.model.desired import Desired, Fleet, RolloutPolicy
from reconciler.model.drift import DriftClass
from reconciler.model.plan import BlockCode, Blocked, NodePlan, RolloutPlan, Wave, WaveState
from reconciler.model.records import Rollout
from reconciler.model.units import parse_nodes
from reconciler.planner.fleet.rollout_member import RolloutMember
from reconciler.planner.node.holds import Holds, held

DEFAULT = RolloutPolicy()
ROLLBACK_WAVES = ("1", "100%")
SHOWN = 5  # members that a sentence names


# What a node that was off or silent lacks shows only when it is back; it must not overtake the others then.
_NOT_COUNTED = Blocked(
    BlockCode.ROLLOUT, "the rollout of its pool was planned before this node could be read, and does not include it yet"
)


@dataclass(slots=True)
class Progress:
    """The rollout of one pool as of now. `rollout`: as in the ledger, or as the next apply would record it (`new`).

    `waits`: waves that may not begin -> why. `missing`: members that their wave waits for.
    """

    rollout: Rollout
    new: bool
    policy: RolloutPolicy
    plan: RolloutPlan
    wave_of: Mapping[str, int]
    waits: Mapping[int, Blocked]
    missing: frozenset[str]


@dataclass(slots=True)
class Rollouts:
    """The rollouts of a fleet as of now, by pool."""

    by_pool: Mapping[str, Progress] = field(default_factory=dict)

    def refusal(self, plan: NodePlan) -> Blocked | None:
        """Return why the spec's changes of this node have to wait; None when there are none, or its wave is open."""
        if not pending(plan):
            return None
        progress = self.by_pool.get(plan.pool)
        wave = None if progress is None else progress.wave_of.get(plan.node)
        if progress is None or wave is None:
            return _NOT_COUNTED
        return progress.waits.get(wave)

    def part_allowed(self, plan: NodePlan, rest: NodePlan | None) -> NodePlan:
        """Return what of the plan may go now. Before its wave: the `rest`, which needs none, or all of it, blocked."""
        wait = self.refusal(plan)
        if wait is None:
            return plan
        return rest or replace(plan, blocked=plan.blocked or wait)

    @property
    def missing(self) -> frozenset[str]:
        return frozenset().union(*(progress.missing for progress in self.by_pool.values()))

    @property
    def plans(self) -> tuple[RolloutPlan, ...]:
        return tuple(progress.plan for _, progress in sorted(self.by_pool.items()))


def pending(plan: NodePlan) -> tuple[str, ...]:
    """Return the paths that the spec has changed and the node has not yet."""
    return tuple(item.path for item in plan.drift if item.kind is DriftClass.PENDING)


def rollouts(
    fleet: Fleet, members: Mapping[str, RolloutMember], recorded: Mapping[str, Rollout], holds: Holds, now: datetime
) -> Rollouts:
    """Return the rollouts of the pools in which something is pending.

    `members`: every active node of the pools in question. `recorded`: the ledger's newest rollout of each pool.
    """
    pools: dict[str, list[RolloutMember]] = {}
    for member in members.values():
        pools.setdefault(fleet.nodes[member.node].pool, []).append(member)
    found = {}
    for pool, of_pool in pools.items():
        if any(member.pending for member in of_pool):
            found[pool] = _progress(fleet, pool, of_pool, recorded.get(pool), holds, now)
    return Rollouts(found)


def _progress(
    fleet: Fleet,
    pool: str,
    of_pool: list[RolloutMember],
    recorded: Rollout | None,
    holds: Holds,
    now: datetime,
) -> Progress:
    policy = fleet.rollouts.get(pool, DEFAULT)
    rollout = _current(fleet, pool, of_pool, recorded, now)
    new = rollout is not recorded
    by_name = {member.node: member for member in of_pool}
    taking_part = {
        name
        for name, one in by_name.items()
        if not (one.isolated and one.pending)  # isolated before this change came
        and held(fleet.nodes[name], one.record, holds, now) is None
    }
    known = set(rollout.members)
    later = canaries_first(
        [fleet.nodes[name] for name, one in by_name.items() if one.pending and name not in known], by_name
    )
    members = [name for name in (*rollout.members, *later) if name in taking_part]
    left_out = tuple(name for name in rollout.members if name not in taking_part)
    waves = _waves(ROLLBACK_WAVES if rollout.rollback else policy.waves, members)
    bake = timedelta(seconds=0.0 if rollout.rollback else policy.bake_s)
    failed = {} if new else {name: why for name in members if (why := by_name[name].failed_since(rollout.started_at))}
    halted = _halted(pool, failed, policy) if len(failed) > policy.max_failures else ""
    states, waits = _states(waves, by_name, failed, bake, halted, now)
    plan = RolloutPlan(
        pool=pool,
        digest=rollout.digest,
        changes=rollout.values,
        waves=states,
        rollback=rollout.rollback,
        started_at=None if new else rollout.started_at,
        bake_s=bake.total_seconds(),
        failed=tuple(failed),
        left_out=left_out,
        halted=halted,
        resume=_resume(pool, failed) if halted else (),
        supersedes=recorded.digest if recorded is not None and new and _unfinished(recorded, by_name) else "",
    )
    wave_of = {name: at for at, wave in enumerate(waves) for name in wave}
    missing = frozenset(name for name in members if not by_name[name].settled and name not in failed)
    return Progress(rollout, new, policy, plan, wave_of, waits, missing)


# --- which change it is --------------------------------------------------------------------------------------------


def _current(fleet: Fleet, pool: str, of_pool: list[RolloutMember], recorded: Rollout | None, now: datetime) -> Rollout:
    """Return the recorded rollout as long as nothing else is pending; else a new one, which supersedes it.

    A change back to the earlier values is a rollback.
    """
    values = _by_path((path, change[0]) for one in of_pool for path, change in one.pending.items())
    if recorded is not None and _within(values, recorded.values):
        return recorded
    before = _by_path((path, change[1]) for one in of_pool for path, change in one.pending.items())
    moving = [fleet.nodes[one.node] for one in of_pool if one.pending]
    return Rollout(
        pool=pool,
        digest=digest_of(values),
        values=values,
        before=before,
        members=tuple(canaries_first(moving, {one.node: one for one in of_pool})),
        # Back to what a rollback left is no return to proven values: it is rolled out in full waves again.
        rollback=recorded is not None and not recorded.rollback and _within(values, recorded.before),
        started_at=now,
        commit=fleet.source.commit,
    )


def _by_path(pairs: Iterable[tuple[str, Any]]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, dict[str, Any]] = {}
    for path, value in pairs:
        found.setdefault(path, {}).setdefault(_text(value), value)
    return {path: tuple(values[text] for text in sorted(values)) for path, values in sorted(found.items())}


def _within(values: Mapping[str, tuple[Any, ...]], others: Mapping[str, tuple[Any, ...]]) -> bool:
    known = {path: {_text(value) for value in given} for path, given in others.items()}
    return all(_text(value) in known.get(path, ()) for path, given in values.items() for value in given)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=list)


def _unfinished(recorded: Rollout, members: Mapping[str, RolloutMember]) -> bool:
    """Return whether a remaining member of an earlier rollout never got its values."""
    return any(name in members and not members[name].had_values(recorded.values) for name in recorded.members)


# --- who goes when -------------------------------------------------------------------------------------------------


def canaries_first(nodes: Sequence[Desired], members: Mapping[str, RolloutMember]) -> list[str]:
    """Order nodes for waves: healthy ones first, each next one in another failure domain, then by name."""
    healthy = [node for node in nodes if members[node.node].healthy]
    rest = [node for node in nodes if not members[node.node].healthy]
    labels = sorted({label for node in nodes for label in node.domains})
    # Coarse domains first: two nodes in other racks are further apart than two on other leaves of one rack.
    labels.sort(key=lambda label: (len({node.domains.get(label) for node in nodes}), label))
    return [node.node for part in (healthy, rest) for node in _spread(sorted(part, key=lambda n: n.node), labels)]


def _spread(nodes: list[Desired], labels: Sequence[str]) -> list[Desired]:
    """Alternate between the values of the first label; among nodes that share one, between those of the next."""
    if not labels or len(nodes) < 2:
        return nodes
    groups: dict[str, list[Desired]] = {}
    for node in nodes:
        groups.setdefault(node.domains.get(labels[0], ""), []).append(node)
    queues = [_spread(groups[value], labels[1:]) for value in sorted(groups)]
    longest = max(map(len, queues))
    return [queue[at] for at in range(longest) for queue in queues if at < len(queue)]


def _waves(sizes: Sequence[str], members: Sequence[str]) -> list[tuple[str, ...]]:
    """Divide members into waves: each up to its share, rounded up; empty ones are left out, the last takes the rest."""
    found, done = [], 0
    for size in (*sizes, "100%"):
        until = min(parse_nodes(size, len(members)), len(members))
        if until > done:
            found.append(tuple(members[done:until]))
            done = until
    return found


def _states(
    waves: Sequence[tuple[str, ...]],
    members: Mapping[str, RolloutMember],
    failed: Mapping[str, str],
    bake: timedelta,
    halted: str,
    now: datetime,
) -> tuple[tuple[Wave, ...], dict[int, Blocked]]:
    """Return the state of each wave, and why those that may not begin have to wait. Tolerated failures delay nobody."""
    found: list[Wave] = []
    waits: dict[int, Blocked] = {}
    blocked: Blocked | None = None
    for at, nodes in enumerate(waves):
        if halted:
            blocked = Blocked(BlockCode.HALTED, halted)
        if blocked is not None:
            waits[at] = blocked
        missing = [name for name in nodes if not members[name].settled and name not in failed]
        if missing or (halted and not failed.keys().isdisjoint(nodes)):
            if blocked is None:
                found.append(Wave(nodes, WaveState.OPEN, _missing(missing, members)))
            else:
                state = WaveState.HALTED if halted else WaveState.WAITING
                found.append(Wave(nodes, state, blocked.detail))
            blocked = blocked or Blocked(BlockCode.ROLLOUT, f"wave {at + 1} goes first: {_missing(missing, members)}")
            continue
        since = max((members[name].since or now for name in nodes if members[name].settled), default=now - bake)
        if since + bake > now:
            detail = f"wave {at + 1} has converged and bakes"
            found.append(Wave(nodes, WaveState.BAKING, f"until {since + bake:%Y-%m-%d %H:%M:%S} UTC", end=since + bake))
            blocked = blocked or Blocked(BlockCode.ROLLOUT, detail, since + bake)
        else:
            found.append(Wave(nodes, WaveState.DONE, "", end=since + bake))
    return tuple(found), waits


def _missing(names: Sequence[str], members: Mapping[str, RolloutMember]) -> str:
    """Return what the nodes lack, in words; those that lack the same are named together."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(members[name].missing, []).append(name)
    first = "; ".join(f"{_named(those)} {missing}" for missing, those in list(alike.items())[:SHOWN])
    return first + (f"; and {len(alike) - SHOWN} more reasons" if len(alike) > SHOWN else "")


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return shown if len(names) == 1 else f"{shown} each"


# --- halted --------------------------------------------------------------------------------------------------------


def _halted(pool: str, failed: Mapping[str, str], policy: RolloutPolicy) -> str:
    named = "; ".join(f"{name}: {why}" for name, why in list(failed.items())[:SHOWN])
    more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
    return f"the rollout of pool {pool} is halted: {len(failed)} failed, {policy.max_failures} may ({named}{more})"


def _resume(pool: str, failed: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a person can do about a halted rollout, one way a line."""
    names = list(failed)
    first = names[0]
    one = first if len(names) == 1 else f"each of {', '.join(names[:SHOWN])}" + (" ..." if len(names) > SHOWN else "")
    return (
        f"bring {one} to what the spec says: it goes on by itself once the gate is passed",
        f"or leave {one} out: `reconciler hold {first} --reason ...`, or `state: quarantined` in the spec; it is tried "
        f"again after `reconciler release {first}`",
        f"or allow more: rollout.maxFailures of NodePool {pool}, {len(failed)} or more",
        f"or go back: give NodePool {pool} its earlier values, which is a rollback",
    )
