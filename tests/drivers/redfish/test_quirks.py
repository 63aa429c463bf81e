"""Each quirk of the table on a BMC of the lab that has it: what goes wrong without, and that it goes well with it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.redfish import BmcRegistry, RedfishBmc
from reconciler.drivers.redfish.quirks import (
    Behaviours,
    Entry,
    Quirks,
    QuirksError,
    Table,
    load_table,
    packaged,
    quirks_of,
)
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.lab.wire.redfish_quirks import BURST_S
from reconciler.lab.wire.redfish_quirks import Quirks as LabQuirks
from reconciler.model.abilities import URL, Ability
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered
from reconciler.model.ports import FirmwareFile, PowerAction
from reconciler.model.vocab import BootPhase
from tests.conftest import ROOT
from tests.drivers.redfish.bench import NOW, client
from tests.lab.redfish_bench import BIOS_IMAGE, EPOCH, ISO, PASSWORD, USERNAME, Clock, Trust, make_machine, make_trust

PITFALLS = ROOT / ".github" / "PITFALLS.md"


@dataclass
class Lab:
    """A machine of one make, and a driver with `table`."""

    front: RedfishServer
    clock: Clock
    bmc: RedfishBmc

    @property
    def machine(self) -> Any:
        return self.front._bmc.machine

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.machine.catch_up()

    async def hot(self) -> Any:
        found = await self.bmc.hot()
        assert isinstance(found, Answered), found
        return found.value

    async def inventory(self) -> Any:
        found = await self.bmc.inventory()
        assert isinstance(found, Answered), found
        return found.value


NodeHistory = Callable[[Lab], Awaitable[bool]]


@dataclass(frozen=True)
class Case:
    """`goes_well`: whether what the operator wants comes about. `firmware`: of the BMC."""

    make: str
    lab: LabQuirks
    goes_well: NodeHistory
    firmware: str = "01.04.00"
    read_timeout: float = 2.0
    extra: tuple[tuple[str, Any], ...] = ()  # a behaviour of no make that we know, for one that comes


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


def play(trust: Trust, case: Case, table: Table) -> bool:
    async def run() -> bool:
        clock = Clock()
        machine = make_machine(clock)
        machine.state.manufacturer, machine.state.firmware["BMC"].version = case.make, case.firmware
        front = RedfishServer(machine, username=USERNAME, password=PASSWORD, quirks=case.lab, epoch=EPOCH)
        port = await front.start(trust.server)

        def now() -> datetime:
            return NOW + timedelta(seconds=clock.seconds)

        bmc = client(
            f"https://127.0.0.1:{port}",
            username=USERNAME,
            password=PASSWORD,
            ca_pem=trust.ca.read_text(),
            insecure=False,
            read_timeout=case.read_timeout,
            now=now,
            bmc_registry=BmcRegistry(now, quirks=table),
        )
        try:
            return await case.goes_well(Lab(front, clock, bmc))
        finally:
            await bmc.close()
            await front.stop()
            await asyncio.sleep(0.01)  # TLS says goodbye

    return asyncio.run(run())


# --- what operators want ---------------------------------------------------------------------------------------------


async def serial_is_that_of_dmi(lab: Lab) -> bool:
    return bool((await lab.hot()).serial == lab.machine.state.serial)


async def pending_values_are_not_taken_for_current(lab: Lab) -> bool:
    await lab.bmc.stage_bios({"QuietBoot": False})
    return "QuietBoot" not in (await lab.inventory()).bios and (await lab.hot()).pending_bios == {"QuietBoot": False}


async def pending_values_can_be_dropped(lab: Lab) -> bool:
    """A make that queues a job for each write would get one more by writing the old value back."""
    await lab.bmc.stage_bios({"QuietBoot": False})
    writes = lab.machine.state.counters.bios_writes
    await lab.bmc.clear_bios()
    return bool((await lab.hot()).pending_bios == {} and lab.machine.state.counters.bios_writes == writes)


async def firmware_has_names_that_stay(lab: Lab) -> bool:
    return bool("BIOS" in (await lab.inventory()).firmware)


async def firmware_has_the_vendors_version(lab: Lab) -> bool:
    return bool((await lab.inventory()).firmware["BIOS"].version == lab.machine.state.firmware["BIOS"].version)


async def a_running_system_is_not_in_post(lab: Lab) -> bool:
    return (await lab.hot()).boot_phase is not BootPhase.POST


async def post_is_seen(lab: Lab) -> bool:
    await lab.bmc.power(PowerAction.FORCE_OFF)
    lab.pass_time(60)
    off = (await lab.hot()).boot_phase
    await lab.bmc.power(PowerAction.ON)
    lab.pass_time(5)
    return (off, (await lab.hot()).boot_phase) == (BootPhase.OFF, BootPhase.POST)


async def the_boot_device_is_set_and_the_mode_stays(lab: Lab) -> bool:
    try:
        await lab.bmc.boot_once("pxe")
    except DriverError as error:
        return error.kind is not Failure.REJECTED
    assert (await lab.hot()).boot_override.target == "Pxe"
    return lab.front._bmc.memory.get("boot mode", "UEFI") == "UEFI"


async def a_failed_task_ends(lab: Lab) -> bool:
    lab.machine.inject("firmware_fails")
    uri = await lab.bmc.update_firmware("BIOS", FirmwareFile(BIOS_IMAGE))
    lab.pass_time(3600)
    task = await lab.bmc.task(uri)
    assert task is not None
    return (task.done, task.ok) == (True, False)


async def a_new_task_is_not_taken_for_lost(lab: Lab) -> bool:
    uri = await lab.bmc.update_firmware("BIOS", FirmwareFile(BIOS_IMAGE))
    new = await lab.bmc.task(uri)
    lab.pass_time(20)
    assert await lab.bmc.task(uri) is not None
    lab.machine.inject("firmware_task_lost")
    lab.pass_time(60)
    assert await lab.bmc.task(uri) is None
    return new is not None and (new.done, new.ok) == (False, None)


async def the_medium_is_booted(lab: Lab) -> bool:
    await lab.bmc.power(PowerAction.FORCE_OFF)
    lab.pass_time(60)
    await lab.bmc.eject_media()
    await lab.bmc.insert_media(ISO)
    assert await lab.bmc.media() == ISO
    await lab.bmc.boot_once("cd")
    await lab.bmc.power(PowerAction.ON)
    lab.pass_time(151)
    return bool(lab.machine.state.phase == "installer")


async def a_uri_that_it_does_not_take_is_no_way_to_boot(lab: Lab) -> bool:
    """Pitfall D11."""
    abilities = (await lab.inventory()).abilities
    return "UrlBootFile is not an attribute of this BIOS" in abilities.why_not(Ability.HTTP_BOOT)


async def the_installer_is_booted_over_http(lab: Lab) -> bool:
    """Pitfall D11: the URI is staged for one boot, and booted from in the next."""
    abilities = (await lab.inventory()).abilities
    if abilities.why_not(Ability.HTTP_BOOT):
        return False
    attributes = abilities.http_attributes
    await lab.bmc.power(PowerAction.FORCE_OFF)
    lab.pass_time(10)
    await lab.bmc.stage_bios({name: value.replace(URL, ISO) for name, value in attributes.items()})
    await lab.bmc.power(PowerAction.ON)
    lab.pass_time(200)
    await lab.bmc.power(PowerAction.FORCE_OFF)
    lab.pass_time(10)
    await lab.bmc.boot_http(ISO)
    assert await lab.bmc.http_boot_uri() == ISO
    await lab.bmc.power(PowerAction.ON)
    lab.pass_time(151)
    return bool(lab.machine.state.phase == "installer")


async def a_refused_power_order_says_when_to_come_back(lab: Lab) -> bool:
    lab.machine.inject("power_on_conflict", seconds=20.0)
    await lab.bmc.power(PowerAction.FORCE_OFF)
    lab.pass_time(10)
    with pytest.raises(DriverError) as caught:
        await lab.bmc.power(PowerAction.ON)
    assert caught.value.kind is Failure.BUSY
    return bool(caught.value.retry_after)


def slow(write: Callable[[RedfishBmc], Awaitable[object]]) -> NodeHistory:
    async def is_told_to_the_end(lab: Lab) -> bool:
        await lab.hot()
        try:
            await write(lab.bmc)
        except DriverError as error:
            return error.kind is not Failure.AMBIGUOUS
        return True

    return is_told_to_the_end


async def inventories_do_not_freeze_it(lab: Lab) -> bool:
    return all([isinstance(await lab.bmc.hot(), Answered), isinstance(await lab.bmc.inventory(), Answered)])


async def writes_do_not_freeze_it(lab: Lab) -> bool:
    await lab.hot()
    await asyncio.sleep(BURST_S + 0.05)  # the login was a write too
    try:
        for device in ("pxe", "cd", "disk"):
            await lab.bmc.boot_once(device)
    except DriverError as error:
        return error.kind not in (Failure.AMBIGUOUS, Failure.UNREACHABLE)
    return True


async def a_person_finds_the_machine(lab: Lab) -> bool:
    seen = [(await lab.hot()).indicator]
    for lit in (True, False):
        try:
            await lab.bmc.set_indicator(lit)
        except DriverError as error:
            return error.kind is not Failure.REJECTED
        seen.append((await lab.hot()).indicator)
        assert lab.machine.state.indicator is lit
    return seen == [False, True, False]


DELL = LabQuirks(serial_in_sku=True)
CASES: dict[str, tuple[Case, ...]] = {
    "serial_property": (Case("Dell Inc.", DELL, serial_is_that_of_dmi),),
    "pending_is_delta": (
        Case("Dell Inc.", LabQuirks(settings_shown_early=True), pending_values_are_not_taken_for_current),
    ),
    "clear_pending": (Case("Dell Inc.", LabQuirks(settings_clearable=True), pending_values_can_be_dropped),),
    "firmware_id": (Case("Dell Inc.", LabQuirks(firmware_ids_carry_versions=True), firmware_has_names_that_stay),),
    "firmware_version": (Case("Supermicro", LabQuirks(bios_version_decorated=True), firmware_has_the_vendors_version),),
    "stuck_at": (
        Case(
            "Supermicro",
            LabQuirks(boot_progress_stuck="SystemHardwareInitializationComplete"),
            a_running_system_is_not_in_post,
        ),
    ),
    "post_state": (Case("HPE", LabQuirks(post_state=True, power_conflict=400), post_is_seen),),
    "restate_boot_mode": (
        Case("Supermicro", LabQuirks(boot_mode="flips"), the_boot_device_is_set_and_the_mode_stays),
        Case("ASRock Rack", LabQuirks(boot_mode="required"), the_boot_device_is_set_and_the_mode_stays),
        Case("AMI", LabQuirks(boot_mode="required"), the_boot_device_is_set_and_the_mode_stays),
    ),
    "indicator_at_rest": (Case("Dell Inc.", LabQuirks(indicator="lit_at_rest"), a_person_finds_the_machine),),
    "task_states": (
        Case("Dell Inc.", LabQuirks(task_words={"Exception": "RebootFailed"}), a_failed_task_ends),
        Case("a make", LabQuirks(), a_failed_task_ends),
    ),
    "task_grace": (Case("Dell Inc.", LabQuirks(task_late_s=15.0), a_new_task_is_not_taken_for_lost),),
    "media_slot": (
        Case("Dell Inc.", LabQuirks(media_slot="1", media_dummy="2"), the_medium_is_booted, firmware="1.20.50.50"),
    ),
    "http_boot": (Case("HPE", LabQuirks(http_boot="ignored"), a_uri_that_it_does_not_take_is_no_way_to_boot),),
    "http_attributes": (
        Case("Dell Inc.", LabQuirks(http_attribute="HttpDev1Uri"), the_installer_is_booted_over_http),
        Case("HPE", LabQuirks(http_boot="ignored", http_attribute="UrlBootFile"), the_installer_is_booted_over_http),
    ),
    "conflict_wait": (Case("a make", LabQuirks(), a_refused_power_order_says_when_to_come_back),),
    "patience": (
        Case(
            "a make",
            LabQuirks(slow_writes_s=1.0),
            slow(lambda bmc: bmc.stage_bios({"QuietBoot": False})),
            read_timeout=0.6,
        ),
        Case(
            "a make",
            LabQuirks(slow_writes_s=1.0),
            slow(lambda bmc: bmc.update_firmware("BIOS", FirmwareFile(BIOS_IMAGE))),
            read_timeout=0.6,
        ),
        Case("a make", LabQuirks(slow_writes_s=1.0), slow(lambda bmc: bmc.insert_media(ISO)), read_timeout=0.6),
    ),
    "write_gap": (Case("a make", LabQuirks(most_writes=2), writes_do_not_freeze_it, extra=(("writeGap", "150ms"),)),),
    "read_gap": (
        Case("a make", LabQuirks(most_requests=4), inventories_do_not_freeze_it, extra=(("readGap", "60ms"),)),
    ),
}


@pytest.mark.wire
@pytest.mark.parametrize(
    ("behaviour", "case"),
    [pytest.param(name, case, id=f"{name}-{n}") for name, cases in CASES.items() for n, case in enumerate(cases)],
)
def test_without_the_quirk_it_goes_wrong_and_with_it_well(trust: Trust, behaviour: str, case: Case) -> None:
    table = with_extra(packaged(), case)
    assert play(trust, case, table)
    assert not play(trust, case, without(table, behaviour))


def without(table: Table, behaviour: str) -> Table:
    """The table, had nobody found out about this behaviour."""
    return Table(
        tuple(
            entry.model_copy(update={"behaviours": entry.behaviours.model_copy(update={behaviour: None})})
            for entry in table.entries
        )
    )


def with_extra(table: Table, case: Case) -> Table:
    if not case.extra:
        return table
    given = {name: {"is": value, "pitfall": "A12", "source": "x", "because": "y"} for name, value in case.extra}
    return Table(
        (*table.entries, Entry.model_validate_json(json.dumps({"name": "x", "match": {}, "behaviours": given})))
    )


# --- the table itself ------------------------------------------------------------------------------------------------


def test_every_behaviour_has_code_a_case_and_a_make() -> None:
    names = {item.name for item in fields(Quirks)}
    assert set(Behaviours.model_fields) == names == set(CASES)
    assert {name for entry in packaged().entries for name in entry.behaviours.given()} == names


def test_every_entry_of_the_table_has_a_case() -> None:
    """Each behaviour of a make needs a case with a BMC of that make."""

    def shown(entry: Entry, behaviour: str) -> bool:
        alone = Table((entry,))
        cases = CASES[behaviour]
        return any(_quirks(case, alone) != Quirks() for case in cases)

    for entry in packaged().entries:
        for name in entry.behaviours.given():
            assert shown(entry, name), (entry.name, name)


def _quirks(case: Case, table: Table) -> Quirks | None:
    return quirks_of({"Manufacturer": case.make}, {}, table=table, firmware=lambda: case.firmware)


def test_every_quirk_cites_a_pitfall_that_there_is() -> None:
    known = set(re.findall(r"^\| ([A-N]\d+) \|", PITFALLS.read_text().partition("\n## Conventions\n")[0], re.MULTILINE))
    for entry in packaged().entries:
        for name, given in entry.behaviours.given().items():
            assert given.pitfall in known, (entry.name, name)


GOOD = """\
quirks:
  - name: x
    match: {vendors: [acme], model: "X1.*", firmware: ">=1.5 <2"}
    behaviours:
      mediaSlot: {is: "2", pitfall: E4, source: here, because: it is so}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mediaSlot", "mediaSlit", ":5:7 quirks[0].behaviours: unknown key 'mediaSlit' (did you mean 'mediaSlot'?)"),
        ("pitfall: E4, ", "", ":5:7 quirks[0].behaviours.mediaSlot: key 'pitfall' is missing"),
        ("pitfall: E4", "pitfall: E", ":5:37 quirks[0].behaviours.mediaSlot.pitfall: 'E' is not the ID of a pitfall"),
        ("vendors: [acme]", "vendors: [Acme Inc]", ":3:23 quirks[0].match.vendors[0]"),
        (">=1.5 <2", "1.5 to 2", ":3:55 quirks[0].match.firmware: '1.5 to 2' is not a range of versions"),
        ("X1.*", "X1(", ":3:37 quirks[0].match.model"),
        ("mediaSlot: {is", "readGap: {is", ":5:21 quirks[0].behaviours.readGap.is"),
        ("name: x", "name: x\n    name: y", ":3:5: key 'name' is set twice"),
        ("quirks:", "quirks: [", ":2:"),
    ],
)
def test_a_table_that_is_wrong_says_where(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "quirks.yaml"
    file.write_text(GOOD)
    assert load_table(file).entries[0].name == "x"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(QuirksError) as caught:
        load_table(file)
    assert f"{file}{message}" in str(caught.value)


@pytest.mark.parametrize(
    ("vendor", "model", "firmware", "fits"),
    [
        ("ACME Inc.", "X12", "1.10.2", True),
        ("Acme", "X12", "1.4", False),
        ("Acme", "X12", "2.0", False),
        ("Acme", "X12", None, False),
        ("Acme", "Y1", "1.5", False),
        ("Other", "X12", "1.5", False),
    ],
)
def test_who_an_entry_is_for(tmp_path: Path, vendor: str, model: str, firmware: str | None, fits: bool) -> None:
    file = tmp_path / "quirks.yaml"
    file.write_text(GOOD)
    found = quirks_of({"Manufacturer": vendor, "Model": model}, {}, table=load_table(file), firmware=lambda: firmware)
    assert found is not None
    assert (found.media_slot == "2") is fits


@pytest.mark.wire
def test_the_managers_firmware_is_asked_for_once_and_only_where_it_matters(trust: Trust) -> None:
    async def asked(lab: Lab) -> bool:
        for _ in range(3):
            await lab.hot()
        return lab.front.requests["GET", "/redfish/v1/Managers/1"] == 1

    assert play(trust, Case("Dell Inc.", DELL, asked), packaged())
    assert not play(trust, Case("HPE", LabQuirks(), asked), packaged())


def test_the_table_is_quickly_read() -> None:
    began = time.process_time()
    load_table()
    assert time.process_time() - began < 0.5
