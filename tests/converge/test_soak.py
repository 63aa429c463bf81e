"""A soak on a node with a real shell: it goes on without us, and the first bad sign ends it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.ports import SoakRun
from reconciler.converge.soak import Follower
from reconciler.gate.certificate import judge_test
from reconciler.gate.soak import on_node
from reconciler.model import observed as o
from reconciler.model import soak
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests import builders as b
from tests.converge.soak_node import SoakNode
from tests.gate.cases import wanted

SPEED = 100


class QuickClock:
    """A clock whose waits are shorter by far."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return 300 * time.monotonic()

    def real_seconds(self, seconds: float) -> float:
        return seconds / 300

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 300)


def load(run: str, name: str = "train", **changes: Any) -> GateTest:
    bars = changes.pop("thresholds", (Threshold("speed", 50.0),))
    return GateTest(name, "command", {"run": run, "metrics": "speed"} | changes, bars, 5.0)


@pytest.fixture
def node(tmp_path: Path) -> SoakNode:
    host = b.observed().host
    assert isinstance(host, o.Answered)
    return SoakNode(tmp_path, host)


def gpus_of(node: SoakNode) -> tuple[Any, ...]:
    assert isinstance(node.facts_now, o.Answered)
    return node.facts_now.value.gpus or ()


def follower(node: SoakNode, *loads: GateTest, seconds: int = 2, decline: float = 2.0, **run: Any) -> Follower:
    (test,) = soak.phase(seconds, decline, loads or (load(f"sleep 0.2; echo speed {SPEED}"),)).tests
    observed = replace(b.observed(), host=node.facts_now)
    return Follower(test, wanted(gpus=len(gpus_of(node))), observed, node, QuickClock(), SoakRun("a1", **run))  # type: ignore[arg-type]


def verdict(follow: Follower, result: TestResult) -> tuple[Verdict, str]:
    found, reasons = judge_test(follow.test, result)
    return found, "; ".join(reasons)


def test_loads_run_in_turn_until_the_time_is_over_and_nothing_is_left(node: SoakNode) -> None:
    told: list[str] = []
    loads = (load("sleep 0.2; echo speed 100"), load("sleep 0.1; echo speed 70; echo noise >&2", "copy"))
    follow = follower(node, *loads, step=told.append)
    result = asyncio.run(follow.result())
    assert verdict(follow, result) == (Verdict.PASS, "")
    assert result.metrics["hours"] >= 2 / 3600
    assert (result.metrics["train.speed"], result.metrics["copy.speed"]) == (100, 70)
    assert result.metrics["train.decline"] == 0
    assert told[-1].startswith("soak: 100 %")
    assert not node.units
    assert not list(node.soaks.iterdir())


def test_the_first_run_that_is_below_its_bar_ends_it(node: SoakNode, tmp_path: Path) -> None:
    mark = tmp_path / "second"
    follow = follower(
        node, load(f"test -e {mark} && echo speed 40 || echo speed 100; touch {mark}; sleep 0.1"), seconds=60
    )
    found, why = verdict(follow, asyncio.run(follow.result()))
    assert found is Verdict.FAIL
    assert "speed 40 < 50" in why
    assert not node.units


def test_a_last_hour_that_is_slower_than_the_first_fails(node: SoakNode, tmp_path: Path) -> None:
    count = tmp_path / "count"
    slower = f"n=$(cat {count} 2>/dev/null || echo 0); echo $((n + 1)) >{count}; echo speed $((100 - 5 * n)); sleep 0.3"
    follow = follower(node, load(slower, thresholds=(Threshold("speed", 1.0),)), seconds=4)
    found, why = verdict(follow, asyncio.run(follow.result()))
    assert found is Verdict.FAIL
    assert "train.decline" in why


def test_a_reconciler_that_is_killed_leaves_the_soak_at_work_and_the_next_one_goes_on(node: SoakNode) -> None:
    follow = follower(node, seconds=3)

    async def killed() -> None:
        task = asyncio.create_task(follow.result())
        await node.has_run()
        task.cancel()  # as after SIGKILL, no word reaches the node
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(killed())
    (unit,) = node.units
    begun = unit.read_text()
    following = follower(node, seconds=3, resumed=True)
    result = asyncio.run(following.result())
    assert verdict(following, result) == (Verdict.PASS, "")
    assert begun.strip().isdigit()
    assert following._soak.found["train"][0][0] == 0, "the runs before are counted"


def ran(node: SoakNode) -> int:
    return len((node.soaks / "a1" / "runs").read_text().splitlines())


def outputs(node: SoakNode) -> set[int]:
    return {int(file.stem) for file in (node.soaks / "a1" / "out").iterdir()}


def listening(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of each run whose output is fetched from now on."""
    read: list[int] = []
    output = on_node.output

    def fetched(soak_id: str, run: int) -> tuple[str, ...]:
        read.append(run)
        return output(soak_id, run)

    monkeypatch.setattr(on_node, "output", fetched)
    return read


async def killed_after(follow: Follower, node: SoakNode, runs: int) -> None:
    """Follow until so many runs were judged and are not kept any more, and die."""
    task = asyncio.create_task(follow.result())
    async with asyncio.timeout(20):
        while follow._kept < runs:
            assert not task.done(), task.result()
            await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_what_was_judged_is_not_kept_on_the_node_and_not_read_again(
    node: SoakNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "first"
    run = f"head -c 20000 /dev/zero | tr '\\0' x; echo; test -e {mark} && echo speed 100 || echo speed 60; touch {mark}"
    loads = (load(f"{run}; sleep 0.1"), load("sleep 0.1; echo speed 70", "copy"))
    first = follower(node, *loads, seconds=5, decline=80)
    asyncio.run(killed_after(first, node, 6))
    assert all(run > first._kept for run in outputs(node))
    before, read = first._kept, listening(monkeypatch)
    until = time.monotonic() + 10
    while ran(node) <= before + 4:
        assert time.monotonic() < until, "it goes on without us"
        time.sleep(0.05)
    following = follower(node, *loads, seconds=5, decline=80, resumed=True)
    result = asyncio.run(following.result())
    assert verdict(following, result) == (Verdict.PASS, "")
    assert read == list(range(before + 1, before + 1 + len(read)))
    assert result.metrics["train.speed"] == 60, "the worst, which only the first reconciler read"
    assert result.metrics["train.decline"] < 0
    assert result.metrics["hours"] >= 5 / 3600


def test_a_reconciler_that_was_away_for_long_reads_all_that_it_missed(
    node: SoakNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_node, "MOST_RUNS", 2)
    first = follower(node, load("echo speed 100"), seconds=2)
    asyncio.run(killed_after(first, node, 1))
    time.sleep(2.5)
    assert (node.soaks / "a1" / "done").exists()
    every, read = ran(node), listening(monkeypatch)
    following = follower(node, load("echo speed 100"), seconds=2, resumed=True)
    assert verdict(following, asyncio.run(following.result())) == (Verdict.PASS, "")
    assert read[-1] == every
    assert len(read) > 4


def test_the_last_run_that_was_missed_is_judged_before_the_unit_that_is_gone(
    node: SoakNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_node, "MOST_RUNS", 2)
    mark = tmp_path / "slow"
    loads = load(f"test -e {mark} && echo speed 40 || echo speed 100; sleep 0.05")
    asyncio.run(killed_after(follower(node, loads, seconds=60), node, 1))
    time.sleep(0.5)
    mark.touch()
    time.sleep(0.5)
    node.kill()
    following = follower(node, loads, seconds=60, resumed=True)
    found, why = verdict(following, asyncio.run(following.result()))
    assert found is Verdict.FAIL
    assert "speed 40 < 50" in why


@pytest.mark.parametrize(
    "damage", ["half", "6\n{", '6\n{"other": {}}', '6\n{"train": {"runs": [[0, 1, {"speed": "x"}]]}}']
)
def test_what_can_not_be_read_of_the_judged_runs_is_an_error_and_no_pass(node: SoakNode, damage: str) -> None:
    asyncio.run(killed_after(follower(node, seconds=60), node, 1))
    (node.soaks / "a1" / "judged").write_text(damage)
    following = follower(node, seconds=60, resumed=True)
    found, why = verdict(following, asyncio.run(following.result()))
    assert found is Verdict.ERROR
    assert "can't be read" in why
    assert not node.units


def test_a_late_word_on_what_was_judged_replaces_no_newer_one(node: SoakNode) -> None:
    """A command that was given up may still come to its end on the node."""
    follow = follower(node, seconds=60)
    asyncio.run(killed_after(follow, node, 3))
    kept = (node.soaks / "a1" / "judged").read_text()
    argv, stdin = on_node.keep("a1", 1, '{"train": {"runs": []}}')
    assert asyncio.run(node.run(argv, timeout=5, stdin=stdin)).exit_status == 0
    assert (node.soaks / "a1" / "judged").read_text() == kept
    assert not list((node.soaks / "a1").glob("judged.*"))
    asyncio.run(node.run(on_node.stop("a1"), timeout=5))


def test_loads_that_nobody_listens_to_do_not_fill_the_disk(node: SoakNode, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = node.run

    async def small(argv: Sequence[str], **given: Any) -> CommandResult:
        return await answer([word.replace(f"-lt {on_node.UNREAD_KIB}", "-lt 200") for word in argv], **given)

    monkeypatch.setattr(node, "run", small)
    run = "sleep 0.2; head -c 30000 /dev/zero | tr '\\0' x; echo; echo speed 100"
    asyncio.run(killed_after(follower(node, load(run), seconds=60), node, 1))
    time.sleep(2)
    folder = node.soaks / "a1"
    assert sum(file.stat().st_size for file in folder.rglob("*")) < 300_000
    following = follower(node, load(run), seconds=60, resumed=True)
    found, why = verdict(following, asyncio.run(following.result()))
    assert found is Verdict.ERROR
    assert "nobody reads it" in why


def test_a_load_that_floods_its_errors_does_not_fill_the_disk(node: SoakNode) -> None:
    flood = "head -c 30000000 /dev/zero >&2; sleep 0.3; echo speed 100; echo size $(stat -c %s said)"
    bars = (Threshold("speed", 50.0), Threshold("size", None, float(on_node.ERRORS_BYTES)))
    follow = follower(node, load(flood, metrics="speed,size", thresholds=bars))
    result = asyncio.run(follow.result())
    assert verdict(follow, result) == (Verdict.PASS, "")


def test_a_start_whose_answer_was_lost_is_no_second_start(node: SoakNode) -> None:
    """The connection may be lost between the start and its answer; then it is asked for again."""
    argv, loads = on_node.start("a1", 2, [on_node.Step(("sh", "-c", "sleep 0.2; echo speed 100"), 5)])
    assert asyncio.run(node.run(argv, timeout=5, stdin=loads)).exit_status == 0
    (unit,) = node.units
    begun = unit.read_text()
    follow = follower(node)
    assert verdict(follow, asyncio.run(follow.result())) == (Verdict.PASS, "")
    assert follow._soak.found["train"][0][2].metrics == {"speed": 100}
    assert begun.strip().isdigit()


@pytest.mark.parametrize(
    ("event", "expected", "why"),
    [
        ("reboot", Verdict.FAIL, "booted in the middle"),
        ("kill", Verdict.ERROR, "ended before its time"),
        # Or between the look that names a run and the read of what it printed.
        ("remove", Verdict.ERROR, "not on the node any more|the output of run 1 is not there"),
        ("xid", Verdict.FAIL, "79"),
    ],
)
def test_what_happens_to_the_node_ends_it(node: SoakNode, event: str, expected: Verdict, why: str) -> None:
    follow = follower(node, seconds=60)

    async def interrupted() -> TestResult:
        task = asyncio.create_task(follow.result())
        await node.has_run()
        node.happen(event)
        return await asyncio.wait_for(task, 20)

    found, reasons = verdict(follow, asyncio.run(interrupted()))
    assert found is expected
    assert re.search(why, reasons)
    assert not node.units


def test_a_node_too_busy_to_answer_in_time_is_asked_again(node: SoakNode, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, late = node.run, iter((True, True))

    async def slow(argv: Sequence[str], **given: Any) -> CommandResult:
        found = await answer(argv, **given)  # it was done there, which nobody hears
        return replace(found, stdout="", timed_out=True) if next(late, False) else found

    monkeypatch.setattr(node, "run", slow)
    follow = follower(node)
    assert verdict(follow, asyncio.run(follow.result())) == (Verdict.PASS, "")
