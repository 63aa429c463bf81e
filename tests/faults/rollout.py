"""Roll out a new image to hundreds of nodes, while some action always fails on a share of them.

The rollout is driven by repeated `apply`, as by a schedule, or by the loop, which gets the new spec once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.app.rehearsal.invariants import InvariantChecks
from reconciler.converge.apply import ApplyReport, ApplyRequest, apply
from reconciler.converge.events import ActionFinished, ActionStarted, Event, Progress
from reconciler.converge.leader_term import LoopDeps
from reconciler.converge.loop import Loop
from reconciler.converge.observe import observe
from reconciler.converge.run import Ended
from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.lab.failure_rates import EVERY, FailureRates
from reconciler.lab.fleet import build_lab
from reconciler.lab.hardware.outages import Peak
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.lab.scenario import Scenario
from reconciler.model import desired as d
from reconciler.model.gate import Binding, Certificate, Verdict
from reconciler.model.notices import ChannelStatus
from reconciler.model.spec_feed import Pulled
from reconciler.model.status import FleetStatus, LoopStatus, NodeStatus
from reconciler.model.units import format_duration
from reconciler.model.vocab import DriftMode, NewsSource, Reason
from reconciler.planner.fleet.plan_request import PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from tests.converge.world import QuickGate, desired_node, fleet_of
from tests.soak.spec import FIRMWARE_IMAGES, SIGNATURES, PoolSpec, sha

RACK = 10
ACTIONS = ("mark", "drain", "reimage", "configure_host", "join", "run_gate", "admit")  # the actions of a new image
APPLIES, BETWEEN_S = 12, 1800.0  # repeated applies retry temporary failures, as a schedule would
DAY = 86400.0
INTERVAL_S, PULL_S = 300.0, 60.0  # of the loop
QUIET_S = 12 * 3600.0  # end after so long without another converged node: the loop never gives up


@dataclass(frozen=True)
class RolloutResult:
    """The result. `peak`: nodes out at once, counted by the lab. `left`: node -> why it lacks the new image."""

    nodes: int
    failing: int  # nodes on which some action fails
    peak: Peak
    left: Mapping[str, str]
    silent: tuple[str, ...]  # those in `left` without a reason
    broken: tuple[str, ...]
    untrue: tuple[str, ...]  # nodes whose state differs from the report
    still_left: tuple[str, ...]  # nodes without the image after the faults end and an operator acknowledged them
    hours: float
    cpu_s: float

    @property
    def wrong(self) -> tuple[str, ...]:
        return (
            *self.broken,
            *(f"{name} has no reason" for name in self.silent),
            *(f"{name} is not as its run says" for name in self.untrue),
            *(f"{name} does not get the image at last" for name in self.still_left),
        )

    def __str__(self) -> str:
        reasons = Counter(why.partition(":")[0] for why in self.left.values())
        return "\n".join(
            [
                f"{self.nodes} nodes, {self.failing} of which fail something, in {self.hours:.1f} h of theirs and "
                f"{self.cpu_s:.0f} s of CPU",
                f"out at once: {self.peak.most}, first {format_duration(self.peak.at)} after they were built",
                f"on the new image: {self.nodes - len(self.left)}; left, each with a reason: {len(self.left)}",
                *(f"    {count:4}  {why}" for why, count in reasons.most_common()),
                f"left when the faults are over and a person has seen to these: {len(self.still_left)}",
                *self.wrong,
            ]
        )


class _Rollout:
    def __init__(self, nodes: int, out: int, rate: float, seed: int) -> None:
        self.began = time.process_time()
        self.clock = VirtualClock()
        self.policy = d.RolloutPolicy(("1", "10%", "100%"), bake_s=600.0, max_failures=nodes)
        self.names = [f"n{at:03}" for at in range(nodes)]
        self.budgets = (d.BudgetLimit("fleet", str(out)),)
        self.failures = FailureRates({EVERY: rate / len(ACTIONS)}, seed)
        self.lab = build_lab(self.fleet("1"), Scenario.model_validate({"nodes": {}}), self.clock.seconds, seed=seed)
        for machine in self.lab.machines.values():
            machine.firmware_images = FIRMWARE_IMAGES
        self.clock.elapsed = 3600.0
        self.fabric = LabFabric(self.lab, self.clock, latency=False)
        self.ledger = MemoryLedger("memory")
        self.gate = QuickGate()
        self.runs = 0

    def fleet(self, image: str) -> d.Fleet:
        profile = PoolSpec(image=image).profile()
        nodes = [
            desired_node(name, at, profile=profile, domains={"rack": f"r{at // RACK:02}"})
            for at, name in enumerate(self.names)
        ]
        return replace(
            fleet_of(nodes, budgets=self.budgets, drift_mode=DriftMode.CORRECT), rollouts={"train": self.policy}
        )

    async def adopt(self) -> None:
        fleet = self.fleet("1")
        seen = await observe(fleet, self.names, self.fabric, self.clock)
        for name, desired in fleet.nodes.items():
            assert desired.profile.acceptance is not None
            binding = binding_of(desired, seen.nodes[name], tests_digest(desired.profile.acceptance))
            assert isinstance(binding, Binding), binding
            self.ledger.save_certificate(Certificate("1.0", name, self.clock.now(), binding, (), adopted=True))

    def apply(self, image: str, checks: InvariantChecks | None = None) -> ApplyReport:
        self.runs += 1
        run = f"run-{self.runs}"
        request = ApplyRequest(self.fleet(image), run, run, "runner", SIGNATURES, wait_s=30 * DAY, alone=True)
        work = apply(
            request, fabric=self.fabric, ledger=self.ledger, clock=self.clock, gate=self.gate,
            progress=self._progress(checks),
        )  # fmt: skip
        return run_virtual(work, self.clock)

    def _progress(self, checks: InvariantChecks | None) -> Progress:
        def progress(event: Event) -> None:
            match event:
                case ActionStarted(node, action):
                    self.failures.inject(self.lab.machines[node], action.name)
                case ActionFinished(node, action, _, _):
                    self.failures.lift(self.lab.machines[node], action.name)
                case _:
                    pass
            if checks is not None:
                checks(event)

        return progress

    def by_applies(self, checks: InvariantChecks) -> dict[str, str]:
        """Roll out by repeated applies; return node -> why it does not have the new image."""
        report = self.apply("2", checks)
        for _ in range(APPLIES - 1):
            if not any(end.state is Ended.NOT_STARTED for end in report.results.values()):
                break
            self.clock.elapsed += BETWEEN_S
            report = self.apply("2", checks)
        ended = report.results.items()
        return {name: end.detail for name, end in ended if end.state not in (Ended.DONE, Ended.CONVERGED)}

    def by_loop(self, checks: InvariantChecks) -> dict[str, str]:
        """Roll out by the loop until no node makes progress; return node -> why it does not have the new image."""
        feed, watch = _Feed(self.fleet("1")), _Watch()
        deps = LoopDeps(
            begin=lambda _: "loop", ledger=self.ledger, clock=self.clock, gate=self.gate, metrics=watch,
            progress=self._progress(checks), signatures=lambda _: SIGNATURES, interval_s=INTERVAL_S,
        )  # fmt: skip
        loop = Loop(deps, feed, lambda _: self.fabric, holder="runner", pull_s=PULL_S)

        async def follow() -> None:
            running = asyncio.create_task(loop.run())
            await watch.calm.wait()
            feed.fleet = self.fleet("2")
            watch.wait(QUIET_S / INTERVAL_S)
            await asyncio.wait([running, asyncio.create_task(watch.calm.wait())], return_when="FIRST_COMPLETED")
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

        run_virtual(follow(), self.clock)
        return self._reasons()

    def _reasons(self) -> dict[str, str]:
        """Return node -> reason in a plan, for the nodes that differ from the spec."""
        fleet = self.fleet("2")
        seen = run_virtual(observe(fleet, self.names, self.fabric, self.clock), self.clock)
        snapshot = take_snapshot(self.ledger, fleet, self.names)
        plan = plan_fleet(fleet, seen, snapshot, self.clock.now(), PlanRequest("left", SIGNATURES))
        left = [one for one in plan.nodes.values() if one.changes or one.blocked is not None]
        return {one.node: one.situation if one.blocked is None else one.blocked.detail for one in left}

    def fails(self, name: str) -> bool:
        return any(self.failures.fails(name, action) for action in ACTIONS)

    def has(self, name: str, image: str) -> bool:
        """Tell whether the machine has the image on its booted disk and is in service."""
        assert self.lab.cluster is not None
        machine = self.lab.machines[name]
        machine.catch_up()
        disk = machine.state.disks.get(machine.state.booted_disk or "")
        return disk is not None and disk.sha256 == sha(image) and name in self.lab.cluster.in_service()

    def play(self, *, loop: bool) -> RolloutResult:
        run_virtual(self.adopt(), self.clock)
        self.apply("1")  # records in the ledger what every node was converged to
        cluster, fleet, began = self.lab.cluster, self.fleet("2"), self.clock.elapsed
        assert cluster is not None
        cluster.count_outages(dict.fromkeys(self.names, ("fleet",)))
        checks = InvariantChecks(
            fleet, self.lab, self.ledger, self.clock,
            reasons=dict.fromkeys(self.names, frozenset({Reason.CHANGE})), held={}, seed=0,
        )  # fmt: skip
        self.gate.verdicts = {name: Verdict.FAIL for name in self.names if self.failures.fails(name, "run_gate")}
        left = self.by_loop(checks) if loop else self.by_applies(checks)
        checks.end()
        hours = (self.clock.elapsed - began) / 3600.0
        peak = cluster.outages.dump()["fleet"]
        untrue = tuple(name for name in self.names if (name in left) is self.has(name, "2"))
        return RolloutResult(
            nodes=len(self.names),
            failing=sum(map(self.fails, self.names)),
            peak=Peak(peak["most"], peak["at"], peak["nodes"]),
            left=left,
            silent=tuple(name for name, why in left.items() if not why),
            broken=tuple(f"{one.invariant}: {one.node}: {one.evidence}" for one in checks.broken),
            untrue=untrue,
            still_left=self._afterwards(left),
            hours=hours,
            cpu_s=time.process_time() - self.began,
        )

    def _afterwards(self, left: Mapping[str, str]) -> tuple[str, ...]:
        self.failures, self.gate.verdicts = FailureRates({}, 0), {}
        for name in left:
            self.lab.machines[name].clear()
            self.ledger.hold(name, "looking at it", "ops", None, self.clock.now())
            self.ledger.release(name, "ops", self.clock.now())
        self.clock.elapsed += 1.05 * DAY
        self.apply("2")
        return tuple(name for name in self.names if not self.has(name, "2"))


class _Feed:
    """ports.SpecFeed that returns `fleet`."""

    def __init__(self, fleet: d.Fleet) -> None:
        self.fleet: d.Fleet | None = fleet
        self._pulled: d.Fleet | None = None

    async def pull(self) -> Pulled:
        changed, self._pulled = self.fleet is not self._pulled, self.fleet
        return Pulled("c0ffee", changed, "c0ffee")


class _Watch:
    """ports.Metrics that notice when no more nodes converge."""

    def __init__(self) -> None:
        self.calm = asyncio.Event()
        self._good: frozenset[str] = frozenset()
        self.wait(1)

    def wait(self, passes: float) -> None:
        """Wait for so many consecutive passes without change."""
        self._quiet, self._enough = 0, passes
        self.calm.clear()

    def loop_status(self, status: LoopStatus) -> None:
        """Of no interest."""

    def passed(self, fleet: FleetStatus) -> None:
        good = frozenset(name for name, node in fleet.nodes.items() if node.status is NodeStatus.CONVERGED)
        self._quiet = self._quiet + 1 if good == self._good else 0
        self._good = good
        if self._quiet >= self._enough:
            self.calm.set()

    def planned(self, made: int, kept: int, wrong: int) -> None:  # noqa: ARG002 - the port's signature
        assert not wrong

    def acting(self, node: str, action: str, step: str) -> None:
        """Of no interest."""

    def acted(self, action: str, outcome: str, seconds: float) -> None:
        """Of no interest."""

    def channels(self, channels: Mapping[str, ChannelStatus]) -> None:
        pass

    def deaf(self, source: NewsSource, since: datetime | None) -> None:
        """Of no interest."""


def roll_out(nodes: int, out: int, rate: float = 0.02, seed: int = 1, *, loop: bool = False) -> RolloutResult:
    """Roll out an image. `rate`: share of nodes on which some action fails at every attempt."""
    return _Rollout(nodes, out, rate, seed).play(loop=loop)
