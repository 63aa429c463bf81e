"""The best plan without an action is never wrong: not out of reach by mistake, nor cheaper, nor dearer than it is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import DesiredGpu
from reconciler.model.vocab import Activation
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import NodeTraits, Staged, admission_requires
from reconciler.planner.node.catalogue import Catalogue, Row, catalogue
from reconciler.planner.node.search import search
from reconciler.planner.node.why import Alternative, Question, alternatives, cost_of
from tests import builders as b
from tests import strategies as s
from tests.properties.test_planner import NAMES, cost, exhaustive, rows
from tests.work import calls


def without(full: Catalogue, name: str) -> Catalogue:
    return replace(full, rows=tuple(row for row in full.rows if row.id != name))


def check(question: Question) -> None:
    """Against the exhaustive search, which was written apart."""
    told = alternatives(question)
    assert told.keys() == {row.id for row in question.rows}
    for name, other in told.items():
        rest = without(question.catalogue, name)
        least = exhaustive(rest, question.start, question.wanted)
        mine = cost(question.rows)
        if other.more is None:
            assert least is None, (name, least)
            assert set(other.own) <= set(other.missing) <= question.wanted
            continue
        assert least is not None, name
        assert (other.missing, other.own) == ((), ())
        assert tuple(given + more for given, more in zip(mine, other.more, strict=True)) == least
        assert tuple(other.more) >= (0, 0, 0, 0), "the plan was the least"
        assert name in other.spared
        assert other.instead
        assert not set(other.instead) & set(other.spared)


@given(
    st.lists(rows(), max_size=6),
    st.lists(st.sampled_from(NAMES), unique=True),
    st.lists(st.sampled_from(NAMES), unique=True),
)
def test_the_alternative_is_the_cheapest_other_plan(table: list[Row], start: list[str], goal: list[str]) -> None:
    full = Catalogue(tuple(table), (Staged("a", Activation.REBOOT, "b", ("c",)),))
    found = search(full, frozenset(start), frozenset(goal))
    if found:
        check(Question(full, frozenset(start), frozenset(goal), found))


@given(
    st.lists(rows(), max_size=6),
    st.lists(st.sampled_from(NAMES), unique=True),
    st.lists(st.sampled_from(NAMES), unique=True),
)
def test_what_is_missing_alone_is_out_of_reach(table: list[Row], start: list[str], goal: list[str]) -> None:
    """Two or more that are named were each out of reach; what is named for the whole is at least part of the goal."""
    full = Catalogue(tuple(table), ())
    begin, wanted = frozenset(start), frozenset(goal)
    found = search(full, begin, wanted)
    for name, other in alternatives(Question(full, begin, wanted, found)).items() if found else ():
        if other.more is None and len(other.missing) > len(other.own):
            rest = without(full, name)
            assert all(exhaustive(rest, begin, frozenset({each})) is None for each in other.missing)


@given(s.situations())
def test_plans_of_nodes_are_the_answer_to_their_question(case: Any) -> None:
    wanted, seen, record = case
    planner = b.planner()
    plan, question = planner.plan(wanted, seen, record), planner.question(wanted, seen, record)
    if question is None:
        assert plan.actions == ()
        return
    # The later rungs of a ladder are planned in case that the first does not help, and answer no question.
    later = [action.id for action in plan.actions if any(why.endswith(" does not help") for why in action.because)]
    mine = [row.id for row in question.rows]
    assert [action.id for action in plan.actions if action.id not in later or action.id in mine] == mine
    best = search(question.catalogue, question.start, question.wanted)
    assert best is not None
    assert cost_of(best) == cost_of(question.rows)
    for name, other in alternatives(question).items():
        if other.more is None:
            assert search(without(question.catalogue, name), question.start, question.wanted) is None
            assert other.missing
        else:
            assert tuple(other.more) >= (0, 0, 0, 0)


def test_a_reboot_that_could_be_a_longer_one() -> None:
    """Pending BIOS settings take effect at any boot; the one over the BMC takes a minute more."""
    wanted = b.node()
    seen = b.observed(inventory=b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}))
    found = b.planner().question(wanted, seen, b.record(wanted))
    assert found is not None
    told = alternatives(found)
    assert told["soft_restart"].instead == ("power_cycle",)
    assert told["soft_restart"].spared == ("soft_restart",)
    assert told["soft_restart"].more == (0, 0, 60, 0)
    assert told["set_bios"] == Alternative(missing=(c.BIOS, c.GATE), own=(c.BIOS,))
    assert told["admit"] == Alternative(missing=(c.IN_SERVICE,), own=(c.IN_SERVICE,))
    assert told["drain"].own == ()
    assert c.BIOS in told["drain"].missing


def test_what_no_workload_notices_is_explained_too() -> None:
    """On a cordoned node only harmless actions are planned, whatever else is wrong."""
    wanted = b.node()
    host = b.facts(sysctls={"vm.swappiness": "60"})
    seen = b.observed(host=host, member=b.member(unschedulable=True, labels={}))
    found = b.planner().question(wanted, seen, b.record(wanted))
    assert found is not None
    told = alternatives(found)
    assert told["configure_host"].own == (c.HOST,)
    assert told["set_labels"].own == (c.LABELS,)


def test_nothing_planned_asks_nothing() -> None:
    wanted = b.node()
    assert b.planner().question(wanted, b.observed(), b.record(wanted)) is None


def test_the_worst_node_is_explained_with_little_work() -> None:
    """Every start of an all but wholly drifted node. Two hundred thousand calls take a twentieth of a second."""
    wanted = b.node(profile=b.profile(gpu=DesiredGpu({"3g.40gb": 2})))
    full = catalogue(NodeTraits(wanted, clustered=True, registered=True, busy=True, cordoned=False))
    goal = frozenset({*admission_requires(wanted), c.IN_SERVICE})
    given_ = frozenset({c.IDENTITY, c.SIGNATURE, c.HEALTHY, c.HARDWARE})
    varied = (c.HOST_UP, c.POWER_ON, c.REGISTERED, c.MEMBER, c.IN_SERVICE, c.GPU_PLAIN)
    most, asked = 0, 0
    for some in itertools.chain.from_iterable(itertools.combinations(varied, n) for n in range(len(varied) + 1)):
        start = given_ | set(some)
        found = search(full, start, goal)
        if found is None:
            continue
        asked += 1
        _, work = calls(partial(alternatives, Question(full, start, goal, found)))
        most = max(most, work)
    assert asked > 20
    assert most < 400_000
