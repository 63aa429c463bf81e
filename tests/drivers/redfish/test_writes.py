"""Writes change the BMC's world as asked, or say exactly why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from reconciler.drivers.redfish import RedfishBmc
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, BmcTask, FirmwareItem
from reconciler.model.ports import FirmwareFile, PowerAction
from tests.drivers.redfish.bench import (
    BIOS,
    CD,
    INVENTORY,
    MANAGER,
    SETTINGS,
    SYSTEM,
    TASKS,
    UPDATE,
    Bench,
    Call,
    machine,
    play,
    refusal,
)

RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
INSERT = f"{CD}/Actions/VirtualMedia.InsertMedia"
EJECT = f"{CD}/Actions/VirtualMedia.EjectMedia"
SIMPLE_UPDATE = f"{UPDATE}/Actions/UpdateService.SimpleUpdate"
ISO = "http://10.20.0.2:8089/3f9c/boot.iso"


async def failure(awaitable: Any) -> DriverError:
    with pytest.raises(DriverError) as caught:
        await awaitable
    return caught.value


# --- power -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "word", "state"),
    [
        (PowerAction.FORCE_OFF, "ForceOff", "Off"),
        (PowerAction.GRACEFUL_OFF, "GracefulShutdown", "Off"),
    ],
)
def test_power(action: PowerAction, word: str, state: str) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.power(action)
        assert [call.body for call in bench.sent("POST")] == [{"ResetType": word}]
        assert bench.documents[SYSTEM]["PowerState"] == state

    play(machine(), steps)


@pytest.mark.parametrize("status", [400, 409])
def test_a_power_state_that_is_reached_already_is_success(status: int) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", RESET, refusal(status, "InvalidOperationForSystemState"))
        await bmc.power(PowerAction.ON)

    play(machine(), steps)


def test_a_power_conflict_with_another_state_is_busy() -> None:
    """iDRAC10 refuses On for a while after power-off (A7)."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents[SYSTEM]["PowerState"] = "Off"
        bench.answer("POST", RESET, refusal(409, "PSU501"))
        error = await failure(bmc.power(PowerAction.ON))
        assert (error.kind, error.retry_after) == (Failure.BUSY, 10.0)
        await bmc.power(PowerAction.ON)
        assert bench.documents[SYSTEM]["PowerState"] == "On"

    play(machine(), steps)


@pytest.mark.parametrize("action", PowerAction)
def test_a_dgx_can_be_told_every_order(action: PowerAction) -> None:
    """It knows no GracefulRestart (NVIDIA/libredfish, tests/mockups/nvidia_viking)."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        reset = bench.documents[SYSTEM]["Actions"]["#ComputerSystem.Reset"]
        reset["ResetType@Redfish.AllowableValues"] = ["ForceOff", "ForceRestart", "GracefulShutdown", "On"]
        if action is PowerAction.ON:
            bench.documents[SYSTEM]["PowerState"] = "Off"
        await bmc.power(action)

    play(machine(), steps)


def test_reset_types_come_from_the_bmc() -> None:
    bench = machine()
    reset = bench.documents[SYSTEM]["Actions"]["#ComputerSystem.Reset"]
    del reset["ResetType@Redfish.AllowableValues"]
    reset["@Redfish.ActionInfo"] = f"{SYSTEM}/ResetActionInfo"
    bench.documents[f"{SYSTEM}/ResetActionInfo"] = {
        "Parameters": [{"Name": "ResetType", "AllowableValues": ["ForceOn", "ForceOff"]}]
    }

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents[SYSTEM]["PowerState"] = "Off"
        await bmc.power(PowerAction.ON)
        assert bench.sent("POST")[-1].body == {"ResetType": "ForceOn"}
        error = await failure(bmc.power(PowerAction.GRACEFUL_OFF))
        assert error.kind is Failure.UNSUPPORTED
        assert "ForceOn, ForceOff" in error.detail

    play(bench, steps)


# --- boot --------------------------------------------------------------------------------------------------------


def test_boot_once_says_enabled_and_chooses_the_word_that_the_bmc_knows() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        boot = bench.documents[SYSTEM]["Boot"]
        allowed = boot["BootSourceOverrideTarget@Redfish.AllowableValues"]
        await bmc.boot_once("cd")
        assert (boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"]) == ("Once", "UsbCd")
        allowed.remove("UsbCd")
        await bmc.boot_once("cd")
        assert boot["BootSourceOverrideTarget"] == "Cd"
        await bmc.boot_once("disk")
        assert boot["BootSourceOverrideTarget"] == "Hdd"
        allowed.remove("Pxe")
        error = await failure(bmc.boot_once("pxe"))
        assert error.kind is Failure.UNSUPPORTED
        assert "Hdd" in error.detail

    play(machine(), steps)


def test_an_override_that_the_bmc_only_has_as_continuous_is_taken_and_cleared() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        boot = bench.documents[SYSTEM]["Boot"]
        boot["BootSourceOverrideEnabled@Redfish.AllowableValues"] = ["Disabled", "Continuous"]
        await bmc.boot_once("cd")
        assert (boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"]) == ("Continuous", "UsbCd")
        await bmc.clear_boot_override()
        assert (boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"]) == ("Disabled", "None")
        sent = len(bench.sent("PATCH"))
        await bmc.clear_boot_override()
        assert len(bench.sent("PATCH")) == sent

    play(machine(), steps)


def test_boot_mode_is_restated_only_where_a_make_needs_it() -> None:
    for maker, restated in (("Supermicro", True), ("Dell Inc.", False)):

        async def steps(bench: Bench, bmc: RedfishBmc, maker: str = maker) -> bool:
            bench.documents[SYSTEM]["Manufacturer"] = maker
            await bmc.boot_once("pxe")
            return "BootSourceOverrideMode" in bench.sent("PATCH")[0].body["Boot"]

        assert play(machine(), steps) is restated


def test_boot_override_goes_to_the_settings_object_that_has_it() -> None:
    bench = machine()
    bench.documents[SYSTEM]["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": f"{SYSTEM}/SD"}}
    bench.documents[f"{SYSTEM}/SD"] = {
        "Boot": {"BootSourceOverrideTarget": "None", "BootSourceOverrideTarget@Redfish.AllowableValues": ["Cd"]}
    }

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.boot_once("cd")
        assert bench.documents[f"{SYSTEM}/SD"]["Boot"]["BootSourceOverrideTarget"] == "Cd"
        assert bench.documents[SYSTEM]["Boot"]["BootSourceOverrideTarget"] == "None"

    play(bench, steps)


def test_a_boot_change_during_post_is_busy() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("PATCH", SYSTEM, refusal(400, "UnableToModifyDuringSystemPOST"))
        error = await failure(bmc.boot_once("cd"))
        assert (error.kind, error.retry_after) == (Failure.BUSY, 5.0)

    play(machine(), steps)


def test_boot_order_takes_aliases_and_keeps_what_it_does_not_name() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        boot = bench.documents[SYSTEM]["Boot"]
        await bmc.set_boot_order(["Hdd", "Pxe"])
        assert boot["BootOrder"] == ["Boot0002", "Boot0001", "Boot0003"]
        await bmc.set_boot_order(["Boot0003"])
        assert boot["BootOrder"] == ["Boot0003", "Boot0002", "Boot0001"]
        before = len(bench.sent("PATCH"))
        await bmc.set_boot_order(["Boot0003", "Hdd"])
        assert len(bench.sent("PATCH")) == before  # so it is already
        error = await failure(bmc.set_boot_order(["Floppy"]))
        assert error.kind is Failure.REJECTED
        assert "there are: Pxe (2), Hdd" in error.detail

    play(machine(), steps)


def test_secure_boot() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.set_secure_boot(False)
        assert bench.documents[f"{SYSTEM}/SecureBoot"]["SecureBootEnable"] is False

    play(machine(), steps)


# --- BIOS --------------------------------------------------------------------------------------------------------


def test_stage_bios_sends_what_differs_at_the_next_reset() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.stage_bios({"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": "NPS1"})
        (call,) = bench.sent("PATCH")
        assert call.path == SETTINGS
        assert call.body["Attributes"] == {"SriovGlobalEnable": "Enabled"}
        assert call.body["@Redfish.SettingsApplyTime"]["ApplyTime"] == "OnReset"
        await bmc.stage_bios({"SriovGlobalEnable": "Enabled"})
        assert len(bench.sent("PATCH")) == 1  # it waits already

    play(machine(), steps)


def test_stage_bios_without_apply_times() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        del bench.documents[BIOS]["@Redfish.Settings"]["SupportedApplyTimes"]
        await bmc.stage_bios({"QuietBoot": False})
        assert bench.sent("PATCH")[0].body == {"Attributes": {"QuietBoot": False}}

    play(machine(), steps)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"SriovGlobalEnable": "Maybe"}, "SriovGlobalEnable can't be 'Maybe': Enabled, Disabled"),
        ({"BootTimeout": 99}, "99 is above 60"),
        ({"BootTimeout": "9"}, "a whole number"),
        ({"QuietBoot": "yes"}, "true or false"),
        ({"Serial": "x"}, "Serial is read-only"),
        ({"NoSuchThing": 1}, "NoSuchThing is not an attribute of this BIOS"),
    ],
)
def test_stage_bios_asks_the_registry_first(wanted: dict[str, Any], words: str) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        error = await failure(bmc.stage_bios(wanted))
        assert error.kind is Failure.REJECTED
        assert words in error.detail
        assert not bench.sent("PATCH")

    play(machine(), steps)


def test_without_a_registry_the_bmc_is_the_judge_of_values() -> None:
    bench = machine()
    del bench.documents["/redfish/v1/registry.json"]

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        error = await failure(bmc.stage_bios({"NoSuchThing": 1}))
        assert error.kind is Failure.REJECTED
        bench.answer("PATCH", SETTINGS, refusal(400, "PropertyValueNotInList", "99 for BootTimeout is not acceptable"))
        error = await failure(bmc.stage_bios({"BootTimeout": 99}))
        assert error.kind is Failure.REJECTED
        assert "99 for BootTimeout is not acceptable" in error.detail

    play(bench, steps)


def test_foreign_pending_settings_are_neither_applied_nor_lost() -> None:
    bench = machine()
    bench.documents[SETTINGS]["Attributes"] = {"BootTimeout": 9, "SriovGlobalEnable": "Disabled"}

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        error = await failure(bmc.stage_bios({"SriovGlobalEnable": "Enabled"}))
        assert error.kind is Failure.REJECTED
        assert "BootTimeout" in error.detail
        assert bench.documents[SETTINGS]["Attributes"]["SriovGlobalEnable"] == "Disabled"
        await bmc.clear_bios()
        assert bench.documents[SETTINGS]["Attributes"]["BootTimeout"] == 5  # as in force: nothing is pending
        await bmc.stage_bios({"SriovGlobalEnable": "Enabled"})
        assert bench.documents[SETTINGS]["Attributes"]["SriovGlobalEnable"] == "Enabled"

    play(bench, steps)


def test_clear_bios_by_the_vendors_own_action() -> None:
    bench = machine()
    bench.documents[SYSTEM]["Manufacturer"] = "Dell Inc."
    clear = f"{SETTINGS}/Actions/Oem/DellManager.ClearPending"
    settings = bench.documents[SETTINGS]
    settings["Attributes"] = {"BootTimeout": 9}
    settings["Actions"] = {"Oem": {"#DellManager.ClearPending": {"target": clear}}}
    bench.actions[clear] = lambda _: settings["Attributes"].clear()

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.clear_bios()
        assert bench.documents[SETTINGS]["Attributes"] == {}

    play(bench, steps)


def test_clear_bios_that_a_bmc_can_not() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents[SETTINGS]["Attributes"] = {"BootTimeout": 9}
        bench.answer("PATCH", SETTINGS, refusal(400, "SYS011", "Pending configuration values are already committed"))
        error = await failure(bmc.clear_bios())
        assert error.kind is Failure.UNSUPPORTED
        assert "already committed" in error.detail

    play(machine(), steps)


# --- ETags (A1) --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("style", "sent"),
    [
        ("strong", ['"1"']),
        ("weak", ['W/"1"']),
        ("weak-compared-strong", ['W/"1"', '"1"']),
        ("empty", [None]),
        ("never", ['"1"', None]),
    ],
)
def test_etags_of_every_kind(style: str, sent: list[str | None]) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.etag_style = style
        await bmc.set_secure_boot(False)
        patches = bench.sent("PATCH")
        assert [call.headers.get("If-Match") for call in patches] == sent
        assert bench.documents[f"{SYSTEM}/SecureBoot"]["SecureBootEnable"] is False
        assert all(call.headers["Accept-Encoding"] == "identity" for call in bench.calls)

    play(machine(), steps)


def test_an_etag_that_changed_meanwhile_is_read_again_once() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        path = f"{SYSTEM}/SecureBoot"

        async def rule(call: Call) -> None:
            if call.method == "PATCH" and len(bench.sent("PATCH")) == 1:
                bench.versions[path] = 7  # somebody else was faster

        bench.rules.append(rule)
        await bmc.set_secure_boot(False)
        assert [call.headers.get("If-Match") for call in bench.sent("PATCH")] == ['"1"', '"7"']

    play(machine(), steps)


def test_a_412_to_everything_is_a_conflict() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("PATCH", f"{SYSTEM}/SecureBoot", 412, forever=True)
        assert (await failure(bmc.set_secure_boot(False))).kind is Failure.CONFLICT
        assert len(bench.sent("PATCH")) == 2

    play(machine(), steps)


# --- media -------------------------------------------------------------------------------------------------------


def test_media_in_the_slot_that_can_insert() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        assert await bmc.media() is None
        await bmc.insert_media(ISO)
        assert await bmc.media() == ISO
        assert bench.documents[CD]["Image"] == ISO
        await bmc.eject_media()
        assert await bmc.media() is None

    play(machine(), steps)


def test_media_under_systems() -> None:
    bench = machine()
    del bench.documents[MANAGER]["VirtualMedia"]
    bench.documents[SYSTEM]["VirtualMedia"] = {"@odata.id": f"{MANAGER}/VirtualMedia"}

    async def steps(_: Bench, bmc: RedfishBmc) -> None:
        await bmc.insert_media(ISO)
        assert await bmc.media() == ISO

    play(bench, steps)


def test_no_slot_for_discs() -> None:
    bench = machine()
    bench.documents[f"{MANAGER}/VirtualMedia"]["Members"] = [{"@odata.id": f"{MANAGER}/VirtualMedia/Usb"}]

    async def steps(_: Bench, bmc: RedfishBmc) -> None:
        assert (await failure(bmc.media())).kind is Failure.UNSUPPORTED

    play(bench, steps)


def test_media_without_actions_takes_a_patch() -> None:
    bench = machine()
    del bench.documents[CD]["Actions"]
    bench.documents[f"{MANAGER}/VirtualMedia"]["Members"].pop(1)

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.insert_media(ISO)
        assert bench.sent("PATCH")[0].body == {"Inserted": True, "WriteProtected": True, "Image": ISO}
        assert await bmc.media() == ISO
        await bmc.eject_media()
        assert await bmc.media() is None

    play(bench, steps)


def test_insert_says_it_in_each_way_once() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> list[dict[str, Any]]:
        async def picky(call: Call) -> web.Response | None:
            if call.path != INSERT or call.body.get("TransferMethod"):
                return None
            return refusal(400, "ActionParameterMissing", args=("TransferProtocolType",))

        bench.rules.append(picky)
        await bmc.insert_media(ISO)
        assert await bmc.media() == ISO
        bench.answer("POST", INSERT, refusal(400, "ActionParameterValueFormatError", "no such image"), forever=True)
        bench.calls.clear()
        error = await failure(bmc.insert_media(ISO))
        assert error.kind is Failure.REJECTED
        return [call.body for call in bench.sent("POST")]

    sent = play(machine(), steps)
    assert [sorted(body) for body in sent] == [
        ["Image"],
        ["Image", "TransferProtocolType"],
        ["Image", "TransferMethod", "TransferProtocolType"],
        ["Image", "Password", "TransferMethod", "TransferProtocolType", "UserName"],
    ]


def test_eject_of_an_empty_slot_is_success_and_is_sent_all_the_same() -> None:
    """Inserted may be stale (E2)."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", EJECT, refusal(400, "NoMedia"), 500)
        await bmc.eject_media()
        await bmc.eject_media()
        assert len(bench.sent("POST")) == 2
        bench.documents[CD].update(Inserted=True, Image=ISO)
        bench.answer("POST", EJECT, refusal(400, "InUse"))
        assert (await failure(bmc.eject_media())).kind is Failure.REJECTED

    play(machine(), steps)


# --- firmware and tasks ------------------------------------------------------------------------------------------


def test_update_firmware_and_follow_its_task() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        uri = await bmc.update_firmware("BIOS", FirmwareFile("https://images.example.com/bios.bin"))
        assert uri == f"{TASKS}/2"
        assert bench.sent("POST")[0].body == {
            "ImageURI": "https://images.example.com/bios.bin",
            "Targets": [f"{INVENTORY}/BIOS"],
            "TransferProtocol": "HTTPS",
        }
        assert await bmc.task(uri) == BmcTask(uri, "Running", done=False, ok=None)
        bench.documents[uri].update(TaskState="Completed", TaskStatus="OK")
        assert await bmc.task(uri) == BmcTask(uri, "Completed", done=True, ok=True)
        del bench.documents[uri]
        assert await bmc.task(uri) is None

    play(machine(), steps)


def test_update_of_an_unknown_component() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        error = await failure(bmc.update_firmware("GPU7", FirmwareFile("https://images.example.com/x")))
        assert error.kind is Failure.REJECTED
        assert "GPU7" in error.detail
        assert not bench.sent("POST")

    play(machine(), steps)


def test_update_with_a_bmc_that_knows_no_targets() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> str:
        async def rule(call: Call) -> web.Response | None:
            if call.path != SIMPLE_UPDATE:
                return None
            if "Targets" in call.body:
                return refusal(400, "ActionParameterUnknown", "Targets is unknown", ("Targets",))
            said = "Please also check Task Resource /redfish/v1/TaskService/Tasks/7 to see more information."
            return web.json_response({"Accepted": {"@Message.ExtendedInfo": [{"Message": said}]}}, status=202)

        bench.rules.append(rule)
        return await bmc.update_firmware("BIOS", FirmwareFile("http://images.example.com/bios.bin"))

    assert play(machine(), steps) == f"{TASKS}/7"


def test_update_without_a_task_is_ambiguous_and_a_refused_image_is_not_tried_again() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", SIMPLE_UPDATE, 204, refusal(400, "ImageInvalid", "the image does not fit"))
        assert (await failure(bmc.update_firmware("BIOS", FirmwareFile("http://i/x")))).kind is Failure.AMBIGUOUS
        assert (await failure(bmc.update_firmware("BIOS", FirmwareFile("http://i/x")))).kind is Failure.REJECTED
        assert len(bench.sent("POST")) == 2

    play(machine(), steps)


def test_dell_firmware_is_named_without_its_version() -> None:
    bench = machine()
    bench.documents[SYSTEM].update(Manufacturer="Dell Inc.", SKU="F54P1G3")
    versions = {"Installed-159-1.8.2__BIOS.Setup.1-1": "1.8.2", "Previous-159-1.2.4__BIOS.Setup.1-1": "1.2.4"}
    bench.documents[INVENTORY]["Members"] = [{"@odata.id": f"{INVENTORY}/{id_}"} for id_ in versions]
    for id_, version in versions.items():
        bench.documents[f"{INVENTORY}/{id_}"] = {"@odata.id": f"{INVENTORY}/{id_}", "Id": id_, "Version": version}

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        found = await bmc.inventory()
        assert isinstance(found, Answered)
        assert found.value.firmware == {"BIOS.Setup.1-1": FirmwareItem("1.8.2")}
        await failure(bmc.update_firmware("BIOS.Setup.1-1", FirmwareFile("http://i/x")))
        assert bench.sent("POST")[0].body["Targets"] == [f"{INVENTORY}/Installed-159-1.8.2__BIOS.Setup.1-1"]

    play(bench, steps)


# --- the BMC itself ----------------------------------------------------------------------------------------------


def test_reset_and_go_on_with_a_new_session() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.reset()
        assert bench.sent("POST")[0].body == {"ResetType": "GracefulRestart"}
        assert await bmc.media() is None
        assert bench.logins == 2

    play(machine(), steps)


def test_one_call_at_a_time() -> None:
    bench = machine()
    inside = most = 0

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        nonlocal inside, most

        async def slow(call: Call) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.005)
            inside -= 1

        bench.rules.append(slow)
        await asyncio.gather(bmc.hot(), bmc.media(), bmc.boot_once("cd"), bmc.hot(), bmc.set_secure_boot(True))

    play(bench, steps)
    assert most == 1


# --- drives ------------------------------------------------------------------------------------------------------

DRIVE = f"{SYSTEM}/Storage/NVMe/Drives/0"
ERASE = f"{DRIVE}/Actions/Drive.SecureErase"
SERIAL = "S6C1NA0TA04209"


def erasing() -> Bench:
    """Return a BMC whose drive has the action as those of Cisco UCS have it: a target, and nothing else."""
    bench = machine()
    bench.documents[DRIVE]["Actions"] = {"#Drive.SecureErase": {"target": ERASE}}
    return bench


def test_a_drive_is_erased_by_its_serial_number_and_the_task_is_followed() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", ERASE, web.json_response({}, status=202, headers={"Location": f"{TASKS}/7"}))
        found = await bmc.inventory()
        assert isinstance(found, Answered)
        assert [drive.erasable for drive in found.value.drives or ()] == [True]
        assert await bmc.secure_erase(SERIAL) == f"{TASKS}/7"
        assert [(call.path, call.body) for call in bench.sent("POST")] == [(ERASE, {})]

    play(erasing(), steps)


@pytest.mark.parametrize("serial", ["S6C1NA0TA0420", SERIAL.lower(), ""])
def test_no_drive_is_erased_whose_serial_number_is_not_exactly_the_same(serial: str) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        assert (await failure(bmc.secure_erase(serial))).kind is Failure.REJECTED
        assert not bench.sent("POST")

    play(erasing(), steps)


def test_a_bmc_that_does_not_offer_it_erases_nothing() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        found = await bmc.inventory()
        assert isinstance(found, Answered)
        assert [drive.erasable for drive in found.value.drives or ()] == [False]
        assert (await failure(bmc.secure_erase(SERIAL))).kind is Failure.UNSUPPORTED

    play(machine(), steps)


def test_an_erase_without_a_task_proves_nothing() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", ERASE, 204)
        assert (await failure(bmc.secure_erase(SERIAL))).kind is Failure.AMBIGUOUS

    play(erasing(), steps)
