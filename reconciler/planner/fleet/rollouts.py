"""How a change of the spec spreads over a pool: a canary first, each wave only when the last is well (DESIGN 7.2).

Waves hold back `pending` drift alone. That a change is under way, with its order of nodes, is in the ledger from when
its first node was let go; how far it has come is read from the nodes each time, so that no process needs to live.
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


# What a machine has that was off or silent shows only when it is back, and may then overtake nobody.
_NOT_COUNTED = Blocked(BlockCode.ROLLOUT, "its rollout was decided on before anybody could see that it is part of it")


@dataclass(slots=True)
class Progress:
    """One pool's rollout as of now. `rollout`: as in the ledger, or as the next apply would write it (`new`).

    `missing`: members that their wave waits for.
    """

    rollout: Rollout
    new: bool
    policy: RolloutPolicy
    plan: RolloutPlan
    wave_of: Mapping[str, int]
    waits: Mapping[int, Blocked]  # waves that may not begin
    missing: frozenset[str]


@dataclass(slots=True)
class Rollouts:
    """What the rollouts of a fleet let go now."""

    by_pool: Mapping[str, Progress] = field(default_factory=dict)

    def refusal(self, plan: NodePlan) -> Blocked | None:
        """Why what the spec changed on this node has to wait; None when nothing did, or its wave is open."""
        if not pending(plan):
            return None
        progress = self.by_pool.get(plan.pool)
        wave = None if progress is None else progress.wave_of.get(plan.node)
        if progress is None or wave is None:
            return _NOT_COUNTED
        return progress.waits.get(wave)

    def in_turn(self, plan: NodePlan, rest: NodePlan | None) -> NodePlan:
        """As it may go now: where its wave has not begun, the `rest`, which needs none, or all of it, to wait."""
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
    """Paths that the spec changed, and the node has not."""
    return tuple(item.path for item in plan.drift if item.kind is DriftClass.PENDING)


def rollouts(
    fleet: Fleet, standings: Mapping[str, RolloutMember], kept: Mapping[str, Rollout], holds: Holds, now: datetime
) -> Rollouts:
    """`standings`: of every active node of the pools in question; `kept`: what the ledger has, the newest by pool."""
    pools: dict[str, list[RolloutMember]] = {}
    for standing in standings.values():
        pools.setdefault(fleet.nodes[standing.node].pool, []).append(standing)
    found = {}
    for pool, members in pools.items():
        if any(standing.pending for standing in members):
            policy = fleet.rollouts.get(pool, DEFAULT)
            found[pool] = _progress(fleet, pool, members, kept.get(pool), policy, holds, now)
    return Rollouts(found)


def _progress(
    fleet: Fleet,
    pool: str,
    standings: list[RolloutMember],
    kept: Rollout | None,
    policy: RolloutPolicy,
    holds: Holds,
    now: datetime,
) -> Progress:
    rollout = _current(fleet, pool, standings, kept, now)
    new = rollout is not kept
    by_name = {standing.node: standing for standing in standings}
    taking_part = {
        name
        for name, one in by_name.items()
        if not (one.given_up and one.pending)  # ill beyond repair, and not by this change
        and held(fleet.nodes[name], one.record, holds, now) is None
    }
    known = set(rollout.members)
    later = in_order([fleet.nodes[name] for name, one in by_name.items() if one.pending and name not in known], by_name)
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
        supersedes=kept.digest if kept is not None and new and _unfinished(kept, by_name) else "",
    )
    wave_of = {name: at for at, wave in enumerate(waves) for name in wave}
    missing = frozenset(name for name in members if not by_name[name].settled and name not in failed)
    return Progress(rollout, new, policy, plan, wave_of, waits, missing)


# --- which change it is --------------------------------------------------------------------------------------------


def _current(fleet: Fleet, pool: str, standings: list[RolloutMember], kept: Rollout | None, now: datetime) -> Rollout:
    """The kept one as long as nothing else is pending; another change supersedes it, the way back is a rollback."""
    values = _by_path((path, change[0]) for one in standings for path, change in one.pending.items())
    if kept is not None and _within(values, kept.values):
        return kept
    before = _by_path((path, change[1]) for one in standings for path, change in one.pending.items())
    moving = [fleet.nodes[one.node] for one in standings if one.pending]
    return Rollout(
        pool=pool,
        digest=digest_of(values),
        values=values,
        before=before,
        members=tuple(in_order(moving, {one.node: one for one in standings})),
        # Back to what a rollback left is no way to known ground: it goes forward again.
        rollback=kept is not None and not kept.rollback and _within(values, kept.before),
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


def _unfinished(kept: Rollout, standings: Mapping[str, RolloutMember]) -> bool:
    """Whether members of an earlier rollout, which are still there, never got what it brought."""
    return any(name in standings and not standings[name].had(kept.values) for name in kept.members)


# --- who goes when -------------------------------------------------------------------------------------------------


def in_order(nodes: Sequence[Desired], standings: Mapping[str, RolloutMember]) -> list[str]:
    """Healthy nodes first, each next one in another failure domain; what can't be told apart goes by name."""
    sound = [node for node in nodes if standings[node.node].sound]
    rest = [node for node in nodes if not standings[node.node].sound]
    labels = sorted({label for node in nodes for label in node.domains})
    # Coarse domains first: two nodes in other racks are further apart than two on other leaves of one rack.
    labels.sort(key=lambda label: (len({node.domains.get(label) for node in nodes}), label))
    return [node.node for part in (sound, rest) for node in _spread(sorted(part, key=lambda n: n.node), labels)]


def _spread(nodes: list[Desired], labels: Sequence[str]) -> list[Desired]:
    """Round and round the values of the first label; among nodes that share one, of the next."""
    if not labels or len(nodes) < 2:
        return nodes
    groups: dict[str, list[Desired]] = {}
    for node in nodes:
        groups.setdefault(node.domains.get(labels[0], ""), []).append(node)
    queues = [_spread(groups[value], labels[1:]) for value in sorted(groups)]
    longest = max(map(len, queues))
    return [queue[at] for at in range(longest) for queue in queues if at < len(queue)]


def _waves(sizes: Sequence[str], members: Sequence[str]) -> list[tuple[str, ...]]:
    """Each takes the members up to its share, rounded up; one that adds nobody is none, and the last takes the rest."""
    found, done = [], 0
    for size in (*sizes, "100%"):
        until = min(parse_nodes(size, len(members)), len(members))
        if until > done:
            found.append(tuple(members[done:until]))
            done = until
    return found


def _states(
    waves: Sequence[tuple[str, ...]],
    standings: Mapping[str, RolloutMember],
    failed: Mapping[str, str],
    bake: timedelta,
    halted: str,
    now: datetime,
) -> tuple[tuple[Wave, ...], dict[int, Blocked]]:
    """State of each wave, and which of them may not begin. Failures within what is allowed hold nobody up."""
    found: list[Wave] = []
    waits: dict[int, Blocked] = {}
    blocked: Blocked | None = None
    for at, nodes in enumerate(waves):
        if halted:
            blocked = Blocked(BlockCode.HALTED, halted)
        if blocked is not None:
            waits[at] = blocked
        missing = [name for name in nodes if not standings[name].settled and name not in failed]
        if missing or (halted and not failed.keys().isdisjoint(nodes)):
            if blocked is None:
                found.append(Wave(nodes, WaveState.OPEN, _missing(missing, standings)))
            else:
                state = WaveState.HALTED if halted else WaveState.WAITING
                found.append(Wave(nodes, state, blocked.detail))
            blocked = blocked or Blocked(BlockCode.ROLLOUT, f"wave {at + 1} goes first: {_missing(missing, standings)}")
            continue
        since = max((standings[name].since or now for name in nodes if standings[name].settled), default=now - bake)
        if since + bake > now:
            detail = f"wave {at + 1} is well, and bakes"
            found.append(Wave(nodes, WaveState.BAKING, f"until {since + bake:%Y-%m-%d %H:%M:%S} UTC", end=since + bake))
            blocked = blocked or Blocked(BlockCode.ROLLOUT, detail, since + bake)
        else:
            found.append(Wave(nodes, WaveState.DONE, "", end=since + bake))
    return tuple(found), waits


def _missing(names: Sequence[str], standings: Mapping[str, RolloutMember]) -> str:
    """What each lacks, those that lack the same together."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(standings[name].missing, []).append(name)
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
    """What a person can do about it."""
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
