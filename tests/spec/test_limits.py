"""What a spec says about how many nodes, when, and how much at most, as the values that planning works with."""

from __future__ import annotations

import pytest

from reconciler.model.desired import BreakGlass, BudgetLimit, Floor, Hours, Reserve, Window
from reconciler.model.errors import SpecError
from reconciler.model.limits import Brake, Guards
from reconciler.model.vocab import Reason, WindowKind
from tests.spec.example import load

SAID = """\
  floor: {training: "50%"}
  spares: {training: 2}
  windows:
  - {kind: allow, from: "22:00", to: "06:00", timezone: Europe/Berlin, pools: [train], reason: nights}
  - {kind: deny, days: [sun, fri], from: "00:00", to: "24:00", timezone: UTC}
  breakGlass: {reason: fire, by: ops, until: 2027-06-30T18:00:00+02:00}
  guards: {reimage: 3, forget: "1%"}
  defaults:"""
NIGHT = Hours((0, 1, 2, 3, 4, 5, 6), 22 * 60, 6 * 60, "Europe/Berlin")


def test_limits_are_resolved() -> None:
    settings = load(("fleet.yaml", "  defaults:", SAID)).settings
    assert settings.floors == (Floor("training", "50%"),)
    assert settings.reserves == (Reserve("training", "2"),)
    assert settings.windows == (
        Window(WindowKind.ALLOW, NIGHT, ("train",), "nights"),
        Window(WindowKind.DENY, Hours((4, 6), 0, 1440, "UTC")),
    )
    assert settings.break_glass == BreakGlass("fire", "ops", "2027-06-30T18:00:00+02:00")
    assert settings.guards == Guards("3", "30%", "1%")


def test_a_budget_may_be_for_some_reasons_a_rate_and_at_some_hours() -> None:
    hours = '{from: "22:00", to: "06:00", timezone: Europe/Berlin}'
    said = f"nodes: 2, per: 1h30m, reasons: [change, renewal], during: {hours}}}"
    _, limit = load(("fleet.yaml", "nodes: 2}", said)).settings.budgets
    assert limit == BudgetLimit("rack", "2", (Reason.CHANGE, Reason.RENEWAL), 5400.0, NIGHT)


def test_a_pool_speaks_for_its_own_windows() -> None:
    own = '  windows: [{kind: deny, days: [mon], from: "08:00", to: "18:00", timezone: UTC}]\n  nodes:\n'
    fleet = load(("fleet.yaml", "  defaults:", SAID), ("pool.yaml", "  nodes:\n", own))
    assert fleet.settings.windows[-1] == Window(WindowKind.DENY, Hours((0,), 480, 1080, "UTC"), ("train",))


def test_guards_are_on_unless_the_spec_says_otherwise() -> None:
    assert load().settings.guards == Guards("20%", "30%", "5%")


def test_the_brake_is_on_unless_the_spec_says_otherwise() -> None:
    assert load().settings.brake == Brake("10%", "50%", 600.0)
    said = "drift: {mode: correct}\n  brake: {domain: 2, within: 1h}"
    assert load(("fleet.yaml", "drift: {mode: correct}", said)).settings.brake == Brake("10%", "2", 3600.0)


def test_nodes_know_their_persona_and_profiles_do_not_change_with_its_name() -> None:
    fleet = load()
    assert {fleet.nodes[name].persona for name in ("gpu-a001", "gpu-a009")} == {"training", "inference"}
    renamed = load(
        ("persona.yaml", "metadata: {name: training}", "metadata: {name: teaching}"),
        ("pool.yaml", "  persona: training", "  persona: teaching"),
    )
    assert renamed.nodes["gpu-a001"].profile.digest == fleet.nodes["gpu-a001"].profile.digest
    assert renamed.digest != fleet.digest


def test_repairs_of_a_class_are_bounded_within_the_bound_of_all() -> None:
    said = "  limit: {attempts: 5, within: 14d, perClass: {persistent: 3, environment: 1}}\n  ladder:"
    policy = load(("persona.yaml", "  ladder:", said)).nodes["gpu-a001"].profile.remediation
    assert policy is not None
    assert (policy.most, policy.most_within_s) == (5, 14 * 86400.0)
    assert policy.most_of_class == (("environment", 1), ("persistent", 3))
    with pytest.raises(SpecError, match=r"perClass.persistent is 6, and `attempts` allows 5 of all classes"):
        load(("persona.yaml", "  ladder:", said.replace("persistent: 3", "persistent: 6")))
    with pytest.raises(SpecError, match="application"):
        load(("persona.yaml", "  ladder:", said.replace("persistent", "application")))
