"""A soak on a node with a real shell: it goes on without us, and the first bad sign ends it."""

from __future__ import annotations

import asyncio
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
        ("remove", Verdict.ERROR, "not on the node any more"),
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
    assert why in reasons
    assert not node.units


def test_a_node_too_busy_to_answer_in_time_is_asked_again(node: SoakNode, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, late = node.run, iter((True, True))

    async def slow(argv: Sequence[str], **given: Any) -> CommandResult:
        found = await answer(argv, **given)  # it was done there, which nobody hears
        return replace(found, stdout="", timed_out=True) if next(late, False) else found

    monkeypatch.setattr(node, "run", slow)
    follow = follower(node)
    assert verdict(follow, asyncio.run(follow.result())) == (Verdict.PASS, "")
