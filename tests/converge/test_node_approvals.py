"""Where the loop only looks, it carries out the plans of nodes that somebody has approved, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.events import ActionStarted, NodeSettled
from reconciler.converge.loop import Loop
from reconciler.converge.node_approvals import NodeApprovals
from reconciler.converge.partner_pool import PartnerPool
from reconciler.model.desired import AskedGate, BudgetLimit
from reconciler.model.errors import Refused, StalePlan, UsageError
from reconciler.model.plan import BlockCode, Blocked, NodePlan, Plan
from reconciler.model.records import FLEET, Attempt, Mark, NodeRecord
from reconciler.model.status import NodeStatus
from reconciler.model.vocab import DriftMode
from tests.converge.test_isolation import WATCHED, fall_ill, reason
from tests.converge.test_loop import HOUR, MINUTE, Looped
from tests.converge.test_pair_gate import Wired


@dataclass
class Watched(Looped):
    """A fleet in which n0 to n2 differ, under a loop that only looks."""

    approvals: NodeApprovals = field(default_factory=NodeApprovals)
    latest: Plan | None = None

    def __post_init__(self) -> None:
        self.settings = {"drift_mode": DriftMode.OBSERVE, "budgets": (BudgetLimit("fleet", "4"),), **self.settings}
        super().__post_init__()
        for at in range(3):
            self.machine(f"n{at}").system().sysctls["vm.swappiness"] = "60"

    def loop(self, *args: Any, **more: Any) -> Loop:
        made = super().loop(*args, **more)

        def saw(_fleet: Any, plan: Plan, _seen: Any) -> None:
            self.latest = plan

        made._deps = replace(made._deps, approvals=self.approvals, saw=saw)
        return made

    def approve(self, *names: str) -> None:
        assert self.latest is not None
        shown = {name: self.latest.nodes[name].fingerprint for name in names}
        self.approvals.grant(self.latest, shown, "eve", self.clock.now())

    @property
    def acted(self) -> set[str]:
        return {event.node for event in self.events if isinstance(event, ActionStarted)}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Any]:
    built: list[Watched] = []

    def build(**differences: Any) -> Watched:
        built.append(Watched(tmp_path, **{"nodes": 4, **differences}))
        return built[-1]

    yield build
    for one in built:
        one.ledger.close()


def test_what_was_approved_begins_at_once_and_nothing_else(watched: Any) -> None:
    here = watched()
    begun: list[set[str]] = []

    async def approves() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.approve("n1")
        await here.clock.sleep(30.0)
        begun.append(here.acted)
        await here.clock.sleep(20 * MINUTE)
        here.approve("n2")

    here.go(HOUR, approves)
    assert begun == [{"n1"}], "it does not wait for the next pass"
    assert here.acted == {"n1", "n2"}
    settled = {event.node for event in here.events if isinstance(event, NodeSettled)}
    assert "n0" not in settled, "who waits for an approval is not told of in each pass"
    assert here.machine("n1").system().sysctls["vm.swappiness"] == "1"
    assert here.machine("n0").system().sysctls["vm.swappiness"] == "60"
    assert (here.approvals.nodes, here.said("approval")) == ((), []), "carried out, it is used up"
    assert here.seen.fleet.nodes["n0"].status is not NodeStatus.CONVERGED


def test_observe_wins_over_isolation_while_something_is_approved(watched: Any) -> None:
    here = watched(profile=WATCHED)

    async def approves() -> None:
        await here.clock.sleep(3 * MINUTE)
        fall_ill(here, "n3")
        here.machine("n0").system().sysctls["vm.swappiness"] = "61"
        here.ledger.hold("n1", "so that the approval stays", "ann", None, here.clock.now())
        here.approve("n1")

    here.go(HOUR, approves)
    assert (here.acted, reason(here, "n3")) == (set(), "")
    assert set(here.approvals.nodes) == {"n1"}


def test_a_plan_that_changes_before_it_begins_is_not_carried_out(watched: Any) -> None:
    here = watched()

    async def approves() -> None:
        await here.clock.sleep(3 * MINUTE)
        old = here.latest
        here.ledger.hold("n1", "wait", "ann", None, here.clock.now())
        here.approve("n1")
        host = {**here.fleet.nodes["n1"].profile.host.sysctls, "vm.swappiness": "10"}
        profile = replace(
            here.fleet.nodes["n1"].profile,
            digest="other",
            host=replace(here.fleet.nodes["n1"].profile.host, sysctls=host),
        )
        here.put(
            replace(here.fleet, nodes={name: replace(node, profile=profile) for name, node in here.fleet.nodes.items()})
        )
        await here.clock.sleep(10 * MINUTE)
        here.ledger.release("n1", "ann", here.clock.now())
        with pytest.raises(StalePlan, match="n1 is another one now than was shown"):
            here.approvals.grant(here.latest, {"n1": old.nodes["n1"].fingerprint}, "eve", here.clock.now())

    here.go(HOUR, approves)
    assert here.acted == set()
    [told] = here.said("approval")
    assert told.startswith("n1: its approval has ended, and it waits for another: ")


def test_an_approval_under_which_nothing_could_begin_ends(watched: Any) -> None:
    here = watched()

    async def approves() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.ledger.hold("n1", "wait", "ann", None, here.clock.now())
        here.approve("n1")

    here.go(3 * HOUR, approves)
    assert (here.acted, here.approvals.nodes) == (set(), ())
    assert here.said("approval")[0].endswith("nothing could begin for 2 hours")


def test_an_approval_ends_with_its_work_and_covers_no_drift_that_comes_before_the_next_pass(watched: Any) -> None:
    here = watched()

    async def approves() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.approve("n1")
        while here.approvals.nodes:
            await here.clock.sleep(1.0)
            done = {event.node for event in here.events if isinstance(event, NodeSettled)}
            if "n1" in done:
                break
        here.machine("n1").system().sysctls["vm.swappiness"] = "61"

    here.go(15 * MINUTE, approves)
    assert here.machine("n1").system().sysctls["vm.swappiness"] == "61", "nobody approved that"
    assert (here.acted, here.approvals.nodes) == ({"n1"}, ())


def begun(here: Watched) -> tuple[NodePlan, NodeRecord]:
    """Approve n1, and return its plan and a record in which an attempt of an hour has ended since."""
    here.go(5 * MINUTE)
    here.approve("n1")
    assert here.latest is not None
    now = here.clock.now()
    tried = Attempt("set_sysctls", "", "drift", now, "done", ended_at=now + timedelta(hours=1))
    return here.latest.nodes["n1"], NodeRecord("n1", attempts=(tried,))


RESTS = [BlockCode.FOREIGN_CORDON, BlockCode.ATTEMPTS, BlockCode.NO_PATH, BlockCode.HELD, BlockCode.GATE]
GOES_ON = [BlockCode.UNKNOWN, BlockCode.UNDER_WAY, BlockCode.BACKOFF, BlockCode.ROLLOUT]


@pytest.mark.parametrize("code", [*RESTS, *GOES_ON])
def test_an_approval_that_was_begun_ends_when_its_node_rests_blocked(watched: Any, code: BlockCode) -> None:
    here = watched()
    plan, record = begun(here)
    rests = {"n1": replace(plan, actions=(), blocked=Blocked(code, "as it is"))}
    now = here.clock.now() + timedelta(hours=1)
    assert here.approvals.drop_ended(rests, {}, (), now) == [], "one that has not begun waits"
    assert here.approvals.drop_ended(rests, {"n1": record}, {"n1"}, now) == [], "it is being worked on"
    told = here.approvals.drop_ended(rests, {"n1": record}, (), now)
    assert told == ([("n1", "work on it has come to rest: as it is")] if code in RESTS else [])
    assert here.approvals.nodes == (() if code in RESTS else ("n1",))


def test_an_approval_that_was_begun_ends_two_hours_after_the_last_attempt(watched: Any) -> None:
    here = watched()
    plan, record = begun(here)
    now = here.clock.now()
    assert here.approvals.drop_ended({"n1": plan}, {"n1": record}, (), now + timedelta(hours=3)) == []
    late = now + timedelta(hours=3, seconds=1)
    assert here.approvals.drop_ended({"n1": plan}, {"n1": record}, {"n1"}, late) == []
    told = here.approvals.drop_ended({"n1": plan}, {"n1": record}, (), late)
    assert told == [("n1", "nothing could go on for 2 hours")]
    assert here.approvals.nodes == ()


def test_the_next_leader_starts_without_approvals(watched: Any) -> None:
    here = watched()

    async def approves() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.ledger.hold("n1", "wait", "ann", None, here.clock.now())
        here.approve("n1")

    here.go(10 * MINUTE, approves)
    assert here.approvals.nodes == ("n1",)
    here.ledger.release("n1", "ann", here.clock.now())
    here.go(HOUR)
    assert (here.acted, here.approvals.nodes) == (set(), ())


def test_what_may_not_be_approved(watched: Any) -> None:
    here = watched()
    here.go(5 * MINUTE)
    now = here.clock.now()
    with pytest.raises(UsageError, match="name the nodes"):
        here.approvals.grant(here.latest, {}, "eve", now)
    with pytest.raises(StalePlan, match="n3"):
        here.approvals.grant(here.latest, {"n3": here.latest.nodes["n3"].fingerprint}, "eve", now)
    with pytest.raises(Refused, match="the plan is refused: too many"):
        here.approvals.grant(replace(here.latest, refused=("too many",)), {"n0": "x"}, "eve", now)


@dataclass
class Paired(Wired, Watched):
    """Six nodes whose gates take partners."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.put(self.fleet)

    def take_out(self, name: str, why: str) -> None:
        async def mark() -> None:
            cluster = self.fabric.cluster()
            assert cluster is not None
            member = await cluster.member(name)
            assert member is not None
            at = self.clock.now().isoformat(timespec="seconds")
            await cluster.mark(member, Mark(self.ledger.id, "plan-0", why, at, cordoned=True))

        self.run(mark())


@pytest.fixture
def paired(tmp_path: Path) -> Iterator[Paired]:
    built = Paired(tmp_path)
    yield built
    built.ledger.close()


def test_the_gate_of_an_approved_node_takes_no_others_as_partners(
    paired: Paired, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither n2, which is idle, nor n1, which is out of service."""
    held: list[str] = []
    hold = PartnerPool._hold

    async def holding(pool: PartnerPool, gate: Any, chosen: Any, near: bool) -> Any:
        held.append(chosen.name)
        return await hold(pool, gate, chosen, near)

    monkeypatch.setattr(PartnerPool, "_hold", holding)
    asked = replace(paired.fleet.nodes["n0"], asked=AskedGate(paired.clock.now(), "ops", None))
    paired.put(replace(paired.fleet, nodes={**paired.fleet.nodes, "n0": asked}))
    paired.take_out("n1", "a test")

    async def approves() -> None:
        await paired.clock.sleep(MINUTE)
        paired.approve("n0")

    paired.go(12 * MINUTE, approves)
    assert "n0" in paired.gate.runs
    assert (held, paired.acted) == ([], {"n0"})
    [waits] = [text for text in paired.told() if "waits for a partner" in text]
    assert "n2: nobody has approved work on it, and the spec's mode is observe" in waits


@pytest.mark.parametrize("stops", [False, True], ids=["", "stopped"])
def test_a_partner_of_a_loop_that_died_serves_again_though_nothing_is_approved(paired: Paired, stops: bool) -> None:
    paired.take_out("n4", "partner for the gate of n0")
    paired.take_out("n5", "a test")
    if stops:
        paired.ledger.hold(FLEET, "smoke", "ann", None, paired.clock.now())
    paired.go(3 * MINUTE)
    assert (paired.serves("n4"), paired.marked("n4")) == (not stops, stops)
    assert paired.marked("n5"), "it was out for something else"
    assert paired.acted == set()
