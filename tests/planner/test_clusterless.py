"""Nodes without a cluster: nobody but the ledger knows that they were drained, and that they serve again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from reconciler.model.desired import Desired, DrainPolicy
from reconciler.model.observed import Observed, Xid
from reconciler.model.plan import Goal, NodePlan
from reconciler.model.records import Attempt
from reconciler.model.vocab import DrainProvider
from tests import builders as b

ALONE = replace(b.SETTINGS, cluster=None)
NODE = b.node(profile=b.profile(membership=None, drain=DrainPolicy(DrainProvider.COMMAND, command=("drain-jobs",))))
SEEN = b.observed(member=b.silent("not_asked"))


def done(*actions: str, end: str = "done") -> tuple[Attempt, ...]:
    starts = [b.NOW - timedelta(hours=9) + timedelta(minutes=at) for at in range(len(actions))]
    ends = ["done"] * (len(actions) - 1) + [end]
    return tuple(
        Attempt(action, "", "", at, outcome, "", at) for action, at, outcome in zip(actions, starts, ends, strict=True)
    )


def plan(seen: Observed, *attempts: Attempt, node: Desired = NODE) -> NodePlan:
    return b.planner(settings=ALONE).plan(node, seen, b.record(node, b.observed(), attempts=attempts))


def test_a_node_that_was_never_touched_serves() -> None:
    made = plan(SEEN)
    assert (made.in_service, b.actions(made)) == (True, [])


def test_a_drained_node_that_is_well_again_is_admitted_and_serves() -> None:
    before = plan(SEEN, *done("drain", "soft_restart", "run_gate"))
    assert (before.in_service, b.actions(before)) == (False, ["admit"])
    after = plan(SEEN, *done("drain", "soft_restart", "run_gate", "admit"))
    assert (after.in_service, b.actions(after)) == (True, [])


def test_a_drain_of_long_ago_is_no_leave_to_disrupt_what_runs_now() -> None:
    old = tuple(replace(one, at=one.at - timedelta(days=40)) for one in done("drain", "set_bios", "run_gate", "admit"))
    wanted = replace(NODE, profile=b.profile(membership=None, drain=NODE.profile.drain, bios={"New": "On"}))
    seen = b.observed(member=b.silent("not_asked"), inventory=b.inventory(bios={"New": "Off"}))
    actions = b.actions(plan(seen, *old, node=wanted))
    assert actions[0] == "drain", actions
    assert actions[-1] == "admit"


def test_a_failed_admission_ends_nothing() -> None:
    made = plan(SEEN, *done("drain", "run_gate", "admit", end="transient"))
    assert made.in_service is False


def test_a_plan_that_drains_ends_with_an_admission_and_one_drain_is_for_one_time() -> None:
    """Without an admission, the drain of a month ago counted for ever: the next reboot asked nobody."""
    wanted = replace(NODE, profile=b.profile(membership=None, drain=NODE.profile.drain, bios={"New": "On"}))
    seen = b.observed(member=b.silent("not_asked"), inventory=b.inventory(bios={"New": "Off"}))
    made = plan(seen, node=wanted)
    assert (b.actions(made)[0], b.actions(made)[-1], made.in_service) == ("drain", "admit", True)


def test_an_ill_node_is_drained_as_there_is_no_mark_and_then_left_to_a_person() -> None:
    """Before, no sequence of actions isolated it, and it stayed in service."""
    ill = b.observed(member=b.silent("not_asked"), host=b.facts(xids=(Xid(79, "0000:01:00", 1),)))
    node = replace(NODE, profile=replace(NODE.profile, remediation=None))
    before = plan(ill, node=node)
    assert (before.in_service, before.goal, b.actions(before)) == (True, Goal.ISOLATED, ["drain"])
    after = plan(ill, *done("drain"), node=node)
    assert (after.in_service, after.goal, b.actions(after)) == (False, Goal.ISOLATED, [])
    well = plan(SEEN, *done("drain"), node=node)
    assert b.actions(well)[-1] == "admit"
