"""Rollouts as values: who goes when, and what holds whom back. How members come about is tested elsewhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import Desired, Fleet, RolloutPolicy, SpecSource
from reconciler.model.outcome import UNPREPARED
from reconciler.model.plan import BlockCode, PlannedAction, RolloutPlan, WaveState
from reconciler.model.records import Attempt, Hold, NodeRecord, Rollout
from reconciler.model.vocab import Certainty, Concern, Disruption
from reconciler.planner.fleet.rollout_member import RolloutMember
from reconciler.planner.fleet.rollouts import Progress, canaries_first, rollouts
from reconciler.planner.node.backoff import backing_off
from reconciler.planner.node.goals import failed_often
from reconciler.planner.node.holds import by_subject
from tests import builders as b

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CHANGE = {"image.version": ("2", "1")}
POLICY = RolloutPolicy(("1", "10%", "50%", "100%"), bake_s=600.0)


def node(at: int, rack: int, leaf: int = 0, pool: str = "train") -> Desired:
    return b.node(f"n{at:03}", pool=pool, domains={"rack": f"r{rack}", "leaf": f"r{rack}-l{leaf}"})


def fleet(nodes: list[Desired], policy: RolloutPolicy = POLICY) -> Fleet:
    by_name = {one.node: one for one in nodes}
    return Fleet(b.SETTINGS, SpecSource("spec", "c0ffee"), by_name, "digest", rollouts={"train": policy})


def waiting(name: str, **changes: Any) -> RolloutMember:
    found = RolloutMember(name, CHANGE, "has image.version still to change", None, True, False, NodeRecord(name))
    return replace(found, **changes)


def well(name: str, since: datetime = NOW - timedelta(hours=1)) -> RolloutMember:
    return RolloutMember(name, {}, "", since, True, False, NodeRecord(name))


def broken(name: str, at: datetime = NOW) -> RolloutMember:
    attempt = Attempt("run_gate", "", "gate", at, "permanent", "nccl: busbw 300 < 440", at)
    record = NodeRecord(name, attempts=(attempt,))
    return RolloutMember(name, {}, "has no valid certificate", None, False, False, record)


def begun(nodes: list[Desired], **changes: Any) -> Rollout:
    members = tuple(canaries_first(nodes, {one.node: waiting(one.node) for one in nodes}))
    values, before = {"image.version": ("2",)}, {"image.version": ("1",)}
    found = Rollout("train", "d", values, before, members, False, NOW - timedelta(hours=2), "c0ffee")
    return replace(found, **changes)


def progress(nodes: list[Desired], members: Mapping[str, RolloutMember], kept: Rollout | None, **more: Any) -> Progress:
    found = rollouts(
        fleet(nodes, more.get("policy", POLICY)), members, {"train": kept} if kept else {},
        by_subject((), more.get("holds", ())), NOW,
    )  # fmt: skip
    return found.by_pool["train"]


def look(nodes: list[Desired], members: Mapping[str, RolloutMember], kept: Rollout | None, **more: Any) -> RolloutPlan:
    return progress(nodes, members, kept, **more).plan


RACKS = [node(at, rack=at // 10) for at in range(60)]
ORDER = begun(RACKS).members


# --- canaries ------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.booleans()), min_size=1, max_size=30), st.randoms())
def test_who_goes_first_is_healthy_and_far_apart(places: list[tuple[int, int, bool]], chance: random.Random) -> None:
    nodes = [node(at, rack, leaf) for at, (rack, leaf, _) in enumerate(places)]
    members = {one.node: waiting(one.node, healthy=healthy) for one, (_, _, healthy) in zip(nodes, places, strict=True)}
    order = canaries_first(nodes, members)
    assert sorted(order) == sorted(members)
    healthy = [members[name].healthy for name in order]
    assert healthy == sorted(healthy, reverse=True)
    by_name = {one.node: one for one in nodes}
    for part in (True, False):
        racks = [by_name[name].domains["rack"] for name in order if members[name].healthy is part]
        different = len(set(racks))
        assert len(set(racks[:different])) == different, "each rack once before any twice"
    shuffled = chance.sample(nodes, len(nodes))
    assert canaries_first(shuffled, members) == order


def test_the_share_of_a_wave_is_rounded_up_and_the_rest_goes_last() -> None:
    plan = look(RACKS, {one.node: waiting(one.node) for one in RACKS}, None)
    assert [len(wave.nodes) for wave in plan.waves] == [1, 5, 24, 30]
    few = RACKS[:3]
    assert [len(w.nodes) for w in look(few, {o.node: waiting(o.node) for o in few}, None).waves] == [1, 1, 1]
    partly = replace(POLICY, waves=("2", "50%"))
    plan = look(RACKS, {one.node: waiting(one.node) for one in RACKS}, None, policy=partly)
    assert [len(wave.nodes) for wave in plan.waves] == [2, 28, 30]


# --- waves ---------------------------------------------------------------------------------------------------------

KINDS = {
    "waiting": waiting, "well": well, "fresh": lambda name: well(name, NOW - timedelta(minutes=5)), "broken": broken,
}  # fmt: skip


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=60, max_size=60), st.integers(0, 3))
def test_no_wave_is_overtaken(kinds: list[str], allowed: int) -> None:
    members = {name: KINDS[kind](name) for name, kind in zip(ORDER, kinds, strict=True)}
    members[ORDER[-1]] = waiting(ORDER[-1])
    found = progress(RACKS, members, begun(RACKS), policy=replace(POLICY, max_failures=allowed))
    failed = [name for name, one in members.items() if one.failed_since(begun(RACKS).started_at)]
    assert bool(found.plan.halted) == (len(failed) > allowed)
    before: list[str] = []
    for at, wave in enumerate(found.plan.waves):
        may_go = at not in found.waits
        proven = all(
            one.failed_since(begun(RACKS).started_at)
            or (one.since is not None and one.since + timedelta(minutes=10) <= NOW)
            for one in map(members.__getitem__, before)
        )
        assert may_go == (proven and not found.plan.halted)
        before += wave.nodes


def test_the_next_wave_opens_when_the_last_has_baked() -> None:
    [canary, *rest] = ORDER
    others = {name: waiting(name) for name in rest}
    baking = look(RACKS, {canary: well(canary, NOW - timedelta(minutes=9)), **others}, begun(RACKS))
    assert [wave.state for wave in baking.waves[:3]] == [WaveState.BAKING, WaveState.WAITING, WaveState.WAITING]
    assert baking.waves[0].end == NOW + timedelta(minutes=1)
    found = progress(RACKS, {canary: well(canary, NOW - timedelta(minutes=10)), **others}, begun(RACKS))
    assert [wave.state for wave in found.plan.waves[:3]] == [WaveState.DONE, WaveState.OPEN, WaveState.WAITING]
    assert found.waits.keys() == {2, 3}
    assert found.waits[2].code is BlockCode.ROLLOUT


# --- halted --------------------------------------------------------------------------------------------------------


def test_a_halt_says_why_and_what_would_resume_it() -> None:
    [canary, *rest] = ORDER
    members = {canary: broken(canary), **{name: waiting(name) for name in rest}}
    plan = look(RACKS, members, begun(RACKS))
    assert "pool train is halted: 1 failed, 0 may" in plan.halted
    assert "nccl: busbw 300 < 440" in plan.halted
    assert any(f"reconciler hold {canary}" in way for way in plan.resume)
    assert any("maxFailures of NodePool train, 1 or more" in way for way in plan.resume)
    allowed = look(RACKS, members, begun(RACKS), policy=replace(POLICY, max_failures=1))
    assert allowed.halted == ""
    assert allowed.waves[1].state is WaveState.OPEN


def test_what_failed_before_it_began_halts_nothing() -> None:
    [canary, *rest] = ORDER
    old = broken(canary, NOW - timedelta(hours=3))
    assert look(RACKS, {canary: old, **{name: waiting(name) for name in rest}}, begun(RACKS)).halted == ""


def test_a_drain_that_waits_for_what_is_of_others_halts_nothing() -> None:
    [canary, *rest] = ORDER
    waits = waiting(canary, record=NodeRecord(canary, attempts=refused_drains(12)))
    assert look(RACKS, {canary: waits, **{name: waiting(name) for name in rest}}, begun(RACKS)).halted == ""


def test_it_is_tried_again_for_days_after_pauses_that_grow_to_four_hours() -> None:
    [canary, *_] = ORDER
    drain = PlannedAction("drain", "", Concern.CLUSTER, (), Disruption.DRAIN, 60.0, Certainty.EXACT, (), ())
    pauses = []
    for times in range(1, 13):
        record = NodeRecord(canary, attempts=refused_drains(times))
        found = backing_off(record, [drain], (), NOW)
        assert found is not None
        assert found.until is not None
        assert "was refused" in found.detail
        pauses.append((found.until - NOW).total_seconds())
        assert not failed_often(record, "drain", "", NOW)
    assert 240.0 <= pauses[0] < pauses[1] < pauses[2] < pauses[3]
    assert all(4 * 3600.0 <= pause <= 5 * 3600.0 for pause in pauses[3:])


def refused_drains(times: int) -> tuple[Attempt, ...]:
    """Drains under marks that were lifted again, as each of them was refused."""
    detail = f"{UNPREPARED}Deployment ml/llama: Argo CD sets its replicas back"
    pair = (Attempt("mark", "", "", NOW, "done", "", NOW), Attempt("drain", "", "", NOW, "refused", detail, NOW))
    return pair * times


def test_a_failed_node_that_was_repaired_lets_it_go_on() -> None:
    [canary, *rest] = ORDER
    mended = replace(well(canary), record=broken(canary).record)
    assert look(RACKS, {canary: mended, **{name: waiting(name) for name in rest}}, begun(RACKS)).halted == ""


def test_a_node_that_is_ill_beyond_repair_before_its_turn_is_left_out() -> None:
    [canary, *rest] = ORDER
    members = {name: waiting(name) for name in rest} | {canary: waiting(canary, isolated=True, healthy=False)}
    plan = look(RACKS, members, begun(RACKS))
    assert plan.left_out == (canary,)
    assert plan.waves[0].nodes == (rest[0],)


# --- who comes and goes in the middle ------------------------------------------------------------------------------


def test_a_held_canary_is_replaced_by_the_next() -> None:
    held = Hold(1, ORDER[0], "under test", "ops", NOW)
    members = {name: waiting(name) for name in ORDER}
    plan = look(RACKS, members, begun(RACKS), holds=(held,))
    assert plan.waves[0].nodes == (ORDER[1],)
    assert plan.left_out == (ORDER[0],)
    over = replace(held, until=NOW - timedelta(seconds=1))
    assert look(RACKS, members, begun(RACKS), holds=(over,)).waves[0].nodes == (ORDER[0],)


def test_nodes_that_are_added_go_last() -> None:
    early = RACKS[:50]
    kept = begun(early)
    plan = look(RACKS, {one.node: waiting(one.node) for one in RACKS}, kept)
    assert plan.digest == kept.digest
    added = {one.node for one in RACKS[50:]}
    assert added <= set(plan.waves[-1].nodes)


def test_nodes_that_leave_hold_nobody_up() -> None:
    [canary, *rest] = ORDER
    stay = [one for one in RACKS if one.node != canary]
    plan = look(stay, {name: waiting(name) for name in rest}, begun(RACKS))
    assert plan.left_out == (canary,)
    assert plan.waves[0].nodes == (rest[0],)


# --- another change ------------------------------------------------------------------------------------------------


def test_another_change_supersedes() -> None:
    kept = begun(RACKS)
    half = {
        name: waiting(name, pending={"image.version": ("3", "2" if at < 6 else "1")},
                      record=NodeRecord(name)) for at, name in enumerate(ORDER)
    }  # fmt: skip
    found = progress(RACKS, half, kept)
    assert found.new
    assert not found.rollout.rollback
    assert found.rollout.values == {"image.version": ("3",)}
    assert found.rollout.before == {"image.version": ("1", "2")}
    assert found.plan.waves[0].state is WaveState.OPEN


def test_the_way_back_is_a_rollback_and_the_way_forth_again_is_not() -> None:
    kept = begun(RACKS)
    moved = ORDER[:6]
    members = {name: well(name) for name in ORDER} | {
        name: waiting(name, pending={"image.version": ("1", "2")}) for name in moved
    }
    back = progress(RACKS, members, kept)
    assert back.new
    assert back.rollout.rollback
    assert [len(wave.nodes) for wave in back.plan.waves] == [1, 5]
    assert back.plan.bake_s == 0.0
    again = progress(RACKS, {name: waiting(name) for name in ORDER}, back.rollout)
    assert again.new
    assert not again.rollout.rollback


@pytest.mark.parametrize("value", [["a", "b"], {"k": 1}, 7, None])
def test_values_of_any_kind_are_the_same_change_after_they_were_kept(value: Any) -> None:
    nodes = RACKS[:3]
    members = {one.node: waiting(one.node, pending={"boot.order": (value, "x")}) for one in nodes}
    first = progress(nodes, members, None)
    assert not progress(nodes, members, first.rollout).new


def test_pools_roll_apart() -> None:
    other = [node(at, rack=0, pool="serve") for at in range(100, 104)]
    members = {one.node: waiting(one.node) for one in (*RACKS, *other)}
    members[ORDER[0]] = broken(ORDER[0])
    found = rollouts(fleet([*RACKS, *other]), members, {"train": begun(RACKS)}, {}, NOW)
    assert Counter(bool(one.halted) for one in found.plans) == {True: 1, False: 1}
    assert found.by_pool["serve"].waits.keys() == {1, 2}
