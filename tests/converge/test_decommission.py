"""Decommissioning: only with a typed consent, in its order, each drive proved erased, and never begun by the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from reconciler.converge.actions.decommission import STAYS_AWAY_S
from reconciler.converge.apply import AllNodesStale, ApplyReport
from reconciler.converge.erasing import offsets
from reconciler.converge.run import Ended
from reconciler.lab.hardware import bios
from reconciler.lab.hardware.control_plane import ClusterTruth
from reconciler.lab.hardware.state import DriveState
from reconciler.model.event_tokens import CONTEXT, owner_mark
from reconciler.model.outcome import Declined, Done, Outcome, Permanent
from reconciler.model.plan import BlockCode, Goal
from reconciler.model.vocab import NodeState
from tests.converge.world import World

Worlds = Callable[..., World]
GONE = "n0"


@pytest.fixture
def adopted(world: Worlds) -> Worlds:
    def make(**changes: Any) -> World:
        here = world(**changes)
        here.adopt()
        return here

    return make


def leaving(here: World, serials: Sequence[str], node: str = GONE) -> World:
    """Declare a node decommissioned, and these drives to be erased."""
    serial = here.machine(node).state.serial
    there = replace(here.fleet.nodes[node], state=NodeState.DECOMMISSIONED, serial=serial, erase=tuple(serials))
    here.fleet = replace(here.fleet, nodes={**here.fleet.nodes, node: there})
    return here


def data_drives(here: World, node: str = GONE) -> list[DriveState]:
    machine = here.machine(node)
    return [drive for drive in machine.state.drives if drive.serial != machine.state.booted_disk]


def root_drive(here: World, node: str = GONE) -> DriveState:
    machine = here.machine(node)
    return next(drive for drive in machine.state.drives if drive.serial == machine.state.booted_disk)


def decommission(here: World, **changes: Any) -> ApplyReport:
    return here.apply(**{"approved": here.plan(), "consented": frozenset({GONE}), **changes})


def evidence(here: World, serial: str) -> dict[str, Any]:
    found = [entry.evidence for entry in here.ledger.history(GONE) if entry.action == f"erase:{serial}"]
    erasures = [dict(one["erasure"]) for one in found if "erasure" in one]
    return erasures[-1]


# --- the whole way ---------------------------------------------------------------------------------------------------


def test_a_node_leaves_for_good_in_the_order_of_the_design(adopted: Worlds) -> None:
    here = adopted(nodes=2)
    declared = [drive.serial for drive in data_drives(here)]
    leaving(here, declared)
    report = decommission(here)
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    erases = [f"erase:{serial}" for serial in declared]
    assert here.did(GONE) == ["mark", "drain", "remove_node", "revoke", *erases, "power_off", "tombstone"]
    machine = here.machine(GONE)
    assert here.lab.cluster is not None
    assert GONE not in {node.name for node in here.lab.cluster.nodes()}
    assert machine.state.power == "off"
    assert machine.state.counters.killed_work == 0
    assert [drive.holds for drive in machine.state.drives] == [True, False, False], "the root disk was not declared"
    assert here.serves("n1")
    plan = here.plan().nodes[GONE]
    assert (plan.goal, plan.blocked, plan.actions) == (Goal.DECOMMISSIONED, None, ())
    assert "release decommissioned/" in plan.situation
    assert here.apply(wait_s=0.0).results[GONE].state is Ended.CONVERGED


def test_the_plan_names_drives_that_nobody_declared_and_a_tpm_that_stays(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    first, second = data_drives(here)
    sentence = leaving(here, [first.serial]).plan().nodes[GONE].situation
    assert second.serial in sentence
    assert root_drive(here).serial in sentence
    assert first.serial not in sentence
    assert "TPM can't be cleared: no BIOS attribute" in sentence


def test_evidence_says_what_was_erased_how_and_by_whom(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    drive = data_drives(here)[0]
    decommission(leaving(here, [drive.serial]))
    found = evidence(here, drive.serial)
    assert found["method"] == "nvme sanitize, block erase"
    assert (found["serial"], found["model"]) == (drive.serial, drive.model)
    assert found["firmware"]
    assert found["tool"].startswith("nvme version")
    assert found["commit"] == "c0ffee"
    assert found["operator"] == "runner-1"
    assert found["started_at"] < found["ended_at"]
    assert found["log"].startswith("ffff0101")
    assert found["log_before"] != found["log"]
    assert len(found["samples"]) == len(found["samples_after"]) > 3
    assert all(one["blank"] for one in found["samples_after"])
    assert not any(one["blank"] for one in found["samples"])


# --- consent ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
def test_without_a_typed_consent_nothing_is_done(adopted: Worlds, approved: bool) -> None:
    here = adopted(nodes=1)
    leaving(here, [data_drives(here)[0].serial])
    report = here.apply(**({"approved": here.plan()} if approved else {}), wait_s=0.0)
    assert report.executed == ()
    assert "waits for an approved plan" in report.results[GONE].detail
    assert here.serves(GONE)


def test_a_consent_without_an_approved_plan_counts_for_nothing(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    leaving(here, [])
    assert here.apply(consented=frozenset({GONE}), wait_s=0.0).executed == ()


def test_other_serials_than_those_approved_make_the_plan_stale(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    first, second = data_drives(here)
    approved = leaving(here, [first.serial]).plan()
    leaving(here, [first.serial, second.serial])
    with pytest.raises(AllNodesStale, match="erase"):
        here.apply(approved=approved, consented=frozenset({GONE}), wait_s=0.0)
    assert here.serves(GONE)
    assert first.holds
    assert second.holds


# --- drives ----------------------------------------------------------------------------------------------------------


def test_a_serial_that_no_drive_has_stops_it_before_the_drain(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    known = data_drives(here)[0].serial
    plan = leaving(here, [known, known.lower() + "x"]).plan().nodes[GONE]
    assert plan.goal is Goal.NOTHING
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.IMPOSSIBLE
    assert f"no drive has the serial number {known.lower()}x; found: " in plan.blocked.detail
    assert decommission(here, wait_s=0.0).executed == ()
    assert here.serves(GONE)


def no_installer(here: World) -> World:
    """Leave the node without a way for our installer, so that the BMC alone can erase."""
    node = here.fleet.nodes[GONE]
    there = replace(node, profile=replace(node.profile, boot_ways=()))
    here.fleet = replace(here.fleet, nodes={**here.fleet.nodes, GONE: there})
    return here


def test_the_disk_of_the_running_system_is_erased_last_and_by_our_installer(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    root, first = root_drive(here), data_drives(here)[0]
    report = decommission(leaving(here, [root.serial, first.serial]))
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert here.did(GONE)[4:6] == [f"erase:{first.serial}", f"erase:{root.serial}"]
    assert (root.holds, root.sanitizes, first.holds) == (False, 1, False)
    found = evidence(here, root.serial)
    assert (found["method"], found["result"]) == ("nvme sanitize, block erase", "erased")
    assert found["log"].startswith("ffff0101")
    assert found["operator"] == "runner-1"
    assert found["commit"] == "c0ffee"
    machine = here.machine(GONE).state
    assert (machine.media, machine.boot_override_enabled) == (None, "Disabled")


def test_all_drives_of_a_machine_without_a_system_are_erased_by_our_installer(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    serials = [drive.serial for drive in here.machine(GONE).state.drives]
    here.machine(GONE).inject("host_hung")
    here.clock.elapsed += 3600.0
    report = decommission(leaving(here, serials))
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert [drive.sanitizes for drive in here.machine(GONE).state.drives] == [1, 1, 1]
    assert not any(drive.holds for drive in here.machine(GONE).state.drives)


@pytest.mark.parametrize(
    ("fault", "told"), [("sanitize_fails", "its sanitize log says failed"), ("erase_lies", "it still holds at byte 0")]
)
def test_the_word_of_our_installer_proves_nothing(adopted: Worlds, fault: str, told: str) -> None:
    here = adopted(nodes=1, faults={GONE: {fault: {}}})
    report = decommission(leaving(here, [root_drive(here).serial]))
    assert report.results[GONE].state is Ended.FAILED
    assert told in report.results[GONE].detail
    assert "tombstone" not in here.did(GONE)


def test_an_installer_on_another_machine_erases_nothing(world: Worlds) -> None:
    here = world(nodes=1)
    root = root_drive(here)
    leaving(here, [root.serial])
    here.machine(GONE).state.os = None
    desired = replace(here.fleet.nodes[GONE], serial="another")
    outcome = here.act("erase", target=root.serial, desired=desired)
    assert not isinstance(outcome, Done)
    assert (root.holds, root.sanitizes) == (True, 0)


def test_without_an_installer_the_disk_of_the_running_system_is_erased_by_the_bmc(adopted: Worlds) -> None:
    here = no_installer(adopted(nodes=1))
    root, first = root_drive(here), data_drives(here)[0]
    report = decommission(leaving(here, [root.serial, first.serial]))
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert here.did(GONE)[4:6] == [f"erase:{first.serial}", f"erase:{root.serial}"]
    assert not root.holds
    assert not first.holds
    assert evidence(here, root.serial)["method"] == "Redfish Drive.SecureErase"


def test_a_root_disk_that_nothing_can_erase_stops_it_before_the_drain(adopted: Worlds) -> None:
    here = no_installer(adopted(nodes=1))
    root_drive(here).bmc_erases = False
    plan = leaving(here, [root_drive(here).serial]).plan().nodes[GONE]
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.IMPOSSIBLE
    assert "offers no Drive.SecureErase" in plan.blocked.detail
    assert "take its serial number out" in plan.blocked.detail


@pytest.mark.parametrize(
    ("fault", "told"), [("sanitize_fails", "its sanitize log says failed"), ("erase_lies", "still holds at byte 0")]
)
def test_what_no_log_and_no_sample_shows_is_not_erased(adopted: Worlds, fault: str, told: str) -> None:
    here = adopted(nodes=1, faults={GONE: {fault: {}}})
    drive = data_drives(here)[0]
    report = decommission(leaving(here, [drive.serial]))
    assert report.results[GONE].state is Ended.FAILED
    assert told in report.results[GONE].detail
    assert "tombstone" not in here.did(GONE)
    assert here.machine(GONE).state.power == "on"
    assert evidence(here, drive.serial)["result"] == "not erased"


def _act(here: World, drive: DriveState, **context: Any) -> Outcome:
    return leaving(here, [drive.serial]).act("erase", target=drive.serial, **context)


def test_a_drive_without_sanitize_is_formatted(world: Worlds) -> None:
    here = world(nodes=1)
    drive = data_drives(here)[0]
    drive.sanicap = 0
    assert isinstance(_act(here, drive), Done)
    assert not drive.holds
    assert evidence(here, drive.serial)["method"] == "nvme format, secure erase setting 2"


def test_a_sata_drive_is_erased_by_its_own_security_feature(world: Worlds) -> None:
    here = world(nodes=1)
    drive = data_drives(here)[0]
    drive.sata = True
    assert isinstance(_act(here, drive), Done)
    assert not drive.holds
    assert drive.password == ""


def test_a_frozen_sata_drive_is_told_with_the_way_out(world: Worlds) -> None:
    here = world(nodes=1, faults={GONE: {"drives_frozen": {}}})
    drive = data_drives(here)[0]
    drive.sata = True
    outcome = _act(here, drive)
    assert isinstance(outcome, Permanent)
    assert "power-cycle" in outcome.detail
    assert drive.holds


def test_a_sanitize_that_was_begun_is_waited_for_and_not_begun_again(world: Worlds) -> None:
    """The machine lost its power meanwhile: the sanitize goes on by itself."""
    here = world(nodes=1)
    drive = data_drives(here)[0]
    machine = here.machine(GONE)
    machine.sanitize(drive, 2)
    here.clock.elapsed += 100.0
    machine.power("force_off")
    here.clock.elapsed += 3600.0
    assert drive.sanitize_status == 2, "it made no progress without power"
    machine.power("on")
    here.clock.elapsed += 500.0
    machine.catch_up()
    samples = [{"offset": at, "digest": "x", "blank": False} for at in offsets(drive.capacity_bytes)]
    begun = {"erasure": {"serial": drive.serial, "issued": True, "log_before": "00", "method": "m", "samples": samples}}
    while machine.state.os is None:
        here.clock.elapsed += 60.0
        machine.catch_up()
    assert isinstance(_act(here, drive, resumed=begun), Done)
    assert drive.sanitizes == 1
    assert not drive.holds


def test_a_drive_whose_sanitize_failed_is_sanitized_again(world: Worlds) -> None:
    """It can't be read until one has ended well, so that no sample of before can be taken."""
    here = world(nodes=1, faults={GONE: {"sanitize_fails": {"times": 1}}})
    drive = data_drives(here)[0]
    assert isinstance(_act(here, drive), Permanent)
    outcome = _act(here, drive)
    assert isinstance(outcome, Done), outcome
    assert (drive.sanitizes, drive.holds) == (2, False)


@pytest.mark.parametrize("sata", [False, True])
def test_of_two_drives_that_tell_the_same_serial_number_none_is_erased(world: Worlds, sata: bool) -> None:
    here = world(nodes=1)
    first, second = data_drives(here)
    second.serial, first.sata, second.sata = first.serial, sata, sata
    outcome = _act(here, first)
    assert isinstance(outcome, Declined)
    assert "more than one drive" in outcome.detail
    assert (first.holds, second.holds, first.sanitizes + second.sanitizes) == (True, True, 0)


def test_a_command_that_never_reached_the_drive_is_given(world: Worlds) -> None:
    """The run died between its journal and the drive: the log is as it was, and data were written since."""
    here = world(nodes=1)
    drive = data_drives(here)[0]
    begun = {"erasure": {"serial": drive.serial, "issued": True, "log_before": "", "method": "m", "samples": []}}
    outcome = _act(here, drive, resumed=begun)
    assert isinstance(outcome, Permanent | Done), outcome


@pytest.mark.parametrize("what", ["other state", "not declared", "other machine"])
def test_nothing_is_erased_that_is_not_declared_of_this_very_machine(world: Worlds, what: str) -> None:
    here = world(nodes=1)
    drive = data_drives(here)[0]
    leaving(here, [drive.serial])
    desired = here.fleet.nodes[GONE]
    cases: dict[str, dict[str, Any]] = {
        "other state": {"state": NodeState.RETIRED},
        "not declared": {"erase": (drive.serial + " ",)},
        "other machine": {"serial": "another"},
    }
    outcome = here.act("erase", target=drive.serial, desired=replace(desired, **cases[what]))
    assert isinstance(outcome, Declined)
    assert drive.holds
    assert drive.sanitizes == 0


# --- runs that die ---------------------------------------------------------------------------------------------------

STEPS = ("mark", "drain", "remove_node", "revoke", "erase", "clear_tpm", "power_off", "tombstone")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after_s", [0.0, 8.0])
def test_a_run_that_dies_in_any_step_is_continued_and_erases_nothing_twice(
    adopted: Worlds, step: str, after_s: float
) -> None:
    """Invariant crash_anywhere_converges, for what no matrix of the unattended runs reaches."""
    here = adopted(nodes=1)
    machine, drive, root = here.machine(GONE), data_drives(here)[0], root_drive(here)
    if step != "power_off":  # clearing the TPM leaves the machine off
        machine.registry = {**machine.registry, bios.TPM: bios.TPM_ATTRIBUTE}
        machine.state.bios[bios.TPM] = bios.TPM_IDLE
    approved = leaving(here, [drive.serial, root.serial]).plan()

    async def dies() -> None:
        work = asyncio.create_task(here.applying(approved=approved, consented=frozenset({GONE})))
        waiter = asyncio.create_task(here.started(step))
        await asyncio.wait({work, waiter}, return_when=asyncio.FIRST_COMPLETED)
        await here.clock.sleep(after_s)
        work.cancel()
        waiter.cancel()
        await asyncio.wait({work, waiter})

    here.run(dies())
    if "tombstone" in here.did(GONE):
        return  # it was through
    report = here.apply(approved=approved, consented=frozenset({GONE}))
    assert report.results[GONE].state in (Ended.DONE, Ended.CONVERGED), report.results[GONE].detail
    assert (drive.sanitizes, root.sanitizes) == (1, 1)
    assert (drive.holds, root.holds, machine.state.power) == (False, False, "off")
    assert [hold.subject.count("uuid/") for hold in here.ledger.holds()] == [0, 1]


@pytest.mark.parametrize("after_s", [200.0, 300.0, 400.0])
def test_an_erase_by_our_installer_is_followed_by_the_next_run(adopted: Worlds, after_s: float) -> None:
    """Ctrl-C while the installer erases: its attempt stays open, so that its evidence still has somebody to go to."""
    here = adopted(nodes=1)
    machine, root = here.machine(GONE), root_drive(here)
    approved = leaving(here, [root.serial]).plan()

    async def dies() -> None:
        work = asyncio.create_task(here.applying(approved=approved, consented=frozenset({GONE})))
        await here.started("erase")
        await here.clock.sleep(after_s)
        work.cancel()
        await asyncio.wait({work})

    here.run(dies())
    assert machine.state.installer is not None, "it runs by then, and not to its end"
    boots = machine.state.counters.boots
    report = here.apply(approved=approved, consented=frozenset({GONE}))
    assert report.results[GONE].state in (Ended.DONE, Ended.CONVERGED), report.results[GONE].detail
    assert (root.sanitizes, root.holds) == (1, False)
    assert machine.state.counters.boots == boots, "it was not booted for it once more"


# --- the other steps -------------------------------------------------------------------------------------------------


def test_a_node_that_is_not_drained_does_not_leave_the_cluster(world: Worlds) -> None:
    here = leaving(world(nodes=1), [])
    assert isinstance(here.act("remove_node"), Declined)
    assert here.serves(GONE)


def test_the_kubelet_is_stopped_before_the_node_object_goes(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    decommission(leaving(here, []))
    [disk] = here.machine(GONE).state.disks.values()
    assert disk.services["kubelet"] is False


@pytest.mark.parametrize("times", [2, 9])
def test_a_kubelet_that_registers_the_node_again_is_what_is_told(
    adopted: Worlds, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Each time it takes our mark and its drain with it: that these don't last is no news."""
    here = adopted(nodes=1)
    remove, left = ClusterTruth.remove_node, [times]

    def again(cluster: ClusterTruth, name: str) -> None:
        remove(cluster, name)
        if left[0]:
            left[0] -= 1
            asyncio.get_running_loop().call_later(STAYS_AWAY_S / 2, cluster.add_node, name)

    monkeypatch.setattr(ClusterTruth, "remove_node", again)
    result = decommission(leaving(here, [])).results[GONE]
    if times < 3:
        assert result.state is Ended.DONE, result.detail
    else:
        assert result.state is Ended.FAILED
        assert result.detail.startswith("remove_node failed too often (a kubelet registered the node again); when ")


def test_a_tpm_is_cleared_where_the_bios_can(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    machine = here.machine(GONE)
    machine.registry = {**machine.registry, bios.TPM: bios.TPM_ATTRIBUTE}
    machine.state.bios[bios.TPM] = bios.TPM_IDLE
    report = decommission(leaving(here, [data_drives(here)[0].serial]))
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert machine.state.counters.tpm_clears == 1
    assert machine.state.power == "off"
    assert f"clear_tpm:{machine.state.serial}" in here.did(GONE)


def test_its_certificate_is_void_once_it_was_revoked(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    leaving(here, [])
    assert isinstance(here.act("revoke"), Done)
    record = here.ledger.node(GONE)
    assert record.nonce is not None
    assert record.nonce.startswith("revoked-")
    here.fleet = replace(here.fleet, nodes={GONE: replace(here.fleet.nodes[GONE], state=NodeState.ACTIVE, erase=())})
    assert "run_gate" in [action.name for action in here.plan().nodes[GONE].actions]


def test_a_machine_comes_back_under_no_name_without_a_consent(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    decommission(leaving(here, []))
    there = here.fleet.nodes[GONE]
    here.fleet = replace(here.fleet, nodes={"new": replace(there, node="new", state=NodeState.ACTIVE, erase=())})
    plan = here.plan().nodes["new"]
    assert plan.blocked is not None
    assert plan.blocked.code is BlockCode.DECOMMISSIONED
    assert not plan.actions
    serial, uuid = here.ledger.holds()
    assert f"`reconciler release {serial.subject}`" in plan.blocked.detail
    assert serial.reason == uuid.reason, "by which a release finds both"
    for hold in (serial, uuid):
        here.ledger.release(hold.subject, "ops", here.clock.now())
    plan = here.plan().nodes["new"]
    assert plan.blocked is None or plan.blocked.code is not BlockCode.DECOMMISSIONED


def test_a_machine_that_is_declared_by_its_uuid_alone_is_known_again(adopted: Worlds) -> None:
    """Else it got a plan to wipe and admit it, with no consent: its serial number alone had a tombstone."""
    here = adopted(nodes=1)
    decommission(leaving(here, []))
    uuid = UUID(here.machine(GONE).state.uuid)
    there = replace(here.fleet.nodes[GONE], node="new", state=NodeState.ACTIVE, erase=(), serial=None)
    for written in (str(uuid).upper(), str(UUID(bytes=uuid.bytes_le))):
        here.fleet = replace(here.fleet, nodes={"new": replace(there, uuid=written)})
        plan = here.plan().nodes["new"]
        assert plan.blocked is not None
        assert plan.blocked.code is BlockCode.DECOMMISSIONED
        assert not plan.actions


def test_a_machine_that_shares_the_uuid_of_one_that_left_is_another_by_its_serial_number(adopted: Worlds) -> None:
    """Boards of some makers come with one UUID for all, and the rest of the fleet must not be left alone for it."""
    here = adopted(nodes=2)
    decommission(leaving(here, []))
    uuid = here.machine(GONE).state.uuid
    other = replace(here.fleet.nodes["n1"], uuid=uuid)
    here.machine("n1").state.uuid = uuid
    here.fleet = replace(here.fleet, nodes={"n1": other})
    blocked = here.plan().nodes["n1"].blocked
    assert blocked is None or blocked.code is not BlockCode.DECOMMISSIONED


@pytest.mark.parametrize("action", ["power_off", "tombstone", "clear_tpm"])
def test_no_step_is_for_a_node_that_is_not_declared_decommissioned(world: Worlds, action: str) -> None:
    here = world(nodes=1)
    assert isinstance(here.act(action), Declined)
    assert here.machine(GONE).state.power == "on"
    assert not here.ledger.holds()


def test_a_machine_that_is_on_gets_no_tombstone_and_with_one_its_bmc_posts_no_events_to_us(world: Worlds) -> None:
    here = leaving(world(nodes=1), [])
    ours, foreign = f"{CONTEXT}{owner_mark(here.ledger.id)}-{'0' * 32}", f"{CONTEXT}{owner_mark('other')}-{'0' * 32}"
    left = here.machine(GONE).state.subscriptions
    left |= {"1": {"Context": ours}, "2": {"Context": foreign}, "3": {"Context": None}}
    assert isinstance(here.act("tombstone"), Declined)
    assert isinstance(here.act("power_off"), Done)
    assert len(left) == 3
    assert isinstance(here.act("tombstone"), Done)
    assert left.keys() == {"2", "3"}
