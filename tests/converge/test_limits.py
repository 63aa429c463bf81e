"""Budgets with rates and reasons, floors, windows, guards and pauses, as apply keeps to them while time passes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model.desired import BreakGlass, BudgetLimit, Floor, Hours, Window
from reconciler.model.errors import Refused
from reconciler.model.limits import Guards
from reconciler.model.plan import BlockCode
from reconciler.model.vocab import Reason, WindowKind
from reconciler.planner.fleet.hours import DAYS
from reconciler.planner.node.workload import work
from tests.converge.world import ALL, PROFILE, World

BIOS = {"n*": ["bios_off"]}
DAILY = tuple(range(len(DAYS)))


@pytest.fixture
def adopted(world: Callable[..., World]) -> Callable[..., World]:
    """Every node has a certificate, so that drift alone leads to work."""

    def build(**differences: Any) -> World:
        here = world(**differences)
        here.adopt()
        return here

    return build


def ends(report: ApplyReport) -> dict[str, Ended]:
    return {name: result.state for name, result in report.results.items()}


def marked_at(report: ApplyReport) -> list[datetime]:
    return sorted(done.started_at for done in report.executed if done.action == "mark")


def window(here: World, kind: str, after_s: float, until_s: float) -> Window:
    """Return a daily window between two times, in seconds from now, rounded down to minutes."""
    begin, end = (here.clock.now() + timedelta(seconds=seconds) for seconds in (after_s, until_s))
    hours = Hours(DAILY, begin.hour * 60 + begin.minute, end.hour * 60 + end.minute, "UTC")
    return Window(WindowKind(kind), hours)


def limited(here: World, **settings: Any) -> Any:
    return replace(here.fleet, settings=replace(here.fleet.settings, **settings))


def test_a_rate_is_kept_over_runs(adopted: Callable[..., World]) -> None:
    rate = (BudgetLimit("fleet", "100%"), BudgetLimit("fleet", "1", per_s=3600.0))
    here = adopted(nodes=3, drift=BIOS, settings={"budgets": rate})
    first = here.apply(wait_s=0.0)
    assert sorted(ends(first).values()) == [Ended.DONE, Ended.NOT_STARTED, Ended.NOT_STARTED]
    assert any("1 of 1 taken out within 1h" in result.detail for result in first.results.values())
    assert here.apply(wait_s=0.0).executed == (), "its node serves again, and the hour is not over"
    second = here.apply(wait_s=4 * 3600.0)
    assert set(ends(second).values()) <= {Ended.DONE, Ended.CONVERGED}
    for before, after in itertools.pairwise([*marked_at(first), *marked_at(second)]):
        assert after - before >= timedelta(hours=1)


def test_a_floor_is_kept_whatever_the_budget_allows(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=4, drift=BIOS, settings={"floors": (Floor("training", "3"),)}, node={"persona": "training"})
    report = here.apply()
    assert set(ends(report).values()) == {Ended.DONE}
    spans = sorted(
        (min(times), max(times))
        for name in here.fleet.nodes
        if (times := [d.started_at for d in report.executed if d.node == name and d.action in ("mark", "admit")])
    )
    assert all(admitted < marked for (_, admitted), (marked, _) in itertools.pairwise(spans))


def test_a_limit_for_another_reason_leaves_drift_to_the_default(adopted: Callable[..., World]) -> None:
    only_changes = (BudgetLimit("fleet", "100%", (Reason.CHANGE,)),)
    here = adopted(nodes=2, drift=BIOS, settings={"budgets": only_changes})
    assert sorted(ends(here.apply(wait_s=0.0)).values()) == [Ended.DONE, Ended.NOT_STARTED]


def test_the_last_members_of_the_control_plane_stay(adopted: Callable[..., World]) -> None:
    """H8. The lab has one more, which the spec does not name: of three, one may go at a time."""
    here = adopted(nodes=2, drift=BIOS, settings={"budgets": ALL})
    assert here.lab.cluster is not None
    for name in here.fleet.nodes:
        here.lab.cluster.node(name).control_plane = True
        here.lab.cluster.modified(name)
    report = here.apply(wait_s=0.0)
    assert sorted(ends(report).values()) == [Ended.DONE, Ended.NOT_STARTED]
    here.lab.cluster.node("control-1").ready = "False"
    here.lab.cluster.modified("control-1")
    refused = here.apply(wait_s=0.0)
    assert refused.executed == ()
    assert any("must stay ready: 1 of 1 others out (control-1)" in end.detail for end in refused.results.values())


def test_nothing_starts_outside_of_its_window_and_all_when_it_opens(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1, drift=BIOS)
    fleet = limited(here, windows=(window(here, "allow", 3600, 7200),))
    assert ends(here.apply(fleet=fleet, wait_s=0.0)) == {"n0": Ended.NOT_STARTED}
    began = here.clock.elapsed
    assert ends(here.apply(fleet=fleet, wait_s=1800.0)) == {"n0": Ended.NOT_STARTED}
    assert here.clock.elapsed - began < 60, "it does not open within that time, so nobody waits for it"
    opens = here.clock.now() + timedelta(seconds=3600)
    report = here.apply(fleet=fleet, wait_s=7200.0)
    assert ends(report) == {"n0": Ended.DONE}
    [at] = marked_at(report)
    assert opens - timedelta(minutes=2) <= at <= opens + timedelta(minutes=2)


def test_breaking_the_glass_opens_all_windows(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1, drift=BIOS)
    glass = BreakGlass("fire", "ops", (here.clock.now() + timedelta(hours=1)).isoformat())
    fleet = limited(here, windows=(window(here, "deny", -3600, 7200),), break_glass=glass)
    assert ends(here.apply(fleet=fleet, wait_s=0.0)) == {"n0": Ended.DONE}


def test_a_node_that_is_out_comes_back_at_any_hour(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1, drift={"n0": ["powered_off"]})
    fleet = limited(here, windows=(window(here, "deny", -3600, 7200),))
    assert ends(here.apply(fleet=fleet)) == {"n0": Ended.DONE}
    assert here.serves("n0")


def test_firmware_is_not_started_when_its_window_has_closed_meanwhile(adopted: Callable[..., World]) -> None:
    """The drain takes longer than thought. The node, to which nothing was done, serves until the next window."""
    patient = replace(PROFILE, digest="patient", drain=replace(PROFILE.drain, timeout_s=1200.0))
    here = adopted(nodes=1, drift={"n0": [{"old_firmware": {"component": "bios"}}]}, profile=patient)
    fleet = limited(here, windows=(window(here, "allow", -600, work(here.plan().nodes["n0"].actions).need_s + 120),))
    assert here.lab.cluster is not None
    for pod in here.lab.cluster.pods("n0"):
        pod.grace_s = 600.0
    report = here.apply(fleet=fleet, wait_s=0.0)
    assert ends(report) == {"n0": Ended.NOT_STARTED}
    assert "does not fit into what is left of" in report.results["n0"].detail
    assert "drain" in here.did("n0")
    assert here.machine("n0").state.counters.flashes == 0
    assert here.serves("n0")
    assert not here.marked("n0")


# --- guards ----------------------------------------------------------------------------------------------------------


def test_a_plan_beyond_a_guard_is_refused_as_a_whole(adopted: Callable[..., World]) -> None:
    drift = {"n0": ["bios_off"], "n1": ["bios_off"], "n2": ["sysctl_off"]}
    here = adopted(nodes=3, drift=drift, settings={"guards": Guards(reboot="1")})
    assert here.plan().refused
    with pytest.raises(Refused, match="would reboot, flash or reimage 2 of 3 nodes, and 1 is the most at once"):
        here.apply()
    assert here.did("n0") == here.did("n1") == here.did("n2") == []
    assert here.plan().nodes["n2"].changes, "harmless things are not done either"
    assert ends(here.apply(selected=["n0"])) == {"n0": Ended.DONE}, "one alone is within it"


def test_a_refused_plan_is_not_applied_even_when_it_was_approved(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=2, drift=BIOS, settings={"guards": Guards(reboot="1")})
    plan = here.plan()
    with pytest.raises(Refused, match=plan.id):
        here.apply(approved=plan, plan_id=plan.id, fleet=limited(here, guards=Guards(reboot="2")))
    assert here.serves("n0")


def test_nodes_are_forgotten_a_few_at_a_time_and_then_for_good(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=4, settings={"guards": Guards(forget="1")})
    here.apply()
    assert here.ledger.known() == ["n0", "n1", "n2", "n3"]
    here.act("mark", "n3")

    def without(*gone: str) -> Any:
        return replace(here.fleet, nodes={n: node for n, node in here.fleet.nodes.items() if n not in gone})

    with pytest.raises(Refused, match=r"would forget 2 of 4 nodes, and 1 is the most at once \(n2, n3\)"):
        here.apply(fleet=without("n2", "n3"))
    assert here.marked("n3"), "nothing is done, marks are not lifted either"
    assert here.apply(fleet=without("n2", "n3"), selected=["n0"]).results, "a run on one node forgets nobody"
    here.apply(fleet=without("n3"))
    assert here.ledger.known() == ["n0", "n1", "n2"]
    assert not here.marked("n3")
    here.apply(fleet=without("n2", "n3"))
    assert here.ledger.known() == ["n0", "n1"]
    assert [entry.event for entry in here.ledger.history("n2")].count("forget") == 1


# --- pauses ----------------------------------------------------------------------------------------------------------


def test_a_drain_that_failed_is_tried_again_after_a_pause_that_grows(adopted: Callable[..., World]) -> None:
    here = adopted(nodes=1, drift=BIOS, faults={"n0": {"pdb_never_yields": {}}})
    here.apply()
    soon = here.plan().nodes["n0"]
    assert soon.blocked is not None
    assert soon.blocked.code is BlockCode.BACKOFF
    assert "drain failed once" in soon.blocked.detail
    assert here.apply(wait_s=0.0).executed == ()
    assert [word for word in here.did("n0") if word.startswith("drain")] == ["drain!transient"]
    here.apply(wait_s=60.0)
    later = here.plan().nodes["n0"].blocked
    assert later is not None
    assert later.code is BlockCode.BACKOFF
    assert later.until is not None
    assert later.until - here.clock.now() > timedelta(seconds=45)
    assert here.serves("n0")
