"""Ways back into service that must stay open: for nodes without a GPU mode, and after errors of the gate."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.model.desired import Desired, DesiredInventory
from reconciler.model.drift import DriftItem
from reconciler.model.observed import FirmwareItem, ImageIdentity, Observed
from reconciler.model.plan import BlockCode
from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import BootPhase, Power
from tests import builders as b

OFF = b.observed(
    hot=b.hot(power=Power.OFF, boot_phase=BootPhase.OFF),
    host=b.silent("explained", "powered off"),
    member=b.member(ready=False),
)
OLD_IMAGE = ImageIdentity("ubuntu-gpu", "2026.10.1", "cd" * 32, "D1", None, booted_disk="D1")
OLD_FIRMWARE = {item.inventory_id: FirmwareItem("1.0") for item in b.FIRMWARE}
MARKED = b.observed(member=b.member(mark=b.our_mark(), pods=()))


def errors(count: int, action: str = "run_gate", *, ago: timedelta = timedelta(hours=1)) -> tuple[Attempt, ...]:
    """What the ledger keeps of a gate that could not judge: dcgmi was missing, say."""
    starts = [b.NOW - ago + timedelta(minutes=at) for at in range(count)]
    return tuple(Attempt(action, "", "gate", at, "transient", "error: dcgm: not installed", at) for at in starts)


def without_certificate(node: Desired, seen: Observed, *attempts: Attempt) -> NodeRecord:
    return b.record(node, seen, certificate=None, attempts=attempts)


def test_a_node_without_a_gpu_mode_comes_back_from_off() -> None:
    node = b.node(profile=b.profile(gpu=None))
    plan = b.planner().plan(node, OFF, b.record(node, b.observed()))
    assert plan.blocked is None, plan.blocked
    assert b.actions(plan)[:2] == ["mark", "power_on"]
    assert b.actions(plan)[-2:] == ["run_gate", "admit"]


def test_mig_that_is_on_is_in_the_way_of_the_gate_where_nothing_switches_it_off() -> None:
    node = b.node(profile=b.profile(gpu=None))
    on = tuple(b.gpu(index, mig_current=True, mig_pending=True) for index in range(2))
    seen = b.observed(host=b.facts(gpus=on), member=b.member(mark=b.our_mark(), pods=()))
    plan = b.planner().plan(node, seen, without_certificate(node, seen))
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.NO_PATH


@pytest.mark.parametrize("found", ["image", "firmware"])
def test_errors_of_the_gate_use_up_nothing_that_something_new_needs(found: str) -> None:
    node = b.node()
    old = b.observed(
        host=b.facts(image=OLD_IMAGE) if found == "image" else b.facts(),
        inventory=b.inventory(firmware=OLD_FIRMWARE) if found == "firmware" else b.inventory(),
        member=b.member(mark=b.our_mark(), pods=()),
    )
    record = without_certificate(node, MARKED, *errors(3, ago=timedelta(minutes=4)))
    assert not b.actions(b.planner().plan(node, MARKED, record)), "the same image: a person must look"
    plan = b.planner().plan(node, old, record)
    assert plan.blocked is None, plan.blocked
    assert b.actions(plan)[-2:] == ["run_gate", "admit"]


def test_errors_on_the_image_before_do_not_count_on_the_new_one() -> None:
    node = b.node()
    installed = Attempt("reimage", "", "image.version", b.NOW - timedelta(minutes=30), "done", "", b.NOW)
    plan = b.planner().plan(node, MARKED, without_certificate(node, MARKED, *errors(3), installed))
    assert b.actions(plan) == ["run_gate", "admit"]
    again = errors(3, ago=timedelta(minutes=20))
    plan = b.planner().plan(node, MARKED, without_certificate(node, MARKED, *errors(3), installed, *again))
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.ATTEMPTS
    assert f"`reconciler hold {node.node} --reason ...`, then `reconciler release {node.node}`" in plan.blocked.detail


def test_failures_before_a_hold_that_somebody_lifted_do_not_count() -> None:
    """The image server was wrong, say: whoever put it right need not wait for a day."""
    node = b.node()
    record = without_certificate(node, MARKED, *errors(3, ago=timedelta(minutes=20)))
    assert b.planner().plan(node, MARKED, record).blocked is not None
    seen_to = replace(record, released_at=b.NOW - timedelta(minutes=1))
    assert b.actions(b.planner().plan(node, MARKED, seen_to)) == ["run_gate", "admit"]


def drift(node: Desired, seen: Observed) -> dict[str, DriftItem]:
    return {item.path: item for item in b.planner().plan(node, seen, b.record(node)).drift}


def test_a_node_without_gpus_has_mig_off() -> None:
    node = b.node(profile=b.profile(inventory=DesiredInventory(gpus=0), firmware=()))
    assert "gpu.mig" not in drift(node, b.observed(host=b.facts(gpus=(), nvlinks_active={})))


def test_the_mig_mode_of_lost_gpus_is_not_known() -> None:
    lost = tuple(b.gpu(index, lost=True, mig_current=None, mig_pending=None) for index in range(2))
    assert drift(b.node(), b.observed(host=b.facts(gpus=lost)))["gpu.mig"].kind.value == "unknown"


@pytest.mark.parametrize(("done", "drained"), [((), False), (("reimage",), True), (("reimage", "admit"), False)])
def test_a_system_just_written_serves_nobody_and_needs_no_drain_before_its_gate(
    done: tuple[str, ...], drained: bool
) -> None:
    """Without a cluster, a blank machine whose first system answers is on its way into service, not in it."""
    node = b.node(profile=b.profile(membership=None, gpu=None))
    attempts = tuple(Attempt(name, "", "image", b.NOW, "done", "", b.NOW) for name in done)
    plan = b.planner().plan(node, b.observed(), without_certificate(node, b.observed(), *attempts))
    assert plan.in_service is not drained
    assert ("drain" not in b.actions(plan)) is drained, b.actions(plan)
    assert "run_gate" in b.actions(plan)
