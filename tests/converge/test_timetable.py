"""A timetable with estimates from history agrees with what an apply then does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from reconciler.model.desired import BudgetLimit
from reconciler.planner.node.estimates import estimates
from tests.converge.test_rollouts import BOTH, NEW, POLICY, Rolled, done

NEXT = replace(NEW, version="2026.11.3", sha256="f" * 64)


def test_the_second_rollout_goes_as_the_first_lets_expect(tmp_path: Path) -> None:
    here = Rolled(tmp_path, nodes=7, settings={"budgets": (BudgetLimit("fleet", "2"),)})
    here.bump(image=NEW)
    assert len(done(here.go(wait_s=36000.0))) == 7
    here.bump(image=NEXT)
    here.signatures = {**BOTH, (NEXT.name, NEXT.version): True}
    plan = here.plan(estimates=estimates(here.fleet, here.ledger.durations()))
    [rollout] = plan.rollouts
    assert all(one.end == after.start for one, after in pairwise(rollout.waves))
    begun = here.clock.now()
    assert rollout.waves[-1].end == begun + timedelta(seconds=plan.totals.finish_s + POLICY.bake_s)
    assert len(done(here.go(signatures=here.signatures, wait_s=36000.0))) == 7
    assert plan.totals.finish_s == pytest.approx((here.clock.now() - begun).total_seconds(), rel=0.05)
