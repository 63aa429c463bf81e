"""The expected timetable of a plan: within every limit at every moment, and as early as these allow."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import BreakGlass, BudgetLimit, Desired, Floor, Hours, RolloutPolicy, Window
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, PlannedAction, RolloutPlan, Wave, WaveState
from reconciler.model.records import Rollout
from reconciler.model.vocab import Certainty, Concern, Disruption, Reason, Source, WindowKind
from reconciler.planner.fleet.permit import Permit, reasons, takes_out
from reconciler.planner.fleet.rollouts import Progress, Rollouts
from reconciler.planner.fleet.timeline import Timetable, out_s, timetable
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.fleet.work_queue import in_order, schedule
from reconciler.planner.node.workload import work
from tests import builders as b
from tests.properties.test_permit import Nodes, allowed, fleets, limits, shares, windows
from tests.work import calls

KINDS = {
    Reason.REMEDIATION: ("health.xid_79", DriftClass.DRIFTED),
    Reason.DRIFT: ("bios.X", DriftClass.DRIFTED),
    Reason.CHANGE: ("image.version", DriftClass.PENDING),
    Reason.RENEWAL: ("gate.certificate", DriftClass.RENEWAL),
}


def action(name: str, disruption: Disruption, minutes: float) -> PlannedAction:
    return PlannedAction(name, "", Concern.HOST, (), disruption, minutes * 60, Certainty.EXACT, (), ())


def plan(
    node: str = "a",
    minutes: float = 30,
    why: Sequence[Reason] = (Reason.DRIFT,),
    *,
    harmless: float = 0,
    **changes: Any,
) -> NodePlan:
    """A drain that lasts `minutes`, after `harmless` minutes in service; without a drain where `minutes` is 0."""
    drift = tuple(
        DriftItem(node, Concern.HOST, KINDS[one][0], KINDS[one][1], "is", "was", source=Source.SSH) for one in why
    )
    steps = [action("configure_host", Disruption.SERVICE_RESTART, harmless)] if harmless else []
    steps += [action("mark", Disruption.NONE, 0), action("drain", Disruption.DRAIN, minutes)] if minutes else []
    fields: dict[str, Any] = {
        "node": node, "pool": "train", "goal": Goal.IN_SERVICE, "situation": "", "in_service": True,
        "observed_at": b.NOW, "incomplete": (), "drift": drift, "actions": tuple(steps), "blocked": None, "wave": 0,
        "fingerprint": "",
    }  # fmt: skip
    return NodePlan(**(fields | changes))


def table(
    plans: Sequence[NodePlan],
    *declared: BudgetLimit,
    told: Sequence[Window] = (),
    glass: BreakGlass | None = None,
    rollouts: Rollouts | None = None,
    nodes: Mapping[str, Desired] | None = None,
    **budget: Any,
) -> Timetable:
    nodes = nodes or {one.node: b.node(one.node, pool=one.pool) for one in plans}
    out = [one.node for one in plans if one.in_service is False]
    fields: dict[str, Any] = {"now": b.NOW, "out": out} | budget
    limit = b.budget(declared, nodes, **fields)
    permit = Permit(limit, Windows(told, glass, b.NOW), b.NOW, rollouts or Rollouts())
    return timetable(
        schedule({one.node: one for one in plans}, permit), permit, permit.rollouts.plans, permit.rollouts.missing
    )


def minutes(found: Timetable, *names: str) -> list[tuple[float, float] | None]:
    """Start and end of each, in minutes from now."""
    return [
        None if one.start is None or one.end is None else (since(one.start), since(one.end))
        for one in (found.nodes[name] for name in names or found.nodes)
    ]


def since(at: datetime) -> float:
    return round((at - b.NOW).total_seconds() / 60, 6)


# --- one thing at a time ---------------------------------------------------------------------------------------------


def test_nodes_follow_one_another_as_the_budget_lets_them() -> None:
    found = table([plan(name) for name in "abcde"], BudgetLimit("fleet", "2"))
    assert minutes(found) == [(0, 30), (0, 30), (30, 60), (30, 60), (60, 90)]
    assert (found.finish_s, found.peak) == (90 * 60, 2)


def test_everybody_who_waits_for_a_limit_gets_what_room_there_is() -> None:
    nodes = {name: b.node(name, domains={"rack": name}) for name in "abcdef"}
    found = table([plan(name) for name in nodes], BudgetLimit("fleet", "3"), BudgetLimit("rack", "1"), nodes=nodes)
    assert minutes(found) == [(0, 30)] * 3 + [(30, 60)] * 3


def test_what_disrupts_nobody_goes_at_once() -> None:
    found = table([plan("a"), plan("b"), plan("c", 0, harmless=5)], BudgetLimit("fleet", "1"))
    assert minutes(found) == [(0, 30), (30, 60), (0, 5)]


def test_a_node_that_is_out_makes_room_when_it_is_back() -> None:
    found = table([plan("a", in_service=False), plan("b", 10)], BudgetLimit("fleet", "1"))
    assert minutes(found) == [(0, 30), (30, 40)]
    assert found.peak == 1


@pytest.mark.parametrize("goal", [Goal.CONVERGED_CORDONED, Goal.ISOLATED])
def test_a_node_that_stays_out_makes_none(goal: Goal) -> None:
    found = table([plan("a", goal=goal, in_service=False), plan("b", 10)], BudgetLimit("fleet", "1"))
    assert minutes(found) == [(0, 30), None]
    assert found.finish_s == 30 * 60


def test_what_others_have_taken_out_stays_out() -> None:
    nodes = {name: b.node(name) for name in "abc"}
    found = table([plan("a"), plan("b")], BudgetLimit("fleet", "2"), nodes=nodes, out=["c"])
    assert minutes(found) == [(0, 30), (30, 60)]
    assert found.peak == 2


def test_an_isolated_node_holds_the_room_of_others_until_it_is_back() -> None:
    ill = plan("a", in_service=False, isolated=("health.xid_79",))
    found = table([plan("c", in_service=False), ill, plan("b", 10)], BudgetLimit("fleet", "1"), isolated=["a"])
    assert minutes(found, "c", "a", "b") == [(0, 30), (30, 60), (60, 70)], "drained when the drained one is back"
    held = replace(ill, actions=(), blocked=Blocked(BlockCode.HELD, "held by ops"), goal=Goal.NOTHING, wave=None)
    assert minutes(table([held, plan("b", 10)], BudgetLimit("fleet", "1"), isolated=["a"])) == [None, None]


@pytest.mark.parametrize("budget", [{"declared": [BudgetLimit("fleet", "0")]}, {"unknown": ["a"]}])
def test_nobody_can_say_of_a_budget_of_zero(budget: dict[str, Any]) -> None:
    declared = budget.pop("declared", [BudgetLimit("fleet", "1")])
    assert minutes(table([plan("a")], *declared, **budget)) == [None]


def test_a_rate_makes_room_when_its_period_is_over_not_when_the_node_is_back() -> None:
    found = table([plan(name, 5) for name in "abc"], BudgetLimit("fleet", "3"), BudgetLimit("fleet", "1", per_s=3600))
    assert minutes(found) == [(0, 5), (60, 65), (120, 125)]
    taken = {"z": [b.NOW - timedelta(minutes=50)]}
    nodes = {name: b.node(name) for name in "az"}
    rate = BudgetLimit("fleet", "1", per_s=3600)
    assert minutes(table([plan("a", 5)], BudgetLimit("fleet", "3"), rate, nodes=nodes, taken=taken)) == [(10, 15)]


def test_a_rate_counts_each_taking_out_of_the_same_node() -> None:
    twice = {"z": [b.NOW - timedelta(minutes=50), b.NOW - timedelta(minutes=20)]}
    nodes = {name: b.node(name) for name in "az"}
    three, two = BudgetLimit("fleet", "3", per_s=3600), BudgetLimit("fleet", "2", per_s=3600)
    assert minutes(table([plan("a", 5)], BudgetLimit("fleet", "3"), three, nodes=nodes, taken=twice)) == [(0, 5)]
    assert minutes(table([plan("a", 5)], BudgetLimit("fleet", "3"), two, nodes=nodes, taken=twice)) == [(10, 15)]
    again = table([plan("z", 5)], BudgetLimit("fleet", "3"), two, nodes=nodes, taken=twice)
    assert minutes(again) == [(10, 15)], "it has no place of its own under a rate"


def test_limits_come_and_go_with_the_hours() -> None:
    # It is Saturday, 12:00. From 13:00 on two may be out, until then one.
    until, then = Hours(tuple(range(7)), 0, 13 * 60, "UTC"), Hours(tuple(range(7)), 13 * 60, 24 * 60, "UTC")
    declared = (BudgetLimit("fleet", "1", during=until), BudgetLimit("fleet", "2", during=then))
    found = table([plan(name, 40) for name in "abcd"], *declared)
    assert minutes(found) == [(0, 40), (40, 80), (60, 100), (80, 120)]


def test_what_no_limit_covers_at_that_hour_is_held_to_one_node() -> None:
    morning = Hours(tuple(range(7)), 0, 13 * 60, "UTC")
    found = table([plan(name, 40) for name in "abcde"], BudgetLimit("fleet", "2", during=morning))
    assert minutes(found) == [(0, 40), (0, 40), (40, 80), (40, 80), (80, 120)]


def test_a_pool_that_waits_for_its_window_starves_nobody() -> None:
    nights = Window(WindowKind.ALLOW, Hours(tuple(range(7)), 22 * 60, 23 * 60, "UTC"), pools=("n",))
    plans = [plan(name, pool=name[0]) for name in ("n1", "n2", "n3", "a1", "a2")]
    found = table(plans, BudgetLimit("fleet", "1"), told=[nights])
    # It is 12:00. Two drains of half an hour fit into the hour from 22:00 on, the third into that of the next night.
    assert minutes(found) == [(600, 630), (630, 660), (2040, 2070), (0, 30), (30, 60)]


def test_work_that_fits_no_window_has_no_times() -> None:
    short = Window(WindowKind.ALLOW, Hours(tuple(range(7)), 0, 20, "UTC"))
    found = table([plan("a"), plan("b", 15)], BudgetLimit("fleet", "1"), told=[short])
    assert minutes(found) == [None, (720, 735)]


def test_windows_hold_again_when_the_glass_is_whole() -> None:
    never = Window(WindowKind.DENY, Hours(tuple(range(7)), 0, 24 * 60, "UTC"))
    glass = BreakGlass("fire", "ops", (b.NOW + timedelta(minutes=45)).isoformat())
    found = table([plan(name) for name in "abc"], BudgetLimit("fleet", "1"), told=[never], glass=glass)
    assert minutes(found) == [(0, 30), (30, 60), None]


def test_a_pause_after_a_failure_ends() -> None:
    wait = Blocked(BlockCode.BACKOFF, "drain failed", b.NOW + timedelta(minutes=7))
    found = table([plan("a", blocked=wait), plan("b", 10)], BudgetLimit("fleet", "1"))
    assert minutes(found) == [(10, 40), (0, 10)]
    assert minutes(table([plan("a", blocked=wait)], BudgetLimit("fleet", "1"))) == [(7, 37)]


def test_who_is_left_alone_has_no_times() -> None:
    held = Blocked(BlockCode.HELD, "held by ops")
    found = table([plan("a", 0, blocked=held, goal=Goal.NOTHING, wave=None)], BudgetLimit("fleet", "1"))
    assert minutes(found) == [None]
    assert found.finish_s == 0


def test_out_of_service_is_counted_from_the_first_disrupting_action() -> None:
    assert out_s(plan(harmless=20)) == 30 * 60
    assert out_s(plan(harmless=20, in_service=False)) == 50 * 60
    assert out_s(plan(minutes=0, harmless=20)) == 0


# --- waves -----------------------------------------------------------------------------------------------------------


def rollout(waves: Sequence[Sequence[str]], missing: Sequence[str], pool: str = "train", **changes: Any) -> Rollouts:
    """Waves of which the first that misses somebody is open. `bake` in minutes."""
    bake, halted = changes.pop("bake", 10.0), changes.pop("halted", "")
    states: list[Wave] = []
    waits: dict[int, Blocked] = {}
    for at, names in enumerate(waves):
        lacks = bool(set(names) & set(missing))
        closed = bool(halted) or any(wave.state is not WaveState.DONE for wave in states)
        if closed:
            waits[at] = Blocked(BlockCode.HALTED if halted else BlockCode.ROLLOUT, "wait")
        state = WaveState.HALTED if halted else WaveState.WAITING if closed else WaveState.OPEN
        states.append(changes.get(f"wave_{at}") or Wave(tuple(names), state if lacks else WaveState.DONE))
    made = RolloutPlan(pool, "d", {}, tuple(states), False, b.NOW, bake * 60, halted=halted)
    kept = Rollout(pool, "d", {}, {}, tuple(n for names in waves for n in names), False, b.NOW, "")
    wave_of = {name: at for at, names in enumerate(waves) for name in names}
    progress = Progress(kept, False, RolloutPolicy(), made, wave_of, waits, frozenset(missing))
    return Rollouts({pool: progress})


def changed(name: str, minutes: float = 30, **changes: Any) -> NodePlan:
    return plan(name, minutes, [Reason.CHANGE], **changes)


def waves(found: Timetable) -> list[tuple[float | None, float | None]]:
    [one] = found.rollouts
    return [(None if w.start is None else since(w.start), None if w.end is None else since(w.end)) for w in one.waves]


def test_a_wave_begins_when_the_last_has_baked() -> None:
    plans = [changed(name) for name in "abcd"]
    found = table(plans, BudgetLimit("fleet", "2"), rollouts=rollout(["a", "bcd"], "abcd"))
    assert minutes(found) == [(0, 30), (40, 70), (40, 70), (70, 100)]
    assert waves(found) == [(0, 40), (40, 110)]


def test_a_wave_that_bakes_holds_the_next_for_the_rest_of_it() -> None:
    baking = Wave(("a",), WaveState.BAKING, end=b.NOW + timedelta(minutes=3))
    found = table([changed("b")], BudgetLimit("fleet", "2"), rollouts=rollout(["a", "b"], "b", wave_0=baking))
    assert minutes(found) == [(3, 33)]
    assert waves(found)[1] == (3, 43)


def test_nobody_can_say_when_a_halted_rollout_goes_on() -> None:
    found = table(
        [changed("a"), plan("b")], BudgetLimit("fleet", "2"), rollouts=rollout(["a", "b"], "ab", halted="why")
    )
    assert minutes(found) == [None, (0, 30)], "what drifted is repaired all the same"
    assert waves(found) == [(None, None), (None, None)]


@pytest.mark.parametrize(
    "canary",
    [
        [],  # nothing is planned for it, or nobody looked at it
        [changed("a", goal=Goal.ISOLATED)],
        [changed("a", goal=Goal.CONVERGED_CORDONED, in_service=False)],
    ],
)
def test_nobody_can_say_when_a_wave_begins_that_waits_for_a_node_that_does_not_come(canary: list[NodePlan]) -> None:
    found = table([*canary, changed("b")], BudgetLimit("fleet", "2"), rollouts=rollout(["a", "b"], "ab"))
    assert minutes(found, "b") == [None]
    assert waves(found)[1] == (None, None)


def test_a_repair_does_not_wait_and_the_change_comes_with_the_wave() -> None:
    both = plan("b", 5, [Reason.DRIFT, Reason.CHANGE], postponed=("image.version",))
    found = table(
        [changed("a"), both, changed("c")], BudgetLimit("fleet", "3"), rollouts=rollout(["a", "b", "c"], "abc")
    )
    assert minutes(found) == [(0, 30), (0, 5), (80, 110)]
    assert [one.node for one in found.later] == ["b"], "the headline counts it among the disrupted"
    assert waves(found) == [(0, 40), (40, 80), (80, 120)], "the change of b is taken to last as long as that of others"


# --- everything at once ----------------------------------------------------------------------------------------------


@st.composite
def planned(draw: st.DrawFn, truth: Nodes) -> list[NodePlan]:
    found = []
    for name, node in truth.active().items():
        if draw(st.integers(0, 5)):
            wait = Blocked(BlockCode.BACKOFF, "", b.NOW + timedelta(minutes=draw(st.integers(1, 200))))
            why = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1))
            found.append(
                plan(
                    name, draw(st.sampled_from([0, 5, 30, 45, 300])), why,
                    pool=node.pool, in_service=name not in truth.out, harmless=draw(st.sampled_from([0, 10])),
                    blocked=draw(st.sampled_from([None, None, wait])),
                    goal=draw(st.sampled_from([Goal.IN_SERVICE, Goal.IN_SERVICE, Goal.ISOLATED])),
                )
            )  # fmt: skip
    return [one for one in found if one.actions]


@given(st.data())
def test_timetable_exceeds_no_limit_and_wastes_no_room(data: Any) -> None:
    """At no moment is a limit exceeded, and nobody waits whom none forbids to go: an oracle of its own says so."""
    truth = data.draw(fleets())
    usual = st.tuples(*(st.builds(BudgetLimit, st.just(s), st.sampled_from("123")) for s in ("fleet", "pool", "rack")))
    declared = tuple(data.draw(st.one_of(usual, st.lists(limits(), max_size=3))))
    floors = tuple(data.draw(st.lists(st.builds(Floor, st.sampled_from(["t", "i"]), shares), max_size=1)))
    told = data.draw(st.one_of(st.just(()), windows(st.just("Asia/Kolkata"))))
    plans = data.draw(planned(truth))
    found = table(
        plans, *declared, told=told, nodes=truth.nodes, out=sorted(truth.out), floors=floors,
        control_plane=truth.control_plane(),
    )  # fmt: skip
    effective = declared or (BudgetLimit("fleet", "1"),)
    peak = len(truth.out & truth.active().keys())
    waiting = {one.node: one for one in plans if takes_out(one)}
    moments = sorted({at for one in found.nodes.values() for at in (one.start, one.end) if at is not None})

    def open_now(one: NodePlan, now: datetime) -> bool:
        need = int(work(one.actions).need_s // 60)
        return all(allowed(told, one.pool, now + timedelta(minutes=m)) for m in range(need)) or not told

    for now in moments:
        for one in found.nodes.values():
            if one.end == now and one.goal is Goal.IN_SERVICE:
                truth.out.discard(one.node)
        for one in in_order(one for one in waiting.values() if found.nodes[one.node].start == now):
            assert not truth.breaks(one.node, set(reasons(one)), now, effective, floors)
            assert open_now(one, now)
            del waiting[one.node]
            truth.out.add(one.node)
            truth.taken.append((now, one.node))
        peak = max(peak, len(truth.out & truth.active().keys()))
        for one in waiting.values():
            paused = one.blocked is not None and one.blocked.until is not None and one.blocked.until > now
            if not paused and open_now(one, now) and now < b.NOW + timedelta(days=14):
                assert truth.breaks(one.node, set(reasons(one)), now, effective, floors), (one.node, now)
    assert found.peak == peak


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 30), st.integers(1, 4))
def test_no_wave_begins_before_the_last_has_baked(work: list[int], size: int, bake: int, budget: int) -> None:
    names = [f"n{at:02}" for at in range(len(work))]
    cut = [names[at : at + size] for at in range(0, len(names), size)]
    plans = [changed(name, takes) for name, takes in zip(names, work, strict=True)]
    found = table(plans, BudgetLimit("fleet", str(budget)), rollouts=rollout(cut, names, bake=bake))
    over = 0.0
    for wave, (_, end) in zip(cut, waves(found), strict=True):
        times = [at for at in minutes(found, *wave) if at is not None]
        assert len(times) == len(wave)
        assert min(times)[0] == over, "and as soon as it has"
        over = max(end for _, end in times) + bake
        assert end == over


@given(st.integers(1, 30), st.integers(1, 60), st.integers(1, 10))
def test_equal_work_ends_no_later_with_more_budget(count: int, takes: int, budget: int) -> None:
    plans = [plan(f"n{at}", takes) for at in range(count)]
    less, more = (table(plans, BudgetLimit("fleet", str(limit))).finish_s for limit in (budget, budget + 1))
    assert more <= less == -(-count // budget) * takes * 60


def test_unequal_work_may_end_later_with_more_budget() -> None:
    """Nodes begin greedily, in order: what begins earlier may take the place that a longer one needs (Graham)."""
    drawn = {"a": (3, 2, 30), "b": (2, 3, 30), "c": (2, 2, 60), "d": (1, 2, 10), "e": (3, 1, 20)}
    nodes = {name: b.node(name, pool=f"p{p}", domains={"rack": f"r{r}"}) for name, (p, r, _) in drawn.items()}
    plans = [plan(name, takes, pool=nodes[name].pool) for name, (_, _, takes) in drawn.items()]
    others = (BudgetLimit("rack", "1"), BudgetLimit("pool", "1"))
    ends = [table(plans, BudgetLimit("fleet", limit), *others, nodes=nodes).finish_s / 60 for limit in ("2", "3")]
    assert ends == [100, 110]


@given(st.data())
def test_timetable_is_deterministic(data: Any) -> None:
    truth = data.draw(fleets())
    declared = tuple(data.draw(st.lists(limits(), max_size=3)))
    plans = data.draw(planned(truth))
    again = [
        table(plans, *declared, nodes=truth.nodes, out=out)
        for out in (sorted(truth.out), sorted(truth.out, reverse=True))
    ]
    assert again[0] == again[1]


def test_many_nodes_take_little_time() -> None:
    """Grows with the nodes, not with their square: ten thousand, in racks that may lose one each."""
    found, work = worked_out(10_000)
    assert all(one.end for one in found.nodes.values())
    assert found.peak == 1000
    _, of_half = worked_out(5_000)
    assert work < 2.2 * of_half


def worked_out(many: int) -> tuple[Timetable, int]:
    """Return what becomes of so many plans, and how many function calls it costs."""
    names = [f"n{at:05}" for at in range(many)]
    nodes = {name: b.node(name, pool=f"p{at % 4}", domains={"rack": f"r{at // 8}"}) for at, name in enumerate(names)}
    random.Random(7).shuffle(names)
    plans = [plan(name, pool=nodes[name].pool) for name in names]
    return calls(lambda: table(plans, BudgetLimit("fleet", "10%"), BudgetLimit("rack", "1"), nodes=nodes))
