"""A change of the spec on its way through six racks, and what may disturb it, under virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.apply import outcome_document
from reconciler.cli.commands.apply import exit_code
from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit, RolloutPolicy
from reconciler.model.gate import Verdict
from reconciler.model.plan import BlockCode, WaveState
from reconciler.model.vocab import NodeState
from reconciler.render.outcome import human
from tests.converge.test_rollouts import NEW, Rolled
from tests.converge.world import IMAGE

NEWER = replace(IMAGE, version="2026.11.3", sha256="f" * 64)
RACKS = 6
SIZES = {60: [1, 5, 24, 30], 24: [1, 2, 9, 12]}  # of the default waves
BAKE_S = 600.0
BUDGETS = (BudgetLimit("fleet", "10"), BudgetLimit("rack", "2"))


class Racked(Rolled):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.signatures = {**self.signatures, (NEWER.name, NEWER.version): True}
        self.policy()

    def policy(self, **changes: Any) -> None:
        policy = replace(RolloutPolicy(bake_s=BAKE_S), **changes)
        self.fleet = replace(self.fleet, rollouts={node.pool: policy for node in self.fleet.nodes.values()})

    def waves(self) -> list[tuple[str, ...]]:
        return [wave.nodes for wave in self.look().waves]

    def versions(self) -> dict[str, str]:
        return {name: self.machine(name).disk().version for name in self.lab.machines}

    def at(self, version: str) -> set[str]:
        return {name for name, found in self.versions().items() if found == version}

    def installs(self) -> set[str]:
        """Return the installed nodes; fail if one was installed twice."""
        counts = {name: machine.state.counters.installs for name, machine in self.lab.machines.items()}
        assert set(counts.values()) <= {0, 1}, counts
        return {name for name, count in counts.items() if count}

    def most_out(self) -> dict[str, int]:
        assert self.lab.cluster is not None
        return {group: found["most"] for group, found in self.lab.cluster.outages.dump().items()}

    def change_nodes(self, names: Iterable[str], **changes: Any) -> None:
        nodes = {name: replace(self.fleet.nodes[name], **changes) for name in names}
        self.fleet = replace(self.fleet, nodes={**self.fleet.nodes, **nodes})

    def later(self, seconds: float = BAKE_S + 60) -> None:
        self.clock.elapsed += seconds

    def wave(self) -> ApplyReport:
        """Make one short run, and let the time pass that its wave bakes."""
        report = self.go()
        self.later()
        return report


@pytest.fixture
def racked(tmp_path: Path) -> Callable[..., Racked]:
    return lambda nodes=24: Racked(tmp_path, nodes=nodes, racks=RACKS, settings={"budgets": BUDGETS})


def done(report: ApplyReport) -> set[str]:
    return {end.node for end in report.of(Ended.DONE)}


def rack(here: Racked, name: str) -> str:
    return here.fleet.nodes[name].domains["rack"]


def times(reports: Iterable[ApplyReport], action: str, names: Iterable[str]) -> list[datetime]:
    wanted = set(names)
    found = [one for report in reports for one in report.executed if one.action == action and one.node in wanted]
    return [one.started_at + timedelta(seconds=one.seconds * (action == "admit")) for one in found]


def check_kept(here: Racked, reports: list[ApplyReport], waves: list[tuple[str, ...]]) -> None:
    """Wave after wave, each baked; never more out than the budgets allow; nobody installed twice."""
    for before, after in itertools.pairwise(waves):
        last, first = max(times(reports, "admit", before)), min(times(reports, "mark", after))
        assert first - last >= timedelta(seconds=BAKE_S)
    most = here.most_out()
    assert most["fleet"] <= 10
    assert max(count for group, count in most.items() if group.startswith("rack ")) <= 2
    assert here.installs() == set(here.fleet.nodes)
    assert here.at(NEW.version) == set(here.fleet.nodes)


# --- as it goes ------------------------------------------------------------------------------------------------------


def test_canaries_come_from_different_racks_and_are_the_same_each_time(racked: Callable[..., Racked]) -> None:
    here = racked(nodes=60)
    here.bump(image=NEW)
    waves = here.waves()
    assert [len(wave) for wave in waves] == SIZES[60]
    first_six = [name for wave in waves[:2] for name in wave]
    assert len({rack(here, name) for name in first_six}) == RACKS
    assert here.waves() == waves


def test_one_long_run_keeps_to_waves_and_budgets(racked: Callable[..., Racked]) -> None:
    here = racked(nodes=60)
    here.bump(image=NEW)
    waves = here.waves()
    report = here.go(wait_s=5 * 86400.0)
    assert done(report) == set(here.fleet.nodes)
    assert here.most_out()["fleet"] == 10, "as many at once as may be"
    check_kept(here, [report], waves)


def test_several_short_runs_come_to_the_same(racked: Callable[..., Racked]) -> None:
    here = racked(nodes=60)
    here.bump(image=NEW)
    waves, reports = here.waves(), list[ApplyReport]()
    while here.plan().rollouts:
        reports.append(here.go())
        here.later(0.0 if reports[-1].executed else BAKE_S)
        assert len(reports) < 30
    check_kept(here, reports, waves)


def test_a_run_that_is_interrupted_in_the_middle_is_continued(racked: Callable[..., Racked]) -> None:
    """No canary again, no wave twice: where it is, is read from the nodes and the ledger."""
    here = racked(nodes=60)
    here.bump(image=NEW)
    waves = here.waves()

    async def interrupted() -> None:
        work = asyncio.create_task(here.applying(wait_s=86400.0))
        while here.machine(waves[2][0]).state.counters.boots == 0:
            await here.clock.sleep(30)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    here.run(interrupted())
    assert here.look().started_at is not None
    assert here.waves() == waves
    assert [wave.state for wave in here.look().waves[:2]] == [WaveState.DONE, WaveState.DONE]
    here.go(wait_s=5 * 86400.0)
    assert here.installs() == here.at(NEW.version) == set(here.fleet.nodes)
    assert here.most_out()["fleet"] <= 10


def test_waiting_for_what_bakes_is_no_refusal(racked: Callable[..., Racked]) -> None:
    """A job that calls `apply --wait 0` again and again is not told that it was refused."""
    here = racked()
    here.bump(image=NEW)

    def told(report: ApplyReport) -> tuple[int, int, datetime | None]:
        outcome = outcome_document(report)
        return exit_code(outcome, detailed=False), exit_code(outcome, detailed=True), outcome.next_at

    assert told(here.go())[:2] == (0, 2)
    idle = here.go()
    baked = here.look().waves[0].end
    assert told(idle) == (0, 2, baked)
    assert f"run `reconciler apply` again from {baked:%Y-%m-%d %H:%M:%S} UTC on" in human(outcome_document(idle))
    here.later()
    here.gate.verdicts.update(dict.fromkeys(here.waves()[1], Verdict.FAIL))
    assert told(here.go())[:2] == (7, 7)
    assert told(here.go())[:2] == (8, 8), "what is halted is not begun by time"


# --- it changes its mind ---------------------------------------------------------------------------------------------


def test_a_newer_change_supersedes_it_and_begins_with_a_canary(racked: Callable[..., Racked]) -> None:
    here = racked()
    here.bump(image=NEW)
    here.wave()
    here.wave()
    first = here.look()
    assert len(here.at(NEW.version)) == 3
    here.bump(image=NEWER)
    second = here.look()
    assert (second.supersedes, second.started_at, second.rollback) == (first.digest, None, False)
    assert [len(wave.nodes) for wave in second.waves] == SIZES[24]
    assert len(done(here.wave())) == 1
    assert here.look().supersedes == "", "it is under way"
    here.go(wait_s=5 * 86400.0)
    assert here.at(NEWER.version) == set(here.fleet.nodes)
    twice = {name for name, machine in here.lab.machines.items() if machine.state.counters.installs == 2}
    assert len(twice) <= 3, "those that had not gone, go to the newest at once"
    assert here.most_out()["fleet"] <= 10


def test_going_back_is_a_rollback_of_those_that_had_gone(racked: Callable[..., Racked]) -> None:
    """One node goes back first, then all the others, without a bake."""
    here = racked()
    before = here.fleet
    here.bump(image=NEW)
    here.wave()
    here.wave()
    gone = here.at(NEW.version)
    assert len(gone) == 3
    here.fleet = before
    back = here.look()
    assert (back.rollback, back.bake_s) == (True, 0.0)
    assert [len(wave.nodes) for wave in back.waves] == [1, 2]
    assert {name for wave in back.waves for name in wave.nodes} == gone
    started = here.clock.elapsed
    assert done(here.go(wait_s=86400.0)) == gone
    assert here.clock.elapsed - started < 4 * 3600
    assert here.at(IMAGE.version) == set(here.fleet.nodes)
    untouched = {name for name, machine in here.lab.machines.items() if machine.state.counters.boots == 0}
    assert untouched == set(here.fleet.nodes) - gone


# --- nodes come and go -----------------------------------------------------------------------------------------------


def test_a_node_that_is_held_in_the_middle_is_left_out_and_goes_when_it_is_released(
    racked: Callable[..., Racked],
) -> None:
    here = racked()
    here.bump(image=NEW)
    here.wave()
    held = here.waves()[1][0]
    here.ledger.hold(held, "an experiment", "ops", None, here.clock.now())
    assert here.look().left_out == (held,)
    report = here.go(wait_s=5 * 86400.0)
    assert here.at(NEW.version) == set(here.fleet.nodes) - {held}
    assert "held by ops: an experiment" in report.results[held].detail
    here.ledger.release(held, "ops", here.clock.now())
    assert done(here.go()) == {held}, "all before it are well, and have baked"
    assert here.installs() == set(here.fleet.nodes)


def test_nodes_that_come_back_from_quarantine_wait_for_their_wave(racked: Callable[..., Racked]) -> None:
    """They were converged once, so that the change is as new to them as to the others."""
    here = racked()
    away = {"n7", "n8", "n9"}
    here.change_nodes(away, state=NodeState.QUARANTINED)
    here.bump(image=NEW)
    assert not {name for wave in here.waves() for name in wave} & away
    here.wave()
    assert len(here.at(NEW.version)) == 1
    here.change_nodes(away, state=NodeState.ACTIVE)
    waves = here.waves()
    assert [len(wave) for wave in waves] == SIZES[24]
    assert set(waves[-1]) >= away, "last, however healthy they are: the order that has begun stays"
    here.go(wait_s=5 * 86400.0)
    assert here.installs() == here.at(NEW.version) == set(here.fleet.nodes)


def test_a_node_that_leaves_the_spec_is_waited_for_by_nobody(racked: Callable[..., Racked]) -> None:
    here = racked()
    here.bump(image=NEW)
    here.wave()
    gone = here.waves()[1][0]
    here.fleet = replace(here.fleet, nodes={n: node for n, node in here.fleet.nodes.items() if n != gone})
    here.go(wait_s=5 * 86400.0)
    assert here.at(NEW.version) == set(here.fleet.nodes)
    assert here.machine(gone).state.counters.boots == 0


def test_a_run_on_some_nodes_keeps_to_the_waves_of_all(racked: Callable[..., Racked]) -> None:
    here = racked()
    here.bump(image=NEW)
    waves = here.waves()
    canary, second = waves[0][0], list(waves[1])
    early = here.go(selected=second)
    assert early.executed == ()
    assert all(f"{canary} has image" in early.results[name].detail for name in second), early.results
    assert done(here.go(selected=[canary])) == {canary}
    assert here.go(selected=second).executed == (), "its canary bakes"
    here.later()
    some = second[:1]
    assert done(here.go(selected=some)) == set(some)
    here.later()
    assert here.go(selected=list(waves[2])).executed == (), "half a wave is no wave"
    assert done(here.go(selected=second[1:])) == set(second[1:])
    here.later()
    here.go(selected=list(waves[2]), wait_s=86400.0)
    assert here.at(NEW.version) == {name for wave in waves[:3] for name in wave}


def test_a_pool_under_a_hold_does_not_begin(racked: Callable[..., Racked]) -> None:
    here = racked()
    here.bump(image=NEW)
    pool = next(iter(here.fleet.nodes.values())).pool
    here.ledger.hold(f"pool/{pool}", "freeze", "ops", None, here.clock.now())
    assert here.go(wait_s=86400.0).executed == ()
    here.ledger.release(f"pool/{pool}", "ops", here.clock.now())
    assert len(done(here.go())) == 1


# --- it halts --------------------------------------------------------------------------------------------------------


def test_failures_within_what_is_allowed_hold_nobody_up_and_one_more_halts(racked: Callable[..., Racked]) -> None:
    here = racked()
    here.policy(max_failures=1)
    here.bump(image=NEW)
    waves = here.waves()
    bad = {waves[0][0], waves[2][1]}
    assert len({rack(here, name) for name in bad}) == 2, "no rack has its budget used up by them"
    here.gate.verdicts.update(dict.fromkeys(bad, Verdict.FAIL))
    report = here.go(wait_s=5 * 86400.0)
    assert {end.node for end in report.of(Ended.FAILED)} == bad
    halted = here.look()
    assert set(halted.failed) == bad
    for name in bad:
        assert name in halted.halted
    assert any("rollout.maxFailures" in line and "2 or more" in line for line in halted.resume)
    assert not here.installs() & set(waves[3]), "what had begun has ended, and no wave began after it"
    blocked = here.plan().nodes[waves[3][0]].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.HALTED
    again = here.go(wait_s=86400.0)
    assert again.executed == ()
    here.policy(max_failures=2)
    here.go(wait_s=5 * 86400.0)
    assert here.at(NEW.version) == set(here.fleet.nodes)
    assert {name for name in here.fleet.nodes if not here.serves(name)} == bad


def test_a_repaired_canary_goes_on_once_it_was_seen_to(racked: Callable[..., Racked]) -> None:
    here = racked()
    here.bump(image=NEW)
    canary = here.waves()[0][0]
    here.gate.verdicts[canary] = Verdict.FAIL
    assert here.go().results[canary].state is Ended.FAILED
    assert here.go(wait_s=86400.0).executed == (), "a failed gate is not run again before a repair is on record"
    del here.gate.verdicts[canary]
    here.ledger.hold(canary, "a cable is changed", "ops", None, here.clock.now())
    here.later(60)
    here.ledger.release(canary, "ops", here.clock.now())
    assert done(here.go()) == {canary}
    here.later()
    here.go(wait_s=5 * 86400.0)
    assert here.installs() == here.at(NEW.version) == set(here.fleet.nodes)
