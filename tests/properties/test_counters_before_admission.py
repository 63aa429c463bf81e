"""No node is admitted whose counters of errors rise again, or were not watched, since the boot that treated it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import Rung
from reconciler.model.observed import Answered, Observed
from reconciler.model.plan import NodePlan
from reconciler.model.records import Mark, NodeRecord
from reconciler.planner.fleet.signal_history import kept_signals
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.counted import WATCHED_S
from tests import builders as b

assert b.PROFILE.remediation is not None
LADDER = (Rung("soft_restart", 1), Rung("power_cycle", 1))
NODE = b.node(profile=b.profile(remediation=replace(b.PROFILE.remediation, ladder=LADDER)))
MARK = Mark(b.LEDGER, "p", "required by soft_restart", b.NOW.isoformat(), cordoned=True)
# Rows that take a node out of service: counter, threshold, window in seconds.
ROWS = (
    ("link_downed", 3, 43200.0), ("symbol_error", 120, 3600.0), ("local_link_integrity_errors", 1, 3600.0),
    ("aer_fatal", 1, 3600.0),
)  # fmt: skip
DEVICE = "mlx5_3/1"


def seen(after_s: float, counter: str, value: int) -> Observed:
    """A drained node in the boot that was its treatment."""
    counts = {DEVICE: {counter: value}} if value else {}
    facts = b.facts(counters=counts, gpu_counters={}, daemon_counters={}, dcgm_counters={}, boot_id="new")
    out = b.observed(member=b.member(mark=MARK, pods=()))
    return replace(out, host=Answered(b.NOW + timedelta(seconds=after_s), facts))


def looked(record: NodeRecord, look: Observed) -> NodeRecord:
    """The record as work on the node leaves it after a look."""
    _, updates = kept_signals(NODE, look, record)
    kept = dict(record.silent_since)
    for key, is_kept in updates:
        kept.pop(key, None)
        if is_kept:
            kept[key] = look.host.at
    return replace(record, silent_since=kept)


def is_admitted_next(plan: NodePlan) -> bool:
    """Whether the plan admits the node without treating it before."""
    for action in plan.actions:
        if action.name == "admit":
            return True
        if spec_of(action.name).destroys_evidence:
            return False
    return False


def plan_after(first: int, rise: int, counter: str, seconds: float) -> NodePlan:
    """The plan of a node whose gate has passed: looked at after the boot, and again so many seconds later."""
    begun = looked(b.record(NODE, seen(0.0, counter, first)), seen(0.0, counter, first))
    later = seen(seconds, counter, first + rise)
    return b.planner().plan(NODE, later, looked(begun, later))


@given(st.sampled_from(ROWS), st.integers(0, 10**6), st.floats(0.0, 86400.0), st.floats(1.0, 100.0))
def test_counters_that_rise_above_their_rate_keep_a_node_out(
    row: tuple[str, int, float], first: int, seconds: float, times: float
) -> None:
    counter, threshold, window = row
    due = threshold * seconds / window
    rise = math.ceil(times * min(threshold * max(1.0, seconds / window), due + 3 * math.sqrt(due) + 3))
    plan = plan_after(first, rise, counter, seconds)
    assert not is_admitted_next(plan)
    assert f"{DEVICE}: " in plan.situation, "with its evidence"
    assert counter in plan.situation
    assert any(spec_of(one.name).destroys_evidence for one in plan.actions), "the ladder goes on"


@given(st.sampled_from(ROWS), st.integers(0, 10**6), st.floats(0.0, WATCHED_S - 1.0))
def test_counters_that_were_not_watched_in_this_boot_keep_a_node_out(
    row: tuple[str, int, float], first: int, seconds: float
) -> None:
    plan = plan_after(first, 0, row[0], seconds)
    assert not is_admitted_next(plan)
    assert plan.blocked is not None
    assert plan.blocked.until is not None, "it is known until when"


@given(st.sampled_from(ROWS), st.integers(0, 10**6), st.floats(WATCHED_S, 43199.0))
def test_counters_that_rest_admit_it(row: tuple[str, int, float], first: int, seconds: float) -> None:
    assert is_admitted_next(plan_after(first, 0, row[0], seconds))
