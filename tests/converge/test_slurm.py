"""Drains by Slurm, alone and beside Kubernetes, on the lab's Slurm and through the driver of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.converge.schedulers import TwoSchedulers, joined
from reconciler.drivers.slurm import SlurmCluster
from reconciler.lab.hardware.slurm import SlurmTruth
from reconciler.lab.hardware.slurm_objects import LabJob, LabNode
from reconciler.lab.inprocess import LabFabric
from reconciler.lab.inprocess.slurm_login import SlurmLogin
from reconciler.model import desired as d
from reconciler.model.access import ClusterAccess, SlurmAccess
from reconciler.model.drain import Checkpoint
from reconciler.model.observed import Member, Taint
from reconciler.model.outcome import Declined, Done, Transient
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, read_mark
from reconciler.model.vocab import CheckpointWay, DrainProvider
from reconciler.planner.node.foreign_holds import hold_of
from tests.converge.world import PROFILE, World

NAMES = {"n0": "gpu001", "n1": "gpu002", "n2": "gpu003"}
ACCESS = SlurmAccess("login:22", names=NAMES, take_over=("NHC",))
SIGNAL = Checkpoint(CheckpointWay.SIGNAL, 600.0, signal="USR1")


@dataclass
class Both:
    """A lab fleet with a Slurm. `kubernetes`: beside the lab's Kubernetes."""

    world: World
    truth: SlurmTruth
    login: SlurmLogin

    def node(self, name: str = "n0") -> LabNode:
        return self.truth.nodes(NAMES[name])[0]

    def member(self, name: str = "n0") -> Member:
        port = self.world.fabric.cluster()
        assert port is not None
        found = self.world.run(port.member(name))
        assert found is not None
        return found


@pytest.fixture
def build(world: Callable[..., World]) -> Callable[..., Both]:
    def make(*, kubernetes: bool, policy: dict[str, Any] | None = None, **differences: Any) -> Both:
        drain = d.DrainPolicy(DrainProvider.SLURM, **{"timeout_s": 300.0, "wait_for_jobs_s": 3600.0, **(policy or {})})
        profile = replace(PROFILE, drain=drain)
        if not kubernetes:
            profile = replace(profile, membership=d.DesiredMembership({}, (), ()))
        here = world(profile=profile, **differences)
        access = ClusterAccess("hpc", None, kubernetes=kubernetes, slurm=ACCESS)
        here.fleet = replace(here.fleet, settings=replace(here.fleet.settings, cluster=access))
        truth = SlurmTruth(here.lab.machines, here.clock.seconds, NAMES)
        login = SlurmLogin(truth, here.clock)
        port: Any = SlurmCluster(login, ACCESS, timeout_s=30.0, now=here.clock.now)
        if kubernetes:
            kube = here.fabric.cluster()
            assert kube is not None
            port = TwoSchedulers(kube, port)
        here.fabric = LabFabric(here.lab, here.clock, scheduler=port)
        return Both(here, truth, login)

    return make


def drained(both: Both, job: LabJob, **policy: Any) -> Any:
    both.world.act("mark")
    return both.world.act("drain", **policy)


# --- alone -----------------------------------------------------------------------------------------------------------


def test_a_job_is_waited_for_until_it_ends(build: Callable[..., Both]) -> None:
    both, said = build(kubernetes=False), list[str]()
    job = both.truth.submit("gpu001", runs_s=1800.0, limit_s=3000.0)
    began = both.world.clock.elapsed
    outcome = drained(both, job, step=said.append)
    assert isinstance(outcome, Done), outcome
    assert job.state == "COMPLETED"
    assert 1800 <= both.world.clock.elapsed - began < 1900
    assert f"job {job.id}, the last by 2027-01-01 01:50:00Z" in said[0]
    assert not any(command[:2] == ("scontrol", "requeue") for command in both.login.ran)


def test_a_plan_says_how_long_the_jobs_may_take(build: Callable[..., Both]) -> None:
    both = build(kubernetes=False)
    both.truth.submit("gpu001", limit_s=1200.0)
    plan = both.world.plan().nodes["n0"]
    assert plan.drain_waits == ("up to 1h00m for 1 job of finite work, the last of which ends by 2027-01-01 01:20Z",)
    (drain,) = [action for action in plan.actions if action.name == "drain"]
    assert 1200 <= drain.estimate_s < 1800


def test_a_job_that_takes_part_is_signalled_once_and_ends(build: Callable[..., Both]) -> None:
    both = build(kubernetes=False, policy={"wait_for_jobs_s": 1.0, "checkpoint": SIGNAL})
    job = both.truth.submit("gpu001", comment="reconciler.dev/checkpoint", saves_s=90.0)
    other = both.truth.submit("gpu001")
    outcome = drained(both, job)
    assert isinstance(outcome, Done), outcome
    assert (job.state, job.signals) == ("COMPLETED", ["USR1"])
    assert (other.state, other.signals) == ("PENDING", [])
    assert "1 of 1 saved their state" in outcome.detail


def test_a_job_that_does_not_end_after_its_signal_is_requeued(build: Callable[..., Both]) -> None:
    both = build(kubernetes=False, policy={"wait_for_jobs_s": 1.0, "checkpoint": SIGNAL})
    job = both.truth.submit("gpu001", comment="reconciler.dev/checkpoint", saves_s=1e6)
    began = both.world.clock.elapsed
    outcome = drained(both, job)
    assert isinstance(outcome, Done), outcome
    assert job.state == "PENDING"
    assert job.signals == ["USR1"]
    assert "no checkpoint by " in outcome.detail
    assert both.world.clock.elapsed - began >= 600


def test_a_job_that_may_not_be_requeued_is_named(build: Callable[..., Both]) -> None:
    both = build(kubernetes=False, policy={"wait_for_jobs_s": 1.0, "timeout_s": 60.0})
    job = both.truth.submit("gpu001", requeue=False)
    outcome = drained(both, job)
    assert isinstance(outcome, Transient), outcome
    assert f"job {job.id}: scontrol: Requested operation is presently disabled" in outcome.detail
    assert job.state == "RUNNING"


def test_apply_drains_reboots_gates_and_resumes(build: Callable[..., Both]) -> None:
    both = build(kubernetes=False, policy={"wait_for_jobs_s": 600.0}, drift={"n0": ["bios_off"]})
    both.world.adopt()
    job = both.truth.submit("gpu001", runs_s=300.0)
    both.world.apply()
    did = both.world.did("n0")
    assert did[:2] == ["mark", "drain"], did
    assert did[-2:] == ["run_gate", "admit"], did
    assert job.state == "COMPLETED"
    node = both.node()
    assert (node.drain, node.down, node.reason) == (False, False, "")  # DOWN after the boot, as ReturnToService is 0


def test_a_persons_reason_is_kept_and_named(build: Callable[..., Both]) -> None:
    both = build(kubernetes=False, drift={"n0": ["bios_off"]})
    both.world.adopt()
    both.truth.update("gpu001", "drain", "RMA 4711, ask Ada", "ada")
    both.world.apply()
    assert both.world.did("n0") == []
    assert (both.node().reason, both.node().by) == ("RMA 4711, ask Ada", "ada")
    blocked = both.world.plan().nodes["n0"].blocked
    assert blocked is not None
    assert "ada keeps it out of Slurm: RMA 4711, ask Ada" in blocked.detail


def test_a_person_who_resumes_the_node_ends_the_wait(build: Callable[..., Both]) -> None:
    both = build(kubernetes=False)
    job = both.truth.submit("gpu001")
    both.world.act("mark")

    async def resumes() -> None:
        await both.world.clock.sleep(600)
        both.truth.update("gpu001", "resume", "", "ada")

    async def together() -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(resumes())
            outcome = group.create_task(both.world.acting("drain"))
        return outcome.result()

    outcome = both.world.run(together())
    assert isinstance(outcome, Declined), outcome
    assert job.state == "RUNNING"


# --- beside Kubernetes -----------------------------------------------------------------------------------------------


def test_a_node_is_drained_when_both_say_so(build: Callable[..., Both]) -> None:
    both = build(kubernetes=True, policy={"wait_for_jobs_s": 900.0}, drift={"n0": ["bios_off"]})
    both.world.adopt()
    job = both.truth.submit("gpu001", runs_s=1e6)
    both.world.apply()
    did = both.world.did("n0")
    assert did[:2] == ["mark", "drain"], did
    assert did[-1] == "admit", did
    assert (job.restarts, job.state) == (1, "RUNNING")  # requeued, and begun again once the node was back
    assert both.world.serves("n0")
    assert both.node().reason == ""


def test_both_halves_carry_the_mark(build: Callable[..., Both]) -> None:
    both = build(kubernetes=True)
    assert isinstance(both.world.act("mark"), Done)
    assert both.world.marked("n0")
    assert both.node().drain
    member = both.member()
    assert member.unschedulable
    mark = read_mark(member.annotations[OWNER_ANNOTATION])
    assert mark is not None
    assert mark.cordoned
    assert mark.ledger == both.world.ledger.id
    assert isinstance(both.world.act("admit"), Done)
    assert both.world.serves("n0")
    assert not both.node().drain


@pytest.mark.parametrize("half", ["kubernetes", "slurm"])
def test_a_half_that_lost_its_mark_is_marked_again(build: Callable[..., Both], half: str) -> None:
    both = build(kubernetes=True)
    both.world.act("mark")
    assert both.world.lab.cluster is not None
    if half == "slurm":
        both.truth.update("gpu001", "resume", "", "root")
    else:
        both.world.lab.cluster.update_node("n0", taints=[], unschedulable=False)
    assert isinstance(both.world.act("drain"), Declined)
    assert isinstance(both.world.act("mark"), Done)
    assert both.node().drain
    assert both.world.tainted("n0")


def test_a_cordon_of_somebody_else_in_kubernetes_is_kept(build: Callable[..., Both]) -> None:
    both = build(kubernetes=True)
    assert both.world.lab.cluster is not None
    both.world.lab.cluster.update_node("n0", unschedulable=True)
    both.world.act("mark")
    both.world.act("mark")
    both.world.act("admit")
    assert both.world.lab.cluster.node("n0").unschedulable
    assert not both.world.marked("n0")
    assert not both.node().drain


def test_a_persons_drain_in_slurm_keeps_both_untouched(build: Callable[..., Both]) -> None:
    both = build(kubernetes=True, drift={"n0": ["bios_off"]})
    both.world.adopt()
    both.truth.update("gpu001", "drain", "ask Ada", "ada")
    both.world.apply()
    assert both.world.did("n0") == []
    assert both.world.serves("n0")
    assert both.node().reason == "ask Ada"


def test_a_silent_slurm_stops_what_would_disrupt(build: Callable[..., Both]) -> None:
    both = build(kubernetes=True, drift={"n0": ["bios_off"]})
    both.world.adopt()
    both.truth.down = True
    both.world.apply()
    assert both.world.did("n0") == []
    assert both.world.serves("n0")


# --- the two as one --------------------------------------------------------------------------------------------------

halves = st.builds(
    Member,
    name=st.just("n0"),
    uid=st.just("u"),
    resource_version=st.sampled_from(["1", "2"]),
    ready=st.sampled_from([True, False, None]),
    conditions=st.just({"Ready": "True"}),
    unschedulable=st.booleans(),
    labels=st.just({}),
    annotations=st.sampled_from([{}, {OWNER_ANNOTATION: "{}"}]),
    taints=st.sampled_from([(), (Taint(MARK_TAINT, "", "NoSchedule"),)]),
    kubelet_version=st.just("v"),
    pods=st.just(()),
)


@given(halves, halves)
@settings(max_examples=300)
def test_both_must_be_out_before_a_node_counts_as_marked_and_both_in_before_it_serves(
    kube: Member, slurm: Member
) -> None:
    found = joined(kube, slurm)
    assert found is not None
    tainted = any(taint.key == MARK_TAINT for taint in found.taints)
    if OWNER_ANNOTATION in found.annotations and tainted and found.unschedulable:  # MARKED
        assert kube.unschedulable
        assert slurm.unschedulable
    if found.ready and not found.unschedulable and not tainted:  # IN_SERVICE
        assert kube.ready
        assert slurm.ready
        assert not kube.unschedulable
        assert not slurm.unschedulable
    if OWNER_ANNOTATION in {**kube.annotations, **slurm.annotations}:
        assert OWNER_ANNOTATION in found.annotations  # no mark is forgotten


def test_a_node_that_kubernetes_lacks_still_has_its_jobs(build: Callable[..., Both]) -> None:
    both = build(kubernetes=True)
    assert both.world.lab.cluster is not None
    both.truth.submit("gpu001")
    slurm = both.member()
    assert len([pod for pod in slurm.pods if pod.owner_kind == "SlurmJob"]) == 1
    both.world.machine("n0").inject("host_hung")
    both.world.lab.cluster.remove_node("n0")
    alone = both.member()
    assert alone.registered is False
    assert alone.ready is False
    assert alone.pods
    assert hold_of(alone) == ""
