"""One boot of our installer for all drives that no running system can erase, and a record of each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.erasure_records import digest_of
from reconciler.converge.run import Ended
from reconciler.lab.hardware.state import DriveState
from reconciler.model.install import EraseDocument, MachineIdentity
from reconciler.model.install_progress import digest_of as digest_of_token
from reconciler.model.outcome import Done, Permanent, Transient
from tests.converge.test_decommission import GONE, Worlds, adopted, decommission, leaving
from tests.converge.world import World

__all__ = ["adopted"]
MACHINE = MachineIdentity(serial="of an attempt that nobody fetched", uuid=None)


def silent(here: World) -> list[DriveState]:
    """Let no system answer, and declare all drives to be erased."""
    here.machine(GONE).inject("host_hung")
    here.clock.elapsed += 3600.0
    drives = list(here.machine(GONE).state.drives)
    leaving(here, [drive.serial for drive in drives])
    return drives


def boots(here: World) -> int:
    return here.machine(GONE).state.counters.boots


def records(here: World) -> Mapping[str, Mapping[str, Any]]:
    return here.ledger.erasures(GONE)


def without_way(drive: DriveState) -> str:
    drive.sanicap = 0  # the lab's installer has no other way
    return drive.serial


def test_all_drives_are_erased_in_one_boot_each_with_a_record_of_its_own(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    drives, before = silent(here), boots(here)
    report = decommission(here)
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert boots(here) == before + 1
    assert [(drive.sanitizes, drive.holds) for drive in drives] == [(1, False)] * 3
    assert here.did(GONE)[4:7] == [f"erase:{drive.serial}" for drive in drives]
    for drive in drives:
        record = records(here)[drive.serial]
        assert (record["method"], record["result"]) == ("nvme sanitize, block erase", "erased")
        assert record["log"].startswith("ffff0101")
        assert (record["operator"], record["commit"]) == ("runner-1", "c0ffee")
        assert record["digest"] == digest_of(record)
        assert record["digest"] != digest_of({**record, "log": ""}), "the digest is of the evidence"


def test_the_report_and_the_tombstone_name_method_and_evidence_of_each_drive(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    drives = silent(here)
    report = decommission(here)
    done = {one.target: one.outcome.detail for one in report.executed if one.action == "erase"}
    [hold, _] = here.ledger.holds()
    for drive in drives:
        digest = records(here)[drive.serial]["digest"][:16]
        assert f"evidence {digest}" in done[drive.serial]
        assert f"{drive.serial} (nvme sanitize, block erase, evidence {digest})" in hold.reason


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_drive_that_refuses_fails_by_name_and_the_others_are_erased(adopted: Worlds, place: int) -> None:
    here = adopted(nodes=1)
    drives, before = silent(here), boots(here)
    refuses = without_way(drives[place])
    report = decommission(here)
    result = report.results[GONE]
    assert result.state is Ended.FAILED
    assert f"drive {refuses} is not erased: drive {refuses} can't be sanitized: destroy it" in result.detail
    assert [drive.holds for drive in drives] == [at == place for at in range(3)]
    assert records(here)[refuses]["result"] == "not erased"
    assert "tombstone" not in here.did(GONE)
    assert boots(here) == before + 1, "that of the others was not repeated to hear the same once more"
    # The way out: pull it, and take its serial number out.
    leaving(here, [drive.serial for drive in drives if drive.serial != refuses])
    report = decommission(here)
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert boots(here) == before + 1, "the records of the others count"
    assert [drive.sanitizes for drive in drives] == [int(at != place) for at in range(3)]


def test_a_drive_that_refused_is_tried_again_by_the_next_run(adopted: Worlds) -> None:
    """A person plugged it in anew, or let the firmware freeze it no more."""
    here = adopted(nodes=1)
    drives = silent(here)
    without_way(drives[1])
    decommission(here)
    drives[1].sanicap = 3
    report = decommission(here)
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert [drive.sanitizes for drive in drives] == [1, 1, 1]


async def _until(here: World, drive: DriveState) -> None:
    """Wait until this drive is being sanitized."""
    while not drive.sanitizes:
        await here.clock.sleep(5.0)
        here.machine(GONE).catch_up()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_after_a_cut_only_drives_without_a_record_are_erased(adopted: Worlds, at: int) -> None:
    here = adopted(nodes=1)
    drives, before = silent(here), boots(here)
    approved = here.plan()

    async def cut() -> Any:
        work = asyncio.create_task(here.applying(approved=approved, consented=frozenset({GONE})))
        await _until(here, drives[at])
        here.machine(GONE).power("force_off")
        return await work

    report = here.run(cut())
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert [(drive.sanitizes, drive.holds) for drive in drives] == [(1, False)] * 3
    assert boots(here) == before + 2


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("cut", [False, True])
def test_the_records_of_a_boot_outlive_the_run_that_followed_it(adopted: Worlds, at: int, cut: bool) -> None:
    """Ctrl-C while drives are erased; `cut`: and then the machine lost its power."""
    here = adopted(nodes=1)
    drives, before = silent(here), boots(here)
    approved = here.plan()

    async def dies() -> None:
        work = asyncio.create_task(here.applying(approved=approved, consented=frozenset({GONE})))
        await _until(here, drives[at])
        await here.clock.sleep(30.0)
        work.cancel()
        await asyncio.wait({work})
        if cut:
            here.machine(GONE).power("force_off")

    here.run(dies())
    report = here.apply(approved=approved, consented=frozenset({GONE}))
    assert report.results[GONE].state in (Ended.DONE, Ended.CONVERGED), report.results[GONE].detail
    assert [(drive.sanitizes, drive.holds) for drive in drives] == [(1, False)] * 3
    assert boots(here) == before + 1 + cut


def test_a_boot_that_was_to_erase_a_drive_which_the_spec_keeps_by_now_is_not_gone_on_with(adopted: Worlds) -> None:
    """A run died once the machine was on, and then a person saw that a serial number was wrong."""
    here = adopted(nodes=1)
    drives = silent(here)
    left = EraseDocument(node=GONE, nonce="n", machine=MACHINE, drives=tuple(drive.serial for drive in drives))
    installer = here.fabric.installer()
    assert installer is not None
    here.run(installer.publish("left", left, None))
    begun = {"attempt": digest_of_token("left"), "nonce": "n", "drives": list(left.drives), "started": True}
    leaving(here, [drives[0].serial, drives[2].serial])
    outcome = here.act("erase", target=drives[0].serial, resumed=begun)
    assert isinstance(outcome, Done), outcome
    assert [(drive.sanitizes, drive.holds) for drive in drives] == [(1, False), (0, True), (1, False)]
    assert not here.lab.installs.attempts


def test_a_boot_that_was_journaled_and_never_begun_is_withdrawn(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    drives, installs = silent(here), here.lab.installs
    approved = here.plan()

    async def dies() -> None:
        work = asyncio.create_task(here.applying(approved=approved, consented=frozenset({GONE})))
        while not installs.attempts:
            await here.clock.sleep(0.1)
        work.cancel()
        await asyncio.wait({work})

    here.run(dies())
    [left] = installs.attempts
    report = here.apply(approved=approved, consented=frozenset({GONE}))
    assert report.results[GONE].state in (Ended.DONE, Ended.CONVERGED), report.results[GONE].detail
    assert left not in installs.attempts
    assert [drive.sanitizes for drive in drives] == [1, 1, 1]


def test_a_record_of_before_the_node_served_again_proves_nothing(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    drives = silent(here)
    decommission(here)
    assert drives[1].sanitizes == 1
    drives[1].holds = True  # it was taken back, and served
    lease = here.ledger.acquire("admission", "test", 36000.0, here.clock.now())
    here.clock.elapsed += 60.0
    attempt = here.ledger.begin("test", GONE, "admit", "", "", {}, lease.token, here.clock.now())
    here.ledger.finish(attempt, "done", "", here.clock.now())
    here.clock.elapsed += 60.0
    outcome = here.act("erase", target=drives[1].serial)
    assert isinstance(outcome, Done), outcome
    assert (drives[1].sanitizes, drives[1].holds) == (2, False)


def test_a_drive_that_nobody_declared_is_in_no_boot(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    drives = silent(here)
    leaving(here, [drives[0].serial, drives[2].serial])
    report = decommission(here)
    assert report.results[GONE].state is Ended.DONE, report.results[GONE].detail
    assert [(drive.sanitizes, drive.holds) for drive in drives] == [(1, False), (0, True), (1, False)]


def test_a_machine_that_is_not_the_one_meant_has_no_record(world: Worlds) -> None:
    here = world(nodes=1)
    drives = list(here.machine(GONE).state.drives)
    leaving(here, [drive.serial for drive in drives])
    here.machine(GONE).state.os = None
    desired = replace(here.fleet.nodes[GONE], serial="another")
    outcome = here.act("erase", target=drives[0].serial, desired=desired)
    assert isinstance(outcome, Permanent | Transient)
    assert not records(here)
    assert all(drive.holds for drive in drives)
