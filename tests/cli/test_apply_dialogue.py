"""What a person at a terminal agrees to: `y` for little, a typed sentence for what restarts many nodes."""

from __future__ import annotations

from dataclasses import replace

import click
import pytest

from reconciler.cli import apply_dialogue
from reconciler.model.plan import Plan
from reconciler.model.vocab import Disruption
from reconciler.render.plan_summary import summary
from tests.conftest import ROOT
from tests.golden.plans import read


@pytest.fixture(scope="module")
def plan() -> Plan:
    return read(ROOT / "tests/golden/rollout_canary.yaml").plan()


def many(plan: Plan, level: Disruption, number: int) -> Plan:
    """Return a plan for so many nodes, of which the actions that disrupt have this level."""
    first = next(node for node in plan.nodes.values() if node.disruption)
    actions = tuple(replace(one, disruption=level) if one.disruption else one for one in first.actions)
    nodes = {f"n{n}": replace(first, node=f"n{n}", actions=actions) for n in range(number)}
    return replace(plan, nodes=nodes, totals=replace(plan.totals, nodes_with_changes=number))


@pytest.mark.parametrize(
    ("level", "number", "sentence"),
    [
        (Disruption.REIMAGE, 60, "reimage 60"),
        (Disruption.POWER_CYCLE, 11, "power cycle 11"),
        (Disruption.REIMAGE, 10, ""),
        (Disruption.DRAIN, 60, ""),
    ],
)
def test_many_nodes_need_a_sentence(plan: Plan, level: Disruption, number: int, sentence: str) -> None:
    assert apply_dialogue.sentence_for(many(plan, level, number)) == sentence


@pytest.mark.parametrize("answer", ["y", "yes", "reimage", "reimage 6", "Reimage 60", "reimage 600"])
def test_anything_else_ends_it(plan: Plan, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    asked: list[str] = []

    def answered(text: str, **_: object) -> str:
        asked.append(text)
        return answer

    monkeypatch.setattr(click, "prompt", answered)
    with pytest.raises(click.Abort):
        apply_dialogue.confirm(many(plan, Disruption.REIMAGE, 60))
    assert asked == ["Type 'reimage 60' to apply this"]


def test_the_sentence_applies_it(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click, "prompt", lambda _text, **_: "reimage 60")
    monkeypatch.setattr(click, "confirm", lambda _text, **_: pytest.fail("asked twice"))
    apply_dialogue.confirm(many(plan, Disruption.REIMAGE, 60))


def test_a_summary_counts_and_names_no_step(plan: Plan) -> None:
    text = summary(plan)
    assert text.startswith(f"Plan {plan.id} for fleet golden: ")
    assert "  pool  nodes  to change  power cycle  reboot\n  a     8      8          1            7\n" in text
    assert "\nNodes held back:\n  pool  nodes  by\n  a     6      rollout\n" in text
    assert "soft_restart" not in text
    assert len(summary(many(plan, Disruption.REIMAGE, 1000)).splitlines()) <= len(text.splitlines()) + 2
