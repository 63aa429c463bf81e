"""Estimates from history: robust, of like machines where there are enough of them, and never part of a choice."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model import desired as d
from reconciler.model.plan import NodePlan
from reconciler.planner.node.estimates import LEAST, MOST_S, Estimate, Estimates, estimates
from tests import builders as b
from tests import strategies as s

H100 = d.DesiredInventory(manufacturer="Supermicro", model="SYS-821GE", gpus=8)
B200 = replace(H100, model="SYS-A22GA")


def fleet(**hardware: d.DesiredInventory) -> d.Fleet:
    """Nodes by name, each of that hardware."""
    nodes = {name: b.node(name, profile=b.profile(inventory=inventory)) for name, inventory in hardware.items()}
    return d.Fleet(b.SETTINGS, d.SpecSource("spec"), nodes, "digest")


def reimages(node: str, *seconds: float) -> list[tuple[str, str, str, float]]:
    return [(node, "reimage", "", took) for took in seconds]


def test_machines_alike_speak_for_each_other() -> None:
    found = estimates(
        fleet(h1=H100, h2=H100, b1=B200),
        [*reimages("h1", 600, 640), *reimages("h2", 620), *reimages("b1", 1200, 1260, 1230, 1300)],
    )
    assert found.of(H100, "reimage", "") == Estimate(620.0, 640.0, 3, same_hardware=True)
    assert found.of(B200, "reimage", "") == Estimate(1245.0, 1300.0, 4, same_hardware=True)


def test_too_few_runs_on_such_hardware_fall_back_to_any_and_then_to_none() -> None:
    found = estimates(fleet(h1=H100, b1=B200), [*reimages("h1", 600, 610), *reimages("b1", 1200)])
    assert found.of(H100, "reimage", "") == Estimate(610.0, 1200.0, 3, same_hardware=False)
    assert estimates(fleet(h1=H100), reimages("h1", 600, 610)).of(H100, "reimage", "") is None
    assert found.of(H100, "drain", "") is None
    assert Estimates().of(H100, "reimage", "") is None


def test_nodes_that_left_the_spec_still_tell_how_long_actions_take() -> None:
    found = estimates(fleet(h1=H100), reimages("gone", 600, 620, 640))
    assert found.of(H100, "reimage", "") == Estimate(620.0, 640.0, 3, same_hardware=False)


def test_targets_are_told_apart() -> None:
    runs = [("h1", "update_firmware", target, took) for target, took in [("bmc", 300), ("nic0", 60)] * LEAST]
    found = estimates(fleet(h1=H100), runs)
    slow, fast = found.of(H100, "update_firmware", "bmc"), found.of(H100, "update_firmware", "nic0")
    assert slow is not None
    assert fast is not None
    assert (slow.median_s, fast.median_s) == (300.0, 60.0)
    assert found.of(H100, "update_firmware", "") is None


@pytest.mark.parametrize("absurd", [0.0, -600.0, MOST_S + 1, 86400.0 * 365, math.inf, math.nan])
def test_absurd_durations_count_for_nothing(absurd: float) -> None:
    sane = reimages("h1", 600, 620, 640)
    node = fleet(h1=H100)
    assert estimates(node, [*sane, *reimages("h1", *[absurd] * 50)]) == estimates(node, sane)
    assert estimates(node, reimages("h1", 600, 620, absurd)).of(H100, "reimage", "") is None, "two are too few"


def test_one_odd_run_moves_neither_figure_far() -> None:
    """A runner that slept over an action, within the limits of what is believed."""
    steady = [600.0 + at for at in range(20)]
    calm = estimates(fleet(h1=H100), reimages("h1", *steady)).of(H100, "reimage", "")
    odd = estimates(fleet(h1=H100), reimages("h1", *steady, MOST_S)).of(H100, "reimage", "")
    assert calm is not None
    assert odd is not None
    assert abs(odd.median_s - calm.median_s) <= 1
    assert abs(odd.p90_s - calm.p90_s) <= 1


@given(st.lists(st.floats(min_value=0.1, max_value=MOST_S), min_size=LEAST), st.randoms(use_true_random=False))
def test_figures_stay_within_what_was_measured(runs: list[float], random: Any) -> None:
    found = estimates(fleet(h1=H100), reimages("h1", *runs)).of(H100, "reimage", "")
    assert found is not None
    assert round(min(runs), 1) <= found.median_s <= found.p90_s <= round(max(runs), 1)
    assert sum(took <= found.p90_s + 0.05 for took in runs) >= 0.9 * len(runs)
    shuffled = random.sample(runs, len(runs))
    assert estimates(fleet(h1=H100), reimages("h1", *shuffled)).of(H100, "reimage", "") == found


@st.composite
def histories(draw: st.DrawFn) -> Estimates:
    """Whatever history says of the actions of the builders' hardware, as wildly as it likes."""
    known = st.sampled_from(
        ["mark", "drain", "reimage", "soft_restart", "power_cycle", "run_gate", "set_bios", "admit"]
    )
    runs = draw(st.lists(st.tuples(known, st.floats(min_value=0.1, max_value=MOST_S)), max_size=40))
    return estimates(fleet(n=b.PROFILE.inventory), [("n", action, "", took) for action, took in runs])


@given(s.situations(), histories())
def test_history_never_chooses(case: Any, history: Estimates) -> None:
    """DESIGN 7.1, and invariant 13: only the two figures differ, so the same plan stays approved as history grows."""
    wanted, seen, record = case

    def told(found: Estimates) -> NodePlan:
        planner = b.planner()
        planner.estimates = found
        return planner.plan(wanted, seen, record)

    plain, measured = told(Estimates()), told(history)
    assert measured.fingerprint == plain.fingerprint
    same = tuple(
        replace(action, estimate_s=other.estimate_s, p90_s=None)
        for action, other in zip(measured.actions, plain.actions, strict=True)
    )
    assert replace(measured, actions=same) == plain
    for action in measured.actions:
        known = history.of(wanted.profile.inventory, action.name, action.target)
        if known is None:
            assert action.p90_s is None
        else:
            assert (action.estimate_s, action.p90_s) == (known.median_s, known.p90_s)
