"""The drain by a real Slurm: Debian's slurmctld and three slurmd on loopback, and machines of the lab."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.actions import drain
from reconciler.drivers.slurm import SlurmCluster
from reconciler.lab.inprocess import LabFabric
from reconciler.model import desired as d
from reconciler.model.access import ClusterAccess, SlurmAccess
from reconciler.model.drain import Checkpoint
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import Verdict
from reconciler.model.observed import Answered, Silent
from reconciler.model.outcome import Declined, Done, Permanent, Transient
from reconciler.model.records import OWNER_ANNOTATION, Mark, read_mark
from reconciler.model.reservations import Reservation, Reservations
from reconciler.model.vocab import CheckpointWay, DrainProvider
from reconciler.planner.node.foreign_holds import hold_of
from tests.converge.world import PROFILE, QuickGate, World
from tests.drivers.slurm.real import WORKS, LocalLogin, RealSlurm, missing, until

pytestmark = [
    pytest.mark.tool,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(bool(missing()), reason=f"{missing()} is not installed (apt-get install slurm-wlm munge)"),
]
ACCESS = SlurmAccess("login:22", take_over=("NHC",))
SIGNAL = Checkpoint(CheckpointWay.SIGNAL, 600.0, signal="USR1")
SAVES = f"trap 'echo saved; exit 0' USR1; {WORKS}"


@pytest.fixture(scope="module")
def running() -> Iterator[RealSlurm]:
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder:  # a socket's path is short
        here = RealSlurm(Path(folder))
        try:
            here.start()
            yield here
        finally:
            here.stop()


@pytest.fixture
def slurm(running: RealSlurm) -> RealSlurm:
    """Three idle nodes, whatever the test before left."""
    running.idle()
    return running


@pytest.fixture
def world(tmp_path: Path, slurm: RealSlurm) -> Iterator[Callable[..., World]]:
    built: list[World] = []

    def build(policy: dict[str, Any] | None = None, **differences: Any) -> World:
        chosen = d.DrainPolicy(DrainProvider.SLURM, **{"timeout_s": 600.0, "wait_for_jobs_s": 1.0, **(policy or {})})
        here = World(
            tmp_path, profile=replace(PROFILE, drain=chosen, membership=d.DesiredMembership({}, (), ())), **differences
        )
        access = ClusterAccess("hpc", None, kubernetes=False, slurm=ACCESS)
        here.fleet = replace(here.fleet, settings=replace(here.fleet.settings, cluster=access))
        port = SlurmCluster(LocalLogin(slurm, 0.3), ACCESS, timeout_s=30.0, now=here.clock.now)
        here.fabric = LabFabric(here.lab, here.clock, scheduler=port)
        built.append(here)
        return here

    yield build
    for one in built:
        one.ledger.close()


def cluster(slurm: RealSlurm, access: SlurmAccess = ACCESS, ledger: str = "") -> SlurmCluster:
    return SlurmCluster(LocalLogin(slurm), access, timeout_s=30.0, now=lambda: datetime.now(UTC), ledger=ledger)


def test_a_job_that_ends_in_time_ends_by_itself(world: Callable[..., World], slurm: RealSlurm) -> None:
    here = world({"wait_for_jobs_s": 3 * 3600.0})
    job, said = slurm.batch("-w", "n0"), list[str]()
    assert isinstance(here.act("mark"), Done)
    assert slurm.state("n0") == {"MIXED", "DRAIN"}
    assert slurm.reason("n0").startswith("reconciler ledger=")

    def told(text: str) -> None:
        said.append(text)
        slurm.end(job)

    outcome = here.act("drain", step=told)
    assert isinstance(outcome, Done), outcome
    assert slurm.job_state(job) == "COMPLETED"
    assert "for finite work to end: " in said[0]
    assert f"job {job}" in said[0]
    assert ", the last by " in said[0]
    assert slurm.state("n0") == {"IDLE", "DRAIN"}


def test_a_long_job_saves_its_state_when_it_is_signalled(world: Callable[..., World], slurm: RealSlurm) -> None:
    here = world({"checkpoint": SIGNAL})
    job = slurm.batch("-w", "n0", "--comment=nightly reconciler.dev/checkpoint", script=SAVES)
    other = slurm.batch("-w", "n0", "--comment=no reconciler.dev/checkpoints")
    here.act("mark")
    outcome = here.act("drain")
    assert isinstance(outcome, Done), outcome
    assert "1 of 1 saved their state" in outcome.detail
    assert slurm.job_state(job) == "COMPLETED"
    assert (slurm.folder / f"job-{job}.out").read_text() == "saved\n"
    until(lambda: slurm.job_state(other) == "PENDING", "the one that does not take part is requeued")


def test_a_job_that_may_not_be_requeued_is_cancelled_by_force_alone(
    world: Callable[..., World], slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "FORCED_S", 600.0)  # of the virtual clock, which runs faster than Slurm's
    here = world({"timeout_s": 20.0})
    job = slurm.batch("-w", "n0", "--no-requeue")
    here.act("mark")
    outcome = here.act("drain")
    assert isinstance(outcome, Transient), outcome
    assert f"job {job}: scontrol: Requested operation is presently disabled" in outcome.detail
    assert slurm.job_state(job) == "RUNNING"
    forced = replace(here.fleet.nodes["n0"].profile.drain, force=True)
    desired = here.fleet.nodes["n0"]
    outcome = here.act("drain", desired=replace(desired, profile=replace(desired.profile, drain=forced)))
    assert isinstance(outcome, Done), outcome
    assert slurm.job_state(job) == "CANCELLED"


def test_a_requeued_job_of_the_same_number_is_left_alone(slurm: RealSlurm) -> None:
    port = cluster(slurm)
    job = slurm.batch("-w", "n0")
    member = asyncio.run(port.member("n0"))
    assert member is not None
    asyncio.run(port.evict(member.pods[0], grace_s=None))
    until(lambda: slurm.job_state(job) == "PENDING", "it is requeued")

    def runs() -> bool:
        if slurm.job_state(job) == "RUNNING":
            return True
        slurm.call("scontrol", "update", f"jobid={job}", "starttime=now")  # a busy slurmctld puts it off again
        return False

    until(runs, "it runs again", 600)
    asyncio.run(port.evict(member.pods[0], grace_s=None))
    asyncio.run(port.delete(member.pods[0], grace_s=0.0))
    assert slurm.job_state(job) == "RUNNING"


def test_a_node_comes_back_by_its_gate_alone(world: Callable[..., World], slurm: RealSlurm) -> None:
    here = world(nodes=3, gate=QuickGate(n1=Verdict.FAIL))  # no node has a certificate
    jobs = [slurm.batch("-w", name) for name in ("n1", "n2")]
    here.apply()
    assert here.did("n1") == ["mark", "drain", "run_gate!permanent"]
    assert slurm.state("n1") == {"IDLE", "DRAIN"}
    assert slurm.reason("n1").startswith("reconciler ledger=")
    assert here.did("n2") == ["mark", "drain", "run_gate", "admit"]
    assert "DRAIN" not in slurm.state("n2")
    assert slurm.reason("n2") == ""
    until(lambda: slurm.job_state(jobs[0]) == "PENDING", "it waits for another node")


def test_a_persons_drain_is_kept(world: Callable[..., World], slurm: RealSlurm) -> None:
    here = world(drift={"n1": ["sysctl_off"]}, nodes=3)
    slurm.done("scontrol", "update", "nodename=n1", "state=drain", "reason=RMA 4711, ask Ada")
    reason = slurm.reason("n1")
    here.apply()
    assert "mark" not in here.did("n1")
    assert isinstance(here.act("mark", node="n1"), Permanent)
    assert slurm.reason("n1") == reason
    assert "DRAIN" in slurm.state("n1")
    plan = here.plan().nodes["n1"]
    assert plan.blocked is not None
    assert "RMA 4711, ask Ada" in plan.blocked.detail


def test_the_drain_of_a_health_check_is_taken_over_by_our_mark(world: Callable[..., World], slurm: RealSlurm) -> None:
    here = world()
    slurm.done("scontrol", "update", "nodename=n0", "state=drain", "reason=NHC: check_hw_gpus: 7 of 8")
    member = here.run(here.fabric.cluster().member("n0"))  # type: ignore[union-attr]
    assert member is not None
    assert (member.ready, member.unschedulable, hold_of(member)) == (False, False, "")
    assert "NHC: check_hw_gpus" in member.reasons["Ready"]
    assert isinstance(here.act("mark"), Done)
    reason = slurm.reason("n0")
    assert reason.startswith("reconciler ledger=")
    assert "before: NHC: check_hw_gpus: 7 of 8" in reason


def test_what_changes_between_reading_and_writing_is_no_longer_written(slurm: RealSlurm) -> None:
    port = cluster(slurm)
    member = asyncio.run(port.member("n0"))
    assert member is not None
    slurm.done("scontrol", "update", "nodename=n0", "state=drain", "reason=Ada")
    with pytest.raises(DriverError) as caught:
        asyncio.run(port.mark(member, Mark("L", "P", "why", "at", True)))
    assert caught.value.kind is Failure.CONFLICT
    assert slurm.reason("n0").startswith("Ada ")


def test_a_mark_is_read_as_it_was_written(slurm: RealSlurm) -> None:
    port = cluster(slurm)
    member = asyncio.run(port.member("n0"))
    assert member is not None
    mark = Mark("01J8", "", 'isolated: gpu "x" | 100 % ill\'', "2026-11-27T00:00:00+00:00", True, ("SlurmJob ada/7",))
    asyncio.run(port.mark(member, mark))
    found = asyncio.run(port.member("n0"))
    assert found is not None
    assert read_mark(found.annotations[OWNER_ANNOTATION]) == mark
    assert found.unschedulable
    asyncio.run(port.unmark(found, uncordon=True))
    until(lambda: slurm.state("n0") == {"IDLE"}, "it is idle")


def test_a_controller_that_is_killed_is_waited_for(world: Callable[..., World], slurm: RealSlurm) -> None:
    here = world({"wait_for_jobs_s": 3 * 3600.0})
    job = slurm.batch("-w", "n0")
    here.act("mark")
    reason = slurm.reason("n0")
    saved = slurm.folder / "state" / "node_state"
    until(lambda: b"reconciler ledger=" in saved.read_bytes(), "slurmctld has saved our drain")
    slurm.kill("slurmctld")
    try:
        state = here.run(here.fabric.cluster().state())  # type: ignore[union-attr]
        assert isinstance(state, Silent)
        assert "Unable to contact slurm controller" in state.detail
    finally:
        slurm.start_controller()
    slurm.end(job)
    outcome = here.act("drain")
    assert isinstance(outcome, Done), outcome
    until(lambda: slurm.job_state(job) == "COMPLETED", "the job is over")
    assert slurm.reason("n0") == reason


def test_a_drain_that_slurmctld_forgot_ends_before_any_job_is_touched(
    world: Callable[..., World], slurm: RealSlurm
) -> None:
    """slurmctld saves its state seconds after a change: one that is killed at once comes back without our drain."""
    here = world()
    job = slurm.batch("-w", "n0")
    here.act("mark")
    slurm.done("scontrol", "update", "nodename=n0", "state=resume")
    outcome = here.act("drain")
    assert isinstance(outcome, Declined), outcome
    assert outcome.code == "not_marked"
    assert slurm.job_state(job) == "RUNNING"


def test_a_node_whose_reboot_takes_too_long_is_a_finding_and_no_hold(slurm: RealSlurm) -> None:
    port = cluster(slurm)
    slurm.done("scontrol", "reboot", "ASAP", "nextstate=DOWN", "n2")
    until(lambda: "REBOOT_ISSUED" in slurm.state("n2"), "Slurm reboots it")  # for ResumeTimeout from now on
    member = asyncio.run(port.member("n2"))
    assert member is not None
    assert "Slurm reboots it" in hold_of(member)
    until(lambda: slurm.state("n2") == {"DOWN"}, "the reboot has timed out")
    member = asyncio.run(port.member("n2"))
    assert member is not None
    assert "reboot timed out" in slurm.reason("n2")
    assert member.ready is False
    assert hold_of(member) == ""


def test_a_silent_node_of_ours_keeps_our_reason(slurm: RealSlurm) -> None:
    port = cluster(slurm)
    member = asyncio.run(port.member("n2"))
    assert member is not None
    asyncio.run(port.mark(member, Mark("L", "P", "why", "at", True)))
    slurm.kill("n2")
    try:
        with slurm.impatient():
            until(lambda: "DOWN" in slurm.state("n2"), "slurmctld has given it up")
        silent = asyncio.run(port.member("n2"))
    finally:
        slurm.start_daemon("n2")
    assert silent is not None
    assert not silent.ready
    assert OWNER_ANNOTATION in silent.annotations
    until(lambda: "NOT_RESPONDING" not in slurm.state("n2"), "it answers again")
    back = asyncio.run(port.member("n2"))
    assert back is not None
    assert back.ready  # DOWN, as ReturnToService is 0, and ours to resume
    asyncio.run(port.unmark(back, uncordon=True))
    until(lambda: slurm.state("n2") == {"IDLE"}, "it is idle")


def test_a_job_on_two_nodes_is_one_workload(slurm: RealSlurm) -> None:
    port = cluster(slurm, replace(ACCESS, names={"gpu-a": "n1", "gpu-b": "n2"}))
    job = slurm.batch("-N2", "-w", "n[1-2]")
    state = asyncio.run(port.state())
    assert isinstance(state, Answered)
    pods = [pod for name in ("gpu-a", "gpu-b") for pod in state.value.members[name].pods]
    assert [pod.name for pod in pods] == [f"job {job}"] * 2
    assert pods[0].workload is not None
    assert pods[0].workload == pods[1].workload
    assert pods[0].due_at is not None


# --- reservations before windows -------------------------------------------------------------------------------------


@pytest.fixture
def reserved(slurm: RealSlurm) -> Iterator[RealSlurm]:
    yield slurm
    for line in slurm.done("scontrol", "show", "reservation", "-o").splitlines():
        name = line.partition("ReservationName=")[2].partition(" StartTime=")[0]
        if name:
            slurm.done("scontrol", "delete", f"reservationname={name}")


def minutes_from_now(minutes: float) -> datetime:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).replace(second=0, microsecond=0)


def test_no_job_begins_that_would_run_into_a_reservation(reserved: RealSlurm) -> None:
    port = cluster(reserved, ledger="L1").reservations()
    running = reserved.batch("-w", "n0", "--time=3-0")
    wanted = Reservation("n0", minutes_from_now(90), minutes_from_now(150))
    asyncio.run(port.reserve(wanted, None))
    assert asyncio.run(port.found()) == Reservations({"n0": wanted})
    long = reserved.done("sbatch", "--parsable", "-w", "n0", "--time=5:00:00", "--output=/dev/null", "--wrap", "true")
    short = reserved.batch("-w", "n0", "--time=30")
    assert reserved.job_state(running) == "RUNNING"  # IGNORE_JOBS: it began before
    assert (reserved.job_state(long), reserved.job_state(short)) == ("PENDING", "RUNNING")
    asyncio.run(port.release("n0"))
    asyncio.run(port.release("n0"))  # one that is gone is success
    assert asyncio.run(port.found()) == Reservations({})


def test_a_reservation_moves_until_it_has_begun(reserved: RealSlurm) -> None:
    port = cluster(reserved, ledger="L1").reservations()
    first = Reservation("n1", minutes_from_now(60), minutes_from_now(90))
    moved = Reservation("n1", minutes_from_now(120), minutes_from_now(200))
    asyncio.run(port.reserve(first, None))
    with pytest.raises(DriverError) as twice:
        asyncio.run(port.reserve(first, None))
    assert twice.value.kind is Failure.CONFLICT
    asyncio.run(port.reserve(moved, first))
    assert asyncio.run(port.found()).ours == {"n1": moved}
    asyncio.run(port.release("n1"))
    with pytest.raises(DriverError) as gone:
        asyncio.run(port.reserve(moved, first))
    assert gone.value.kind is Failure.CONFLICT


def test_reservations_of_others_are_told_apart_and_kept(reserved: RealSlurm) -> None:
    ours, theirs = cluster(reserved, ledger="L1").reservations(), cluster(reserved, ledger="L10").reservations()
    span = minutes_from_now(60), minutes_from_now(90)
    asyncio.run(theirs.reserve(Reservation("n0", *span), None))
    at = f"starttime={span[0].astimezone():%Y-%m-%dT%H:%M:%S}"
    person = ("reservationname=reconciler-L1-everything", "nodes=n[1-2]", at, "duration=30", "users=root")
    reserved.done("scontrol", "create", "reservation", *person)
    found = asyncio.run(ours.found())
    assert found.ours == {}
    assert {one.node for one in found.others} == {"n0", "n1", "n2"}
    assert found.overlapped(Reservation("n2", minutes_from_now(80), minutes_from_now(100))) is not None
    assert found.overlapped(Reservation("n2", minutes_from_now(90), minutes_from_now(100))) is None
    for name in ("n0", "n1"):
        asyncio.run(ours.release(name))
    assert asyncio.run(ours.found()) == found


def test_a_node_in_a_reservation_of_ours_serves_until_it_is_marked_and_is_free_when_it_is_unmarked(
    reserved: RealSlurm,
) -> None:
    port = cluster(reserved, ledger="L1")
    now = ("starttime=now", "duration=60", "users=root", "flags=MAINT,IGNORE_JOBS")
    reserved.done("scontrol", "create", "reservation", "reservationname=reconciler-L1-n0", "nodes=n0", *now)
    reserved.done("scontrol", "create", "reservation", "reservationname=outage", "nodes=n1", *now)
    until(lambda: "MAINTENANCE" in reserved.state("n0") and "MAINTENANCE" in reserved.state("n1"), "both have begun")
    state = asyncio.run(port.state())
    assert isinstance(state, Answered)
    mine, outage = state.value.members["n0"], state.value.members["n1"]
    assert (mine.ready, mine.unschedulable, hold_of(mine)) == (True, False, "")
    assert "maintenance reservation" in hold_of(outage)
    asyncio.run(port.mark(mine, Mark("L1", "P", "why", "at", True)))
    marked = asyncio.run(port.member("n0"))
    assert marked is not None
    assert marked.unschedulable
    asyncio.run(port.unmark(marked, uncordon=True))
    until(lambda: reserved.state("n0") == {"IDLE"}, "it is free for jobs")
    assert reserved.state("n1") == {"IDLE", "MAINTENANCE", "RESERVED"}
