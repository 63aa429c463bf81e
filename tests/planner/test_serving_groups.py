"""Serving groups in the disruption budget: who is away, and who may go."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reconciler.model.desired import BudgetLimit, Desired
from reconciler.model.serving import DesiredServing
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.budget import Budget
from tests import builders as b

GROUP = ("n0", "n1", "n2")
SERVING = DesiredServing(GROUP, ("degrade",), ("restore",), 600.0, "http://127.0.0.1:8000/health", 600.0)


def nodes(**states: NodeState) -> Mapping[str, Desired]:
    """The nodes of a group in these states, by default active, and some that serve alone."""
    found = {name: b.node(name, serving=SERVING, state=states.get(name, NodeState.ACTIVE)) for name in GROUP}
    return found | {name: b.node(name) for name in ("n3", "n4")}


def budget(fleet: Mapping[str, Desired], *out: str, isolated: tuple[str, ...] = ()) -> Budget:
    """A budget in which nothing but serving groups is scarce."""
    return b.budget((BudgetLimit("fleet", "100%"),), fleet, now=b.NOW, out=(*out, *isolated), isolated=isolated)


def refused(made: Budget, node: str) -> str:
    blocked = made.allows(node)
    return "" if blocked is None else blocked.detail


AWAY = "its serving group serves without another one: 1 of 1 away (n1)"


@pytest.mark.parametrize("state", [NodeState.QUARANTINED, NodeState.RETIRED])
def test_a_node_to_be_decommissioned_waits_for_its_group(state: NodeState) -> None:
    leaving = NodeState.DECOMMISSIONED
    assert refused(budget(nodes(n0=leaving)), "n0") == ""
    assert refused(budget(nodes(n0=leaving), "n1"), "n0") == AWAY
    assert refused(budget(nodes(n0=leaving, n1=state)), "n0") == AWAY


def test_nobody_who_is_away_serves_without_a_node_that_is_decommissioned() -> None:
    leaving = NodeState.DECOMMISSIONED
    made = budget(nodes(n0=leaving, n1=NodeState.QUARANTINED), "n2")
    assert made.away_from_group("n0") == ("n1", "n2")
    assert made.away_from_group("n2") == ("n1",), "n0 serves until it goes"
    made.see("n0", serves=False)
    assert made.away_from_group("n2") == ("n0", "n1")


def test_two_nodes_to_be_decommissioned_go_one_after_the_other() -> None:
    made = budget(nodes(n0=NodeState.DECOMMISSIONED, n1=NodeState.DECOMMISSIONED))
    with made.supposing():
        made.charge("n1")
        assert refused(made, "n0") == AWAY
    assert refused(made, "n0") == ""
    made.see("n1", serves=False)
    assert refused(made, "n2") == AWAY


def test_a_node_that_was_decommissioned_uses_up_nothing_but_its_group() -> None:
    """It stays out for ever, and the default allows one node to be out."""
    made = b.budget((), nodes(n0=NodeState.DECOMMISSIONED), now=b.NOW, out=("n0",))
    assert refused(made, "n3") == ""
    assert made.seen_out == 0


def test_an_isolated_node_goes_while_another_one_waits_only_to_be_told() -> None:
    """To tell the group needs all of it in service, so each would wait for the other."""
    made = budget(nodes(), "n0", isolated=("n1",))
    made.see_restored("n0", restored=False)
    assert refused(made, "n1") == "its serving group serves without another one: 2 away where 1 may be (n0, n1)"
    made.see("n0", serves=True)
    assert refused(made, "n1") == ""
    assert refused(made, "n2") != "", "it is not isolated"
    made.see("n0", serves=False)
    assert refused(made, "n1") != ""


def test_to_suppose_that_a_node_goes_changes_nothing() -> None:
    made = budget(nodes(), isolated=("n1",))
    made.see_restored("n0", restored=False)
    with made.supposing():
        made.charge("n0")
        assert refused(made, "n1") != ""
    assert refused(made, "n1") == ""
