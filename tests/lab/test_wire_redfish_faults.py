"""The faults and quirks of the lab's BMCs on the wire: all that Redfish shows. IDs are pitfalls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import sushy

from reconciler.lab.wire.redfish_quirks import EtagStyle, Quirks, Silence, quirks_of_make
from tests.lab.redfish_bench import (
    BIOS_IMAGE,
    CHASSIS,
    INVENTORY,
    ISO,
    MANAGER,
    MEDIA,
    PASSWORD,
    SYSTEM,
    TASKS,
    USERNAME,
    Bench,
)

pytestmark = pytest.mark.wire

MakeBench = Callable[..., Bench]
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
INSERT = f"{MEDIA}/Actions/VirtualMedia.InsertMedia"
EJECT = f"{MEDIA}/Actions/VirtualMedia.EjectMedia"
UPDATE = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
SESSIONS = "/redfish/v1/SessionService/Sessions"
PXE_ONCE = {"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}


def reboot(bench: Bench) -> None:
    bench.machine.power("force_restart")
    bench.pass_time(300)


# --- faults of the transport ---


def test_unreachable_bmc_closes_connections(bench: Bench) -> None:
    bench.machine.inject("bmc_unreachable")
    for _ in range(2):
        with pytest.raises(aiohttp.ServerDisconnectedError):
            bench.call("GET", "/redfish/v1", login=False)
    bench.machine.clear("bmc_unreachable")
    assert bench.call("GET", "/redfish/v1", login=False).status == 200


def test_unreachable_bmc_may_hang_and_does_not_hold_up_the_others(make_bench: MakeBench) -> None:
    """A2: only the client's own timeout ends a hanging request; stopping the lab does not wait for it."""
    bench = make_bench(unreachable=Silence.HANG)
    bench.machine.inject("bmc_unreachable")
    with pytest.raises(asyncio.TimeoutError):
        bench.call("GET", SYSTEM, timeout=0.3)
    began = time.monotonic()
    bench.run(bench.server.stop())
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("unavailable", [False, True])
def test_restarting_bmc_is_gone_for_a_while(make_bench: MakeBench, unavailable: bool) -> None:
    bench = make_bench(unavailable_in_restart=unavailable)
    login = bench.call("POST", SESSIONS, {"UserName": USERNAME, "Password": PASSWORD}, login=False)
    bench.machine.insert_media(ISO)
    assert bench.call("POST", f"{MANAGER}/Actions/Manager.Reset", {"ResetType": "ForceRestart"}).status == 204
    bench.pass_time(30)
    if unavailable:
        assert bench.call("GET", "/redfish/v1", login=False).status == 503
    else:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            bench.call("GET", "/redfish/v1", login=False)
    bench.pass_time(70)
    assert bench.call("GET", SYSTEM, token=login.headers["X-Auth-Token"]).status == 401
    assert bench.get(MEDIA)["Inserted"] is False
    assert bench.get(MANAGER)["LastResetTime"] == "2026-11-01T12:18:10+00:00"


def test_burst_of_503_ends(bench: Bench) -> None:
    """A4."""
    bench.machine.inject("bmc_503", times=2)
    busy = [bench.call("GET", SYSTEM) for _ in range(2)]
    assert [(one.status, one.message_id) for one in busy] == [(503, "ServiceTemporarilyUnavailable")] * 2
    assert busy[0].headers["Retry-After"] == "5"
    assert bench.call("GET", SYSTEM).status == 200


def test_wrong_password_refuses_every_way_in(bench: Bench) -> None:
    """B3. Resources without login still answer."""
    bench.machine.inject("bmc_wrong_password")
    assert bench.call("GET", SYSTEM).status == 401
    refused = bench.call("POST", SESSIONS, {"UserName": USERNAME, "Password": PASSWORD}, login=False)
    assert (refused.status, refused.message_id) == (401, "ResourceAtUriUnauthorized")
    assert bench.call("GET", "/redfish/v1", login=False).status == 200
    assert bench.server.open_sessions == 0
    assert bench.server.refused_logins == 2
    bench.machine.clear("bmc_wrong_password")
    assert bench.call("GET", SYSTEM).status == 200
    assert bench.server.refused_logins == 2


def test_garbage_is_no_json(bench: Bench) -> None:
    """A10."""
    bench.machine.inject("bmc_garbage", times=1)
    answer = bench.call("GET", SYSTEM)
    assert answer.status == 200
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.text)
    assert bench.get(SYSTEM)["Id"] == "1"


def test_a_swallowed_write_happened_all_the_same(make_bench: MakeBench) -> None:
    """A3: the client gets no answer to a write, but still gets refusals."""
    bench = make_bench(swallows_writes=True)
    login = bench.call("POST", SESSIONS, {"UserName": USERNAME, "Password": PASSWORD}, login=False)
    assert login.status == 201  # or no client could write
    with pytest.raises(aiohttp.ServerDisconnectedError):
        bench.call("PATCH", SYSTEM, PXE_ONCE)
    assert bench.get(SYSTEM)["Boot"]["BootSourceOverrideTarget"] == "Pxe"
    assert bench.call("PATCH", SYSTEM, {"Model": "X"}).status == 400


# --- false reports ---


def test_wrong_machine_shows_another_identity_everywhere(bench: Bench) -> None:
    """A14."""
    own = bench.machine.state
    bench.machine.inject("wrong_machine", serial="OTHER-1")
    system = bench.get(SYSTEM)
    assert system["SerialNumber"] == bench.get(CHASSIS)["SerialNumber"] == "OTHER-1"
    assert system["UUID"] == bench.get(MANAGER)["UUID"] == bench.get("/redfish/v1")["UUID"] != own.uuid


def test_ignored_boot_override_is_acknowledged(bench: Bench) -> None:
    """D2: a 200 proves nothing; only a read-back shows whether the override is set."""
    bench.machine.inject("boot_override_ignored", times=1)
    assert bench.call("PATCH", SYSTEM, PXE_ONCE).status == 200
    assert bench.get(SYSTEM)["Boot"]["BootSourceOverrideEnabled"] == "Disabled"
    assert bench.call("PATCH", SYSTEM, PXE_ONCE).status == 200
    assert bench.get(SYSTEM)["Boot"]["BootSourceOverrideEnabled"] == "Once"


def test_boot_override_may_be_shown_and_not_used(bench: Bench) -> None:
    bench.machine.inject("boot_override_ignored", when="boot")
    assert bench.call("POST", INSERT, {"Image": ISO}).status == 204
    once = {"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}}
    assert bench.call("PATCH", SYSTEM, once).status == 200
    assert bench.get(SYSTEM)["Boot"]["BootSourceOverrideTarget"] == "Cd"
    reboot(bench)
    assert bench.machine.state.installer is None
    assert bench.get(SYSTEM)["BootProgress"]["LastState"] == "OSRunning"


def test_target_alone_does_not_enable_the_override(bench: Bench) -> None:
    """D1."""
    assert bench.call("PATCH", SYSTEM, {"Boot": {"BootSourceOverrideTarget": "Pxe"}}).status == 200
    assert bench.get(SYSTEM)["Boot"]["BootSourceOverrideTarget"] == "None"
    target, enabled = "BootSourceOverrideTarget", "BootSourceOverrideEnabled"
    for wrong in ({target: "Floppy"}, {target: ["Pxe"]}, {target: None}, {enabled: "Continuous"}, {enabled: True}):
        assert bench.call("PATCH", SYSTEM, {"Boot": wrong}).message_id == "PropertyValueNotInList"
    legacy = {"Boot": {"BootSourceOverrideMode": "Legacy"}}
    assert bench.call("PATCH", SYSTEM, legacy).message_id == "PropertyValueNotInList"


def test_ignored_bios_write_is_acknowledged(bench: Bench) -> None:
    bench.machine.inject("bios_write_ignored")
    wanted = {"Attributes": {"SriovGlobalEnable": "Enabled"}}
    assert bench.call("PATCH", f"{SYSTEM}/Bios/Settings", wanted).status == 200
    assert bench.get(f"{SYSTEM}/Bios/Settings")["Attributes"] == {}


def test_stale_medium_is_shown_until_it_is_ejected(bench: Bench) -> None:
    """E2: a client that therefore skips the insertion boots nothing."""
    bench.machine.inject("stale_media", url="http://192.0.2.1/old/boot.iso")
    slot = bench.get(MEDIA)
    assert (slot["Inserted"], slot["Image"]) == (True, "http://192.0.2.1/old/boot.iso")
    refused = bench.call("POST", INSERT, {"Image": ISO})
    assert (refused.status, refused.message_id) == (409, "ResourceInUse")
    assert bench.call("POST", EJECT).status == 204
    assert bench.get(MEDIA)["Inserted"] is False
    assert bench.call("POST", INSERT, {"Image": ISO}).status == 204
    assert bench.get(MEDIA)["Image"] == ISO


def test_lost_task_leaves_only_the_outcome(bench: Bench) -> None:
    """A5."""
    bench.machine.inject("firmware_task_lost")
    started = bench.call("POST", UPDATE, {"ImageURI": BIOS_IMAGE, "Targets": [f"{INVENTORY}/BIOS"]})
    assert (started.status, started.headers["Location"]) == (202, f"{TASKS}/1")
    assert bench.call("GET", f"{TASKS}/1").status == 404
    assert bench.get(TASKS)["Members"] == []
    bench.pass_time(700)
    reboot(bench)
    assert bench.get(f"{INVENTORY}/BIOS")["Version"] == "2.4"


def test_failed_update_says_so(bench: Bench) -> None:
    bench.machine.inject("firmware_fails")
    assert bench.call("POST", UPDATE, {"ImageURI": BIOS_IMAGE}).status == 202
    assert bench.call("GET", f"{TASKS}/1").status == 202
    bench.pass_time(700)
    ended = bench.call("GET", f"{TASKS}/1")
    assert (ended.status, ended.body["TaskState"], ended.body["TaskStatus"]) == (200, "Exception", "Critical")
    reboot(bench)
    assert bench.get(f"{INVENTORY}/BIOS")["Version"] == "2.3"


# --- temporary refusals ---


def test_power_on_right_after_off_is_a_conflict(make_bench: MakeBench) -> None:
    """A7: 409 for a while, or 400 on other makes."""
    for status, message in ((409, "PSU501"), (400, "InvalidOperationForSystemState")):
        bench = make_bench(power_conflict=status)
        bench.machine.inject("power_on_conflict", seconds=20)
        assert bench.call("POST", RESET, {"ResetType": "ForceOff"}).status == 204
        bench.pass_time(5)
        assert bench.get(SYSTEM)["PowerState"] == "Off"
        refused = bench.call("POST", RESET, {"ResetType": "On"})
        assert (refused.status, refused.message_id) == (status, message)
        bench.pass_time(20)
        assert bench.call("POST", RESET, {"ResetType": "On"}).status == 204
        assert bench.get(SYSTEM)["PowerState"] == "On"


def test_reset_types_that_are_not_offered_are_refused(bench: Bench) -> None:
    refused = bench.call("POST", RESET, {"ResetType": "Nmi"})
    assert (refused.status, refused.message_id) == (400, "ActionParameterValueNotInList")
    assert bench.call("POST", RESET).message_id == "ActionParameterMissing"


def test_boot_override_is_refused_during_post(bench: Bench) -> None:
    """A8."""
    bench.machine.power("force_restart")
    bench.pass_time(10)
    refused = bench.call("PATCH", SYSTEM, PXE_ONCE)
    assert (refused.status, refused.message_id) == (400, "UnableToModifyDuringSystemPOST")
    bench.pass_time(300)
    assert bench.call("PATCH", SYSTEM, PXE_ONCE).status == 200


# --- differences between makes ---


def test_device_firmware_is_unknown_without_power(bench: Bench) -> None:
    """A10: firmware of a device without standby power can't be read, but the device is not absent."""
    bench.machine.power("force_off")
    bench.pass_time(5)
    versions = {item["Id"]: item["Version"] for item in bench.get(f"{INVENTORY}?$expand=.")["Members"]}
    assert versions == {"BMC": "01.04.00", "BIOS": "2.3", "NIC0": None}
    adapter = bench.get(f"{CHASSIS}/NetworkAdapters/mlx5_0")
    assert "FirmwarePackageVersion" not in adapter["Controllers"][0]
    assert bench.get(f"{SYSTEM}/EthernetInterfaces/mlx5_0")["LinkStatus"] == "LinkDown"
    sensors = {item["Id"]: item["Reading"] for item in bench.get(f"{CHASSIS}/Sensors?$expand=.")["Members"]}
    assert (sensors["Inlet_Temp"], sensors["GPU1_Temp"], sensors["PowerConsumption"]) == (23, None, 45)
    bench.machine.power("on")
    assert bench.get(f"{CHASSIS}/NetworkAdapters/mlx5_0")["Controllers"][0]["FirmwarePackageVersion"] == "28.42.1000"


def test_extended_info_may_be_an_object(make_bench: MakeBench) -> None:
    """A10."""
    bench = make_bench(error_info_as_list=False)
    info = bench.call("GET", "/redfish/v1/Nothing").body["error"]["@Message.ExtendedInfo"]
    assert info["MessageId"].endswith("ResourceMissingAtURI")


def test_virtual_media_may_be_called_usb(make_bench: MakeBench) -> None:
    """D5: choose from AllowableValues."""
    bench = make_bench(media_target="UsbCd")
    boot = bench.get(SYSTEM)["Boot"]
    assert boot["BootSourceOverrideTarget@Redfish.AllowableValues"] == ["None", "Pxe", "UsbCd", "Hdd"]
    bench.call("POST", INSERT, {"Image": ISO})
    once = {"BootSourceOverrideEnabled": "Once"}
    refused = bench.call("PATCH", SYSTEM, {"Boot": once | {"BootSourceOverrideTarget": "Cd"}})
    assert refused.message_id == "PropertyValueNotInList"
    assert bench.call("PATCH", SYSTEM, {"Boot": once | {"BootSourceOverrideTarget": "UsbCd"}}).status == 200
    assert bench.get(SYSTEM)["Boot"]["BootSourceOverrideTarget"] == "UsbCd"
    reboot(bench)
    assert bench.machine.state.installer is not None


def test_virtual_media_may_be_under_the_system(make_bench: MakeBench) -> None:
    """E4, with a first slot that can't insert."""
    bench = make_bench(media_under_system=True, media_bare_slot=True)
    assert bench.get(f"{MANAGER}/VirtualMedia")["Members"] == []
    assert bench.call("POST", INSERT, {"Image": ISO}).status == 404
    assert bench.call("POST", EJECT).status == 404
    path = bench.get(SYSTEM)["VirtualMedia"]["@odata.id"]
    bare, slot = bench.get(f"{path}?$expand=.")["Members"]
    assert "Actions" not in bare
    assert not bare["Inserted"]
    target = slot["Actions"]["#VirtualMedia.InsertMedia"]["target"]
    assert bench.call("POST", target, {"Image": ISO}).status == 204
    assert bench.get(slot["@odata.id"])["Image"] == ISO


def test_virtual_media_may_demand_a_protocol_and_a_suffix(make_bench: MakeBench) -> None:
    """E3; sushy finds the protocol by itself."""
    bench = make_bench(media_protocol_required=True, media_suffix=".iso")
    refused = bench.call("POST", INSERT, {"Image": ISO})
    assert (refused.status, refused.message_id) == (400, "ActionParameterMissing")
    odd = {"Image": "http://10.20.0.2/boot.img", "TransferProtocolType": "HTTP"}
    assert bench.call("POST", INSERT, odd).message_id == "ActionParameterValueFormatError"
    with bench.sushy() as root:
        (slot,) = root.get_manager().virtual_media.get_members()
        slot.insert_media(ISO)
    assert bench.machine.state.media == ISO


def test_boot_progress_may_be_missing(make_bench: MakeBench) -> None:
    """G2."""
    assert "BootProgress" not in make_bench(boot_progress=False).get(SYSTEM)


def test_apply_time_may_be_unknown(make_bench: MakeBench) -> None:
    """G2."""
    settings = f"{SYSTEM}/Bios/Settings"
    wanted = {"Attributes": {"SriovGlobalEnable": "Enabled"}, "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
    bench = make_bench(settings_apply_time=False)
    assert "SupportedApplyTimes" not in bench.get(f"{SYSTEM}/Bios")["@Redfish.Settings"]
    assert bench.call("PATCH", settings, wanted).message_id == "PropertyUnknown"
    del wanted["@Redfish.SettingsApplyTime"]
    assert bench.call("PATCH", settings, wanted).status == 200


def test_apply_time_must_be_one_that_is_supported(bench: Bench) -> None:
    for apply_time in ({"ApplyTime": "Immediate"}, {}, "OnReset"):
        wanted = {"Attributes": {"QuietBoot": False}, "@Redfish.SettingsApplyTime": apply_time}
        assert bench.call("PATCH", f"{SYSTEM}/Bios/Settings", wanted).message_id == "PropertyValueNotInList"
    assert bench.machine.state.pending_bios == {}


def test_settings_may_show_all_attributes(make_bench: MakeBench) -> None:
    """Only attributes that differ from the values in force are pending."""
    bench = make_bench(settings_complete=True)
    bench.machine.stage_bios({"SriovGlobalEnable": "Enabled"})
    current, settings = (bench.get(path)["Attributes"] for path in (f"{SYSTEM}/Bios", f"{SYSTEM}/Bios/Settings"))
    assert {name for name in settings if settings[name] != current[name]} == {"SriovGlobalEnable"}
    assert set(settings) == set(current)


def test_expand_may_be_unknown(make_bench: MakeBench) -> None:
    bench = make_bench(expand=False)
    assert bench.get("/redfish/v1")["ProtocolFeaturesSupported"]["ExpandQuery"]["ExpandAll"] is False
    assert bench.call("GET", f"{INVENTORY}?$expand=.").status == 501


def test_bios_may_show_what_is_pending(make_bench: MakeBench) -> None:
    """A11; an OEM action drops pending values (G3)."""
    bench = make_bench(settings_shown_early=True, settings_clearable=True)
    bench.machine.stage_bios({"SriovGlobalEnable": "Enabled"})
    assert bench.get(f"{SYSTEM}/Bios")["Attributes"]["SriovGlobalEnable"] == "Enabled"
    assert bench.machine.state.bios["SriovGlobalEnable"] == "Disabled"
    clear = bench.get(f"{SYSTEM}/Bios/Settings")["Actions"]["Oem"]["#DellManager.ClearPending"]["target"]
    assert bench.call("POST", clear, {}).status == 200
    assert bench.get(f"{SYSTEM}/Bios")["Attributes"]["SriovGlobalEnable"] == "Disabled"
    assert make_bench().call("POST", clear, {}).status == 404


def test_boot_override_may_be_in_the_settings_object(make_bench: MakeBench) -> None:
    """A15: AMI. The system shows the override and refuses to change it."""
    bench = make_bench(boot_in_settings=True)
    system = bench.get(SYSTEM)
    assert "BootSourceOverrideTarget@Redfish.AllowableValues" not in system["Boot"]
    assert bench.call("PATCH", SYSTEM, PXE_ONCE).message_id == "PropertyNotWritable"
    order = system["Boot"]["BootOrder"][::-1]
    assert bench.call("PATCH", SYSTEM, {"Boot": {"BootOrder": order}}).status == 200
    settings = system["@Redfish.Settings"]["SettingsObject"]["@odata.id"]
    assert "Pxe" in bench.get(settings)["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"]
    assert bench.call("PATCH", settings, {"Boot": {"BootOrder": order}}).message_id == "PropertyNotWritable"
    with bench.sushy() as root:  # it finds the settings object by itself
        options = {"target": sushy.BootSource.HDD, "enabled": sushy.BootSourceOverrideEnabled.ONCE}
        root.get_system().set_system_boot_options(**options)
    assert bench.get(SYSTEM)["Boot"]["BootSourceOverrideTarget"] == "Hdd"
    assert make_bench().call("PATCH", settings, PXE_ONCE).status == 404


def test_firmware_ids_may_carry_versions(make_bench: MakeBench) -> None:
    """F12: they change with the update, and the rollback image is listed next to the running one."""
    bench = make_bench(firmware_ids_carry_versions=True)
    versions = {item["Id"]: item["Version"] for item in bench.get(f"{INVENTORY}?$expand=.")["Members"]}
    assert versions["Installed-0-2.3__BIOS"] == "2.3"
    assert versions["Previous-0-0.0.1__BIOS"] == "0.0.1"
    assert bench.call("GET", f"{INVENTORY}/BIOS").status == 404
    for wrong in ("BIOS", "Previous-0-0.0.1__BIOS"):
        refused = bench.call("POST", UPDATE, {"ImageURI": BIOS_IMAGE, "Targets": [f"{INVENTORY}/{wrong}"]})
        assert refused.message_id == "ActionParameterValueNotInList"
    target = f"{INVENTORY}/Installed-0-2.3__BIOS"
    assert bench.call("POST", UPDATE, {"ImageURI": BIOS_IMAGE, "Targets": [target]}).status == 202
    bench.pass_time(700)
    reboot(bench)
    assert bench.call("GET", target).status == 404
    assert bench.get(f"{INVENTORY}/Installed-0-2.4__BIOS")["Version"] == "2.4"


def test_serial_may_be_in_sku(make_bench: MakeBench) -> None:
    """A13."""
    system = make_bench(serial_in_sku=True).get(SYSTEM)
    assert system["SKU"] == "S889914X3710910" != system["SerialNumber"]


def test_most_makes_leave_aliases_null(make_bench: MakeBench) -> None:
    """D3: the kind of a boot option is in its device path and its name."""
    for named in (True, False):
        options = make_bench(boot_aliases=named).get(f"{SYSTEM}/BootOptions?$expand=.")["Members"]
        assert all(option["UefiDevicePath"] for option in options)
        assert {option["Alias"] is not None for option in options} == {named}


@pytest.mark.parametrize(
    ("manufacturer", "expected"),
    [
        ("Dell Inc.", {"serial_in_sku": True, "etags": EtagStyle.MISSING}),
        ("HPE", {"power_conflict": 400, "etags": EtagStyle.WEAK}),
        ("Supermicro", {"settings_complete": True}),
        ("NVIDIA", {"boot_in_settings": True}),
        ("Contoso", {}),
    ],
)
def test_a_machine_has_the_quirks_of_its_make(manufacturer: str, expected: dict[str, object]) -> None:
    quirks = quirks_of_make(manufacturer)
    assert {name: getattr(quirks, name) for name in expected} == expected
    assert (quirks == Quirks()) is (not expected)


def test_a_bmc_may_have_to_be_sent_its_firmware(make_bench: MakeBench) -> None:
    """As OpenBMC of NVIDIA; tests/drivers/redfish/test_lab.py sends it."""
    bench = make_bench(firmware_sent=True)
    service = bench.get("/redfish/v1/UpdateService")
    assert (service["MultipartHttpPushUri"], service["Actions"]) == ("/redfish/v1/UpdateService/update-multipart", {})
    asked = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
    assert bench.call("POST", asked, {"ImageURI": "https://x/y"}).status == 404


def test_every_quirk_is_tried() -> None:
    here = Path(__file__).parent
    files = [*here.glob("test_wire_redfish*.py"), *(here.parent / "drivers" / "redfish").glob("test_[aelq]*.py")]
    tests = [path.read_text() for path in files]
    assert {name for name in Quirks.__slots__ if any(f"{name}=" in text for text in tests)} == set(Quirks.__slots__)


def test_sushy_survives_a_burst(bench: Bench) -> None:
    with bench.sushy() as root:
        bench.machine.inject("bmc_503", times=1)
        assert root.get_system().power_state is sushy.PowerState.ON
