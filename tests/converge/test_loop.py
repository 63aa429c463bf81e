"""The loop, for hours of virtual time: pass after pass, with faults, new specs and other runners in between."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.day_summer import DaySummer
from reconciler.converge.events import ActionStarted, LoopTold, NodeSettled
from reconciler.converge.leader_term import LoopDeps
from reconciler.converge.loop import Loop
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess.cluster_port import TruthCluster
from reconciler.model.desired import BudgetLimit, DrainPolicy, Fleet, Rung
from reconciler.model.errors import LedgerError
from reconciler.model.gate import Certificate
from reconciler.model.limits import Guards
from reconciler.model.notices import ChannelStatus
from reconciler.model.observed import Silent
from reconciler.model.records import FLEET, STORM
from reconciler.model.spec_feed import Pulled
from reconciler.model.status import FleetStatus, LoopStatus, NodeStatus, Role
from reconciler.model.vocab import DrainProvider, DriftMode, NewsSource, NodeState, UnknownReason
from reconciler.planner.fleet.reliability import Period, reliability
from tests.converge.world import IMAGE, PROFILE, SIGNATURES, QuickGate, World, silences

BIOS = "SriovGlobalEnable"
NEW = replace(IMAGE, version="2026.11.2", sha256="e" * 64)
MINUTE, HOUR = 60.0, 3600.0


class Feed:
    """ports.SpecFeed over a fleet that the test puts in place."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet: Fleet | None = fleet
        self._told: Fleet | None = None

    async def pull(self) -> Pulled:
        changed, self._told = self.fleet is not self._told, self.fleet
        return Pulled("c0ffee", changed, "c0ffee")


class Seen:
    """ports.Metrics that remember the latest."""

    def __init__(self) -> None:
        self.loop = LoopStatus()
        self.fleet: FleetStatus | None = None
        self.passes = 0
        self.deaf_since: list[datetime | None] = []
        self.plans: list[tuple[int, int, int]] = []  # made, kept, wrong: of each pass

    def loop_status(self, status: LoopStatus) -> None:
        self.loop = status

    def passed(self, fleet: FleetStatus) -> None:
        self.fleet = fleet
        self.passes += 1

    def planned(self, made: int, kept: int, wrong: int) -> None:
        self.plans.append((made, kept, wrong))

    def acting(self, node: str, action: str, step: str) -> None:
        pass

    def acted(self, action: str, outcome: str, seconds: float) -> None:
        pass

    def channels(self, channels: Mapping[str, ChannelStatus]) -> None:
        pass

    def deaf(self, source: NewsSource, since: datetime | None) -> None:
        if source is NewsSource.CLUSTER:
            self.deaf_since.append(since)


class Looped(World):
    def __post_init__(self) -> None:
        self.settings = {"drift_mode": DriftMode.CORRECT, "budgets": (BudgetLimit("fleet", "1"),), **self.settings}
        super().__post_init__()
        self.signatures = {**SIGNATURES, (NEW.name, NEW.version): True}
        self.adopt()
        self.feed, self.seen = Feed(self.fleet), Seen()
        self.saw: Callable[[str], None] = lambda _run: None  # with each pass

    def loop(self, holder: str = "a", ledger: SqlLedger | None = None, seen: Seen | None = None) -> Loop:
        deps = LoopDeps(
            begin=lambda _: holder, ledger=ledger or self.ledger, clock=self.clock, gate=self.gate,
            metrics=seen or self.seen, progress=self.events.append, signatures=lambda _: self.signatures,
            interval_s=2 * MINUTE, saw=lambda *_: self.saw(holder),
        )  # fmt: skip
        return Loop(deps, self.feed, lambda _: self.fabric, holder=holder, pull_s=30.0)

    def go(self, seconds: float | None, meanwhile: Callable[[], Awaitable[None]] | None = None, **loop: Any) -> None:
        """Let the loop run for so many seconds (None: until `meanwhile` is over), and end it as SIGTERM does."""

        async def work() -> None:
            running = asyncio.create_task(self.loop(**loop).run())
            try:
                async with asyncio.timeout(seconds):
                    if meanwhile is not None:
                        await meanwhile()
                    if seconds is not None:
                        await running
            except TimeoutError:
                pass
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

        self.run(work())

    def put(self, fleet: Fleet) -> None:
        self.fleet = self.feed.fleet = fleet

    def said(self, event: str) -> list[str]:
        return [one.message for one in self.events if isinstance(one, LoopTold) and one.event == event]

    def statuses(self) -> set[NodeStatus]:
        assert self.seen.fleet is not None
        return {node.status for node in self.seen.fleet.nodes.values()}


@pytest.fixture
def looped(tmp_path: Path) -> Iterator[Callable[..., Looped]]:
    built: list[Looped] = []

    def build(**differences: Any) -> Looped:
        built.append(Looped(tmp_path, **differences))
        return built[-1]

    yield build
    for one in built:
        one.ledger.close()


def disable(machine: Machine) -> None:
    """Change a setting as a person does in the BMC's menus."""
    machine.state.bios[BIOS] = "Disabled"
    machine.state.etag += 1


def changed(fleet: Fleet, digest: str, **profile: Any) -> Fleet:
    new = replace(PROFILE, digest=digest, **profile)
    nodes = {name: replace(node, profile=new) for name, node in fleet.nodes.items()}
    return replace(fleet, nodes=nodes, digest=digest)


def test_drift_is_repaired_pass_after_pass(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=3)

    async def drifts() -> None:
        for name in ("n0", "n1", "n2"):
            disable(here.machine(name))
            await here.clock.sleep(20 * MINUTE)

    here.go(2 * HOUR, drifts)
    assert all(here.machine(name).state.bios[BIOS] == "Enabled" for name in here.lab.machines)
    assert all(map(here.serves, here.lab.machines))
    assert here.statuses() == {NodeStatus.CONVERGED}
    assert 50 <= here.seen.passes <= 70, "one every two minutes"


def test_what_is_read_after_the_clock_was_set_back_is_believed(looped: Callable[..., Looped]) -> None:
    """What was read before is dated later, and is no news of the node for that."""
    here = looped(nodes=4)

    async def meanwhile() -> None:
        await here.clock.sleep(HOUR)  # certificates are older than the clock is set back
        here.clock.stepped -= timedelta(minutes=37)
        here.machine("n0").inject("bmc_garbage")
        await here.clock.sleep(5 * MINUTE)
        assert here.statuses() == {NodeStatus.CONVERGED, NodeStatus.UNKNOWN}
        here.machine("n0").clear()
        await here.clock.sleep(5 * MINUTE)

    here.go(None, meanwhile)
    assert here.statuses() == {NodeStatus.CONVERGED}


def test_a_node_that_the_cluster_reports_is_looked_at_at_once(looped: Callable[..., Looped]) -> None:
    """Not with the next pass: within seconds of the event."""
    here = looped(nodes=3)
    moments: list[float] = []

    async def breaks() -> None:
        await here.clock.sleep(5 * MINUTE + 30)
        here.machine("n1").inject("xid_79", gpu=1)
        here.machine("n1").service_set("kubelet", active=False, enabled=True)
        here.lab.cluster.sync("n1")  # type: ignore[union-attr]
        moments.append(here.clock.elapsed)
        while not here.marked("n1"):
            await here.clock.sleep(0.1)
        moments.append(here.clock.elapsed)

    here.go(HOUR, breaks)
    broke, marked = moments
    assert marked - broke < 60.0, "most of it is the node controller's"
    assert here.serves("n1"), "and it is treated, and comes back"


def test_since_when_the_watch_is_deaf_is_a_metric(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2)
    assert here.lab.cluster is not None
    cluster, moments = here.lab.cluster, list[datetime]()

    async def fails() -> None:
        await here.clock.sleep(3 * MINUTE)
        cluster.down = True
        moments.append(here.clock.now())
        await here.clock.sleep(3 * MINUTE)
        cluster.down = False

    here.go(10 * MINUTE, fails)
    since, *rest = here.seen.deaf_since
    assert since is not None
    assert timedelta() <= since - moments[0] <= timedelta(seconds=3)
    assert set(rest) == {None}


@pytest.mark.parametrize("racks", [2, 4])
def test_a_dead_node_comes_back_untouched_by_hand(looped: Callable[..., Looped], racks: int) -> None:
    """In a rack of its own too, where it has no neighbours to be compared with."""
    here = looped(nodes=4, racks=racks)

    async def dies() -> None:
        await here.clock.sleep(10 * MINUTE)
        here.machine("n2").inject("host_hung")

    here.go(2 * HOUR, dies)
    did = here.did("n2")
    assert did[0] == "mark"
    assert "power_cycle" in did
    assert did[-2:] == ["run_gate", "admit"]
    assert here.serves("n2")
    assert {name for name in here.lab.machines if here.did(name)} == {"n2"}


def test_a_finalizer_does_not_keep_a_dead_node_from_being_treated(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=4)
    assert here.lab.cluster is not None
    here.lab.cluster.add_pod("default", "kept", "n2", ("Job", "kept"), finalizers=["example.com/checkpoint"])

    async def dies() -> None:
        await here.clock.sleep(10 * MINUTE)
        here.machine("n2").inject("host_hung")

    here.go(2 * HOUR, dies)
    assert "power_cycle" in here.did("n2")
    assert here.serves("n2")
    assert "kept" in {pod.name for pod in here.lab.cluster.pods("n2")}


def test_a_treatment_that_was_parked_is_continued(looped: Callable[..., Looped]) -> None:
    """Its attempt was counted when it began, and is no reason to give the node up."""
    remediation = replace(PROFILE.remediation, ladder=(Rung("power_cycle", 1),)) if PROFILE.remediation else None
    here = looped(nodes=4, profile=replace(PROFILE, remediation=remediation, digest="one rung"))

    async def dies() -> None:
        await here.clock.sleep(MINUTE)
        here.machine("n2").inject("host_hung")
        await here.started("power_cycle")
        raise TimeoutError

    here.go(HOUR, dies)
    assert not here.serves("n2")
    here.go(HOUR)
    assert here.serves("n2")
    assert here.machine("n2").state.counters.power_cycles == 1


def test_what_a_dead_run_had_begun_and_nobody_needs_any_more_is_closed(looped: Callable[..., Looped]) -> None:
    """Its restart came about while nobody led."""
    here = looped(nodes=2)

    async def ends() -> None:
        await here.clock.sleep(MINUTE)
        disable(here.machine("n0"))
        await here.started("soft_restart")
        while here.machine("n0").state.counters.boots == 0:
            await here.clock.sleep(1.0)
        raise TimeoutError

    here.go(HOUR, ends)
    assert [action for _, _, action, _, _ in here.ledger.unfinished()] == ["soft_restart"]
    here.clock.elapsed += 30 * MINUTE
    here.go(30 * MINUTE)
    assert here.serves("n0")
    assert here.machine("n0").state.counters.boots == 1
    assert here.ledger.unfinished() == []


def test_one_that_dies_again_and_again_is_left_out_of_service(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=4)

    async def dies() -> None:
        await here.clock.sleep(10 * MINUTE)
        here.machine("n2").inject("host_hung", persistent=True)

    here.go(6 * HOUR, dies)
    assert not here.serves("n2")
    assert here.machine("n2").state.counters.power_cycles <= 6
    assert here.statuses() == {NodeStatus.CONVERGED, NodeStatus.BLOCKED}


def test_an_install_that_never_ends_is_said_to_be_stuck(looped: Callable[..., Looped]) -> None:
    """Once its time is over and its attempts are used up, somebody must look: that nobody works on it is said."""
    here = looped(nodes=2)
    here.machine("n0").inject("installer_fails", times=9)
    new = changed(here.fleet, "new image", image=NEW)
    here.put(replace(new, nodes={**here.fleet.nodes, "n0": new.nodes["n0"]}))
    here.go(14 * HOUR)
    assert here.seen.fleet is not None
    report = here.seen.fleet.nodes["n0"]
    assert report.status is NodeStatus.BLOCKED, report
    assert here.clock.now() - report.since > timedelta(hours=2), "and no more than once"


def test_where_nobody_says_what_to_do_about_it_a_stuck_boot_is_not_waited_for(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2, profile=replace(PROFILE, remediation=None, digest="no policy"))
    here.machine("n0").inject("post_hang", times=0)
    disable(here.machine("n0"))
    here.go(4 * HOUR)
    before = len(here.events)
    here.go(6 * HOUR)
    assert not [one for one in here.events[before:] if isinstance(one, NodeSettled) and one.node == "n0"]


def test_a_new_spec_comes_into_force_while_nodes_are_at_work(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=3, settings={"budgets": (BudgetLimit("fleet", "2"),)})

    async def bumps() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.put(changed(here.fleet, "image", image=NEW))
        await here.started("reimage")
        here.put(changed(here.fleet, "both", image=NEW, host=replace(PROFILE.host, sysctls={"vm.swappiness": "7"})))

    here.go(4 * HOUR, bumps)
    assert {machine.state.counters.installs for machine in here.lab.machines.values()} == {1}
    assert all(map(here.serves, here.lab.machines))
    assert {machine.system().sysctls["vm.swappiness"] for machine in here.lab.machines.values()} == {"7"}
    assert here.statuses() == {NodeStatus.CONVERGED}


def test_a_node_that_leaves_the_spec_ends_its_action_and_is_left_alone(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=3)

    async def forgets() -> None:
        await here.clock.sleep(3 * MINUTE)
        disable(here.machine("n0"))
        await here.started("drain")
        here.put(replace(here.fleet, nodes={n: node for n, node in here.fleet.nodes.items() if n != "n0"}, digest="2"))

    here.go(2 * HOUR, forgets)
    assert here.did("n0")[:2] == ["mark", "drain"]
    assert "soft_restart" not in here.did("n0")
    assert not here.marked("n0"), "nothing but a drain came after the mark"
    assert here.said("forgotten")


def test_in_mode_observe_nothing_is_done(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2, settings={"drift_mode": DriftMode.OBSERVE})
    disable(here.machine("n0"))
    here.machine("n1").system().sysctls["vm.swappiness"] = "60"
    here.go(HOUR)
    assert not [event for event in here.events if isinstance(event, ActionStarted)]
    assert NodeStatus.CONVERGED not in here.statuses()


def test_a_plan_that_guards_refuse_is_not_carried_out(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=5, settings={"guards": Guards("20%", "20%", "20%")})

    async def bumps() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.put(changed(here.fleet, "image", image=NEW))

    here.go(HOUR, bumps)
    assert not [event for event in here.events if isinstance(event, ActionStarted)]


def test_stop_and_resume(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2)

    async def stops() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.ledger.hold(FLEET, "wait", "ops", None, here.clock.now())
        disable(here.machine("n0"))
        await here.clock.sleep(30 * MINUTE)
        assert not here.did("n0")
        assert here.seen.loop.stopped
        assert here.said("pass")[-1].endswith(" unknown, 2 held")
        here.ledger.release(FLEET, "ops", here.clock.now())

    here.go(2 * HOUR, stops)
    assert here.serves("n0")
    assert here.did("n0")[-1] == "admit"


def test_a_storm_brakes_until_a_person_resumes(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=10, racks=2, settings={"budgets": (BudgetLimit("fleet", "100%"),)})
    dead = [f"n{at}" for at in range(6)]
    cycles: list[int] = []

    async def storms() -> None:
        await here.clock.sleep(5 * MINUTE)
        for name in dead:
            here.machine(name).inject("host_hung")
        await here.clock.sleep(2 * HOUR)
        cycles.append(sum(here.machine(name).state.counters.power_cycles for name in dead))
        here.ledger.release(STORM, "ops", here.clock.now())

    here.go(4 * HOUR, storms)
    assert cycles == [0]
    assert all(map(here.serves, here.lab.machines)), "long since no storm any more: a person's word holds"


def test_when_no_node_answers_the_observer_is_at_fault(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=5)

    async def darkens() -> None:
        await here.clock.sleep(5 * MINUTE)
        for machine in here.lab.machines.values():
            machine.inject("bmc_unreachable")
            machine.inject("ssh_refused")
        before = {name: here.ledger.node(name).silent_since for name in here.fleet.nodes}
        await here.clock.sleep(HOUR)
        assert {name: here.ledger.node(name).silent_since for name in here.fleet.nodes} == before, "(J6)"
        assert all(not silences(here.ledger.node(name)) for name in here.fleet.nodes)
        for machine in here.lab.machines.values():
            machine.clear("bmc_unreachable")
            machine.clear("ssh_refused")

    here.go(3 * HOUR, darkens)
    assert here.said("blind")
    assert here.said("seeing")
    assert not [event for event in here.events if isinstance(event, ActionStarted)]


def test_of_two_one_leads_and_the_other_takes_over(looped: Callable[..., Looped], tmp_path: Path) -> None:
    here = looped(nodes=2)
    other = SqlLedger(tmp_path / "ledger.sqlite")
    standby = Seen()

    async def both() -> None:
        first = asyncio.create_task(here.loop("a").run())
        await here.clock.sleep(MINUTE)
        second = asyncio.create_task(here.loop("b", other, standby).run())
        await here.clock.sleep(5 * MINUTE)
        assert (here.seen.loop.role, standby.loop.role) == (Role.LEADER, Role.STANDBY)
        disable(here.machine("n0"))
        await here.started("drain")
        await end(first)
        await here.clock.sleep(MINUTE)
        assert standby.loop.role is Role.LEADER
        await here.clock.sleep(HOUR)
        await end(second)

    here.run(both())
    other.close()
    assert here.serves("n0")
    assert here.machine("n0").state.counters.boots == 1


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_a_ledger_that_is_away_for_a_while(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2)

    async def loses() -> None:
        await here.clock.sleep(3 * MINUTE)
        disable(here.machine("n0"))
        await here.started("drain")
        with unreadable(here.ledger):
            await here.clock.sleep(10 * MINUTE)
            assert here.seen.loop.role is Role.STARTING

    here.go(2 * HOUR, loses)
    assert here.said("ledger")
    assert here.serves("n0")
    assert here.machine("n0").state.counters.boots == 1


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("UPDATE drift SET path = x'00ff'", "the drift of 2026-12-31 .* TypeError: Object of type bytes"),
        ("UPDATE drift SET path = CAST(x'68ff' AS TEXT)", "the drift of 2026-12-31 .* Could not decode to UTF-8"),
        ("ALTER TABLE day_sums RENAME TO gone", "the drift of 2026-12-31 .* no such table: day_sums"),
    ],
)
def test_days_that_cant_be_summed_up_are_told_once_and_stop_nothing(
    looped: Callable[..., Looped], damage: str, told: str
) -> None:
    here = looped(nodes=1)
    before, item = here.clock.now() - timedelta(days=1), ("n0", "host.tuned", "drifted", 0, 1)
    here.ledger.record_drift("r", [item], ["n0"], before, under="host.tuned")
    here.ledger.record_drift("r", [], ["n0"], before, under="host.tuned")
    with here.ledger._database.write([]) as connection:
        connection.exec_driver_sql(damage)
    summer, passes = DaySummer(here.ledger, here.events.append), []

    def saw(run: str) -> None:
        passes.append(here.said("day_sums"))
        summer.pass_ended(run, here.clock.now())

    here.saw = saw

    async def drifts() -> None:
        await here.clock.sleep(9 * MINUTE)
        disable(here.machine("n0"))
        await here.clock.sleep(21 * MINUTE)

    here.go(None, drifts)
    assert len(passes) > 10
    assert passes[:2] == [[], []], "not while the term begins"
    [said] = here.said("day_sums")
    assert re.search(told, said)
    assert not here.said("ledger")
    assert here.machine("n0").state.bios[BIOS] == "Enabled"


@contextmanager
def unreadable(ledger: SqlLedger) -> Iterator[None]:
    """Make every call of the ledger fail, as when its database is down."""
    names = [n for n in dir(SqlLedger) if not n.startswith("_") and callable(getattr(SqlLedger, n)) and n != "close"]

    def fail(*_: Any, **__: Any) -> Any:
        raise LedgerError("the database is down")

    for name in names:
        object.__setattr__(ledger, name, fail)
    yield
    for name in names:
        object.__delattr__(ledger, name)


def test_nodes_set_aside_are_not_touched(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=2)
    here.put(replace(here.fleet, nodes={
        name: replace(node, state=NodeState.QUARANTINED) if name == "n0" else node
        for name, node in here.fleet.nodes.items()
    }))  # fmt: skip
    disable(here.machine("n0"))
    here.go(HOUR)
    assert not here.did("n0")
    assert here.statuses() == {NodeStatus.CONVERGED, NodeStatus.SET_ASIDE}


def test_a_cluster_that_is_silent_during_a_pass_costs_no_node_at_work(looped: Callable[..., Looped]) -> None:
    """A pass does not read a node that is worked on; when the cluster is silent too, nothing is read of it at all."""
    here = looped(nodes=3)

    async def loses() -> None:
        await here.clock.sleep(3 * MINUTE)
        disable(here.machine("n0"))
        await here.started("soft_restart")
        assert here.lab.cluster is not None
        here.lab.cluster.down = True
        await here.clock.sleep(10 * MINUTE)  # some passes, in which the node comes to its end
        here.lab.cluster.down = False

    here.go(2 * HOUR, loses)
    assert len(here.said("leading")) == 1, "the first term goes on"
    assert here.machine("n0").state.counters.boots == 1
    assert all(map(here.serves, here.lab.machines))
    assert here.statuses() == {NodeStatus.CONVERGED}


def test_one_read_of_the_cluster_that_fails_costs_no_node_its_turn(
    looped: Callable[..., Looped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left a node ill in service until the next pass: whether it serves could not be read, so nothing was begun."""
    here, read, fails = looped(nodes=2), TruthCluster.state, list[str]()

    async def state(cluster: TruthCluster) -> Any:
        if fails and fails.pop():
            return Silent(here.clock.now(), UnknownReason.UNREACHABLE, "the connection was reset")
        return await read(cluster)

    monkeypatch.setattr(TruthCluster, "state", state)

    async def drifts() -> None:
        await here.clock.sleep(3 * MINUTE)
        disable(here.machine("n0"))
        here.saw = fails.append  # with each pass, so that what is asked after it fails first

    here.go(10 * MINUTE, drifts)
    assert here.did("n0")[0] == "mark"


def test_without_a_cluster_a_pass_goes_by_while_a_node_is_worked_on(looped: Callable[..., Looped]) -> None:
    """Then nobody tells anything of it but those who work on it."""
    plain = replace(PROFILE, membership=None, drain=DrainPolicy(DrainProvider.NONE))
    here = looped(nodes=2, cluster=False, profile=plain)

    async def drifts() -> None:
        await here.clock.sleep(3 * MINUTE)
        disable(here.machine("n0"))
        await here.started("soft_restart")

    here.go(HOUR, drifts)
    assert here.machine("n0").state.bios[BIOS] == "Enabled"
    assert here.statuses() == {NodeStatus.CONVERGED}
    assert here.did("n0")[-1] == "admit", "or its drain would count for ever"


def test_a_pass_during_the_gate_of_a_booted_node_does_not_begin_its_watch_anew(looped: Callable[..., Looped]) -> None:
    """A pass took a node at work for what it was before its boot, and forgot the counters of this one."""

    class LongGate(QuickGate):
        async def run(self, *given: Any, **more: Any) -> Certificate:
            certificate = await super().run(*given, **more)
            passes = here.seen.passes
            while here.seen.passes < passes + 2:
                await here.clock.sleep(1.0)
            return certificate

    here = looped(nodes=3, gate=LongGate())

    async def falls_ill() -> None:
        await here.clock.sleep(10 * MINUTE)
        here.machine("n1").inject("xid_79", gpu=1)

    here.go(40 * MINUTE, falls_ill)
    assert here.serves("n1")
    attempts = here.ledger.node("n1").attempts
    ends = {one.action: one.ended_at for one in attempts if one.outcome == "done" and one.ended_at is not None}
    took = ends["admit"] - ends["run_gate"]
    assert took < timedelta(seconds=10), "its counters were watched while the gate ran"


def test_a_line_in_the_kernel_log_isolates_before_the_next_pass(looped: Callable[..., Looped]) -> None:
    here = looped(nodes=3)

    before: list[int] = []

    async def meanwhile() -> None:
        passes = here.seen.passes
        while here.seen.passes == passes:
            await here.clock.sleep(1.0)
        before.append(here.seen.passes)
        here.machine("n1").inject("xid_79", gpu=1)
        await here.clock.sleep(20.0)
        assert here.seen.passes == before[0], "no pass came meanwhile"
        assert not here.serves("n1")

    began = here.clock.now()
    here.go(20 * MINUTE, meanwhile)
    assert before
    # What was healed before any pass saw it is in reports, and what healed it.
    assert here.serves("n1")
    past = here.ledger.past(began, here.clock.now())
    told = reliability(Period(here.fleet, past, began, here.clock.now(), past))
    [xid] = [one for one in told.signals if one.signal == "health.xid_79"]
    assert (xid.failures, xid.repair.count) == (1, 1)
    assert xid.repair.mean_s is not None
    assert xid.repair.mean_s < 10 * MINUTE, "as of the look after the rung, and not of the next pass"
    assert [(one.rung, one.healed) for one in told.rungs if one.signal == xid.signal] == [("power_cycle", 1)]
