"""Drains that give the work time: jobs end, checkpoints are saved, and nobody is asked twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.lab.hardware.control_plane import ClusterTruth, PodObject
from reconciler.lab.inprocess import run_virtual
from reconciler.model.desired import Checkpoint, DrainPolicy
from reconciler.model.drain import DRAIN_AT
from reconciler.model.outcome import Declined, Done, Outcome
from reconciler.model.vocab import CheckpointWay, DrainProvider
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
ANNOTATION = Checkpoint(CheckpointWay.ANNOTATION, 600.0)
HTTP = Checkpoint(CheckpointWay.HTTP, 600.0, port=8080, path="/checkpoint")


def truth(here: World) -> ClusterTruth:
    assert here.lab.cluster is not None
    return here.lab.cluster


def of(**policy: Any) -> dict[str, Any]:
    wanted = DrainPolicy(DrainProvider.KUBERNETES, timeout_s=300.0, **policy)
    return {"nodes": 1, "profile": replace(PROFILE, drain=wanted)}


def trainer(here: World, name: str = "trainer", **program: float) -> PodObject:
    """A pod of a Job, the only one on n0. `program`: see ClusterTruth.give_program."""
    for other in truth(here).pods("n0"):
        if other.owner_kind == "Job":
            other.owner_kind = "ReplicaSet"
    pod = truth(here).add_pod("ml", name, "n0", ("Job", name))
    truth(here).give_program("ml", name, **program)
    return pod


def drain(here: World, said: list[str] | None = None, **context: Any) -> tuple[Outcome, float]:
    """Drain n0; return the outcome, and how long it took."""
    began = here.clock.elapsed
    outcome = here.act("drain", step=(said if said is not None else []).append, **context)
    return outcome, here.clock.elapsed - began


# --- finite work -----------------------------------------------------------------------------------------------------


def test_a_job_that_ends_in_time_is_not_evicted(world: Worlds) -> None:
    here = world(**of(wait_for_jobs_s=6 * 3600.0))
    job, said = trainer(here, runs_s=1800.0), list[str]()
    here.act("mark")
    outcome, took = drain(here, said)
    assert isinstance(outcome, Done), outcome
    assert job.phase == "Succeeded"
    assert job.deletion_started is None
    assert 1700 < took < 1900
    assert "for finite work to end: ml/trainer" in said[0]


def test_a_job_that_does_not_end_is_evicted_at_the_limit(world: Worlds) -> None:
    here = world(**of(wait_for_jobs_s=3600.0))
    job = trainer(here)
    here.act("mark")
    outcome, took = drain(here)
    assert isinstance(outcome, Done), outcome
    assert job.deletion_started is not None
    assert 3600 <= took < 3700


def test_other_work_goes_on_until_the_jobs_have_ended(world: Worlds) -> None:
    here = world(**of(wait_for_jobs_s=3600.0))
    server = truth(here).add_pod("serve", "vllm", "n0", ("ReplicaSet", "vllm"))
    trainer(here, runs_s=900.0)
    here.act("mark")
    began = truth(here).now()
    drain(here)
    assert server.deletion_started is not None
    assert server.deletion_started - began >= 900


def test_no_job_of_a_dead_node_is_waited_for(world: Worlds) -> None:
    here = world(**of(wait_for_jobs_s=3600.0))
    trainer(here)
    here.act("mark")
    here.machine("n0").inject("host_hung")
    _, took = drain(here)
    assert took < 900


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [ANNOTATION, HTTP], ids=["annotation", "http"])
def test_work_is_evicted_as_soon_as_it_has_saved_its_state(world: Worlds, way: Checkpoint) -> None:
    here = world(**of(checkpoint=way))
    job, said = trainer(here, saves_s=120.0), list[str]()
    here.act("mark")
    outcome, took = drain(here, said)
    assert isinstance(outcome, Done), outcome
    assert "1 of 1 saved their state" in outcome.detail
    assert 120 <= took < 240
    assert job.requests == 1
    assert "asked to save its state, it has until " in said[0]
    assert job.deletion_started is not None


@pytest.mark.parametrize("way", [ANNOTATION, HTTP], ids=["annotation", "http"])
def test_work_that_is_not_ready_is_evicted_at_the_deadline(world: Worlds, way: Checkpoint) -> None:
    here = world(**of(checkpoint=way))
    job = trainer(here, saves_s=1e6)
    here.act("mark")
    outcome, took = drain(here)
    assert isinstance(outcome, Done), outcome
    assert "no checkpoint by " in outcome.detail
    assert 600 <= took < 700
    assert job.requests == 1


def test_a_pod_that_does_not_take_part_is_not_waited_for(world: Worlds) -> None:
    here = world(**of(checkpoint=ANNOTATION))
    pod = trainer(here)
    here.act("mark")
    outcome, took = drain(here)
    assert isinstance(outcome, Done), outcome
    assert took < 100
    assert DRAIN_AT not in pod.annotations


def test_a_pod_that_refuses_is_not_waited_for_and_named(world: Worlds) -> None:
    here = world(**of(checkpoint=HTTP))
    pod = trainer(here)
    pod.annotations["reconciler.dev/checkpoint"] = "true"  # it says so, and nothing listens there
    truth(here).modified("n0")
    here.act("mark")
    outcome, took = drain(here)
    assert isinstance(outcome, Done), outcome
    assert "no checkpoint: ml/trainer: the pod answers 503" in outcome.detail
    assert took < 100


def test_an_answer_to_an_earlier_request_counts_for_nothing(world: Worlds) -> None:
    here = world(**of(checkpoint=ANNOTATION))
    job = trainer(here, saves_s=120.0)
    job.annotations |= {"reconciler.dev/ready-to-evict": "2026-01-01T00:00:00+00:00"}
    here.act("mark")
    _, took = drain(here)
    assert took >= 120


class Commands:
    """A host on which `ask` and `ready` are run, and nothing else."""

    def __init__(self, here: World, *, takes_s: float, fails: bool = False) -> None:
        self.asked: list[float] = []
        self._here, self._takes_s, self._fails = here, takes_s, fails

    async def run(self, argv: Any, *, timeout: float, stdin: str = "") -> Any:  # noqa: ARG002 - the port's
        from reconciler.model.gate import CommandResult

        now = self._here.clock.elapsed
        if argv == ("ask",):
            self.asked.append(now)
            return CommandResult(1 if self._fails else 0, "")
        assert argv == ("ready",)
        return CommandResult(0 if now >= self.asked[0] + self._takes_s else 3, "")


COMMAND = Checkpoint(CheckpointWay.COMMAND, 600.0, ("ask",), ("ready",))


def test_a_command_asks_once_and_another_one_looks(world: Worlds) -> None:
    here = world(**of(checkpoint=COMMAND))
    trainer(here)
    here.act("mark")
    host = Commands(here, takes_s=60.0)
    outcome, took = drain(here, host_port=host)
    assert isinstance(outcome, Done), outcome
    assert "the work saved its state" in outcome.detail
    assert 60 <= took < 150
    assert len(host.asked) == 1


def test_a_command_that_fails_is_not_waited_for(world: Worlds) -> None:
    here = world(**of(checkpoint=COMMAND))
    trainer(here)
    here.act("mark")
    outcome, took = drain(here, host_port=Commands(here, takes_s=0.0, fails=True))
    assert isinstance(outcome, Done), outcome
    assert "no checkpoint: the host: ask exits with 1" in outcome.detail
    assert took < 100


# --- cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["n0", "pool/train", "fleet/*"])
def test_a_hold_ends_the_wait_and_the_work_is_told_that_it_stays(world: Worlds, subject: str) -> None:
    here = world(**of(checkpoint=ANNOTATION))
    if subject.startswith("pool/"):
        subject = f"pool/{here.fleet.nodes['n0'].pool}"
    job = trainer(here, saves_s=1e6)
    here.act("mark")

    async def work() -> Outcome:
        draining = asyncio.create_task(here.acting("drain"))
        await here.clock.sleep(60)
        assert DRAIN_AT in job.annotations
        here.ledger.hold(subject, "not now", "ann", None, here.clock.now())
        return await draining

    outcome = here.run(work())
    assert isinstance(outcome, Declined), outcome
    assert "not now" in outcome.detail
    assert DRAIN_AT not in job.annotations
    assert job.deletion_started is None


def test_a_person_who_uncordons_ends_the_wait(world: Worlds) -> None:
    here = world(**of(checkpoint=ANNOTATION, wait_for_jobs_s=60.0))
    job = trainer(here, saves_s=1e6)
    here.act("mark")

    async def work() -> Outcome:
        draining = asyncio.create_task(here.acting("drain"))
        await here.clock.sleep(180)
        assert DRAIN_AT in job.annotations
        truth(here).update_node("n0", unschedulable=False)
        return await draining

    outcome = here.run(work())
    assert isinstance(outcome, Declined), outcome
    assert DRAIN_AT not in job.annotations
    assert job.deletion_started is None


def test_a_request_after_one_that_was_taken_back_is_a_new_one(world: Worlds) -> None:
    here = world(**of(checkpoint=ANNOTATION))
    job = trainer(here, saves_s=1e6)
    here.act("mark")

    async def work() -> None:
        draining = asyncio.create_task(here.acting("drain"))
        await here.clock.sleep(60)
        here.ledger.hold("n0", "not now", "ann", None, here.clock.now())
        await draining
        here.ledger.release("n0", "ann", here.clock.now())

    here.run(work())
    _, took = drain(here)
    assert took >= 600, "the whole time, from now on"
    assert job.requests == 2


# --- runs that die ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [ANNOTATION, HTTP], ids=["annotation", "http"])
@given(kills=st.lists(st.floats(0.0, 330.0), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_nobody_is_asked_twice(tmp_path_factory: pytest.TempPathFactory, way: Checkpoint, kills: list[float]) -> None:
    """Killed at any point of a drain, however often, the next run goes on with it until the same time."""
    here = World(tmp_path_factory.mktemp("w"), **of(checkpoint=way, wait_for_jobs_s=300.0))
    job = trainer(here, saves_s=1e6)
    here.act("mark")
    began = here.clock.elapsed

    async def work() -> Outcome:
        resumed: dict[str, Any] = {}
        for after_s in kills:
            found = await _go_on(here, after_s, resumed)
            if found is None:
                break
            resumed = found
        return await here.acting("drain", resumed=resumed)

    outcome = run_virtual(work(), here.clock)
    assert isinstance(outcome, Done), outcome
    assert job.requests <= 1
    assert here.clock.elapsed - began < 300 + 600 + 120, "no kill makes the wait longer"


async def _go_on(here: World, after_s: float, resumed: dict[str, Any]) -> dict[str, Any] | None:
    """Drain on for a while and be killed; None when the drain ended before that."""
    draining = asyncio.create_task(here.acting("drain", resumed=resumed))
    await here.clock.sleep(after_s)
    if draining.done():
        await draining
        return None
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    left = [(number, intent) for number, _, action, _, intent in here.ledger.unfinished() if action == "drain"]
    return dict(max(left, key=lambda one: one[0])[1]) if left else {}
