"""Equal work and equal drift are told once, however much the measured values differ."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import BlockCode, Blocked, Goal, NodePlan, PlannedAction
from reconciler.model.vocab import Certainty, Concern, Disruption
from reconciler.render.drift import grouped
from reconciler.render.measured import range_of, wording
from reconciler.render.plan import human
from tests.render.test_plan import node, plan


def sick(name: str, text: str, **changes: Any) -> NodePlan:
    sign = DriftItem(name, Concern.HEALTH, "health.sensor_critical", DriftClass.DRIFTED, "absent", text)
    action = PlannedAction(
        "reimage", "", Concern.IMAGE, (f"unhealthy ({text})",), Disruption.REIMAGE, 600.0, Certainty.EXACT, (), ()
    )
    fields: dict[str, Any] = {"drift": (sign,), "actions": (action,), "situation": f"unhealthy ({text})"}
    return node(name, **(fields | changes))


def test_twelve_nodes_that_differ_in_a_temperature_are_one_entry() -> None:
    nodes = [sick(f"n{at:02}", f"1 of 24 sensors are critical: CPU0 at {61 + at % 28} Cel") for at in range(12)]
    text = human(plan(*nodes))
    assert text.count(": up to reimage") == 1
    assert "n[00-11] (12) [a]: up to reimage" in text
    assert "health.sensor_critical: 1 of 24 sensors are critical: CPU0 at 61 to 72 Cel -> absent" in text
    assert "unhealthy (1 of 24 sensors are critical: CPU0 at 61 to 72 Cel)" in text


def test_what_holds_them_back_is_one_row() -> None:
    def held(name: str, degrees: int) -> NodePlan:
        why = f"unhealthy (CPU0 at {degrees} Cel); the ladder's attempts are used up"
        return sick(name, f"CPU0 at {degrees} Cel", actions=(), blocked=Blocked(BlockCode.ATTEMPTS, why), wave=None,
                    goal=Goal.ISOLATED)  # fmt: skip

    text = human(plan(held("n1", 61), held("n2", 88)))
    assert "n[1-2]  attempts" in text
    assert "unhealthy (CPU0 at 61 to 88 Cel); the ladder's attempts are used up" in text


def test_the_same_drift_is_one_row_and_values_of_the_spec_are_none_of_it() -> None:
    def item(name: str, concern: Concern, path: str, found: str) -> DriftItem:
        return DriftItem(name, concern, path, DriftClass.DRIFTED, "x", found)

    [row] = grouped(item(f"n{v}", Concern.GATE, "gate.certificate", f"nccl: busbw {v}.5 < 480") for v in (441, 463))[
        DriftClass.DRIFTED
    ]
    assert (row.item.observed, row.nodes) == ("nccl: busbw 441.5 to 463.5 < 480", ["n441", "n463"])
    rows = grouped(item(f"n{v}", Concern.FIRMWARE, "firmware.bmc", f"{v}") for v in (2.2, 2.3))[DriftClass.DRIFTED]
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["GPU 3: 17 of 18 NVLinks are up", "GPU 3: 12 of 18 NVLinks are up"], "GPU 3: 12 to 17 of 18 NVLinks are up"),
        (["expired: issued 91d3h ago", "expired: issued 90d ago"], "expired: issued 90d to 91d3h ago"),
        (["at -4 Cel", "at -11.5 Cel"], "at -11.5 to -4 Cel"),
        (["9 errors", "10 errors"], "9 to 10 errors"),
    ],
)
def test_a_range_is_in_the_order_of_its_values(texts: list[str], told: str) -> None:
    assert range_of(texts) == told


@pytest.mark.parametrize(
    ("one", "other"),
    [("XID 79", "XID 74"), ("GPU 3: lost", "GPU 5: lost"), ("10.0.0.1:22 is silent", "10.0.0.2:22 is silent"),
     ("since 2026-11-21 10:00 UTC", "since 2026-11-22 10:00 UTC"), ("kernel 6.8.0-48", "kernel 6.8.0-49")],
)  # fmt: skip
def test_names_addresses_versions_and_instants_are_no_measurements(one: str, other: str) -> None:
    assert wording(one) != wording(other)


@given(st.lists(st.text(alphabet="ab C1.-:3 d\0;<", max_size=12), min_size=1, max_size=4))
def test_texts_of_one_wording_always_have_a_range(texts: list[str]) -> None:
    same = [text for text in texts if wording(text) == wording(texts[0])]
    assert wording(range_of(same[:1])) == wording(texts[0])
    assert isinstance(range_of(same), str)
