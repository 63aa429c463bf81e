"""A rate counts each taking out: a node that goes out again and again uses it up as several would."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from reconciler.model.desired import BudgetLimit
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.fleet.taken_out import TimesTakenOut, taken_out
from reconciler.render.plan import out
from tests import builders as b

RATE = BudgetLimit("fleet", "2", per_s=3600.0)
SETTINGS = replace(b.SETTINGS, budgets=(RATE,))


def ago(minutes: float) -> datetime:
    return b.NOW - timedelta(minutes=minutes)


def attempts(*said: tuple[str, str, float]) -> TimesTakenOut:
    tried = tuple(Attempt(action, "", "", ago(minutes), outcome) for action, outcome, minutes in said)
    return taken_out({"n1": NodeRecord("n1", attempts=tried)}, SETTINGS)


def test_the_same_node_twice_uses_up_two() -> None:
    taken = attempts(("mark", "done", 50), ("admit", "done", 40), ("mark", "done", 30), ("admit", "done", 20))
    assert taken == {"n1": [ago(50), ago(30)]}
    nodes = {name: b.node(name) for name in ("n1", "n2")}
    budget = b.budget((BudgetLimit("fleet", "100%"), RATE), nodes, now=b.NOW, out=(), taken=taken)
    for name in nodes:
        blocked = budget.allows(name)
        assert blocked is not None, "also of the node itself"
        assert "2 of 2 taken out within 1h00m (n1 2 times)" in blocked.detail
        assert blocked.until == ago(50) + timedelta(hours=1)
    rate = budget.lines()[1]
    assert (rate.out, out(rate)) == (("n1", "n1"), "n1 (n1 2 times)")


def test_a_node_that_goes_out_again_now_counts_again() -> None:
    nodes = {name: b.node(name) for name in ("n1", "n2")}
    budget = b.budget((BudgetLimit("fleet", "100%"), RATE), nodes, now=b.NOW, out=())
    for _ in range(2):
        assert budget.allows("n1") is None
        budget.charge("n1")
        budget.see("n1", True)
    assert budget.allows("n1") is not None
    assert budget.allows("n2") is not None
    budget.move_to(b.NOW + timedelta(hours=1))
    assert budget.allows("n2") is None


def test_what_is_supposed_is_forgotten() -> None:
    budget = b.budget((BudgetLimit("fleet", "100%"), RATE), {"n1": b.node("n1")}, now=b.NOW, out=())
    budget.charge("n1")
    budget.see("n1", True)
    with budget.supposing():
        budget.charge("n1")
    assert budget.allows("n1") is None


def test_attempts_of_one_taking_out_count_once() -> None:
    assert attempts(("mark", "refused", 50)) == {}
    assert attempts(("mark", "ambiguous", 50), ("mark", "done", 49)) == {"n1": [ago(49)]}
    assert attempts(("mark", "done", 50), ("mark", "transient", 9), ("mark", "started", 8)) == {"n1": [ago(50), ago(8)]}
