"""How an install is followed: its failures end it at once, silence counts only while we listened, and any run goes on.

In each test the disk is written no more often than the test says, which the machine counts when a write begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.actions.install_watch import AGAIN_S, ENDS_S, LISTEN_S, LOOK_S, SILENT_S
from reconciler.converge.run import Ended
from reconciler.lab.hardware.lifecycle import Lifecycle
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.lab.inprocess.bmc import MachineBmc
from reconciler.lab.install_server import BASE, InstallServer
from reconciler.model import desired as d
from reconciler.model.install import InstallPhase
from reconciler.model.network import DesiredLink, DesiredNetwork
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.vocab import BootWay
from reconciler.planner.node.corroboration import BOOT_S
from tests.converge.world import IMAGE, World

Worlds = Callable[..., World]
OLD = {"n*": ["old_image"]}
STARTS_S = TYPICAL.shutdown_s + TYPICAL.post_s + TYPICAL.installer_boot_s


def writes(here: World) -> tuple[int, int]:
    """Return how often a write of the disk began, and how often one was ended."""
    counters = here.machine("n0").state.counters
    return counters.writes, counters.installs


def installed(here: World, outcome: Outcome) -> bool:
    disk = here.machine("n0").disk()
    return isinstance(outcome, Done) and (disk.version, disk.nonce) == (IMAGE.version, here.ledger.node("n0").nonce)


def timed(here: World, work: Callable[[], Outcome]) -> tuple[Outcome, float]:
    began = here.clock.elapsed
    return work(), here.clock.elapsed - began


@pytest.mark.parametrize(
    ("why", "cause", "kind"),
    [
        ("can't write the disk: Input/output error", "disk", Transient),
        ("https://images/x.raw: connection reset, after 5 tries", "fetch", Transient),
        ("the signature of the image does not verify", "signature", Permanent),
        ("the digest of what was written is 00, not cd", "image", Permanent),
        ("the image server is too slow: 1000 bytes in 60 s", "fetch", Transient),
        ("/dev/nvme0n1: the disk failed while it was written at byte 4096: Input/output error", "disk", Transient),
        ("no disk has serial S1; disks here: none", "root_disk", Permanent),
        ("2 disks have wwn 5000; disks here: sda, sdb", "root_disk", Permanent),
        (
            "ubuntu-gpu 2026.11.1 is signed with the key release, which this installer does not have",
            "signature",
            Permanent,
        ),
        ("the document is for serial number S1, and this machine has S2", "machine", Permanent),
        ("ssh.user_ca: a key is more than one line", "document", Permanent),
        ("the disk does not have the layout", "layout", Permanent),
        ("the signature of the image: words alone decide nothing", "", Transient),
    ],
)
def test_an_installer_that_fails_ends_the_attempt_with_its_reason(
    world: Worlds, why: str, cause: str, kind: type
) -> None:
    """Asking for the same again is of use only where the cause may have gone. No cause is one that may have."""
    here = world(
        nodes=1, drift=OLD, faults={"n0": {"installer_fails": {"phase": "started", "why": why, "cause": cause}}}
    )
    outcome, seconds = timed(here, lambda: here.act("reimage"))
    assert isinstance(outcome, kind)
    assert outcome.detail == f"the installer failed: {why}"
    assert seconds < STARTS_S + 60
    assert writes(here) == (0, 0)
    assert here.lab.installs.attempts == {}, "it is withdrawn"


@pytest.mark.parametrize("phase", ["started", "writing", "written"])
def test_in_whatever_phase_it_fails_the_next_attempt_installs(world: Worlds, phase: str) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"installer_fails": {"phase": phase}}})
    assert isinstance(here.act("reimage"), Transient)
    assert installed(here, here.act("reimage"))
    assert writes(here) == ((1, 1) if phase == "started" else (2, 1))


def test_an_installer_that_dies_is_given_up_after_ten_minutes_of_silence(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"installer_dies": {"percent": 60}}})
    outcome, seconds = timed(here, lambda: here.act("reimage"))
    assert isinstance(outcome, Transient)
    assert outcome.detail == "the installer has been silent for 10m; its last word was: writing 60 %, 33 MB/s"
    assert SILENT_S < seconds - STARTS_S - 0.6 * TYPICAL.install_s < SILENT_S + 60
    assert installed(here, here.act("reimage"))


def test_an_installer_that_never_reports_is_given_up_too(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"installer_silent": {}}})
    outcome, seconds = timed(here, lambda: here.act("reimage"))
    assert isinstance(outcome, Transient)
    assert outcome.detail == "the installer has been silent for 10m; its last word was: nothing"
    assert SILENT_S < seconds - STARTS_S < TYPICAL.install_s + SILENT_S + 60  # its host key was its last call


def test_before_its_document_is_fetched_the_boot_deadline_applies(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"post_hang": {}}})
    outcome, seconds = timed(here, lambda: here.act("reimage"))
    assert isinstance(outcome, Transient)
    assert "did not start: 30m after power on" in outcome.detail
    assert BOOT_S < seconds < BOOT_S + 120


def beside(here: World, others: Callable[[], Coroutine[Any, Any, None]]) -> Outcome:
    """Reimage n0 while something else happens."""

    async def both() -> Outcome:
        at_once = asyncio.create_task(others())
        outcome = await here.acting("reimage")
        await at_once
        return outcome

    return here.run(both())


def test_no_silence_counts_while_our_server_was_away(world: Worlds) -> None:
    """The installer repeats its last word for half an hour, so a server that is back by then has it."""
    here = world(nodes=1, drift=OLD)

    async def away() -> None:
        await here.clock.sleep(STARTS_S + 100)
        here.lab.installs.goes_away()
        await here.clock.sleep(SILENT_S - 60)
        here.lab.installs.comes_back(here.clock.elapsed)

    assert installed(here, beside(here, away))
    assert writes(here) == (1, 1)


def test_a_machine_that_ended_unheard_boots_its_disk_once(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off without `installed`, but with its certificate: our nonce means done."""
    answer = InstallServer.answer

    def until_certified(server: InstallServer, url: str, body: str | None, now: float) -> str | None:
        said = answer(server, url, body, now)
        if url.endswith("/hostkey"):
            server.goes_away()
        return said

    monkeypatch.setattr(InstallServer, "answer", until_certified)  # before the machines get to know their server
    here = world(nodes=1, drift=OLD)

    async def away() -> None:
        await here.clock.sleep(STARTS_S + TYPICAL.install_s)
        for _ in range(8):  # our process is here, and its network is not: each time it returns, silence begins anew
            await here.clock.sleep(SILENT_S / 2)
            here.lab.installs.listening_since = here.clock.elapsed

    assert installed(here, beside(here, away))
    assert writes(here) == (1, 1)


def test_a_power_cut_during_the_write_fails_the_attempt_and_the_next_one_installs(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)

    async def cut() -> None:
        await here.clock.sleep(STARTS_S + TYPICAL.install_s / 2)
        here.machine("n0").power("force_off")

    outcome, seconds = timed(here, lambda: beside(here, cut))
    assert isinstance(outcome, Transient)
    assert "the machine went off, and the installer's last word was: writing" in outcome.detail
    assert seconds < STARTS_S + TYPICAL.install_s / 2 + LOOK_S + AGAIN_S + 2 * LISTEN_S, "its disk is not booted"
    assert installed(here, here.act("reimage"))
    assert writes(here) == (2, 1)


def test_a_power_cut_before_the_host_key_is_certified_fails_the_attempt_at_once(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is written, and nothing of it boots: what makes it boot comes after the key."""
    answer, signs = InstallServer.answer, False

    def but_for_host_keys(server: InstallServer, url: str, body: str | None, now: float) -> str | None:
        return None if url.endswith("/hostkey") and not signs else answer(server, url, body, now)

    monkeypatch.setattr(InstallServer, "answer", but_for_host_keys)
    here = world(nodes=1, drift=OLD)

    async def cut() -> None:
        await here.clock.sleep(STARTS_S + TYPICAL.install_s + 60.0)
        here.machine("n0").power("force_off")

    outcome, seconds = timed(here, lambda: beside(here, cut))
    assert isinstance(outcome, Transient)
    assert "the machine went off, and the installer's last word was: written" in outcome.detail
    assert seconds < STARTS_S + TYPICAL.install_s + 60.0 + LOOK_S + AGAIN_S + 2 * LISTEN_S, "its disk is not booted"
    signs = True
    assert installed(here, here.act("reimage"))
    assert writes(here) == (2, 1)


def test_a_machine_that_stays_on_after_its_last_word_is_switched_off(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(nodes=1, drift=OLD)
    machine, off = here.machine("n0"), Lifecycle._power_off

    def stays() -> None:
        if machine.state.phase != "installer":
            off(machine)

    monkeypatch.setattr(machine, "_power_off", stays)
    began = here.clock.elapsed

    def forced() -> None:
        monkeypatch.undo()
        force()

    force = machine._order_force_off
    monkeypatch.setattr(machine, "_order_force_off", forced)
    assert installed(here, here.act("reimage"))
    assert here.clock.elapsed - began > STARTS_S + TYPICAL.install_s + ENDS_S
    assert writes(here) == (1, 1)


def test_a_second_host_key_ends_the_attempt_and_holds_the_node(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"installer_second_key": {}}})
    outcome = here.act("reimage")
    assert isinstance(outcome, Permanent)
    assert "a second, different SSH host key" in outcome.detail
    [hold] = here.ledger.node("n0").holds
    assert (hold.owner, hold.until) == ("install server", None)
    assert "a second, different SSH host key" in hold.reason
    assert here.machine("n0").state.power == "off"
    assert here.lab.installs.attempts == {}


def test_progress_is_told_by_phase_and_in_steps_of_five_percent(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    told: list[str] = []
    assert isinstance(here.act("reimage", step=told.append), Done)
    assert [text for text in told if text.startswith("installer")] == [
        "installer: writing 0 %",
        *(f"installer: writing {percent} %, 33 MB/s" for percent in range(10, 100, 10)),
        "installer: installed",
    ]  # fmt: skip


# --- a run that is killed, and another one that goes on ---


async def killed_when(here: World, reached: Callable[[], bool]) -> None:
    work = asyncio.create_task(here.acting("reimage"))
    while not reached():
        await here.clock.sleep(1)
        here.machine("n0").catch_up()
        assert not work.done(), work
    work.cancel()
    await asyncio.wait([work])
    here.lab.installs.dies(here.clock.elapsed)


def reported(here: World, phase: InstallPhase, percent: int = 0) -> bool:
    found = [served.status for served in here.lab.installs.attempts.values() if served.status is not None]
    return any(status.phase is phase and (status.percent or 0) >= percent for status in found)


KILLS: dict[str, Callable[[World], bool]] = {
    "fetched": lambda here: any(served.fetched for served in here.lab.installs.attempts.values()),
    "started": lambda here: reported(here, InstallPhase.STARTED) or reported(here, InstallPhase.WRITING),
    "writing 50 %": lambda here: reported(here, InstallPhase.WRITING, 50),
    "written": lambda here: here.machine("n0").state.counters.installs == 1,
    "off": lambda here: here.machine("n0").state.counters.installs == 1 and here.machine("n0").state.power == "off",
    "booting": lambda here: (
        here.machine("n0").state.counters.installs == 1 and here.machine("n0").state.phase == "post"
    ),
}


def test_the_next_run_goes_on_with_an_install_though_no_system_answers(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is on, and its installer waits for our server: nothing else would ever answer (G2: old BMCs)."""
    here = world(nodes=1, drift=OLD)
    here.adopt()
    shown = MachineBmc._hot
    monkeypatch.setattr(MachineBmc, "_hot", lambda bmc: replace(shown(bmc), boot_phase=None))
    here.run(killed_when(here, lambda: KILLS["writing 50 %"](here)))
    here.clock.elapsed += 30
    assert "reimage" in {action.name for action in here.plan().nodes["n0"].actions}
    assert here.apply().results["n0"].state is Ended.DONE
    assert writes(here) == (1, 1)


@pytest.mark.parametrize("away", [30, 400, 3600])
@pytest.mark.parametrize("when", KILLS)
def test_a_run_that_was_killed_is_continued_without_a_second_write(world: Worlds, when: str, away: int) -> None:
    here = world(nodes=1, drift=OLD)
    here.run(killed_when(here, lambda: KILLS[when](here)))
    here.clock.elapsed += away
    [(_, _, _, _, intent)] = here.ledger.unfinished()
    assert installed(here, here.act("reimage", resumed=intent))
    assert writes(here) == (1, 1)
    assert here.machine("n0").state.media is None


@pytest.mark.parametrize("when", KILLS)
def test_a_whole_run_goes_on_with_what_a_killed_one_began(world: Worlds, when: str) -> None:
    here = world(nodes=1, drift=OLD)
    here.adopt()

    async def killed() -> None:
        work = asyncio.create_task(here.applying())
        while not KILLS[when](here):
            await here.clock.sleep(1)
            here.machine("n0").catch_up()
            assert not work.done(), work
        work.cancel()
        await asyncio.wait([work])
        here.lab.installs.dies(here.clock.elapsed)

    here.run(killed())
    here.clock.elapsed += 90
    report = here.apply()
    assert here.serves("n0"), report
    assert writes(here) == (1, 1)


def test_what_is_no_longer_meant_is_not_continued(world: Worlds) -> None:
    """The spec names another image by now: the installer that writes the old one is stopped."""
    here = world(nodes=1, drift=OLD)
    here.run(killed_when(here, lambda: reported(here, InstallPhase.WRITING, 30)))
    [(_, _, _, _, intent)] = here.ledger.unfinished()
    document = {**intent["document"], "image": {**intent["document"]["image"], "version": "2026.10.0"}}
    assert installed(here, here.act("reimage", resumed={**intent, "document": document}))
    assert writes(here) == (2, 1)


# --- other ways in ---


def test_a_bmc_without_virtual_media_boots_the_installer_over_http(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    state = here.machine("n0").state
    state.has_media, state.http_boot = False, True
    assert installed(here, here.act("reimage"))
    assert state.http_boot_uri is not None
    assert state.http_boot_uri.endswith("/boot.iso")
    assert writes(here) == (1, 1)


def test_a_run_over_http_leaves_no_override_that_stays(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD, faults={"n0": {"boot_override_stays": {}}})
    state = here.machine("n0").state
    state.has_media, state.http_boot = False, True
    assert installed(here, here.act("reimage"))
    assert (state.boot_override, state.boot_override_enabled) == ("None", "Disabled")


def test_a_uri_that_the_bmc_does_not_keep_ends_the_attempt_before_power_on(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall D11: accepted, and not stored."""
    here = world(nodes=1, drift=OLD)
    state = here.machine("n0").state
    state.has_media, state.http_boot = False, True
    monkeypatch.setattr(here.machine("n0"), "set_http_boot_uri", lambda _: None)
    outcome = here.act("reimage")
    assert isinstance(outcome, Transient)
    assert outcome.detail == "accepted, but the BMC shows as URI to boot from: none (D11)"
    assert state.counters.boots == 0
    assert here.ledger.node("n0").nonce is None


def test_a_uri_that_is_a_bios_attribute_is_in_force_before_it_is_booted_from(world: Worlds) -> None:
    """As of Dell and HPE (D11): one boot brings the attribute in, with what waited beside it (G3)."""
    here = world(nodes=1, drift=OLD)
    machine = here.machine("n0")
    machine.state.has_media = False
    machine.has_http_device("UrlBootFile")
    machine.stage_bios({"QuietBoot": False})
    assert installed(here, here.act("reimage"))
    assert str(machine.state.bios["UrlBootFile"]).endswith("/boot.iso")
    assert machine.state.bios["QuietBoot"] is False
    assert machine.state.counters.boots == 3, "the attribute, the installer, the disk"


def test_a_bios_that_drops_the_uri_ends_the_attempt(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(nodes=1, drift=OLD)
    machine = here.machine("n0")
    machine.state.has_media = False
    machine.has_http_device("UrlBootFile")
    monkeypatch.setattr(machine, "stage_bios", lambda _: None)
    outcome = here.act("reimage")
    assert isinstance(outcome, Transient)
    assert outcome.detail == "accepted, but 30m after power-on the BIOS lacks UrlBootFile (D11)"
    assert machine.state.power == "off"
    assert here.ledger.node("n0").nonce is None


def by_pxe(here: World) -> None:
    """Let a machine that has nothing else boot over PXE, with a DHCP server that names our file."""
    state = here.machine("n0").state
    state.has_media = False
    state.pxe_url = f"{BASE}/boot/{{mac}}/boot.iso"


def pxe_node(here: World, *ways: BootWay) -> dict[str, d.Desired]:
    node = here.fleet.nodes["n0"]
    port = next(nic for nic in here.machine("n0").state.nics if not nic.rdma)
    network = DesiredNetwork((DesiredLink("eth0", mac=port.mac),))
    return {"n0": replace(node, network=network, profile=replace(node.profile, boot_ways=ways))}


def test_pxe_is_the_last_way(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    by_pxe(here)
    here.fleet = replace(here.fleet, nodes=pxe_node(here, *BootWay))
    assert installed(here, here.act("reimage"))
    assert writes(here) == (1, 1)


def test_without_a_declared_mac_address_there_is_no_pxe(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    by_pxe(here)
    here.fleet = replace(here.fleet, nodes={"n0": replace(pxe_node(here, *BootWay)["n0"], network=None)})
    outcome = here.act("reimage")
    assert isinstance(outcome, Declined)
    assert "PXE needs the MAC address of the port that boots" in outcome.detail


def test_the_spec_orders_the_ways(world: Worlds) -> None:
    """The BMC has virtual media, and the spec wants HTTP first."""
    here = world(nodes=1, drift=OLD)
    state = here.machine("n0").state
    state.http_boot = True
    node = here.fleet.nodes["n0"]
    profile = replace(node.profile, boot_ways=(BootWay.HTTP, BootWay.VIRTUAL_MEDIA))
    here.fleet = replace(here.fleet, nodes={"n0": replace(node, profile=profile)})
    assert installed(here, here.act("reimage"))
    assert str(state.http_boot_uri).endswith("/boot.iso")


def test_a_bmc_with_neither_is_refused_before_the_node_is_drained(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    here.adopt()
    here.machine("n0").state.has_media = False
    result = here.apply().results["n0"]
    assert "no virtual media for discs; the BMC offers no boot from an HTTP URI" in result.detail
    assert writes(here) == (0, 0)
    assert here.did("n0") == []
    assert here.serves("n0")


def test_a_medium_left_by_a_dead_run_is_none_where_there_is_no_slot(world: Worlds) -> None:
    here = world(nodes=1, drift=OLD)
    state = here.machine("n0").state
    state.has_media, state.http_boot = False, True
    here.adopt()
    here.run(killed_when(here, lambda: reported(here, InstallPhase.WRITING, 50)))
    here.machine("n0").power("force_off")
    here.clock.elapsed += 60
    here.apply()
    assert here.serves("n0")
