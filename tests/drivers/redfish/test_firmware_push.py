"""Each BMC is updated in a way that its own update service offers.

The documents have the shape of those in https://github.com/NVIDIA/libredfish, tests/mockups.
"""

from __future__ import annotations

import email
import email.policy
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconciler.drivers.redfish import RedfishBmc
from reconciler.model.abilities import Ability
from reconciler.model.errors import Failure
from reconciler.model.ports import FirmwareFile
from tests.drivers.redfish.bench import INVENTORY, TASKS, UPDATE, Bench, Call, machine, play, refusal
from tests.drivers.redfish.test_reads import inventory
from tests.drivers.redfish.test_writes import SIMPLE_UPDATE, failure

URL = "https://files.example.com/fw/nvfw_GB200-P4059_0004.fwpkg"
CONTENT = bytes(range(256)) * 1000 + b"\r\n--not-the-boundary\r\n"
FORM, RAW = f"{UPDATE}/update-multipart", f"{UPDATE}/update"
# nvidia_gb200: no SimpleUpdate. HttpPushUriTargets can be set, MaxImageSizeBytes is 200 MiB.
GB200 = {
    "ServiceEnabled": True,
    "HttpPushUri": RAW,
    "HttpPushUriOptions": {"HttpPushUriApplyTime": {"ApplyTime": "Immediate"}},
    "HttpPushUriTargets": [],
    "MaxImageSizeBytes": 209715200,
    "MultipartHttpPushUri": FORM,
    "Actions": {"Oem": {"#NvidiaUpdateService.CommitImage": {"target": f"{UPDATE}/Actions/Oem/CommitImage"}}},
}
# nvidia_viking, a DGX H100: SimpleUpdate takes no Targets, as its ActionInfo shows.
DGX = {
    "ServiceEnabled": True,
    "MaxImageSizeBytes": 419627008,
    "MultipartHttpPushUri": FORM,
    "Actions": {
        "#UpdateService.SimpleUpdate": {
            "@Redfish.ActionInfo": f"{UPDATE}/SimpleUpdateActionInfo",
            "target": SIMPLE_UPDATE,
        }
    },
}
DGX_INFO = {
    "Id": "SimpleUpdateActionInfo",
    "Parameters": [
        {"DataType": "String", "Name": "ImageURI", "Required": True},
        {"AllowableValues": ["HTTP", "FTP", "HTTPS"], "Name": "TransferProtocol", "Required": True},
    ],
}
# lenovo: the only target that may be named is the BMC's backup.
LENOVO = {
    "HttpPushUri": "/fwupdate",
    "MultipartHttpPushUri": "/mfwupdate",
    "Actions": {
        "#UpdateService.SimpleUpdate": {
            "target": SIMPLE_UPDATE,
            "Targets@Redfish.AllowableValues": [f"{INVENTORY}/BMC-Backup"],
            "TransferProtocol@Redfish.AllowableValues": ["TFTP", "SFTP", "HTTPS", "HTTP"],
        }
    },
}


def bmc_with(service: dict[str, Any], **documents: Any) -> Bench:
    bench = machine()
    del bench.documents[UPDATE]["Actions"]
    bench.documents[UPDATE].update(service)
    bench.documents.update({f"{UPDATE}/{name}": content for name, content in documents.items()})

    async def accepts(call: Call) -> web.Response | None:
        if call.method != "POST" or call.path not in (FORM, RAW, SIMPLE_UPDATE, "/mfwupdate"):
            return None
        task = {"@odata.id": f"{TASKS}/7", "@odata.type": "#Task.v1_4_3.Task", "Id": "7", "TaskState": "Starting"}
        return web.json_response(task, status=202)

    bench.rules.append(accepts)
    return bench


def form(call: Call) -> dict[str, tuple[str, str | None, bytes]]:
    """Decode a form by the standard library: name -> (content type, file name, content)."""
    head = f"Content-Type: {call.headers['Content-Type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + call.body, policy=email.policy.HTTP)
    found = {}
    for part in message.iter_parts():
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found[str(name)] = part.get_content_type(), part.get_filename(), content
    return found


def sent_from(copy: Path) -> FirmwareFile:
    return FirmwareFile(URL, str(copy), len(CONTENT))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "1"
    path.write_bytes(CONTENT)
    return path


def test_a_bmc_without_simple_update_is_sent_the_file_as_a_form(copy: Path) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        assert await bmc.update_firmware("BIOS", sent_from(copy)) == f"{TASKS}/7"
        (sent,) = bench.sent("POST")
        assert sent.path == FORM
        assert int(sent.headers["Content-Length"]) == len(sent.body)
        parts = form(sent)
        assert list(parts) == ["UpdateParameters", "UpdateFile"]
        assert parts["UpdateParameters"][0] == "application/json"
        assert json.loads(parts["UpdateParameters"][2]) == {
            "Targets": [f"{INVENTORY}/BIOS"], "@Redfish.OperationApplyTime": "Immediate",
        }  # fmt: skip
        assert parts["UpdateFile"] == ("application/octet-stream", URL.rsplit("/", 1)[1], CONTENT)

    play(bmc_with(GB200), steps)


def test_the_inventory_says_in_which_ways_a_bmc_is_updated() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        abilities = (await inventory(bmc)).abilities
        assert abilities is not None
        assert abilities.firmware_ways == ("MultipartHttpPushUri", "HttpPushUri")
        assert abilities.why_not(Ability.FIRMWARE) == ""

    play(bmc_with(GB200), steps)


def test_a_refused_parameter_is_left_out(copy: Path) -> None:
    """GH200 takes a bundle and no parameters at all."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        async def picky(call: Call) -> web.Response | None:
            said = json.loads(form(call)["UpdateParameters"][2]) if call.path == FORM else {}
            words = ("@Redfish.OperationApplyTime", "Targets")
            bad = next((word for word in words if word in said), None)
            return refusal(400, "PropertyUnknown", f"The property {bad} is not known.", (bad,)) if bad else None

        bench.rules.insert(0, picky)
        assert await bmc.update_firmware("BIOS", sent_from(copy)) == f"{TASKS}/7"
        said = [json.loads(form(call)["UpdateParameters"][2]) for call in bench.sent("POST")]
        assert [sorted(one) for one in said] == [["@Redfish.OperationApplyTime", "Targets"], ["Targets"], []]

    play(bmc_with(GB200), steps)


def test_a_bmc_with_a_bare_push_is_told_the_component_first(copy: Path) -> None:
    service = {name: value for name, value in GB200.items() if name != "MultipartHttpPushUri"}
    options = {"HttpPushUriApplyTime": {"ApplyTime": "OnReset"}, "ForceUpdate": False}  # as of nvidia_gh200
    bench = bmc_with({**service, "HttpPushUriOptions": options, "HttpPushUriTargetsBusy": False})

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        assert await bmc.update_firmware("BIOS", sent_from(copy)) == f"{TASKS}/7"
        claim, sent, back = [call for call in bench.calls if call.method in ("PATCH", "POST")][1:]
        assert claim.body == {
            "HttpPushUriTargets": [f"{INVENTORY}/BIOS"], "HttpPushUriTargetsBusy": True,
            "HttpPushUriOptions": {"HttpPushUriApplyTime": {"ApplyTime": "Immediate"}},
        }  # fmt: skip
        assert (sent.path, sent.headers["Content-Type"], sent.body) == (
            RAW, "application/octet-stream", CONTENT,
        )  # fmt: skip
        assert back.body == {"HttpPushUriTargets": [], "HttpPushUriTargetsBusy": False}
        bench.documents[UPDATE]["HttpPushUriTargetsBusy"] = True
        assert (await failure(bmc.update_firmware("BIOS", sent_from(copy)))).kind is Failure.BUSY

    play(bench, steps)


def test_a_file_that_is_too_large_or_that_we_have_not_is_not_sent(copy: Path) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        error = await failure(bmc.update_firmware("BIOS", FirmwareFile(URL)))
        assert error.kind is Failure.UNSUPPORTED
        assert "verifiedBy: reconciler" in error.detail
        bench.documents[UPDATE]["MaxImageSizeBytes"] = 1000
        error = await failure(bmc.update_firmware("BIOS", sent_from(copy)))
        assert error.kind is Failure.REJECTED
        assert "takes 1000" in error.detail
        assert not bench.sent("POST")

    play(bmc_with(GB200), steps)


def test_simple_update_that_can_not_name_a_component_gives_way_to_the_form(copy: Path) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.update_firmware("BIOS", sent_from(copy))
        await bmc.update_firmware("BIOS", FirmwareFile(URL))
        assert [call.path for call in bench.sent("POST")] == [FORM, SIMPLE_UPDATE]

    play(bmc_with(DGX, SimpleUpdateActionInfo=DGX_INFO), steps)


def test_only_targets_that_the_bmc_allows_are_named() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> list[Any]:
        await bmc.update_firmware("BIOS", FirmwareFile(URL))
        allowed = bench.documents[UPDATE]["Actions"]["#UpdateService.SimpleUpdate"]
        allowed["Targets@Redfish.AllowableValues"].append(f"{INVENTORY}/BIOS")
        await bmc.update_firmware("BIOS", FirmwareFile(URL))
        return [call.body for call in bench.sent("POST")]

    without, named = play(bmc_with(LENOVO), steps)
    assert without == {"ImageURI": URL, "TransferProtocol": "HTTPS"}
    assert named == {**without, "Targets": [f"{INVENTORY}/BIOS"]}


def test_a_number_in_an_allowed_target() -> None:
    """Supermicro allows .../CPLD_Backplane_(\\d+)."""
    bench = bmc_with(LENOVO)
    allowed = bench.documents[UPDATE]["Actions"]["#UpdateService.SimpleUpdate"]
    allowed["Targets@Redfish.AllowableValues"] = [f"{INVENTORY}/BIOS", f"{INVENTORY}/CPLD_Backplane_(\\d+)"]
    where = f"{INVENTORY}/CPLD_Backplane_1"
    bench.documents[INVENTORY]["Members"].append({"@odata.id": where})
    bench.documents[where] = {"@odata.id": where, "Id": "CPLD_Backplane_1", "Version": "F0.0B.00"}

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.update_firmware("CPLD_Backplane_1", FirmwareFile(URL))
        assert bench.sent("POST")[0].body["Targets"] == [where]

    play(bench, steps)


def test_a_copy_that_is_gone_is_fetched_again_later(copy: Path) -> None:
    """Copies are bounded: another file may have taken its room."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        error = await failure(bmc.update_firmware("BIOS", sent_from(copy.with_name("gone"))))
        assert error.kind is Failure.UNREACHABLE
        assert not bench.sent("POST")

    play(bmc_with(GB200), steps)


def test_an_upload_that_breaks_off_is_ambiguous(copy: Path) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", FORM, 500)
        bench.rules.reverse()
        assert (await failure(bmc.update_firmware("BIOS", sent_from(copy)))).kind is Failure.AMBIGUOUS
        assert len(bench.sent("POST")) == 1

    play(bmc_with(GB200), steps)
