"""Writing images: refused before anything is touched, proved afterwards, never repeated because a run died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.actions.install_plan import Install, judge_install
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.lab.hardware.lifecycle import HardwareRejected, Rejection
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.lab.inprocess.facts import host_facts
from reconciler.model.desired import DesiredImage, RootDisk
from reconciler.model.install import InstallDocument, InstallImage, MachineIdentity
from reconciler.model.install import RootDisk as DiskToWrite
from reconciler.model.install_progress import digest_of
from reconciler.model.network import DesiredLink, DesiredNetwork
from reconciler.model.observed import Answered, HostFacts, ImageIdentity, RedfishHot, Silent
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.ports import PowerAction
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Concern
from tests import builders as b
from tests.converge.world import IMAGE, PROFILE, World

Worlds = Callable[..., World]
OLD = {"n*": ["old_image"]}
USER_CA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5Q0Nz5C5m1gXbpq0g3Gq6yZ3c8p6rVq2u0h8yG1abc users"


def document_of(image: DesiredImage, disk: str) -> InstallDocument:
    return InstallDocument(
        node="n0",
        hostname="n0",
        nonce="n",
        machine=MachineIdentity(serial="S0", uuid=None),
        image=InstallImage(name=image.name, version=image.version, url=image.url, sha256=image.sha256),
        root_disk=DiskToWrite(serial=disk),
    )


def running(here: World, node: str = "n0") -> Any:
    return here.machine(node).disk()


def test_the_image_is_written_to_the_disk_that_was_meant(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    outcome = here.act("reimage")
    assert isinstance(outcome, Done)
    machine = here.machine("n0")
    disk = running(here)
    assert (disk.image, disk.version, disk.sha256) == (IMAGE.name, IMAGE.version, IMAGE.sha256)
    assert disk.root_disk == machine.state.drives[0].serial == machine.state.booted_disk
    assert disk.nonce == here.ledger.node("n0").nonce
    assert machine.state.media is None
    assert machine.state.counters.installs == 1
    assert here.lab.installs.served == set(), "the document is withdrawn"


def test_the_installed_system_is_what_the_spec_declares(world: Worlds) -> None:
    """The network, whom sshd lets in, and the kernel's arguments: compared as host facts afterwards."""
    here = world(nodes=1, drift=OLD)
    mac = next(nic.mac for nic in here.machine("n0").state.nics if not nic.rdma).lower()
    port = DesiredLink("mgmt0", mac=mac, addresses=("10.20.1.7/24",), gateway="10.20.1.1", mtu=9000)
    profile = here.fleet.nodes["n0"].profile
    assert profile.image is not None
    image = replace(profile.image, kernel_arguments=("iommu=pt",))
    profile = replace(profile, digest="", image=image, host=replace(profile.host, user_ca=(USER_CA,)))
    desired = replace(here.fleet.nodes["n0"], profile=profile, network=DesiredNetwork((port,)))

    def reported() -> set[str]:
        facts = host_facts(here.machine("n0"), (), ())
        items = Comparer(IgnoreRules((), b.NOW)).compare(desired, b.observed("n0", host=facts), NodeRecord("n0"))
        return {item.path for item in items if item.concern is Concern.INSTALLED}

    assert reported() == {"installed.network.mgmt0.kind", "installed.user_ca"}, "the old image lacks no argument of it"
    assert isinstance(here.act("reimage", desired=desired), Done)
    assert reported() == set()


@pytest.mark.parametrize("by", ["serial", "wwn"])
def test_a_disk_is_the_same_in_whatever_order_the_machine_lists_its_drives(world: Worlds, by: str) -> None:
    """Pitfall L4: nvme0 may be nvme2 after the next boot."""
    here = world(nodes=1, drift=OLD)
    drives = here.machine("n0").state.drives
    meant = drives[0]
    drives.reverse()
    rule = RootDisk(serial=meant.serial) if by == "serial" else RootDisk(wwn=meant.wwn)
    desired = replace(here.fleet.nodes["n0"], root_disk=rule)
    assert isinstance(here.act("reimage", desired=desired), Done)
    assert running(here).root_disk == here.machine("n0").state.booted_disk == meant.serial


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (RootDisk(model="NO SUCH DRIVE"), "no drive matches the root disk rule: 0 ("),
        (RootDisk(min_bytes=1), "3 drives match the root disk rule"),
        (RootDisk(serial="S0"), "no drive matches"),
        (RootDisk(wwn="eui.0"), "no drive matches"),
    ],
)
def test_a_rule_that_does_not_mean_one_drive_touches_nothing(world: Worlds, rule: RootDisk, told: str) -> None:
    here = world(nodes=1, drift=OLD)
    desired = replace(here.fleet.nodes["n0"], root_disk=rule)
    before = here.machine("n0").dump()
    outcome = here.act("reimage", desired=desired)
    assert isinstance(outcome, Declined)
    assert told in outcome.detail
    assert here.machine("n0").dump()["power"] == before["power"] == "on"
    assert here.ledger.node("n0").nonce is None


def test_no_rule_at_all_is_refused(world: Worlds) -> None:
    image = replace(IMAGE, root_disk=None)
    here = world(nodes=1, drift=OLD, profile=replace(PROFILE, digest="no rule", image=image))
    assert isinstance(here.act("reimage"), Declined)


def test_a_medium_that_the_bmc_only_claims_is_ejected_first(world: Worlds) -> None:
    """E2."""
    here = world(nodes=1, drift=OLD, faults={"n0": {"stale_media": {}}})
    assert isinstance(here.act("reimage"), Done)


@pytest.mark.parametrize("why", [Rejection.INVALID, Rejection.BUSY])
def test_a_medium_that_the_bmc_can_not_fetch_aborts_before_power_on(
    world: Worlds, why: Rejection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall E5: what the BMC says of the medium is what the outcome says."""
    here = world(nodes=1, drift=OLD)

    def refuse(url: str) -> None:
        raise HardwareRejected(why, f"cannot reach {url}")

    monkeypatch.setattr(here.machine("n0"), "insert_media", refuse)
    outcome = here.act("reimage")
    assert isinstance(outcome, Transient | Permanent)
    assert "cannot reach http" in outcome.detail
    assert here.machine("n0").state.counters.boots == 0
    assert here.ledger.node("n0").nonce is None


def test_nothing_is_ejected_under_a_system_that_runs(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall E1: the power is off each time, however the medium of somebody else came there."""
    here = world(nodes=1, drift=OLD)
    machine, power = here.machine("n0"), list[str]()
    machine.state.media = "http://192.0.2.7/rescue.iso"
    eject = machine.eject_media

    def ejected() -> None:
        power.append(f"{machine.state.power} {machine.state.phase}" if machine.state.media else "empty")
        eject()

    monkeypatch.setattr(machine, "eject_media", ejected)
    assert isinstance(here.act("reimage"), Done)
    assert power[0] == "off off"
    assert "on installer" not in power


def test_a_boot_override_that_is_not_stored_aborts_before_power_on(world: Worlds) -> None:
    """D2: 200, and nothing."""
    here = world(nodes=1, drift=OLD, faults={"n0": {"boot_override_ignored": {}}})
    outcome = here.act("reimage")
    assert isinstance(outcome, Transient)
    assert "one-time boot: None, Disabled" in outcome.detail
    assert here.machine("n0").state.counters.boots == 0
    assert here.machine("n0").state.counters.installs == 0
    assert here.ledger.node("n0").nonce is None, "nothing was installed under this nonce"


def test_a_boot_override_that_stays_installs_once_and_is_cleared(world: Worlds) -> None:
    """Such BMCs show Continuous, and boot the disc again after the installer (I8)."""
    here = world(nodes=1, drift=OLD, faults={"n0": {"boot_override_stays": {}}})
    assert isinstance(here.act("reimage"), Done)
    state = here.machine("n0").state
    assert (state.counters.installs, state.boot_override, state.boot_override_enabled) == (1, "None", "Disabled")
    assert running(here).version == IMAGE.version


def test_a_boot_override_that_is_ignored_at_boot_is_told_from_an_installation(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"boot_override_ignored": {"when": "boot"}}})
    outcome = here.act("reimage")
    assert isinstance(outcome, Transient)
    assert "did not boot the installer but ubuntu-gpu 2026.11.0" in outcome.detail


def test_a_machine_that_boots_another_disk_afterwards_is_not_done(world: Worlds) -> None:
    """L1: the image is written, and something else runs."""
    here = world(nodes=1, drift=OLD)
    state = here.machine("n0").state
    other = replace(state.disks[state.drives[0].serial], root_disk=state.drives[1].serial)
    state.disks[state.drives[1].serial] = other
    state.drives.insert(0, state.drives.pop(1))
    here.machine("n0").inject("wrong_boot_disk")
    outcome = here.act("reimage")
    assert isinstance(outcome, Permanent)
    assert "L1" in outcome.detail
    assert state.counters.installs == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"version": "2026.10.0"}, "version is '2026.10.0'"),
        ({"sha256": "00"}, "sha256 is '00'"),
        ({"image": None}, "image is None"),
        ({"root_disk": "OTHER"}, "root disk is 'OTHER', not 'D1'"),
        ({"booted_disk": "OTHER"}, "booted disk is 'OTHER', not 'D1'"),
        ({"booted_disk": None}, "booted disk is None"),
    ],
)
def test_our_nonce_alone_does_not_make_an_installation(wrong: dict[str, Any], told: str) -> None:
    """L1, L2."""
    install = Install("token", document_of(IMAGE, "D1"))
    right = ImageIdentity(IMAGE.name, IMAGE.version, IMAGE.sha256, "d1 ", "n", booted_disk="D1")
    assert isinstance(judge_install(right, install), Done)
    outcome = judge_install(replace(right, **wrong), install)
    assert isinstance(outcome, Permanent)
    assert told in outcome.detail


@pytest.mark.parametrize("lost", ["image.booted_disk", "image"])
def test_a_system_too_busy_to_tell_its_image_is_asked_again(
    world: Worlds, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command for facts that ran out of time is no proof of another image."""
    here = world(nodes=1, drift=OLD)
    asked: list[str] = []

    def busy(*words: Any) -> HostFacts:
        facts = host_facts(*words)
        if facts.image is None or facts.image.nonce != here.ledger.node("n0").nonce or len(asked) == 3:
            return facts
        asked.append(lost)
        image = None if lost == "image" else replace(facts.image, booted_disk=None)
        return replace(facts, image=image, unknown={lost: "timeout: did not end in time and was killed"})

    monkeypatch.setattr("reconciler.lab.inprocess.host.host_facts", busy)
    assert isinstance(here.act("reimage"), Done)
    assert len(asked) == 3


def test_an_installer_that_fails_is_reported_in_bounded_time(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"installer_fails": {}}})
    outcome = here.act("reimage")
    assert isinstance(outcome, Transient)
    assert "the installer failed: can't write the disk: Input/output error" in outcome.detail
    assert isinstance(here.act("reimage"), Done), "the next attempt begins from the start"
    assert here.machine("n0").state.counters.installs == 1


def test_a_bmc_that_shows_another_machine_is_not_touched(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"wrong_machine": {}}})
    outcome = here.act("reimage")
    assert isinstance(outcome, Declined)
    assert outcome.code == "identity"
    assert here.machine("n0").state.power == "on"
    assert here.machine("n0").state.media is None
    assert here.lab.installs.served == set()


def test_without_an_installer_nothing_is_begun(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    assert isinstance(here.act("reimage", installer_port=None), Declined)
    assert here.machine("n0").state.power == "on"


def without_boot_phase(here: World) -> None:
    """A BMC without BootProgress, as many are."""
    bmc = here.fabric.bmc(here.fleet.nodes["n0"])
    assert bmc is not None
    hot = bmc.hot

    async def blind() -> Answered[RedfishHot] | Silent:
        found = await hot()
        return found if isinstance(found, Silent) else replace(found, value=replace(found.value, boot_phase=None))

    bmc.hot = blind  # type: ignore[method-assign]


@pytest.mark.parametrize("after", [10, 60, 120, 240, 300, 330, 500, 600, 680])
@pytest.mark.parametrize("shown", [True, False])
def test_wherever_the_run_dies_the_next_one_installs_once(world: Worlds, after: int, shown: bool) -> None:
    here = world(nodes=1, drift=OLD)
    if not shown:
        without_boot_phase(here)

    async def dies() -> Outcome | None:
        action = asyncio.create_task(here.acting("reimage"))
        await asyncio.wait([action], timeout=after)
        if action.done():
            return action.result()
        action.cancel()
        await asyncio.wait([action])
        return None

    if here.run(dies()) is None:
        here.clock.elapsed += 30
        [(_, _, _, _, intent)] = here.ledger.unfinished()
        assert isinstance(here.act("reimage", resumed=intent), Done)
    assert here.machine("n0").state.counters.installs == 1
    assert running(here).version == IMAGE.version
    assert here.ledger.node("n0").nonce == running(here).nonce
    assert here.machine("n0").state.media is None


def test_a_run_that_died_leaves_its_token_to_the_installer_alone(world: Worlds) -> None:
    """Who reads the journal can't ask for a host certificate. The next run serves the same attempt all the same."""
    here = world(nodes=1, drift=OLD)
    here.adopt()
    died_at(here, "power")
    [token] = here.lab.installs.attempts
    rows = [str(row) for row in here.ledger.unfinished()] + [str(row) for row in here.ledger.journal("n0", 1000)]
    files = b"".join(file.read_bytes() for file in here.where.glob("ledger.sqlite*"))
    assert not [row for row in rows if token in row]
    assert token.encode() not in files
    assert digest_of(token).encode() in files
    here.apply()
    counters = here.machine("n0").state.counters
    assert (here.serves("n0"), counters.installs) == (True, 1)


def died_at(here: World, write: str) -> None:
    """A run on n0 that ends where this write to its BMC has been done."""
    bmc = here.fabric.bmc(here.fleet.nodes["n0"])
    assert bmc is not None
    done = getattr(bmc, write)

    async def and_die(*args: Any) -> None:
        await done(*args)
        if write != "power" or args == (PowerAction.ON,):
            raise SystemExit

    setattr(bmc, write, and_die)
    with pytest.raises(SystemExit):
        here.apply()
    setattr(bmc, write, done)
    here.lab.installs.dies(here.clock.elapsed)


def test_a_run_that_died_before_power_came_on_leaves_no_installer_to_boot(world: Worlds) -> None:
    """The machine is off, and an install of ours was begun on it: nothing has to be booted before it goes on."""
    here = world(nodes=1, drift=OLD)
    here.adopt()
    died_at(here, "boot_once")
    assert here.machine("n0").state.media is not None
    report = here.apply()
    assert here.did("n0")[2] == "reimage", report
    counters = here.machine("n0").state.counters
    assert (counters.power_cycles, counters.boots, counters.installs) == (2, 2, 1)
    assert here.serves("n0")


def test_the_medium_of_an_install_that_ended_unseen_is_ejected(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    here.adopt()
    here.machine("n0").timings = replace(TYPICAL, document_tries=10**6)
    died_at(here, "power")
    here.apply()
    machine = here.machine("n0").state
    assert (machine.counters.power_cycles, machine.counters.installs) == (2, 1)
    assert machine.media is None
    assert here.serves("n0")


def test_a_medium_of_somebody_else_is_left_alone(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["powered_off"]})
    here.adopt()
    here.machine("n0").insert_media("http://10.0.0.1/rescue/boot.iso")
    here.apply()
    assert here.serves("n0")
    assert here.machine("n0").state.media == "http://10.0.0.1/rescue/boot.iso"
