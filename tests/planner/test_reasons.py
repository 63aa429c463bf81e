"""What the plan of a node says of each of its actions, and in which order they go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from reconciler.model import observed as o
from reconciler.model.desired import Profile
from reconciler.model.drift import ACTIONABLE
from reconciler.model.observed import Observed
from reconciler.model.plan import BlockCode, NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import BootPhase, Concern, Power, UnknownReason
from reconciler.planner.node import conditions as c
from tests import builders as b
from tests import strategies as s


def plan(seen: Observed, record: NodeRecord | None = None, *, profile: Profile = b.PROFILE) -> NodePlan:
    wanted = b.node(profile=profile)
    return b.planner().plan(wanted, seen, record or b.record(wanted))


@given(s.situations())
def test_each_action_says_why(case: Any) -> None:
    """Conventions P4: a value that differs, an effect that an earlier action undid, or a later action that needs it."""
    wanted, seen, record = case
    made = b.planner().plan(wanted, seen, record)
    steps = b.actions(made)
    for at, action in enumerate(made.actions):
        assert action.because, action.id
        for why in action.because:
            assert why
            assert " undone by " not in why or why.partition(" undone by ")[2] in steps[:at], why
            assert not why.startswith("required by ") or why.removeprefix("required by ") in steps[at + 1 :], why


@given(s.situations())
def test_whoever_is_left_as_it_is_says_why(case: Any) -> None:
    """Conventions P8: a node that differs and for which nothing is planned has a code, and a reason in words."""
    wanted, seen, record = case
    made = b.planner().plan(wanted, seen, record)
    differs = [item for item in made.drift if item.kind in ACTIONABLE and item.concern is not Concern.FIRMWARE]
    if differs and not made.actions:
        assert made.blocked is not None, differs
        assert made.blocked.code in BlockCode
        assert made.blocked.detail


def test_the_gate_waits_for_driver_and_services_and_keeps_work_off() -> None:
    """Pitfall K5: a test of GPUs without driver or container runtime says nothing of the GPUs."""
    off = b.observed(host=b.facts(services={"containerd": o.Service(False, True)}), member=b.member(pods=()))
    made = plan(off, NodeRecord("gpu-a001", serial="SN-gpu-a001"))
    steps = b.actions(made)
    assert steps.index("mark") < steps.index("run_gate")
    assert steps.index("configure_host") < steps.index("run_gate")
    gate = made.actions[steps.index("run_gate")]
    assert {c.IMAGE, c.HOST, c.MARKED, c.QUIESCED} <= set(gate.requires)
    absent: tuple[dict[str, Any], ...] = ({"driver": None}, {"services": {}})
    for unread in absent:
        seen = b.observed(host=b.facts(**unread), member=b.member(mark=b.our_mark(), pods=()))
        assert "run_gate" not in b.actions(plan(seen, NodeRecord("gpu-a001", serial="SN-gpu-a001")))


def test_the_gate_runs_when_the_machine_is_proved_and_nothing_is_known_against_it() -> None:
    """Acceptance 10: attestation and what was read of the machine come before any work on it."""
    made = plan(b.observed(host=b.facts(driver="550.0")))
    steps = b.actions(made)
    assert steps.index("check_trust") < steps.index("run_gate")
    gate = made.actions[steps.index("run_gate")]
    assert {c.TRUST, c.HARDWARE, c.HEALTHY, c.BIOS, c.BOOT} <= set(gate.requires)
    trust = made.actions[steps.index("check_trust")]
    assert {c.SIGNATURE, c.IMAGE, c.BOOT} <= set(trust.requires)


def test_bios_settings_need_no_system_and_come_before_the_image() -> None:
    """Pitfall D9: a machine whose BIOS is wrong may not boot an installer."""
    blank = b.observed(
        hot=b.hot(power=Power.OFF, boot_phase=BootPhase.OFF),
        host=o.Silent(b.NOW, UnknownReason.EXPLAINED, "powered off"),
        inventory=b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS4"}),
        member=None,
    )
    made = plan(blank, NodeRecord("gpu-a001", serial="SN-gpu-a001"))
    steps = b.actions(made)
    assert steps.index("set_bios") < min(steps.index(step) for step in ("power_on", "reimage") if step in steps)
    assert c.HOST_UP not in made.actions[steps.index("set_bios")].requires


@pytest.mark.parametrize("policy", ["exact", "min"])
def test_firmware_that_somebody_changed_is_no_longer_certified(policy: str) -> None:
    """Pitfall L6: whoever used the machine may have flashed it, and newer may be allowed: it is tested all the same."""
    profile = b.profile(firmware=tuple(replace(item, policy=policy) for item in b.FIRMWARE))
    wanted = b.node(profile=profile)
    flashed = {**b.inventory().firmware, "NIC0": o.FirmwareItem("6.6.6")}  # type: ignore[dict-item]
    out = b.member(mark=b.our_mark(), pods=())
    made = plan(b.observed(inventory=b.inventory(firmware=flashed), member=out), b.record(wanted), profile=profile)
    steps = b.actions(made)
    assert ("update_firmware:nic0" in steps) == (policy == "exact")
    assert steps.index("run_gate") < steps.index("admit")
    assert b.actions(plan(b.observed(member=out), b.record(wanted), profile=profile)) == ["admit"]
