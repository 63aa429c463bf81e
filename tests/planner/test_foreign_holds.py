"""Another operator maintains a node: what disrupts waits, says for whom, and nothing of theirs is touched."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.observed import HIDDEN, Silent, Taint, Xid
from reconciler.model.plan import BlockCode, Goal, NodePlan
from reconciler.model.vocab import UnknownReason
from reconciler.planner.node.foreign_holds import foreign_hold
from tests import builders as b

DRIVER = "nvidia.com/gpu-driver-upgrade-state"
OFED = "nvidia.com/ofed-driver-upgrade-state"
INITIAL = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
WAITS = "nvidia.com/ofed-driver-upgrade.driver-wait-for-safe-load"
MIG = "nvidia.com/mig.config.state"
OWN = {"workload": "training"}


def planned(*, ill: bool = False, **member: Any) -> NodePlan:
    """A node whose image differs, with these fields of its node object."""
    wanted = b.node()
    facts = b.facts(driver="550.0", xids=(Xid(79, "0000:19:00", 1),)) if ill else b.facts(driver="550.0")
    return b.planner().plan(wanted, b.observed(host=facts, member=b.member(**member)), b.record(wanted))


SIGNS: list[tuple[dict[str, Any], str]] = [
    *(({"labels": OWN | {DRIVER: state}}, "the gpu driver") for state in (
        "upgrade-required", "cordon-required", "wait-for-jobs-required", "pod-deletion-required", "drain-required",
        "node-maintenance-required", "pod-restart-required", "validation-required", "uncordon-required",
        "upgrade-failed",
    )),
    ({"labels": OWN | {OFED: "drain-required"}}, f"the ofed driver ({OFED}=drain-required)"),
    *(({"labels": OWN | {MIG: state}}, f"NVIDIA's MIG manager works on it ({MIG}={state})")
      for state in ("pending", "rebooting")),
    ({"annotations": {INITIAL: "true"}}, "the gpu driver"),
    ({"annotations": {WAITS: "pod"}}, "the ofed driver"),
    ({"taints": (Taint("medik8s.io/remediation", "self-node-remediation", "NoExecute"),)}, "medik8s maintains it"),
    ({"taints": (Taint("medik8s.io/drain", "", "NoSchedule"),)}, "medik8s maintains it"),
    ({"taints": (Taint("kubevirt.io/drain", "", "NoSchedule"),)}, "KubeVirt maintains it"),
]  # fmt: skip


@pytest.mark.parametrize(("member", "who"), SIGNS)
def test_what_disrupts_waits_and_says_for_whom(member: dict[str, Any], who: str) -> None:
    assert "mark" in b.actions(planned()), "it would be reimaged"
    plan = planned(**member)
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.FOREIGN_HOLD
    assert who in plan.blocked.detail
    assert {"mark", "drain", "reimage", "admit"}.isdisjoint(b.actions(plan))


@pytest.mark.parametrize("state", ["success", "failed", HIDDEN])
def test_a_mig_manager_that_is_done_holds_nothing(state: str) -> None:
    assert "drain" in b.actions(planned(labels=OWN | {MIG: state}))


def test_a_host_that_hangs_in_the_mig_manager_s_reboot_is_repaired() -> None:
    """Its pod on the node would change the label, and can't run."""
    dark = Silent(b.NOW, UnknownReason.TIMEOUT, "no answer")
    seen = b.observed(host=dark, member=b.member(ready=False, labels=OWN | {MIG: "rebooting"}))
    assert foreign_hold(seen) == ""
    assert "MIG manager" in foreign_hold(b.observed(member=b.member(labels=OWN | {MIG: "rebooting"})))


@pytest.mark.parametrize("state", ["", "upgrade-done", HIDDEN])
def test_an_upgrade_that_is_over_holds_nothing(state: str) -> None:
    assert "drain" in b.actions(planned(labels=OWN | {DRIVER: state}))


def test_another_label_or_annotation_of_these_operators_holds_nothing() -> None:
    plan = planned(
        labels=OWN | {"nvidia.com/gpu.present": "true", "nvidia.com/gpu-driver-upgrade.skip": "true"},
        annotations={"is-reboot-capable.self-node-remediation.medik8s.io": "true"},
    )
    assert "drain" in b.actions(plan)


def test_a_cordon_of_theirs_is_kept() -> None:
    plan = planned(labels=OWN | {DRIVER: "drain-required"}, unschedulable=True)
    assert plan.goal is Goal.CONVERGED_CORDONED
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.FOREIGN_HOLD
    assert {"mark", "drain", "admit"}.isdisjoint(b.actions(plan))


def test_evidence_that_isolates_still_cordons_at_once() -> None:
    plan = planned(ill=True, labels=OWN | {DRIVER: "upgrade-required"})
    assert plan.goal is Goal.ISOLATED
    assert b.actions(plan) == ["mark"]
