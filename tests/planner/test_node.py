"""One planner for many nodes: nodes share a decision only if it would be the same for each of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.health.signals import Signal, signals
from reconciler.model import gpus
from reconciler.model import observed as o
from reconciler.model.plan import BlockCode, Goal
from reconciler.model.records import FLEET, Attempt, Hold
from reconciler.planner.node import signal_cache
from reconciler.planner.node.holds import by_subject
from tests import builders as b

MINUTE = timedelta(minutes=1)
WRONG = b.observed(host=b.facts(driver="550.0"))
ILL = b.observed(host=b.facts(gpus=tuple(b.gpu(at, ecc_uncorrectable=at % 2) for at in range(8))))


def tried(action: str, outcome: str, times: int, cause: str = "image.driver") -> tuple[Attempt, ...]:
    starts = [b.NOW - 60 * MINUTE + at * MINUTE for at in range(times)]
    return tuple(Attempt(action, "", cause, start, outcome, "why", start + MINUTE) for start in starts)


def test_a_planner_of_many_decides_as_one_of_each_would() -> None:
    pasts = [
        (),
        tried("mark", "done", 1),
        tried("reimage", "started", 1),
        tried("reimage", "transient", 3),
        tried("power_cycle", "done", 2, cause="remediation"),
    ]
    cases = [
        (seen, b.record(b.node(), None if seen is WRONG else seen, attempts=past))
        for seen in (WRONG, ILL)
        for past in pasts
    ]
    alone = [b.planner().plan(b.node(), seen, record) for seen, record in cases]
    assert len({(plan.actions, plan.situation) for plan in alone}) > 3, "they have different stories"
    for order in itertools.islice(itertools.permutations(range(len(cases))), 0, None, 90_001):
        shared = b.planner()
        assert {at: shared.plan(b.node(), *cases[at]) for at in order} == dict(enumerate(alone))


def test_a_stop_counts_for_a_planner_that_has_decided_before() -> None:
    planner, record = b.planner(), b.record(b.node())
    before = planner.plan(b.node(), WRONG, record)
    assert before.actions
    planner.holds = by_subject((), (Hold(1, FLEET, "fire", "ops", b.NOW),))
    stopped = planner.plan(b.node(), WRONG, record)
    assert (stopped.actions, stopped.blocked and stopped.blocked.code) == ((), BlockCode.STOPPED)
    planner.holds = {}
    assert planner.plan(b.node(), WRONG, record) == before


@pytest.mark.parametrize(
    "unread",
    [
        {"gpus": (b.gpu(0), b.gpu(1, remap_pending=None))},
        {"nvlinks_active": {0: 18}},
        {"smi": gpus.SmiAnswer(15, 2, 2)},
        {"nvme": None},
    ],
)
def test_a_part_that_was_not_read_is_left_alone_and_hinders_no_repair(unread: dict[str, Any]) -> None:
    wanted = b.node()
    seen = b.observed(host=b.facts(**unread))
    plan = b.planner().plan(wanted, seen, b.record(wanted))
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.UNKNOWN
    ill = b.observed(host=b.facts(**unread, xids=(o.Xid(79, "0", 1),)))
    assert "power_cycle" in b.actions(b.planner().plan(wanted, ill, b.record(wanted)))


def test_signals_of_one_read_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew for another read of the node, or another profile: an apply reads it again under the same planner."""
    computed: list[str] = []

    def counted(profile: Any, observed: Any) -> tuple[Signal, ...]:
        computed.append(observed.node)
        return signals(profile, observed)

    monkeypatch.setattr(signal_cache, "signals", counted)
    cache, wanted, seen = signal_cache.SignalCache(), b.node(), b.observed()
    assert cache.of(wanted.profile, seen) == cache.of(wanted.profile, seen) == ()
    assert cache.of(wanted.profile, ILL) == signals(wanted.profile, ILL) != ()
    assert cache.of(b.profile(gpu=None), ILL) == signals(b.profile(gpu=None), ILL)
    assert len(computed) == 3


@pytest.mark.parametrize("part", ["firmware", "bios"])
def test_what_a_bmc_does_not_report_and_nobody_manages_blocks_nothing(part: str) -> None:
    """The certificate binds what the spec manages; a FirmwareInventory that can't be read is no part of that."""
    empty: dict[str, Any] = {"firmware": (), "bios": {}}
    managed = b.node(profile=replace(b.PROFILE, digest="bare", **{part: empty[part]}))
    full = b.observed()
    seen = b.observed(inventory=b.inventory(**{part: None}))
    plan = b.planner().plan(managed, seen, b.record(managed, full))
    assert (plan.goal, plan.actions, plan.blocked) == (Goal.IN_SERVICE, (), None)
    unread = b.planner().plan(b.node(), seen, b.record(b.node(), full))
    assert unread.blocked is not None
