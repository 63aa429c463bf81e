"""A rollout played before it happens: planner, scheduler and executor as they are, on a lab under virtual time.

Nothing is contacted and nothing is written: the lab is seeded from an observation, the ledger is a copy in memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median

from reconciler import __version__
from reconciler.app.gc_pause import put_off
from reconciler.app.rehearsal_checks import Checks
from reconciler.app.rehearsal_gate import SupposedGate
from reconciler.converge.apply import ApplyReport, ApplyRequest, apply
from reconciler.converge.events import ActionFinished, ActionStarted, Event, NodeSettled
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.run import Ended, NodeResult
from reconciler.lab.failure_rates import Misfortune
from reconciler.lab.hardware.commands import TOOLS
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, done
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.lab.pace import History, Pace, Told
from reconciler.lab.seed import seed_lab
from reconciler.model.desired import Fleet, SpecSource
from reconciler.model.observed import Observation, Silent
from reconciler.model.outcome import Done
from reconciler.model.plan import Plan, Scope, Wave, WaveState
from reconciler.model.records import Hold, NodeRecord, Rollout
from reconciler.model.rehearsal import (
    REHEARSAL_FORMAT,
    BrokenInvariant,
    PeakOut,
    Rehearsal,
    RehearsedHalt,
    RehearsedRun,
    RehearsedWave,
)
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.permit import reasons
from reconciler.planner.node.estimates import Estimates
from reconciler.planner.node.holds import by_subject, end_of

HORIZON_S = 30 * 86400.0  # how long the rollout may wait for windows, bakes and budgets, all told
APPLIES = 6  # one after another, while they get anywhere: what failed for a time is tried again by the next
BETWEEN_S = 1800.0
REASONS_SHOWN = 20
WHY = 160  # characters


@dataclass(frozen=True, slots=True)
class Script:
    """What is played. `plan`: of the observation as it is, by the real ledger."""

    fleet: Fleet
    observation: Observation
    seen_in: str
    plan: Plan
    base: SpecSource | None
    selected: Sequence[str] | None
    scope: Scope
    ledger_id: str
    records: Mapping[str, NodeRecord]
    holds: Sequence[Hold]
    rollouts: Mapping[str, Rollout]
    estimates: Estimates
    history: Sequence[str]  # actions that they tell of
    signatures: Mapping[tuple[str, str], bool | None]
    gate: AcceptanceGate
    starts_at: datetime
    rates: Mapping[str, float]


@dataclass(slots=True)
class _Played:
    """One run. Times of nodes are seconds from its start."""

    run: RehearsedRun
    peaks: list[PeakOut]
    broken: list[BrokenInvariant]
    began: Mapping[str, float]
    well: Mapping[str, float]  # node -> when it was done, of those that came so far
    halted: Mapping[str, tuple[int, str]]  # pool -> wave, why
    left: Mapping[str, int]


@dataclass(slots=True)
class _RunLog:
    """What the run tells of itself."""

    clock: VirtualClock
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)  # node -> the action that failed last
    actions: int = 0
    last: float = 0.0

    def __call__(self, event: Event) -> None:
        match event:
            case ActionStarted(node, _):
                self.began.setdefault(node, self.clock.elapsed)
            case ActionFinished(node, action, outcome, _):
                self.actions += 1
                self.last = self.clock.elapsed
                if not isinstance(outcome, Done):
                    self.failing[node] = action.id
                elif self.failing.get(node) == action.id:
                    del self.failing[node]
            case NodeSettled(node, _, _):
                self.ended[node] = self.clock.elapsed
            case _:
                pass


def rehearse(script: Script, seeds: Sequence[int], told: Callable[[int], None]) -> Rehearsal:
    """`told`: with which of the runs begins, from 1."""
    played: list[_Played] = []
    refused = script.plan.refused
    for number, seed in enumerate(() if refused or not script.plan.changes else seeds, start=1):
        told(number)
        with _swept():
            played.append(_play(script, seed))
    runs = tuple(one.run for one in played)
    seconds = sorted(run.seconds for run in runs)
    return Rehearsal(
        format_version=REHEARSAL_FORMAT,
        tool_version=__version__,
        fleet=script.fleet.settings.fleet,
        source=script.fleet.source,
        base=script.base,
        scope=script.scope,
        seen_at=script.observation.finished_at,
        seen_in=script.seen_in,
        starts_at=script.starts_at,
        failure_rates=dict(script.rates),
        nodes_with_changes=script.plan.totals.nodes_with_changes,
        refused=refused,
        runs=runs,
        p50_s=_rank(seconds, 50),
        p90_s=_rank(seconds, 90),
        limits=_limits(played),
        waves=tuple(_waves(script.plan, played)),
        halted=_halts(played),
        broken=tuple(broken for one in played for broken in one.broken),
        left=played[0].left if played else _held_back(script.plan),
        supposed=tuple(_supposed(script)),
        insecure=script.fleet.settings.insecure,
    )


# --- one run ---------------------------------------------------------------------------------------------------------


def _play(script: Script, seed: int) -> _Played:
    clock = VirtualClock(script.starts_at)
    pace, luck = Pace(seed, lambda node: _history(script, node)), Misfortune(script.rates, seed)
    lab = seed_lab(
        script.fleet, script.observation, clock.seconds, seed=seed, records=script.records, timings=pace.timings
    )
    ledger = MemoryLedger(
        script.ledger_id, script.records.values(), holds=script.holds, rollouts=script.rollouts
    )  # fmt: skip
    checks = Checks(
        script.fleet, lab, ledger, clock,
        reasons={name: reasons(plan) for name, plan in script.plan.nodes.items()}, held=_held(script), seed=seed,
    )  # fmt: skip
    diary = _RunLog(clock)

    def progress(event: Event) -> None:
        match event:
            case ActionStarted(node, action):
                luck.begins(lab.machines[node], action.name)
            case ActionFinished(node, action, _, _):
                luck.ended(lab.machines[node], action.name)
            case _:
                pass
        checks(event)
        diary(event)

    gate = SupposedGate(script.gate, luck, pace)
    fabric = LabFabric(lab, clock, epoch=script.starts_at, tools=_tools(script.fleet), latency=False)
    for number in range(1, APPLIES + 1):
        request = _request(script, f"rehearsal-{seed}-{number}")
        work = apply(request, fabric=fabric, ledger=ledger, clock=clock, gate=gate, progress=progress)
        report = run_virtual(work, clock)
        if not report.executed or not report.plan.changes or any(rollout.halted for rollout in report.plan.rollouts):
            break
        clock.elapsed += BETWEEN_S
    checks.end()
    return _told(seed, report, diary, checks)


def _request(script: Script, run: str) -> ApplyRequest:
    return ApplyRequest(
        fleet=script.fleet,
        run=run,
        plan_id=run,
        holder="rehearsal",
        signatures=script.signatures,
        selected=script.selected,
        scope=script.scope,
        wait_s=HORIZON_S,
        alone=True,
        estimates=script.estimates,
    )


def _told(seed: int, report: ApplyReport, diary: _RunLog, checks: Checks) -> _Played:
    ends = report.results
    good = {name for name, end in ends.items() if end.state in (Ended.DONE, Ended.CONVERGED)}
    failed = {
        name for name, end in ends.items() if end.state in (Ended.FAILED, Ended.CRASHED) or name in diary.failing
    } - good
    halted = {
        rollout.pool: (_wave(rollout.waves), rollout.halted) for rollout in report.plan.rollouts if rollout.halted
    }
    left = Counter(_why(name, end) for name, end in ends.items() if name not in good)
    run = RehearsedRun(
        seed=seed,
        seconds=round(diary.last, 1),
        converged=len(good),
        failed=len(failed),
        not_reached=len(ends) - len(good) - len(failed),
        peak_out=checks.most_out,
        actions=diary.actions,
        failed_in=dict(sorted(Counter(diary.failing.get(name, "") for name in failed).items())),
        halted=tuple(sorted(halted)),
    )
    well = {name: at for name, at in diary.ended.items() if name in good}
    return _Played(
        run, checks.peaks(), checks.broken, diary.began, well, halted, dict(left.most_common(REASONS_SHOWN))
    )  # fmt: skip


def _why(name: str, end: NodeResult) -> str:
    """Alike for nodes that fare alike."""
    detail = end.detail.replace(name, "NODE").partition(" (")[0]
    return f"{end.state.value.replace('_', ' ')}: {detail if len(detail) <= WHY else detail[: WHY - 1] + '…'}"


def _held_back(plan: Plan) -> Mapping[str, int]:
    """Why nothing is planned for nodes that are not as specified."""
    blocks = {name: node.blocked for name, node in plan.nodes.items() if node.blocked and not node.changes}
    ends = {name: NodeResult(name, Ended.NOT_STARTED, blocked.detail) for name, blocked in blocks.items()}
    return dict(Counter(_why(name, end) for name, end in ends.items()).most_common(REASONS_SHOWN))


def _wave(waves: Sequence[Wave]) -> int:
    """The first that is not through."""
    return next((at for at, wave in enumerate(waves, start=1) if wave.state is not WaveState.DONE), len(waves))


def _history(script: Script, node: str) -> History:
    hardware = script.fleet.nodes[node].profile.inventory

    def told(action: str, target: str) -> Told | None:
        found = script.estimates.of(hardware, action, target)
        return None if found is None else Told(found.median_s, found.p90_s)

    return told


def _held(script: Script) -> Mapping[str, datetime | None]:
    """Until when each node must not be touched; the hold that ends last counts."""
    subjects = by_subject(script.fleet.holds, script.holds)
    found: dict[str, datetime | None] = {}
    for name, node in script.fleet.nodes.items():
        ends = [end_of(hold) for hold in (*subjects.get(name, ()), *subjects.get(f"pool/{node.pool}", ()))]
        standing = [end for end in ends if end is None or end > script.starts_at]
        if standing:
            known = [end for end in standing if end is not None]
            found[name] = max(known) if len(known) == len(standing) else None
    return found


def _tools(fleet: Fleet) -> Mapping[str, Tool]:
    """Commands of the spec that no lab machine has: they are taken to do what they are there for."""
    found: dict[str, Tool] = dict(TOOLS)
    for profile in {node.profile.digest: node.profile for node in fleet.nodes.values()}.values():
        join = profile.membership.join if profile.membership is not None else ()
        for argv, act in ((profile.drain.command, _succeed), (join, _start_kubelet)):
            name = argv[0].rsplit("/", 1)[-1] if argv else ""
            if name:
                found.setdefault(name, act)
    return found


def _succeed(_: Call) -> Ran:
    return done(seconds=5.0)


def _start_kubelet(call: Call) -> Ran:
    call.machine.service_set("kubelet", active=True, enabled=True)
    return done(seconds=20.0)


@contextmanager
def _swept() -> Iterator[None]:
    """Garbage is taken out after a run: to look through a whole fleet for it again and again takes long."""
    try:
        with put_off():
            yield
    finally:
        gc.collect()


# --- all runs --------------------------------------------------------------------------------------------------------


def _rank(values: Sequence[float], percent: int) -> float | None:
    """Nearest rank, of values in order."""
    return values[(percent * len(values) + 99) // 100 - 1] if values else None


def _limits(played: Sequence[_Played]) -> tuple[PeakOut, ...]:
    found = []
    for lines in zip(*(one.peaks for one in played), strict=True):
        found.append(replace(lines[0], peak=max(line.peak for line in lines)))
    return tuple(found)


def _waves(plan: Plan, played: Sequence[_Played]) -> Iterator[RehearsedWave]:
    for rollout in plan.rollouts:
        for number, wave in enumerate(rollout.waves, start=1):
            moving = [name for name in wave.nodes if name in plan.nodes and plan.nodes[name].changes]
            if not moving:
                continue
            starts = [
                min(one.began[n] for n in moving if n in one.began) for one in played if one.began.keys() & moving
            ]
            ends = [max(one.well[n] for n in moving) for one in played if one.well.keys() >= set(moving)]
            yield RehearsedWave(
                rollout.pool, number, len(moving),
                start_s=median(starts) if starts else None, end_s=median(ends) if ends else None,
                reached=len(starts), finished=len(ends),
            )  # fmt: skip


def _halts(played: Sequence[_Played]) -> tuple[RehearsedHalt, ...]:
    found: dict[tuple[str, int], list[str]] = {}
    for one in played:
        for pool, (wave, why) in one.halted.items():
            found.setdefault((pool, wave), []).append(why)
    return tuple(RehearsedHalt(pool, wave, len(whys), whys[0]) for (pool, wave), whys in sorted(found.items()))


def _supposed(script: Script) -> Iterator[str]:
    yield "tests are passed and actions succeed, but for the failure rates; nobody else does anything meanwhile"
    yield "where nodes are left, apply runs again half an hour later, while that helps"
    if script.history:
        told = ", ".join(script.history)
        yield f"durations as in the ledger's history for {told}; otherwise as typical machines have them"
    else:
        yield "durations as typical machines have them: the ledger has no history yet"
    unseen = [name for name in script.plan.nodes if _unseen(script, name)]
    if unseen:
        yield (
            f"{len(unseen)} nodes could not be seen in full: what nobody saw is as it was last applied, or as specified"
        )
    age = script.starts_at - script.observation.finished_at
    if age > timedelta(hours=1):
        yield f"the nodes are as they were seen {round(age.total_seconds() / 3600)} hours ago"


def _unseen(script: Script, name: str) -> bool:
    seen = script.observation.nodes[name]
    readings = (seen.hot, seen.inventory, seen.host, seen.member)
    return any(isinstance(one, Silent) and one.reason is not UnknownReason.NOT_ASKED for one in readings)
