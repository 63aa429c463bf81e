"""The lab's Redfish service as plain HTTP: login, sessions, ETags, errors, collections, and every resource's shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reconciler.lab.hardware.machine import HardwareRejected
from reconciler.lab.hardware.spdm import AUTHORITY
from reconciler.lab.wire.redfish import ROUTES, Quirks
from reconciler.lab.wire.redfish_messages import MESSAGES, Refusal
from reconciler.lab.wire.redfish_protocol import Bmc
from reconciler.lab.wire.redfish_sessions import Sessions
from reconciler.model.measurements import ComponentMeasurements
from tests.lab.redfish_bench import (
    BIOS_IMAGE,
    CHASSIS,
    EPOCH,
    INVENTORY,
    MANAGER,
    MEDIA,
    PASSWORD,
    SYSTEM,
    TASKS,
    USERNAME,
    Bench,
    Clock,
    make_machine,
)

pytestmark = pytest.mark.wire

SESSIONS = "/redfish/v1/SessionService/Sessions"
LOGIN = {"UserName": USERNAME, "Password": PASSWORD}


# --- login ---


def test_root_is_public_and_the_rest_is_not(bench: Bench) -> None:
    assert bench.call("GET", "/redfish", login=False).body["v1"] == "/redfish/v1/"
    for path in ("/redfish/v1", "/redfish/v1/"):
        assert bench.call("GET", path, login=False).body["Systems"] == {"@odata.id": "/redfish/v1/Systems"}
    for path in (SYSTEM, SESSIONS, "/redfish/v1/Nothing"):
        refused = bench.call("GET", path, login=False)
        assert (refused.status, refused.message_id) == (401, "NoValidSession")


@pytest.mark.parametrize(
    "authorization",
    [
        aiohttp.encode_basic_auth(USERNAME, "wrong"),
        aiohttp.encode_basic_auth("root", PASSWORD),
        "Basic ???",
        "Bearer x",
    ],
)
def test_wrong_basic_credentials_are_refused(bench: Bench, authorization: str) -> None:
    assert bench.call("GET", SYSTEM, login=False, Authorization=authorization).status == 401


def test_session_is_good_until_it_is_deleted(bench: Bench) -> None:
    login = bench.call("POST", SESSIONS, LOGIN, login=False)
    assert login.status == 201
    token, location = login.headers["X-Auth-Token"], login.headers["Location"]
    assert bench.get(location, token=token)["UserName"] == USERNAME
    assert bench.get(SESSIONS, token=token)["Members"] == [{"@odata.id": location}]
    assert bench.server.open_sessions == 1
    assert bench.call("DELETE", location, token=token).status == 204
    assert bench.server.open_sessions == 0
    assert bench.call("GET", SYSTEM, token=token).message_id == "NoValidSession"
    assert bench.call("DELETE", location).status == 404


@pytest.mark.parametrize("body", [LOGIN | {"Password": "wrong"}, LOGIN | {"UserName": "root"}])
def test_wrong_password_opens_no_session(bench: Bench, body: object) -> None:
    assert bench.call("POST", SESSIONS, body, login=False).status == 401
    assert bench.server.open_sessions == 0


def test_login_names_the_missing_parameter(bench: Bench) -> None:
    refused = bench.call("POST", SESSIONS, {"UserName": USERNAME}, login=False)
    assert (refused.status, refused.message_id) == (400, "ActionParameterMissing")
    assert refused.body["error"]["@Message.ExtendedInfo"][0]["RelatedProperties"] == ["#/Password"]


def test_leaked_sessions_use_up_the_bmc(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_sessions=2, session_timeout_s=300)
    tokens = [bench.call("POST", SESSIONS, LOGIN, login=False).headers["X-Auth-Token"] for _ in range(2)]
    full = bench.call("POST", SESSIONS, LOGIN, login=False)
    assert (full.status, full.message_id) == (503, "RAC0218")
    bench.pass_time(200)
    bench.get(SYSTEM, token=tokens[0])  # this keeps the session alive
    bench.pass_time(200)
    assert bench.call("GET", SYSTEM, token=tokens[1]).status == 401
    assert bench.get(SYSTEM, token=tokens[0])["Id"] == "1"
    assert bench.call("POST", SESSIONS, LOGIN, login=False).status == 201


# --- invalid requests ---


def test_unknown_paths_and_members_are_missing(bench: Bench) -> None:
    for path in ("/redfish/v1/Nothing", "/", f"{SYSTEM}/Memory/33", f"{SYSTEM}/Memory/x", f"{SYSTEM}/Processors/GPU9"):
        missing = bench.call("GET", path)
        assert (missing.status, missing.message_id) == (404, "ResourceMissingAtURI")


@pytest.mark.parametrize(("method", "path"), [("PATCH", CHASSIS), ("POST", SYSTEM), ("DELETE", MEDIA), ("PUT", SYSTEM)])
def test_wrong_methods_say_which_are_right(bench: Bench, method: str, path: str) -> None:
    refused = bench.call(method, path, {})
    assert (refused.status, refused.message_id) == (405, "OperationNotAllowed")
    assert "GET" in refused.headers["Allow"]


def test_head_is_a_get_without_a_body(bench: Bench) -> None:
    head, get = bench.call("HEAD", SYSTEM), bench.call("GET", SYSTEM)
    assert (head.status, head.text, head.headers["ETag"]) == (200, "", get.headers["ETag"])


@pytest.mark.parametrize("body", ["{", "[1]", "true"])
def test_malformed_bodies_are_refused(bench: Bench, body: str) -> None:
    assert bench.call("PATCH", SYSTEM, body).message_id == "MalformedJSON"


ODD: tuple[object, ...] = (None, True, -1, 1.5, "", "x", [], [1], ["x"], {}, {"x": 1})
VIEWS = {
    f"{method} {path}": view
    for path, resource in ROUTES.items()
    for method, view in (("PATCH", resource.patch), ("POST", resource.post))
    if view is not None
}


@pytest.mark.parametrize("view", VIEWS)
def test_odd_values_are_refused_and_break_nothing(view: str) -> None:
    """A BMC answers with a reply or a refusal; any other exception of a view is a bug."""
    boots = ("BootOrder", "BootSourceOverrideTarget", "BootSourceOverrideEnabled", "BootSourceOverrideMode")
    names = ("Boot", "Attributes", "@Redfish.SettingsApplyTime", "SecureBootEnable", "ResetType", "Image", "ImageURI")
    good = {"Attributes": {"QuietBoot": True}, "ImageURI": BIOS_IMAGE, "UserName": USERNAME, "Password": PASSWORD}
    bodies = [{name: value} for name in names for value in ODD]
    bodies += [{"Boot": {name: value}} for name in boots for value in ODD]
    bodies += [{"Attributes": {"QuietBoot": value}} for value in ODD]
    bodies += [good | {name: value} for name in ("@Redfish.SettingsApplyTime", "Targets", "UserName") for value in ODD]
    bmc = Bmc(make_machine(Clock()), Quirks(), Sessions(USERNAME, PASSWORD, 8, 1800), EPOCH)
    for body in bodies:
        try:
            reply = VIEWS[view](bmc, "", body)
        except (Refusal, HardwareRejected):
            continue
        assert reply.status in (200, 201, 202, 204), body


def test_read_only_properties_are_refused(bench: Bench) -> None:
    for body in ({"SerialNumber": "X"}, {"Boot": {"BootNext": "Boot0001"}}):
        assert bench.call("PATCH", SYSTEM, body).message_id == "PropertyNotWritable"
    assert bench.call("PATCH", SYSTEM, {}).message_id == "PropertyMissing"


def test_every_message_can_be_told() -> None:
    for name, message in MESSAGES.items():
        arguments = [f"<{at}>" for at in range(1, 4) if f"%{at}" in message.text]
        info = Refusal(name, *arguments).info
        assert "%" not in info["Message"]
        assert all(argument in info["Message"] for argument in arguments)


# --- ETags ---


def test_etag_follows_the_content(bench: Bench) -> None:
    first = bench.call("GET", SYSTEM)
    assert first.headers["ETag"] == first.body["@odata.etag"] == bench.call("GET", SYSTEM).headers["ETag"]
    assert bench.call("GET", SYSTEM, If_None_Match=first.headers["ETag"]).status == 304
    bench.machine.state.nics[0].up = False
    assert bench.call("GET", SYSTEM).headers["ETag"] == first.headers["ETag"]
    assert bench.call("PATCH", f"{SYSTEM}/SecureBoot", {"SecureBootEnable": False}).status == 200
    changed = bench.call("GET", SYSTEM, If_None_Match=first.headers["ETag"])
    assert changed.status == 200
    assert changed.headers["ETag"] != first.headers["ETag"]


def test_patch_under_an_old_etag_changes_nothing(bench: Bench) -> None:
    old = bench.call("GET", SYSTEM).headers["ETag"]
    override = {"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}
    assert bench.call("PATCH", SYSTEM, override, If_Match=old).status == 200
    again = {"Boot": {"BootSourceOverrideTarget": "Hdd"}}
    refused = bench.call("PATCH", SYSTEM, again, If_Match=old)
    assert (refused.status, refused.message_id) == (412, "PreconditionFailed")
    assert bench.machine.state.boot_override == "Pxe"
    assert bench.call("PATCH", SYSTEM, again, If_Match="*").status == 200
    assert bench.machine.state.boot_override == "Hdd"


# --- collections and queries ---


def test_expand_gives_members_in_full(bench: Bench) -> None:
    for query in ("$expand=.", "$expand=.($levels=1)", "$expand=*"):
        inventory = bench.get(f"{INVENTORY}?{query}")
        assert {member["Id"]: member["Version"] for member in inventory["Members"]} == {
            "BMC": "01.04.00",
            "BIOS": "2.3",
            "NIC0": "28.42.1000",
        }
    assert bench.call("GET", f"{INVENTORY}?$filter=x").status == 501
    assert bench.call("GET", f"{SYSTEM}?$expand=.").status == 501
    entries = f"{SYSTEM}/LogServices/Sel/Entries"
    bench.machine.inject("xid_79")
    assert bench.get(f"{entries}?$expand=.")["Members"] == bench.get(entries)["Members"]


def test_compression_is_never_offered_to_identity(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(compress=True)
    assert "Content-Encoding" not in bench.call("GET", SYSTEM).headers
    compressed = bench.call("GET", SYSTEM, Accept_Encoding="gzip")
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert compressed.headers["ETag"].startswith("W/")
    assert compressed.body["Id"] == "1"


def test_requests_are_counted_by_method_and_path(bench: Bench) -> None:
    bench.get(SYSTEM)
    bench.get(SYSTEM + "/")
    bench.call("GET", f"{TASKS}?$expand=.")
    bench.call("POST", "/redfish/v1/Nothing")
    assert bench.server.requests == {("GET", SYSTEM): 2, ("GET", TASKS): 1, ("POST", "/redfish/v1/Nothing"): 1}


# --- shapes ---


def walk(bench: Bench) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every document that is linked from the root."""
    seen, queue = set(), ["/redfish/v1"]
    while queue:
        path = queue.pop(0)
        if path in seen:
            continue
        seen.add(path)
        document = bench.get(path)
        yield path, document
        queue += [target for target in links(document) if "#" not in target]


def links(value: Any) -> list[str]:
    if isinstance(value, list):
        return [target for item in value for target in links(item)]
    if not isinstance(value, dict):
        return []
    own = [value["@odata.id"]] if isinstance(value.get("@odata.id"), str) else []
    uris = [value["Uri"]] if "Uri" in value else []
    return own + uris + [target for item in value.values() for target in links(item)]


def _pattern(path: str) -> str:
    """Return the route of a member of a collection, or of what is below one."""
    return next(route for route in ROUTES if fnmatch(path, route) and route.count("/") == path.count("/"))


def test_every_link_leads_somewhere_and_every_resource_is_linked(bench: Bench) -> None:
    bench.call("POST", SESSIONS, LOGIN, login=False)
    bench.machine.start_update("BIOS", BIOS_IMAGE)
    bench.machine.inject("xid_79")  # which writes an event
    bench.machine.components = (ComponentMeasurements(("HGX_IRoT_GPU_0",), AUTHORITY),)
    documents = dict(walk(bench))
    for path, document in documents.items():
        assert document["@odata.id"] == path
        assert document["Name"]
        kind = document["@odata.type"].rsplit(".", 1)[1]
        assert kind.endswith("Collection") or document["Id"]
        if "Members" in document:
            assert document["Members@odata.count"] == len(document["Members"])
    served = {path if path in ROUTES else _pattern(path) for path in documents}
    quirks = (f"{SYSTEM}/VirtualMedia", f"{SYSTEM}/SD", "/redfish/v1/UpdateService/update-multipart")
    streams = "/redfish/v1/EventService/Subscriptions/*"
    elsewhere = {path for path in ROUTES if path.startswith((*quirks, streams))}
    assert served == {path for path in ROUTES if "/Actions/" not in path} - {"/redfish"} - elsewhere


SERVERS = ("supermicro", "dell-idrac9", "hpe-ilo5", "nvidia-dgx-h100")
# Properties of all makes that the lab omits: vendor extensions, and services and parts that no driver reads.
NOT_OURS = frozenset(
    {"Oem", "Description", "@odata.context"}
    | {"AccountService", "CertificateService", "JsonSchemas", "TelemetryService"}
    | {"PCIeDevices", "PCIeSlots", "NetworkInterfaces", "Redundancy", "SimpleStorage"}
    | {"NetworkProtocol", "EthernetInterfaces", "SerialInterfaces", "HostInterfaces"}  # of the BMC itself
    | {"CommandShell", "GraphicalConsole"}
)


def recorded(samples: Path) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Return documents of real servers by type, each with its make."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for make in SERVERS:
        for file in sorted((samples / "redfish" / make).glob("*.json")):
            document = json.loads(file.read_text())
            if "HGX" not in file.name:  # a baseboard, not a server
                found.setdefault(document["@odata.type"].split(".")[0], []).append((make, document))
    return found


def test_documents_have_what_every_real_bmc_sends(bench: Bench, samples: Path) -> None:
    """The lab has all properties that all makes have in common, because clients rely on them."""
    bench.machine.inject("xid_79")  # which writes an event
    real = recorded(samples)
    compared = set()
    for path, ours in walk(bench):
        kind = ours["@odata.type"].split(".")[0]
        theirs = real.get(kind, [])
        if len({make for make, _ in theirs}) < 2 or path.endswith("/Settings"):  # no settings objects were recorded
            continue
        compared.add(kind)
        for key in set.intersection(*(set(document) for _, document in theirs)) - NOT_OURS:
            assert key in ours, f"{path} lacks {key}"
            types = {type(document[key]) for _, document in theirs} | {type(None)}
            assert type(ours[key]) in types, f"{path}: {key} is {ours[key]!r}"
    assert len(compared) >= 15


@pytest.mark.parametrize(
    ("path", "group", "sample"),
    [
        (f"{CHASSIS}/Thermal", "Temperatures", "Chassis__1__Thermal"),
        (f"{CHASSIS}/Thermal", "Fans", "Chassis__1__Thermal"),
        (f"{CHASSIS}/Power", "PowerControl", "Chassis__1__Power"),
        (f"{CHASSIS}/Power", "Voltages", "Chassis__1__Power"),
        (f"{CHASSIS}/Power", "PowerSupplies", "Chassis__1__Power"),
        (f"{SYSTEM}/LogServices/Sel/Entries", "Members", "Systems__1__LogServices__Log1__Entries"),
    ],
)
def test_entries_use_words_that_a_real_bmc_uses(
    bench: Bench, samples: Path, path: str, group: str, sample: str
) -> None:
    bench.machine.inject("xid_79")
    real = json.loads((samples / "redfish" / "supermicro" / f"{sample}.json").read_text())[group]
    for key, value in bench.get(path)[group][0].items():
        theirs = [entry[key] for entry in real if key in entry]
        assert theirs, key
        assert isinstance(value, int | float) in {isinstance(other, int | float) for other in theirs}, key


def test_dates_are_the_fleets(bench: Bench) -> None:
    bench.clock.seconds = 3600
    assert bench.get(MANAGER)["DateTime"] == "2026-11-01T13:00:00+00:00"
    assert EPOCH.isoformat() == "2026-11-01T12:00:00+00:00"


def test_event_log_tells_what_happened(bench: Bench) -> None:
    bench.machine.power("force_off")
    bench.pass_time(10)
    entries = bench.get(f"{SYSTEM}/LogServices/Sel/Entries")["Members"]
    assert [(entry["Message"], entry["Severity"]) for entry in entries] == [("System power off", "OK")]
    assert entries[0]["Created"] == "2026-11-01T12:16:42+00:00"
    assert bench.get(entries[0]["@odata.id"])["Message"] == "System power off"


def test_health_and_sensors_show_a_lost_gpu(bench: Bench) -> None:
    assert bench.get(SYSTEM)["Status"]["HealthRollup"] == "OK"
    sensors = bench.get(f"{CHASSIS}/Sensors?$expand=.")["Members"]
    assert sum(sensor["ReadingType"] == "Temperature" for sensor in sensors) == 1 + 2 + 8
    bench.machine.inject("xid_79", gpu=3)
    assert bench.get(SYSTEM)["Status"]["HealthRollup"] == "Critical"
    assert bench.get(f"{SYSTEM}/Processors/GPU4")["Status"]["State"] == "Absent"
    assert bench.call("GET", f"{CHASSIS}/Sensors/GPU4_Temp").status == 404
    assert bench.get(f"{CHASSIS}/Sensors/GPU5_Temp")["Reading"] == 41
