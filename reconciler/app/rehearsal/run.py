"""One run of a rehearsal: the real planner, scheduler and executor against a lab under virtual time."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.app.rehearsal.gate import RehearsalGate
from reconciler.app.rehearsal.inputs import RehearsalInput
from reconciler.app.rehearsal.invariants import InvariantChecks
from reconciler.app.runtime import paused_garbage_collection
from reconciler.converge.apply import ApplyReport, ApplyRequest, apply
from reconciler.converge.events import ActionFinished, ActionStarted, Event, NodeSettled
from reconciler.converge.run import Ended, NodeResult
from reconciler.lab.durations import ActionDuration, Durations, PastDurations
from reconciler.lab.failure_rates import FailureRates
from reconciler.lab.hardware.commands import TOOLS
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, done
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.lab.seed import seed_lab
from reconciler.model.desired import Fleet
from reconciler.model.outcome import Done
from reconciler.model.plan import Wave, WaveState
from reconciler.model.rehearsal import (
    BrokenInvariant,
    PeakOut,
    RehearsedRun,
)
from reconciler.planner.fleet.permit import reasons
from reconciler.planner.node.holds import by_subject, end_of

HORIZON_S = 30 * 86400.0  # the longest that a rollout may wait for windows, bakes and budgets together
APPLIES = 6  # in sequence, while they make progress: the next one retries what failed for a time
BETWEEN_S = 1800.0  # between two applies
REASONS_SHOWN = 20
WHY = 160  # characters of a reason


@dataclass(slots=True)
class RunResult:
    """The result of one run. Times are in seconds from its start. `ended`: node -> when it was done."""

    run: RehearsedRun
    peaks: list[PeakOut]
    broken: list[BrokenInvariant]
    began: Mapping[str, float]
    ended: Mapping[str, float]
    halted: Mapping[str, tuple[int, str]]  # pool -> wave, why
    left: Mapping[str, int]


@dataclass(slots=True)
class _RunLog:
    """A Progress that notes when nodes begin and end, and which action failed last on each."""

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


def simulate(inputs: RehearsalInput, seed: int) -> RunResult:
    """Simulate one run: a pure function."""
    with _collected_after():
        return _simulated(inputs, seed)


def _simulated(inputs: RehearsalInput, seed: int) -> RunResult:
    clock = VirtualClock(inputs.starts_at)
    durations, failures = Durations(seed, lambda node: _history(inputs, node)), FailureRates(inputs.rates, seed)
    lab = seed_lab(
        inputs.fleet, inputs.observation, clock.seconds, seed=seed, records=inputs.records, timings=durations.timings
    )
    ledger = MemoryLedger(
        inputs.ledger_id, inputs.records.values(), holds=inputs.holds, rollouts=inputs.rollouts
    )  # fmt: skip
    checks = InvariantChecks(
        inputs.fleet, lab, ledger, clock,
        reasons={name: reasons(plan) for name, plan in inputs.plan.nodes.items()}, held=_held_until(inputs), seed=seed,
    )  # fmt: skip
    log = _RunLog(clock)

    def progress(event: Event) -> None:
        match event:
            case ActionStarted(node, action):
                failures.inject(lab.machines[node], action.name)
            case ActionFinished(node, action, _, _):
                failures.lift(lab.machines[node], action.name)
            case _:
                pass
        checks(event)
        log(event)

    gate = RehearsalGate(inputs.gate, failures, durations)
    fabric = LabFabric(lab, clock, epoch=inputs.starts_at, tools=lab_tools(inputs.fleet), latency=False)
    for number in range(1, APPLIES + 1):
        request = _request(inputs, f"rehearsal-{seed}-{number}")
        work = apply(request, fabric=fabric, ledger=ledger, clock=clock, gate=gate, progress=progress)
        report = run_virtual(work, clock)
        if not report.executed or not report.plan.changes or any(rollout.halted for rollout in report.plan.rollouts):
            break
        clock.elapsed += BETWEEN_S
    checks.end()
    return _result(seed, report, log, checks)


def _request(inputs: RehearsalInput, run: str) -> ApplyRequest:
    return ApplyRequest(
        fleet=inputs.fleet,
        run=run,
        plan_id=run,
        holder="rehearsal",
        signatures=inputs.signatures,
        selected=inputs.selected,
        scope=inputs.scope,
        wait_s=HORIZON_S,
        alone=True,
        estimates=inputs.estimates,
    )


def _result(seed: int, report: ApplyReport, log: _RunLog, checks: InvariantChecks) -> RunResult:
    ends = report.results
    good = {name for name, end in ends.items() if end.state in (Ended.DONE, Ended.CONVERGED)}
    failed = {
        name for name, end in ends.items() if end.state in (Ended.FAILED, Ended.CRASHED) or name in log.failing
    } - good
    halted = {
        rollout.pool: (_current_wave(rollout.waves), rollout.halted)
        for rollout in report.plan.rollouts
        if rollout.halted
    }
    left = Counter(why_left(name, end) for name, end in ends.items() if name not in good)
    run = RehearsedRun(
        seed=seed,
        seconds=round(log.last, 1),
        converged=len(good),
        failed=len(failed),
        not_reached=len(ends) - len(good) - len(failed),
        peak_out=checks.most_out,
        actions=log.actions,
        failed_in=dict(sorted(Counter(log.failing.get(name, "") for name in failed).items())),
        halted=tuple(sorted(halted)),
    )
    ended = {name: at for name, at in log.ended.items() if name in good}
    return RunResult(
        run, checks.peaks(), checks.broken, log.began, ended, halted, dict(left.most_common(REASONS_SHOWN))
    )  # fmt: skip


def why_left(name: str, end: NodeResult) -> str:
    """Return the end and the reason in words that are equal for nodes in equal situations."""
    detail = end.detail.replace(name, "NODE").partition(" (")[0]
    return f"{end.state.value.replace('_', ' ')}: {detail if len(detail) <= WHY else detail[: WHY - 1] + '…'}"


def _current_wave(waves: Sequence[Wave]) -> int:
    """Return the number of the first unfinished wave, counted from 1."""
    return next((at for at, wave in enumerate(waves, start=1) if wave.state is not WaveState.DONE), len(waves))


def _history(inputs: RehearsalInput, node: str) -> PastDurations:
    hardware = inputs.fleet.nodes[node].profile.inventory

    def duration(action: str, target: str) -> ActionDuration | None:
        found = inputs.estimates.of(hardware, action, target)
        return None if found is None else ActionDuration(found.median_s, found.p90_s)

    return duration


def _held_until(inputs: RehearsalInput) -> Mapping[str, datetime | None]:
    """Return node -> when its last hold ends, None for one without an end."""
    subjects = by_subject(inputs.fleet.holds, inputs.holds)
    found: dict[str, datetime | None] = {}
    for name, node in inputs.fleet.nodes.items():
        ends = [end_of(hold) for hold in (*subjects.get(name, ()), *subjects.get(f"pool/{node.pool}", ()))]
        active = [end for end in ends if end is None or end > inputs.starts_at]
        if active:
            known = [end for end in active if end is not None]
            found[name] = max(known) if len(known) == len(active) else None
    return found


def lab_tools(fleet: Fleet) -> Mapping[str, Tool]:
    """Return the tools of lab machines, with the drain and join commands of the spec. These are assumed to succeed."""
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
def _collected_after() -> Iterator[None]:
    """Collect garbage after a run alone: scanning a whole fleet again and again takes long."""
    try:
        with paused_garbage_collection():
            yield
    finally:
        gc.collect()
