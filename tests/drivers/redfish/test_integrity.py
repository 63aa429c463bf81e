"""ComponentIntegrity from the wire: trees of real BMCs, the ways in which BMCs answer, and the lab's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconciler.drivers.redfish import RedfishBmc
from reconciler.gate.attestation.components import judge_component
from reconciler.lab.hardware.spdm import LIES
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.model.abilities import Ability
from reconciler.model.errors import DriverError, Failure
from reconciler.model.measurements import SignedMeasurements
from reconciler.model.observed import Answered, ComponentIntegrity
from tests.drivers.redfish.bench import TASKS, Bench, Call, client, machine, play, refusal
from tests.drivers.redfish.test_samples import as_bmc
from tests.gate.attestation.test_components import DECLARED, GPUS, NONCE, NOW, VALUES, WHY
from tests.lab.redfish_bench import EPOCH, PASSWORD, USERNAME, Clock, make_machine, make_trust

pytestmark = pytest.mark.wire

COLLECTION = "/redfish/v1/ComponentIntegrity"
GPU = f"{COLLECTION}/HGX_ERoT_GPU_SXM_1"
# The action's path is without the name of the resource on a DGX, and with it on a GB200: only `target` tells.
ACTION = f"{GPU}/Actions/SPDMGetSignedMeasurements"
CHAIN = "/redfish/v1/Chassis/HGX_ERoT_GPU_SXM_1/Certificates/CertChain"
ANSWER = {
    "HashingAlgorithm": "TPM_ALG_SHA_384", "SignedMeasurements": "EeAB", "SigningAlgorithm":
    "TPM_ALG_ECDSA_ECC_NIST_P384", "Version": "1.1.0",
}  # fmt: skip
SIGNED = SignedMeasurements("EeAB", "TPM_ALG_SHA_384", "-----BEGIN CERTIFICATE-----")


def dgx(answer: Callable[[Call], web.Response]) -> Bench:
    """Return a BMC with one component of a DGX H100 (NVIDIA/libredfish, tests/mockups/nvidia_viking)."""
    bench = machine()
    bench.documents["/redfish/v1/"]["ComponentIntegrity"] = {"@odata.id": COLLECTION}
    bench.documents[COLLECTION] = {"Members": [{"@odata.id": GPU}]}
    bench.documents[CHAIN] = {"Id": "CertChain", "CertificateString": "-----BEGIN CERTIFICATE-----\n"}
    bench.documents[GPU] = {
        "@odata.id": GPU,
        "Actions": {
            "#ComponentIntegrity.SPDMGetSignedMeasurements": {
                "@Redfish.ActionInfo": f"{GPU}/SPDMGetSignedMeasurementsActionInfo",
                "target": ACTION,
            }
        },
        "ComponentIntegrityEnabled": True,
        "ComponentIntegrityType": "SPDM",
        "ComponentIntegrityTypeVersion": "unknown",
        "Id": "HGX_ERoT_GPU_SXM_1",
        "Links": {"ComponentsProtected": [{"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_1"}]},
        "SPDM": {
            "IdentityAuthentication": {"ResponderAuthentication": {"ComponentCertificate": {"@odata.id": CHAIN}}},
            "Requester": {"@odata.id": "/redfish/v1/Managers/HGX_BMC_0"},
        },
        "TargetComponentURI": "/redfish/v1/Chassis/HGX_ERoT_GPU_SXM_1",
    }

    async def measures(call: Call) -> web.Response | None:
        return answer(call) if (call.method, call.path) == ("POST", ACTION) else None

    bench.rules.append(measures)
    return bench


TASK = {"@odata.id": f"{TASKS}/95", "@odata.type": "#Task.v1_7_0.Task", "Id": "95", "Name": "Task 95"}


def started(_: Call) -> web.Response:
    document = {**TASK, "TaskState": "Running"}
    return web.json_response(document, status=202, headers={"Location": f"{TASKS}/95/Monitor"})


def task(bench: Bench, *states: tuple[str, dict[str, Any]]) -> None:
    """Let the task show these states, one for each read of it."""
    left = list(states)

    async def shows(call: Call) -> web.Response | None:
        if (call.method, call.path) != ("GET", f"{TASKS}/95"):
            return None
        state, more = left.pop(0) if len(left) > 1 else left[0]
        return web.json_response({**TASK, "TaskState": state, "TaskStatus": "OK", **more})

    bench.rules.append(shows)


def inventory(bench: Bench) -> Any:
    async def read(_: Bench, bmc: RedfishBmc) -> Any:
        return await bmc.inventory()

    found = play(bench, read)
    assert isinstance(found, Answered), found
    return found.value


async def measured(_: Bench, bmc: RedfishBmc) -> SignedMeasurements | DriverError:
    try:
        return await bmc.signed_measurements("HGX_ERoT_GPU_SXM_1", NONCE)
    except DriverError as error:
        return error


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.drivers.redfish.bmc._MEASURING_POLL_S", 0.01)


def test_a_bmc_may_answer_at_once() -> None:
    bench = dgx(lambda _: web.json_response(ANSWER))
    assert play(bench, measured) == SIGNED
    (asked,) = [call for call in bench.calls if call.path == ACTION]
    assert asked.body == {"Nonce": NONCE.hex()}


def test_a_task_names_its_result_in_the_headers_of_its_payload() -> None:
    """AMI on a DGX, and bmcweb of NVIDIA: the task's last Location (nv-redfish, task_service)."""
    where = f"{ACTION}/Data"
    headers = ["Host: 10.0.1.1", f"Location: {where}"]
    bench = dgx(started)
    task(bench, ("Running", {}), ("Running", {}), ("Completed", {"Payload": {"HttpHeaders": headers}}))
    bench.documents[where] = deepcopy(ANSWER)
    assert play(bench, measured) == SIGNED


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (("Completed", {}), Failure.MALFORMED, "the task ended, and does not name its result"),
        (("Completed", {"Payload": {"HttpHeaders": ["Location: http://evil/"]}}), Failure.MALFORMED, "does not name"),
        (("Aborted", {"Messages": [{"Message": "Error_ConnectionTimeout"}]}), Failure.BUSY, "Error_ConnectionTimeout"),
    ],
)
def test_a_task_without_a_result_says_why(end: Any, kind: Failure, words: str) -> None:
    bench = dgx(started)
    task(bench, ("Running", {}), end)
    error = play(bench, measured)
    assert isinstance(error, DriverError), error
    assert error.kind is kind
    assert words in error.detail


def test_what_can_not_be_asked_is_named() -> None:
    async def other(_: Bench, bmc: RedfishBmc) -> Any:
        return await bmc.signed_measurements("HGX_IRoT_GPU_9", NONCE)

    with pytest.raises(DriverError, match="the BMC lists no HGX_IRoT_GPU_9 in ComponentIntegrity") as found:
        play(dgx(lambda _: web.json_response(ANSWER)), other)
    assert found.value.kind is Failure.REJECTED
    bench = dgx(lambda _: web.json_response(ANSWER))
    del bench.documents[GPU]["Actions"]
    error = play(bench, measured)
    assert error.kind is Failure.UNSUPPORTED
    assert "offers no signed measurements of HGX_ERoT_GPU_SXM_1" in error.detail
    error = play(machine(), measured)
    assert (error.kind, "has no ComponentIntegrity" in error.detail) == (Failure.UNSUPPORTED, True)
    refused = dgx(lambda _: refusal(400, "ActionParameterUnknown"))
    assert play(refused, measured).kind is Failure.REJECTED


def test_the_inventory_lists_components_or_none_or_says_why_not() -> None:
    found = inventory(dgx(lambda _: web.json_response(ANSWER)))
    (component,) = found.integrity
    assert component == ComponentIntegrity(
        "HGX_ERoT_GPU_SXM_1",
        "SPDM",
        "unknown",
        enabled=True,
        target="/redfish/v1/Chassis/HGX_ERoT_GPU_SXM_1",
        protects=("/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_1",),
        measures=True,
    )
    assert found.abilities.lacks[Ability.MEASUREMENTS] == ""
    none = inventory(machine())
    assert none.integrity == ()
    assert "no ComponentIntegrity" in none.abilities.why_not(Ability.MEASUREMENTS)
    broken = dgx(lambda _: web.json_response(ANSWER))
    del broken.documents[GPU]
    unread = inventory(broken)
    assert unread.integrity is None
    assert "404" in unread.unknown["integrity"]


@pytest.mark.parametrize(("make", "listed"), [("nvidia-gb200", 11), ("nvidia-dgx-h100", 17), ("nvidia-gh200", 7)])
def test_trees_of_real_bmcs_are_read(samples: Path, make: str, listed: int) -> None:
    bench = as_bmc(samples / "redfish" / make)
    kept = next(body for path, body in bench.documents.items() if path.startswith(f"{COLLECTION}/HGX_"))
    members = [item["@odata.id"] for item in bench.documents[COLLECTION]["Members"]]
    for where in members:  # the samples keep one component of each kind
        bench.documents.setdefault(where, {**kept, "@odata.id": where})

    found = inventory(bench)
    assert found.integrity is not None, found.unknown.get("integrity")
    assert [item.id for item in found.integrity] == [uri.rpartition("/")[2] for uri in members]
    assert len(members) == listed
    assert all(item.kind == "SPDM" and item.enabled and item.measures for item in found.integrity)


@pytest.mark.parametrize("lie", ["", *LIES])
def test_the_labs_bmc_hands_on_what_its_components_sign(lie: str, tmp_path: Path) -> None:
    clock, trust = Clock(), make_trust(tmp_path)
    lab = make_machine(clock)
    lab.components = (DECLARED,)
    if lie:
        lab.inject("spdm", lie=lie)
    front = RedfishServer(lab, username=USERNAME, password=PASSWORD, epoch=EPOCH)

    async def run() -> tuple[Any, SignedMeasurements]:
        port = await front.start(trust.server)
        options: dict[str, Any] = {"ca_pem": trust.ca.read_text(), "insecure": False}
        bmc = client(f"https://127.0.0.1:{port}", username=USERNAME, password=PASSWORD, **options)
        try:
            seen = await bmc.inventory()
            return seen, (await asyncio.gather(bmc.signed_measurements(GPUS[1], NONCE), _passing(clock)))[0]
        finally:
            await bmc.close()
            await front.stop()
            await asyncio.sleep(0.01)  # TLS says goodbye

    seen, answer = asyncio.run(run())
    assert isinstance(seen, Answered)
    assert seen.value.integrity is not None
    assert [item.id for item in seen.value.integrity] == list(GPUS)
    state = judge_component(answer, NONCE, DECLARED, {}, NOW)
    if lie in ("", "one_for_all"):
        assert (state.reason, state.values) == ("", VALUES)
    else:
        assert state.reason.startswith(WHY[lie])


async def _passing(clock: Clock) -> None:
    """Let time pass on the machine while its BMC asks the component."""
    for _ in range(20):
        await asyncio.sleep(0.05)
        clock.seconds += 1.0
