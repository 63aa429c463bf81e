"""The rules: events by users, hardware and the reconciler in the small fleet, in random order."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.desired import BreakGlass
from reconciler.model.errors import Blind, Refused, StalePlan
from reconciler.model.plan import Goal, Plan
from reconciler.model.records import FLEET
from reconciler.model.vocab import NodeState
from tests.soak import plans
from tests.soak.spec import BUDGETS, IGNORED, IMAGES, NAMES, POOLS, ROLLOUTS, SUBJECTS, UNSIGNED, WINDOWS
from tests.soak.world import DRIFTS, FAULTS, Disturbance, SmallFleet

MEMORY = Path("/dev/shm")  # in memory, because a ledger waits for the disk at every commit
SCHEDULE = 6  # steps from one scheduled pass to the next
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

nodes = st.sampled_from(NAMES)
pools = st.sampled_from(POOLS)
P = ParamSpec("P")
T = TypeVar("T")
subjects = st.sampled_from(SUBJECTS)
seconds = st.sampled_from([0.0, 1.0, 5.0, 30.0, 120.0, 300.0, 600.0, 1200.0, 2400.0])


GATE, CLUSTER = "fails its gate", "cluster unreachable"
EVENTS = (
    *(("drift", kind) for kind in DRIFTS), *(("fault", kind) for kind in FAULTS), *[("hold", ""), ("cordon", "")] * 8,
    *[("uncordon", ""), ("repair", "")] * 4,
)  # fmt: skip
EDITS: tuple[tuple[str, Any], ...] = (
    *(("image", image) for image in (*IMAGES, *IMAGES, UNSIGNED)), ("nodes_per_socket", "NPS1"),
    ("nodes_per_socket", "NPS4"), ("nic", "2.0"), ("nic", "2.1"), ("bios", "2.0"), ("bios", "2.1"),
    ("label", "training"), ("label", "serving"), ("mig", True), ("mig", False),
    *(("rollout", policy) for policy in ROLLOUTS),
)  # fmt: skip
FLEET_EDITS = (
    *(("budgets", budgets) for budgets in BUDGETS), *(("windows", windows) for windows in WINDOWS),
    *(("ignored", ignored) for ignored in IGNORED),
)  # fmt: skip
Step = tuple[str, dict[str, Any]]  # of a rule and its arguments


class BrokenInvariant(AssertionError):
    """An invariant does not hold. The message names it and says why."""


Rule = Callable[Concatenate["FleetMachine", P], None]


def play(**arguments: st.SearchStrategy[Any]) -> Callable[[Rule[P]], Rule[P]]:
    """Make a rule, after which a scheduled run may follow."""

    def decorate(act: Rule[P]) -> Rule[P]:
        @functools.wraps(act)
        def step(self: FleetMachine, *args: P.args, **keys: P.kwargs) -> None:
            self.begun += 1
            self.played.append((act.__name__, keys))
            act(self, *args, **keys)
            if self.scheduled and len(self.played) % SCHEDULE == 0:
                self.played.append(("one_pass", {}))
                self.run(wait_s=0.0)

        wrapped: Rule[P] = rule(**arguments)(step)  # type: ignore[call-overload]  # its targets are no strategies
        return wrapped

    return decorate


class FleetMachine(RuleBasedStateMachine):
    on_disk = False  # the ledger

    def __init__(self) -> None:
        super().__init__()
        self.where: Path | None = None
        if self.on_disk:
            self.where = Path(tempfile.mkdtemp(prefix="fleet-", dir=MEMORY if MEMORY.is_dir() else None))
        self.world = SmallFleet(self.where)
        self.approved: Plan | None = None
        self.scheduled = True  # run a pass every SCHEDULE steps
        self.played: list[Step] = []
        self.begun = self.ended = self.ran = 0  # steps, and runs of the reconciler

    @property
    def checker(self) -> Any:
        return self.world.checker

    # --- edits of the spec ---

    @play(pool=pools, edit=st.sampled_from(EDITS))
    def edit_pool(self, pool: str, edit: tuple[str, Any]) -> None:
        setattr(self.world.spec.pools[pool], *edit)
        self.world.edited()

    @play(edit=st.sampled_from(FLEET_EDITS))
    def edit_fleet(self, edit: tuple[str, str]) -> None:
        setattr(self.world.spec, *edit)
        self.world.edited()

    @play(hours=st.sampled_from([1, 12]))
    def break_glass(self, hours: int) -> None:
        until = (self.world.clock.now() + timedelta(hours=hours)).isoformat()
        self.world.spec.break_glass = BreakGlass("an incident", "ops", until)
        self.world.edited()

    @play(name=nodes, state=st.sampled_from([NodeState.ACTIVE, NodeState.QUARANTINED, NodeState.RETIRED, None]))
    def set_state(self, name: str, state: NodeState | None) -> None:
        """Set the state of a node, which may also join or leave the spec. Some nodes always stay."""
        states = self.world.spec.states
        if state is not None:
            states[name] = state
        elif len(states) > 3:
            states.pop(name, None)
        self.world.edited()

    # --- events on nodes ---

    @play(name=nodes, kind=st.sampled_from(DRIFTS))
    def drift(self, name: str, kind: str) -> None:
        self.world.spoil(name, kind)

    @play(name=nodes, kind=st.sampled_from([*FAULTS, GATE, CLUSTER]))
    def break_(self, name: str, kind: str) -> None:
        """Break the node `name`, or the cluster for all nodes."""
        if kind == CLUSTER:
            self.world.kube.down = True
        elif kind == GATE:
            self.world.gate.failing.add(name)
            self.checker.disturbed(name)
        else:
            self.world.fault(name, kind)

    @play(name=nodes)
    def repair(self, name: str) -> None:
        """Repair the node and its cluster."""
        self.world.repair(name)
        self.world.kube.down = False

    @play(name=nodes, cordoned=st.booleans())
    def others_cordon(self, name: str, cordoned: bool) -> None:
        (self.world.cordon if cordoned else self.world.uncordon)(name)

    @play(subject=subjects, hours=st.sampled_from([None, 1.0, 24.0]))
    def hold(self, subject: str, hours: float | None) -> None:
        self.world.hold(subject, hours)

    @play(subject=st.sampled_from(SUBJECTS[:-1]))
    def hold_or_not_in_the_spec(self, subject: str) -> None:
        self.world.spec.holds ^= {subject}
        self.world.edited()

    @play(subject=subjects)
    def release(self, subject: str) -> None:
        self.world.release(subject)

    @play(length=st.sampled_from([MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 9 * DAY]))
    def time_passes(self, length: float) -> None:
        self.world.wait(length)

    # --- runs of the reconciler ---

    @play()
    def one_pass(self) -> None:
        self.run(wait_s=0.0)

    @play(minutes=st.sampled_from([10, 60, 600]))
    def apply(self, minutes: int) -> None:
        self.run(wait_s=minutes * MINUTE)

    @play(some=st.sets(nodes, min_size=1, max_size=3))
    def apply_to_some(self, some: set[str]) -> None:
        self.run(wait_s=0.0, selected=[name for name in self.world.fleet.nodes if name in some])

    @play(happens=st.lists(st.tuples(seconds, nodes, st.sampled_from(EVENTS)), min_size=1, max_size=3))
    def apply_disturbed(self, happens: list[tuple[float, str, tuple[str, str]]]) -> None:
        """Run with disturbances, each some seconds after the start."""
        self.run(
            [Disturbance(after, functools.partial(self._happen, name, *what)) for after, name, what in happens],
            wait_s=30 * MINUTE,
        )

    def _happen(self, name: str, what: str, kind: str) -> None:
        match what:
            case "drift":
                self.world.spoil(name, kind)
            case "fault":
                self.world.fault(name, kind)
            case "hold":
                self.world.hold(name, None)
            case "cordon":
                self.world.cordon(name)
            case "uncordon":
                self.world.uncordon(name)
            case _:
                self.world.repair(name)

    @play(calls=st.integers(1, 400), hard=st.booleans())
    def crash(self, calls: int, hard: bool) -> None:
        self.ran += 1
        self._ended(lambda: self.world.crash(calls, hard=hard, wait_s=10 * MINUTE))

    @play()
    def approve(self) -> None:
        """Approve a plan, which may be applied some steps later."""
        self.approved = self.world.plan()

    @play()
    def apply_approved(self) -> None:
        approved = self.approved
        if approved is None:
            return
        try:
            report = self.run(wait_s=0.0, approved=approved)
        except StalePlan:
            self.approved = None
        else:
            self.checker.found += [] if report is None else plans.beyond_approval(approved, report)

    @play()
    def look_at_the_plan(self) -> None:
        self.checker.found += plans.faults(self.world)

    def run(self, disturbances: list[Disturbance] | None = None, **changes: Any) -> ApplyReport | None:
        """Run the reconciler. Return None when it refuses because the whole fleet is stopped."""
        self.ran += 1
        report = self._ended(lambda: self.world.apply_disturbed(disturbances or [], **changes))
        if report is None:
            return None
        if "selected" not in changes:
            self.checker.ran()
        if not disturbances:
            self._no_mark_is_leaked(report)
        return report

    def _ended(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except StalePlan:
            raise
        except Blind:  # no selected node answers, although the cluster has them as ready
            return None
        except Refused:
            if FLEET not in self.checker.held:
                raise
            return None
        except Exception as error:  # report any error of a run together with its steps
            raise BrokenInvariant(f"a run dies: {error!r}") from error

    def _no_mark_is_leaked(self, report: ApplyReport) -> None:
        for name, result in report.results.items():
            serves = report.plan.nodes[name].goal is Goal.IN_SERVICE and report.plan.nodes[name].blocked is None
            if serves and result.state in (Ended.CONVERGED, Ended.DONE) and self.world.is_marked(name):
                self.checker.broken("own_mark_is_not_leaked", f"{name}: {result}")

    # --- invariants ---

    @invariant()
    def holds_true(self) -> None:
        self.checker.look()
        self.check()
        self.ended = self.begun

    def check(self) -> None:
        if self.checker.found:
            raise BrokenInvariant("\n".join(self.checker.found))

    def teardown(self) -> None:
        try:
            if self.ended == self.begun and not self.checker.found:
                self._plan_converges()
        finally:
            self.world.raw_ledger.close()
            if self.where is not None:
                shutil.rmtree(self.where)

    def _plan_converges(self) -> None:
        """Check invariant 2: once disturbances end, all nodes converge, and then plans are empty."""
        world = self.world
        world.end_all()
        for _ in range(5):
            self.run(wait_s=2 * HOUR)
            if not (left := plans.left(world)):
                break
            world.wait(1.05 * DAY)  # actions that failed too often are retried after a day
            world.resume()  # the storm is over by then
        self.check()
        if left:
            raise BrokenInvariant("\n".join(["plan_converges:", *left]))
