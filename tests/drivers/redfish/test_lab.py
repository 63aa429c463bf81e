"""Every method of the port on a machine of the lab, in the ways of each make of BMC."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.redfish import RedfishBmc
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.lab.wire.redfish_quirks import EtagStyle, Quirks, Silence, quirks_of_make
from reconciler.lab.wire.redfish_update import substitute_for
from reconciler.model.abilities import Ability
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import HTTP, Answered, BmcTask, RedfishHot, RedfishInventory, Silent
from reconciler.model.ports import FirmwareFile, PowerAction
from reconciler.model.vocab import BootPhase, Health, Power, UnknownReason
from tests.drivers.redfish.bench import SYSTEM, client
from tests.lab.redfish_bench import BIOS_IMAGE, EPOCH, ISO, PASSWORD, USERNAME, Clock, Trust, make_machine, make_trust

pytestmark = pytest.mark.wire

MAKES = {
    "Supermicro": quirks_of_make("Supermicro"),
    "Dell Inc.": quirks_of_make("Dell Inc."),
    "HPE": quirks_of_make("HPE"),
    "NVIDIA": quirks_of_make("NVIDIA"),
    "no ETags at all": Quirks(etags=EtagStyle.REFUSED, settings_apply_time=False, boot_progress=False),
    "empty ETags": Quirks(etags=EtagStyle.EMPTY, expand=False, error_info_as_list=False, unavailable_in_restart=True),
    "its own media": Quirks(
        media_target="UsbCd", media_under_system=True, media_bare_slot=True, media_protocol_required=True
    ),
    "compressed": Quirks(etags=EtagStyle.WEAK, compress=True, unreachable=Silence.HANG),
    "takes no URL": Quirks(firmware_sent=True),
}


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


class Lab:
    def __init__(self, make: str, quirks: Quirks, trust: Trust) -> None:
        self.clock = Clock()
        self.machine = make_machine(self.clock)
        if make[0].isupper():
            self.machine.state.manufacturer = make
        self.front = RedfishServer(self.machine, username=USERNAME, password=PASSWORD, quirks=quirks, epoch=EPOCH)
        self.trust = trust

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.machine.catch_up()


def play(lab: Lab, steps: Callable[[Lab, RedfishBmc], Awaitable[None]]) -> None:
    async def run() -> None:
        port = await lab.front.start(lab.trust.server)
        options: dict[str, Any] = {"ca_pem": lab.trust.ca.read_text(), "insecure": False}
        bmc = client(f"https://127.0.0.1:{port}", username=USERNAME, password=PASSWORD, **options)
        try:
            await steps(lab, bmc)
        finally:
            await bmc.close()
            await lab.front.stop()
            await asyncio.sleep(0.01)  # TLS says goodbye

    asyncio.run(run())


@pytest.fixture(params=MAKES)
def lab(request: pytest.FixtureRequest, trust: Trust) -> Lab:
    return Lab(request.param, MAKES[request.param], trust)


async def hot(bmc: RedfishBmc) -> RedfishHot:
    found = await bmc.hot()
    assert isinstance(found, Answered), found
    return found.value


async def inventory(bmc: RedfishBmc) -> RedfishInventory:
    found = await bmc.inventory()
    assert isinstance(found, Answered), found
    return found.value


def test_reads_tell_the_truth(lab: Lab) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        truth = lab.machine.state
        first = await hot(bmc)
        assert (first.serial, first.uuid) == (truth.serial, truth.uuid)
        assert (first.manufacturer, first.model) == (truth.manufacturer, truth.model)
        assert (first.power, first.health, first.tasks, first.pending_bios) == (Power.ON, Health.OK, (), {})
        assert first.boot_phase in (BootPhase.OS_RUNNING, None)
        found = await inventory(bmc)
        assert found.bios == truth.bios
        assert found.secure_boot is True
        assert found.boot_order == tuple(truth.boot_order)
        assert found.firmware is not None
        assert {id_: item.version for id_, item in found.firmware.items()} == {
            id_: item.version for id_, item in truth.firmware.items()
        }
        assert (found.memory_bytes, found.dimms, found.processors) == (
            truth.memory_bytes,
            truth.dimms,
            truth.processors,
        )
        assert found.nics is not None
        assert {nic.mac for nic in found.nics} == {nic.mac for nic in truth.nics}
        assert found.drives is not None
        assert {(drive.serial, drive.wwn) for drive in found.drives} == {(d.serial, d.wwn) for d in truth.drives}
        assert found.sensors
        assert found.events is not None
        assert found.manager is not None
        assert found.manager.clock == EPOCH + timedelta(seconds=lab.clock.seconds)
        assert not found.unknown
        lab.front.requests.clear()
        assert await hot(bmc) == first
        assert sum(lab.front.requests.values()) <= 6

    play(lab, steps)


def test_power(lab: Lab) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        await bmc.power(PowerAction.ON)  # it is on
        await bmc.power(PowerAction.GRACEFUL_OFF)
        lab.pass_time(60)
        found = await hot(bmc)
        assert (found.power, found.boot_phase) == (Power.OFF, BootPhase.OFF)
        await bmc.power(PowerAction.FORCE_OFF)  # it is off
        await bmc.power(PowerAction.ON)
        lab.pass_time(5)
        assert (await hot(bmc)).boot_phase in (BootPhase.POST, None)

    play(lab, steps)


def test_bios(lab: Lab) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        wanted: dict[str, str | int | bool] = {"SriovGlobalEnable": "Enabled", "QuietBoot": False}
        with pytest.raises(DriverError) as caught:
            await bmc.stage_bios({"SriovGlobalEnable": "Maybe"})
        assert caught.value.kind is Failure.REJECTED
        await bmc.stage_bios(wanted)
        assert (await hot(bmc)).pending_bios == wanted
        bios = (await inventory(bmc)).bios
        assert bios is not None
        assert bios.get("QuietBoot") is not False  # what is pending is not in force
        with pytest.raises(DriverError) as caught:
            await bmc.stage_bios({"BootTimeout": 9})
        assert "QuietBoot" in caught.value.detail
        await bmc.clear_bios()
        assert (await hot(bmc)).pending_bios == {}
        await bmc.stage_bios(wanted)
        lab.machine.power("graceful_restart")
        lab.pass_time(400)
        assert (await hot(bmc)).pending_bios == {}
        assert wanted.items() <= ((await inventory(bmc)).bios or {}).items()

    play(lab, steps)


def test_boot_and_media(lab: Lab) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        await bmc.set_boot_order(["Pxe"])
        assert (await inventory(bmc)).boot_order == ("Pxe", "Hdd")
        await bmc.set_secure_boot(False)
        assert lab.machine.state.pending_secure_boot is False
        assert (await inventory(bmc)).secure_boot is True
        await bmc.eject_media()
        assert await bmc.media() is None
        await bmc.insert_media(ISO)
        assert await bmc.media() == ISO
        await bmc.boot_once("cd")
        override = (await hot(bmc)).boot_override
        assert override is not None
        assert (override.enabled, lab.machine.state.boot_override) == ("Once", "Cd")
        await bmc.power(PowerAction.FORCE_OFF)
        lab.pass_time(5)
        await bmc.power(PowerAction.ON)
        lab.pass_time(151)
        assert lab.machine.state.phase == "installer"
        assert (await inventory(bmc)).secure_boot is False
        await bmc.power(PowerAction.FORCE_OFF)
        lab.pass_time(5)
        await bmc.eject_media()
        assert (await bmc.media(), lab.machine.state.media) == (None, None)

    play(lab, steps)


def test_no_boot_change_during_post(lab: Lab) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        await bmc.power(PowerAction.FORCE_OFF)
        lab.pass_time(30)
        await bmc.power(PowerAction.ON)
        lab.pass_time(5)
        with pytest.raises(DriverError) as caught:
            await bmc.boot_once("pxe")
        assert caught.value.kind is Failure.BUSY

    play(lab, steps)


def test_firmware(lab: Lab, tmp_path: Path) -> None:
    copy, content = tmp_path / "1", substitute_for(BIOS_IMAGE)
    copy.write_bytes(content)

    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        uri = await bmc.update_firmware("BIOS", FirmwareFile(BIOS_IMAGE, str(copy), len(content)))
        found = await bmc.task(uri)
        assert isinstance(found, BmcTask)
        assert not found.done
        assert [task.uri for task in (await hot(bmc)).tasks or ()] == [uri]
        lab.pass_time(3600)
        found = await bmc.task(uri)
        assert found is not None
        assert (found.done, found.ok) == (True, True)
        assert (await hot(bmc)).tasks == ()
        assert list(await bmc.tasks()) == [uri], "whoever was not told of it finds it, ended or not"
        lab.machine.power("graceful_restart")
        lab.pass_time(400)
        firmware = (await inventory(bmc)).firmware
        assert firmware is not None
        assert firmware["BIOS"].version == "2.4"

    play(lab, steps)


def test_reset(lab: Lab) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        await hot(bmc)
        await bmc.reset()
        found = await bmc.hot()
        assert isinstance(found, Silent)
        assert found.reason in (UnknownReason.UNREACHABLE, UnknownReason.TIMEOUT)
        lab.pass_time(100)
        await hot(bmc)
        assert lab.front.refused_logins == 0
        await bmc.close()
        assert lab.front.open_sessions == 0

    play(lab, steps)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("bmc_unreachable", UnknownReason.UNREACHABLE),
        ("bmc_503", UnknownReason.UNREACHABLE),
        ("bmc_sessions", UnknownReason.BUSY),
        ("bmc_garbage", UnknownReason.MALFORMED),
        ("bmc_wrong_password", UnknownReason.AUTH),
    ],
)
def test_faults_of_the_bmc(trust: Trust, fault: str, reason: UnknownReason) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        lab.machine.inject(fault)
        for _ in range(2):
            found = await bmc.hot()
            assert isinstance(found, Silent)
            assert found.reason is reason
        assert lab.front.refused_logins <= 1
        lab.machine.clear()
        found = await bmc.hot()
        assert isinstance(found, Answered) is (fault not in ("bmc_wrong_password", "bmc_sessions")), "it pauses"

    play(Lab("Supermicro", MAKES["Supermicro"], trust), steps)


def test_writes_that_are_swallowed_are_ambiguous(trust: Trust) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        with pytest.raises(DriverError) as caught:
            await bmc.set_secure_boot(False)
        assert caught.value.kind is Failure.AMBIGUOUS
        assert lab.machine.state.pending_secure_boot is False
        with pytest.raises(DriverError) as caught:
            await bmc.power(PowerAction.FORCE_OFF)
        assert caught.value.kind is Failure.AMBIGUOUS
        lab.pass_time(5)
        assert lab.machine.state.power == "off"
        assert lab.front.requests["POST", f"{SYSTEM}/Actions/ComputerSystem.Reset"] == 1

    play(Lab("a mute", Quirks(swallows_writes=True), trust), steps)


def test_lost_task(trust: Trust) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        uri = await bmc.update_firmware("BIOS", FirmwareFile(BIOS_IMAGE))
        lab.machine.inject("firmware_task_lost")
        assert await bmc.task(uri) is None

    play(Lab("Supermicro", MAKES["Supermicro"], trust), steps)


# Where the override is in the settings object, as on NVIDIA's Viking, HttpBootUri is there too (NVIDIA/libredfish,
# tests/mockups/nvidia_viking, Systems/DGX/SD).
@pytest.mark.parametrize("in_settings", [False, True])
def test_boot_over_http(trust: Trust, in_settings: bool) -> None:
    quirks = Quirks(http_boot="taken", virtual_media=False, boot_in_settings=in_settings)

    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        abilities = (await inventory(bmc)).abilities
        assert abilities is not None
        assert abilities.why_not(Ability.MEDIA) == "the BMC offers no virtual media for discs"
        assert abilities.why_not(Ability.HTTP_BOOT) == ""
        assert await bmc.http_boot_uri() is None
        await bmc.boot_http(ISO)
        assert await bmc.http_boot_uri() == ISO
        override = (await hot(bmc)).boot_override
        assert override is not None
        assert override.boots(HTTP)
        await bmc.power(PowerAction.FORCE_OFF)
        lab.pass_time(5)
        await bmc.power(PowerAction.ON)
        lab.pass_time(151)
        assert lab.machine.state.phase == "installer"
        assert lab.machine.state.installer is not None
        assert lab.machine.state.installer.medium == ISO

    play(Lab("AMI", quirks, trust), steps)


def test_a_bmc_without_a_uri_to_boot_from_says_so(trust: Trust) -> None:
    async def steps(_: Lab, bmc: RedfishBmc) -> None:
        with pytest.raises(DriverError, match="no boot from an HTTP URI") as caught:
            await bmc.boot_http(ISO)
        assert caught.value.kind is Failure.UNSUPPORTED
        abilities = (await inventory(bmc)).abilities
        assert abilities is not None
        assert abilities.why_not(Ability.HTTP_BOOT) == "the BMC offers no boot from an HTTP URI"

    play(Lab("a make", Quirks(), trust), steps)


# Dell's attributes are those of NVIDIA/libredfish, tests/mockups/dell, Bios/BiosRegistry: its URI is read-only while
# device 1 is disabled. HPE's are those of tests/mockups/hpe, BiosAttributeRegistryA42.
@pytest.mark.parametrize(
    ("make", "attribute"), [("Dell Inc.", "HttpDev1Uri"), ("HPE", "UrlBootFile"), ("Supermicro", "")]
)
def test_a_uri_to_boot_from_may_be_a_bios_attribute(trust: Trust, make: str, attribute: str) -> None:
    quirks = Quirks(http_attribute=attribute, http_boot="" if attribute else "taken")

    async def steps(_: Lab, bmc: RedfishBmc) -> None:
        abilities = (await inventory(bmc)).abilities
        assert abilities is not None
        assert abilities.why_not(Ability.HTTP_BOOT) == ""
        assert (attribute in abilities.http_attributes) == bool(attribute)

    play(Lab(make, quirks, trust), steps)


def test_a_drive_is_erased(lab: Lab) -> None:
    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        drive = lab.machine.state.drives[1]
        uri = await bmc.secure_erase(drive.serial)
        lab.pass_time(3600.0)
        task = await bmc.task(uri)
        assert task is not None
        assert (task.done, task.ok) == (True, True)
        assert [one.holds for one in lab.machine.state.drives][:2] == [True, False]

    play(lab, steps)


def test_the_locator_led(lab: Lab) -> None:
    """Each make has its own words for it, and some show it by two properties."""

    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        for lit in (True, True, False):
            await bmc.set_indicator(lit)
            assert (await hot(bmc)).indicator is lit
            assert lab.machine.state.indicator is lit

    play(lab, steps)


def test_a_machine_without_a_locator_led(trust: Trust) -> None:
    lab = Lab("Supermicro", MAKES["Supermicro"], trust)
    lab.machine.state.indicator = None

    async def steps(_: Lab, bmc: RedfishBmc) -> None:
        assert (await hot(bmc)).indicator is None
        with pytest.raises(DriverError, match="offers no locator LED") as caught:
            await bmc.set_indicator(True)
        assert caught.value.kind is Failure.UNSUPPORTED

    play(lab, steps)
