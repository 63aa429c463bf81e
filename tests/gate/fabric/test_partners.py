"""A gate's partners: nobody with work, nobody twice, within the budget, and free again when the gate is gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from reconciler.gate.fabric.partners import (
    Candidate,
    Hold,
    NoPartner,
    Partner,
    Service,
    choose_partner,
    live_holds,
)
from reconciler.gate.fabric.topology import Fabric
from reconciler.model.desired import BudgetLimit
from reconciler.planner.fleet.budget import Budget
from tests import builders

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
OUT = Candidate(Service.OUT, certified=True)
ILL = Candidate(Service.OUT, certified=False)
IDLE = Candidate(Service.IDLE, certified=True)
WORKING = Candidate(Service.WORKING, certified=True)
UNREAD = Candidate(Service.UNKNOWN, certified=True)


def fabric(**groups: str) -> Fabric:
    return Fabric(groups, 8, {})


ONE_LEAF = fabric(a="l1", b="l1", c="l1", d="l1", e="l2")


def roomy(_: str) -> None:
    return None


def full(_: str) -> str:
    return "the budget is used up"


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ({"b": ILL, "c": IDLE, "d": OUT}, Partner("d", certified=True, charges=False)),
        ({"b": ILL, "c": IDLE}, Partner("c", certified=True, charges=True)),
        ({"b": ILL, "c": WORKING, "d": UNREAD}, Partner("b", certified=False, charges=False)),
    ],
)
def test_the_partner_that_costs_least_is_chosen(candidates: dict[str, Candidate], expected: Partner) -> None:
    assert choose_partner("a", ONE_LEAF, candidates, (), roomy) == expected


def test_gates_that_start_together_ask_for_different_partners() -> None:
    everyone = dict.fromkeys("abcd", OUT)
    chosen = [choose_partner(node, ONE_LEAF, everyone, (), roomy) for node in "abcd"]
    assert [found.name for found in chosen if isinstance(found, Partner)] == ["b", "c", "d", "a"]


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (WORKING, "b: it has work"),
        (UNREAD, "b: whether it has work can't be read"),
        (OUT._replace(occupied=True), "b: an action or a gate of its own runs"),
    ],
)
def test_a_node_that_may_be_free_later_is_waited_for(candidate: Candidate, reason: str) -> None:
    found = choose_partner("a", ONE_LEAF, {"b": candidate}, (), roomy)
    assert isinstance(found, NoPartner)
    assert found.wait
    assert found.reason == f"no partner for a behind its leaf l1; {reason}"


def test_another_leaf_an_idle_node_without_certificate_and_nodes_met_are_no_partners() -> None:
    candidates = {"a": OUT, "b": OUT, "c": Candidate(Service.IDLE, certified=False), "e": OUT}
    found = choose_partner("a", ONE_LEAF, candidates, (), roomy, avoid={"b"})
    assert found == NoPartner("no partner for a behind its leaf l1", wait=False)


@pytest.mark.parametrize(("node", "reason"), [("x", "the fabric does not know x"), ("f", "f has no leaf and no rack")])
def test_a_node_whose_leaf_is_not_known_has_no_partner(node: str, reason: str) -> None:
    found = choose_partner(node, fabric(f="", g=""), {"g": OUT}, (), roomy)
    assert isinstance(found, NoPartner)
    assert not found.wait
    assert found.reason.startswith(reason)


def test_the_budget_refuses_an_idle_node_and_no_node_that_is_out() -> None:
    assert choose_partner("a", ONE_LEAF, {"b": IDLE, "c": ILL}, (), full) == Partner("c", False, False)
    found = choose_partner("a", ONE_LEAF, {"b": IDLE}, (), full)
    assert found == NoPartner("no partner for a behind its leaf l1; b: the budget is used up", wait=True)


@pytest.mark.parametrize(("node", "held"), [("c", {"a", "b"}), ("a", {"a"}), ("b", {"b"})])
def test_both_nodes_of_a_hold_are_taken(node: str, held: set[str]) -> None:
    hold = Hold("b", "a", "attempt-1")
    found = choose_partner(node, ONE_LEAF, {"a": OUT, "b": OUT}, [hold], roomy)
    assert isinstance(found, NoPartner)
    assert found.wait
    assert all(f"{name}: " in found.reason for name in held)


def test_a_hold_ends_with_its_gate() -> None:
    hold = Hold("b", "a", "attempt-1")
    assert live_holds([hold], {"attempt-1"}) == (hold,)
    assert live_holds([hold], {"attempt-2"}) == (), "a reconciler that starts anew runs other attempts"


def refusal_of(budget: Budget) -> Callable[[str], str | None]:
    def refusal(name: str) -> str | None:
        blocked = budget.allows(name)
        return None if blocked is None else blocked.detail

    return refusal


def drawn(chance: random.Random, names: list[str]) -> dict[str, Candidate]:
    services = chance.choices([*Service], [6, 12, 5, 1], k=len(names))
    return {
        name: Candidate(service, certified=chance.random() < 0.7, occupied=chance.random() < 0.1)
        for name, service in zip(names, services, strict=True)
    }


def test_gates_at_the_same_time_share_no_node_and_keep_the_budget() -> None:
    seed = random.SystemRandom().randrange(10**12)
    names = [f"n{number:02d}" for number in range(24)]
    some = Fabric({name: f"l{number % 3}" for number, name in enumerate(names)}, 8, {})
    charged = refused = 0
    for at in range(seed, seed + 200):
        chance = random.Random(at)
        candidates = drawn(chance, names)
        budget = Budget([BudgetLimit("fleet", "9")], {name: builders.node(name) for name in names}, NOW)
        for name, candidate in candidates.items():
            unread = candidate.service is Service.UNKNOWN
            budget.see(name, None if unread else candidate.service is not Service.OUT)
        most = max(9, len(budget.out))
        starting = [name for name in names if candidates[name].service is Service.OUT]
        holds: list[Hold] = []
        for node in chance.sample(starting, len(starting)):
            found = choose_partner(node, some, candidates, holds, refusal_of(budget))
            if isinstance(found, NoPartner):
                refused += "budget of fleet" in found.reason
                continue
            if found.charges:
                budget.charge(found.name)
                charged += 1
            holds.append(Hold(found.name, node, node))
            chosen = candidates[found.name]
            assert chosen.service is Service.OUT or (chosen.service is Service.IDLE and chosen.certified), at
            assert not chosen.occupied, at
            assert some.groups[found.name] == some.groups[node], at
        taken = [name for hold in holds for name in (hold.partner, hold.node)]
        assert len(taken) == len(set(taken)), at
        assert len(budget.out) <= most, at
    assert charged, "no draw took an idle node: the budget was not tried"
    assert refused, "no draw found the budget used up"
