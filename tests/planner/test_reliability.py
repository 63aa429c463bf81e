"""Rungs that healed, times, failure rates, objectives, spares and lemon scores, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model import desired as d
from reconciler.model.period_report import ILL, Episode, Past, StatusInterval
from reconciler.model.records import ISOLATED, Attempt
from reconciler.model.reliability import Reliability
from reconciler.model.status import NodeStatus
from reconciler.planner.fleet.rates import poisson_limits, spares_for
from reconciler.planner.fleet.reliability import Period, lemon_of, reliability
from tests import builders as b

T0 = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
XID, SLOW, DIMM = "health.xid_79", "health.port_slow", "health.dimm_failed"
LADDER = d.Remediation("standard", (d.Rung("soft_restart", 1), d.Rung("power_cycle", 1)), 86400.0)
PROFILE = b.profile(
    inventory=replace(b.PROFILE.inventory, model="DGX H100", gpus=8, dimms=32), remediation=LADDER
)  # fmt: skip


def at(hour: float) -> datetime:
    return T0 + hour * HOUR


def shown(node: str, path: str, since: float, until: float | None, kind: str = "drifted") -> Episode:
    return Episode(node, path, kind, at(since), None if until is None else at(until))


def rung(action: str, start: float, end: float, cause: str = "remediation", outcome: str = "done") -> Attempt:
    return Attempt(action, "", cause, at(start), outcome, ended_at=at(end))


def fleet(many: int = 4, objective: float | None = None) -> d.Fleet:
    nodes = {
        f"n{at}": b.node(f"n{at}", profile=PROFILE, persona="training", domains={"rack": "r1"}) for at in range(many)
    }
    objectives = {} if objective is None else {"training": objective}
    return d.Fleet(b.SETTINGS, d.SpecSource("spec"), nodes, "d", objectives=objectives)


def served(node: str, *outs: tuple[float, float], until: float = 100) -> list[StatusInterval]:
    """In service but for `outs`, in which it is ill."""
    found, begin = [], 0.0
    for since, end in outs:
        found.append(StatusInterval(node, "p", NodeStatus.CONVERGED, False, at(begin), at(since), at(since)))
        found.append(StatusInterval(node, "p", NodeStatus.ACTING, True, at(since), at(end), at(end), ILL, "ill"))
        begin = end
    return [*found, StatusInterval(node, "p", NodeStatus.CONVERGED, False, at(begin), at(until))]


def told(
    episodes: tuple[Episode, ...] = (),
    attempts: Mapping[str, tuple[Attempt, ...]] | None = None,
    intervals: list[StatusInterval] | None = None,
    *,
    of: d.Fleet | None = None,
    lead_s: float | None = None,
) -> Reliability:
    some = of or fleet()
    intervals = intervals if intervals is not None else [one for name in some.nodes for one in served(name)]
    past = Past(tuple(intervals), episodes, (), dict.fromkeys(some.nodes, at(0)), 0, attempts or {})
    return reliability(Period(some, past, at(0), at(100), past, lead_s))


# --- rungs -----------------------------------------------------------------------------------------------------------


def test_the_rung_after_which_a_signal_is_gone_has_healed_it() -> None:
    made = told(
        (shown("n0", XID, 1, 5), shown("n1", XID, 1, 3), shown("n2", XID, 1, None)),
        {
            "n0": (rung("soft_restart", 2, 2.5), rung("power_cycle", 3, 4)),
            "n1": (rung("soft_restart", 2, 2.5),),
            "n2": (rung("soft_restart", 2, 2.5), rung("power_cycle", 3, 4, outcome="refused")),
        },
    )
    tallies = {one.rung: one for one in made.rungs}
    assert {(one.model, one.signal) for one in made.rungs} == {("DGX H100", XID)}
    assert (tallies["soft_restart"].attempts, tallies["soft_restart"].healed) == (3, 1)
    assert (tallies["power_cycle"].attempts, tallies["power_cycle"].healed) == (1, 1), "refused: not tried"
    assert tallies["power_cycle"].heal.mean_s == 2 * 3600
    assert tallies["soft_restart"].take_s == 1800


def test_a_reset_of_the_bmc_is_told_for_the_signal_that_asked_for_it_and_for_no_other() -> None:
    silent = "health.bmc_silent"
    made = told(
        (
            shown("n0", silent, 1, 2.2, "reported"), shown("n0", XID, 1, 3.5),
            shown("n1", silent, 1, None, "reported"),
        ),
        {
            "n0": (rung("reset_bmc_from_host", 2, 2.1, silent), rung("soft_restart", 3, 3.2)),
            "n1": (rung("reset_bmc_from_host", 2, 2.1, silent, "transient"),
                   rung("reset_bmc_from_host", 4, 4.1, silent, "refused")),
        },
    )  # fmt: skip
    assert {(one.signal, one.rung): (one.attempts, one.healed) for one in made.rungs} == {
        (silent, "reset_bmc"): (2, 1),
        (XID, "soft_restart"): (1, 1),
    }


def test_an_order_is_proposed_by_time_over_success_and_only_from_enough_attempts() -> None:
    """A restart of half an hour that heals 1 of 4 takes 2 h for each success, a power cycle of an hour 1 h."""

    def history(nodes: int) -> Reliability:
        episodes: list[Episode] = []
        attempts: dict[str, tuple[Attempt, ...]] = {}
        for number in range(nodes):
            healed = number % 4 == 0
            episodes.append(shown(f"n{number}", XID, 1, 3 if healed else 5))
            second = () if healed else (rung("power_cycle", 3.5, 4.5),)
            attempts[f"n{number}"] = (rung("soft_restart", 2, 2.5), *second)
        return told(tuple(episodes), attempts, of=fleet(nodes))

    (one,) = history(8).proposals
    assert (one.rungs, one.ladder) == (("power_cycle", "soft_restart"), ("soft_restart", "power_cycle"))
    assert history(2).proposals == (), "two nodes prove nothing"


# --- times and rates -------------------------------------------------------------------------------------------------


def test_times_between_to_act_and_to_repair() -> None:
    made = told(
        (shown("n0", XID, 1, 5), shown("n1", XID, 10, 12), shown("n2", XID, 20, None)),
        {
            "n0": (rung("mark", 1.5, 1.5, ISOLATED + XID), rung("power_cycle", 3, 4)),
            "n1": (rung("drain", 11, 11, f"{SLOW}, {XID}"),),
            "n2": (rung("drain", 21, 21, "firmware.bmc"),),
        },
    )
    (one,) = made.signals
    assert (one.failures, one.node_hours) == (3, 400)
    assert one.mtbf_h == pytest.approx(400 / 3)
    assert (one.detect.count, one.detect.mean_s) == (2, (0.5 + 1) / 2 * 3600)
    assert (one.repair.count, one.repair.mean_s) == (2, 3 * 3600)


def test_signals_of_one_part_together_are_one_failure_and_reported_wear_is_none() -> None:
    made = told((
        shown("n0", XID, 1, 5), shown("n0", "health.ecc", 1.2, 4), shown("n0", XID, 50, 51),
        shown("n1", DIMM, 2, None), shown("n1", "health.edac_ce", 30, None, "reported"),
        shown("n2", "health.psu_failed", 3, 9, "reported"),
    ))  # fmt: skip
    parts = {one.part: one for one in made.parts}
    assert (parts["gpu"].failures, parts["gpu"].part_hours) == (2, 8 * 400)
    assert (parts["dimm"].failures, parts["dimm"].part_hours) == (1, 32 * 400)
    assert parts["psu"].failures == 1
    assert parts["gpu"].per_million_h == pytest.approx(2 / 3200 * 1e6)
    assert parts["gpu"].low == pytest.approx(0.24221 / 3200 * 1e6, rel=1e-4)
    assert parts["gpu"].high == pytest.approx(7.22469 / 3200 * 1e6, rel=1e-4)
    assert "drive" in parts, "a part without failures has an upper limit"
    assert parts["drive"].low == 0 < parts["drive"].high


@pytest.mark.parametrize(
    ("count", "low", "high"),  # half the quantiles of chi-square; Ulm 1990, Am. J. Epidemiology 131:373
    [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (5, 1.6235, 11.6683), (10, 4.7954, 18.3904), (100, 81.3640, 121.6268)],
)
def test_limits_of_poisson_counts_are_those_of_the_tables(count: int, low: float, high: float) -> None:
    assert poisson_limits(count)[0] == pytest.approx(low, abs=1e-4)
    assert poisson_limits(count)[1] == pytest.approx(high, abs=1e-4)


def test_the_limits_of_very_many_are_normal_and_join_the_exact_ones() -> None:
    exact, normal = poisson_limits(5000), poisson_limits(5001)
    assert normal[0] == pytest.approx(exact[0], rel=2e-3)
    assert normal[1] == pytest.approx(exact[1], rel=2e-3)


# --- objectives and spares -------------------------------------------------------------------------------------------


def test_an_objective_has_a_budget_that_what_is_out_spends() -> None:
    intervals = [*served("n0", (10, 14)), *served("n1"), *served("n2"), *served("n3")]
    (one,) = told(intervals=intervals, of=fleet(objective=0.98)).objectives
    assert (one.persona, one.nodes, one.observed_h, one.out_h) == ("training", 4, 400, 4)
    assert one.availability == pytest.approx(0.99)
    assert one.budget_h == pytest.approx(8)
    assert one.burn == pytest.approx(0.5)
    (none,) = told(intervals=intervals).objectives
    assert (none.objective, none.budget_h, none.burn) == (None, None, None)
    assert none.availability == pytest.approx(0.99)


def test_spares_cover_what_fails_during_the_lead_time() -> None:
    intervals = [*served("n0", (10, 20)), *served("n1", (15, 25)), *served("n2"), *served("n3")]
    (one,) = told(intervals=intervals, of=fleet(objective=0.95)).spares
    assert (one.failures, one.node_hours, one.lead_s, one.demand) == (2, 400, 36000, 2)
    assert one.out_share == pytest.approx(1 - 2.718281828 ** (-2 / 400 * 10))
    assert one.spares == 1
    assert one.spares_high >= one.spares
    (slow,) = told(intervals=intervals, of=fleet(objective=0.95), lead_s=40 * 3600.0).spares
    assert slow.lead_s == 144000
    assert slow.spares > one.spares
    (calm,) = told(of=fleet()).spares
    assert (calm.failures, calm.spares, calm.demand, calm.target) == (0, 0, 0, 0.99)


@given(st.integers(1, 60), st.floats(0.001, 0.6), st.floats(0.5, 0.999))
def test_spares_are_the_fewest_that_are_enough(nodes: int, share: float, target: float) -> None:
    def covered(spares: int) -> float:
        return sum(comb(nodes, k) * share**k * (1 - share) ** (nodes - k) for k in range(spares + 1))

    found = spares_for(nodes, share, target)
    assert covered(found) >= target - 1e-9
    assert found == 0 or covered(found - 1) < target + 1e-9


def test_a_thousand_nodes_need_what_a_published_fleet_had() -> None:
    """ByteRobust (arXiv 2509.16293) keeps four spares for 1,024 machines, the 99th percentile of what fails at once."""
    assert spares_for(1024, 1.2 / 1024, 0.99) == 4


# --- lemons and incidents --------------------------------------------------------------------------------------------


def test_a_lemon_is_a_node_that_costs_more_and_nothing_else_counts() -> None:
    made = told(
        (shown("n0", XID, 1, 5), shown("n0", SLOW, 30, 31), shown("n1", "health.edac_ce", 1, None, "reported"),
         shown("n2", XID, 1, 2, "ignored"), shown("n3", "firmware.bmc", 1, 2)),
        {"n0": (rung("mark", 1, 1, ISOLATED + XID), rung("power_cycle", 2, 3),
                rung("run_gate", 4, 5, "gate", "permanent")),
         "n3": (rung("mark", 1, 1, "firmware.bmc"), rung("run_gate", 2, 3, "gate"))},
    )  # fmt: skip
    (one,) = made.lemons
    assert (one.node, one.isolations, one.repairs, one.gate_failures, one.xids) == ("n0", 1, 1, 1, 1)
    assert one.score == 3 + 2 + 2 + 1 + 1
    assert one.signals == {"persistent": 1}


def test_what_a_rack_caused_is_told_as_its_incident_and_makes_no_lemon() -> None:
    episodes = tuple(shown(f"n{number}", SLOW, 10 + number / 60, 12) for number in range(3))
    attempts = {"n0": (rung("mark", 10.1, 10.1, ISOLATED + SLOW),)}
    made = told(episodes, attempts)
    (one,) = made.incidents
    assert (one.cause, one.scope, one.nodes, one.since, one.until) == (
        "fabric", "rack r1", ("n0", "n1", "n2"), at(10), at(12),
    )  # fmt: skip
    assert made.lemons == ()
    assert all(part.failures == 0 for part in made.parts)
    assert lemon_of(fleet(), Past(episodes=episodes, attempts=attempts), "n0") is None
    alone = Past(episodes=episodes[:1], attempts=attempts)
    lemon = lemon_of(fleet(), alone, "n0")
    assert lemon is not None
    assert lemon.score == 4


def test_two_incidents_of_one_rack_are_two() -> None:
    episodes = tuple(
        shown(f"n{number}", SLOW, begin, begin + 1) for number in range(3) for begin in (10.0, 40.0)
    )  # fmt: skip
    assert [one.since for one in told(episodes).incidents] == [at(10), at(40)]
