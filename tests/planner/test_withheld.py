"""Signs of illness that do not count yet: a port that is down for a moment takes nobody out."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reconciler.diff.ignore import IgnoreRules
from reconciler.health.table import health_table
from reconciler.model.desired import Fleet, SpecSource
from reconciler.model.drift import DriftClass
from reconciler.model.observed import Link, Observation, Observed
from reconciler.model.plan import BlockCode, NodePlan
from reconciler.model.records import LASTS, NodeRecord
from reconciler.model.signal_changes import SignalChange
from reconciler.notify.found import Notice, _judge
from reconciler.planner.fleet.isolation import evidence
from reconciler.planner.fleet.signal_history import signal_updates
from reconciler.planner.fleet.storm import symptom
from tests import builders as b
from tests.properties.test_domain_incidents import OUTSIDE, PROFILE, UP

PATH = "health.port_missing"


def planned(minutes: float | None) -> NodePlan:
    """A node that serves, one of whose ports has been down for so long, as the ledger knows; None: it does not."""
    node = b.node(profile=PROFILE)
    seen = b.observed(host=b.facts(**({"links": (UP,)} | OUTSIDE["port_missing"])))
    since = {} if minutes is None else {LASTS + PATH: b.NOW - timedelta(minutes=minutes)}
    return b.planner().plan(node, seen, replace(b.record(node, seen), silent_since=since))


@pytest.mark.parametrize("minutes", [None, 0, 3.9])
def test_a_port_that_is_down_for_a_moment_takes_nobody_out_and_is_told(minutes: float | None) -> None:
    plan = planned(minutes)
    assert plan.actions == ()
    assert evidence(plan, health_table()) == ()
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.UNDER_WAY
    assert plan.blocked.until == b.NOW + timedelta(minutes=4 - (minutes or 0))
    assert "counts when it has lasted 4m" in plan.blocked.detail
    (item,) = [item for item in plan.drift if item.path == PATH]
    assert item.kind is DriftClass.UNKNOWN


def test_one_that_stays_down_isolates() -> None:
    plan = planned(4)
    assert [item.path for item in plan.illness] == [PATH]
    assert plan.actions[0].name == "mark"
    assert evidence(plan, health_table()) == (PATH,)


def test_a_clock_that_was_ahead_is_taken_for_right() -> None:
    plan = planned(-8 * 60)
    assert plan.blocked is not None
    assert plan.blocked.until == b.NOW + timedelta(minutes=4)


def seen_at(*links: Link) -> Observed:
    return b.observed(host=b.facts(links=links))


def updates(record: NodeRecord, seen: Observed, fleet: Fleet, at: datetime) -> NodeRecord:
    """Return the record after a pass that saw this."""
    observation = Observation("1.0", "t", "", at, at, {seen.node: seen})
    known = dict(record.silent_since)
    for _, key, new in signal_updates(fleet, observation, {seen.node: record}, None, at):
        known.pop(key, None)
        known |= {key: at} if new else {}
    return replace(record, silent_since=known)


@pytest.mark.parametrize("change", [None, SignalChange("port_missing", "on trial", first="drain")])
def test_a_flap_begins_anew_each_time_and_what_lasts_counts_whatever_follows(change: SignalChange | None) -> None:
    profile = replace(PROFILE, health=() if change is None else (change,))
    node = b.node(profile=profile)
    settings = replace(b.SETTINGS, health=profile.health)
    fleet = Fleet(settings, SpecSource("spec"), {node.node: node}, "d")
    well, ill = seen_at(UP), seen_at(*OUTSIDE["port_missing"]["links"])
    record = b.record(node, well)
    for minutes, seen, counts in (
        (0, ill, False),
        (2, ill, False),
        (3, well, False),
        (600, ill, False),
        (605, ill, True),
    ):
        at = b.NOW + timedelta(minutes=minutes)
        record = updates(record, seen, fleet, at)
        plan = b.planner(now=at).plan(node, seen, record)
        assert (any(item.kind is DriftClass.DRIFTED for item in plan.illness)) is counts, minutes


def test_a_port_that_may_be_back_in_a_moment_makes_no_storm_and_no_message() -> None:
    node, ill = b.node(profile=PROFILE), seen_at(*OUTSIDE["port_missing"]["links"])
    assert symptom(node, ill, IgnoreRules((), b.NOW)) == ""
    assert not isinstance(_judge(planned(0), ill), Notice)


def test_a_node_that_is_out_waits_for_it_and_is_not_admitted() -> None:
    node = b.node(profile=PROFILE)
    host = b.facts(**({"links": (UP,)} | OUTSIDE["port_missing"]))
    plan = b.planner().plan(node, b.observed(host=host, member=b.member(mark=b.our_mark())), b.record(node))
    assert "admit" not in b.actions(plan)
