"""A small BMC on loopback that tests can bend: documents by path, and rules that answer before them.

It knows no more of the driver than the standard says. Its documents are the world that tests look at afterwards.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from reconciler.drivers.redfish import BmcRegistry, RedfishBmc
from reconciler.drivers.secrets import Credentials, Secret

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
USER, PASSWORD = "admin", "correct horse battery"
ROOT = "/redfish/v1/"
SYSTEM = "/redfish/v1/Systems/1"
BIOS = f"{SYSTEM}/Bios"
SETTINGS = f"{BIOS}/Settings"
MANAGER = "/redfish/v1/Managers/1"
CD = f"{MANAGER}/VirtualMedia/Cd"
TASKS = "/redfish/v1/TaskService/Tasks"
UPDATE = "/redfish/v1/UpdateService"
INVENTORY = f"{UPDATE}/FirmwareInventory"
SESSIONS = "/redfish/v1/SessionService/Sessions"


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any  # decoded where it is JSON


class HangUp(Exception):
    """Raised by a rule to close the connection without an answer."""


Rule = Callable[[Call], Awaitable[web.StreamResponse | None]]


def refusal(status: int, id_: str, text: str = "", args: tuple[str, ...] = (), **headers: str) -> web.Response:
    info = {"MessageId": f"Base.1.10.{id_}", "Message": text or id_, "MessageArgs": list(args), "Severity": "Warning"}
    error = {"code": "Base.1.10.GeneralError", "message": "see ExtendedInfo", "@Message.ExtendedInfo": [info]}
    return web.json_response(
        {"error": error}, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


@dataclass
class Bench:
    documents: dict[str, Any]
    calls: list[Call] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    actions: dict[str, Callable[[Any], web.Response | None]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    logins: int = 0
    password: str = PASSWORD
    etag_style: str = "strong"  # strong | weak | weak-compared-strong | never | empty
    versions: dict[str, int] = field(default_factory=dict)
    url: str = ""

    # --- what tests say ---

    def answer(self, method: str, path: str, *answers: web.Response | int, forever: bool = False) -> None:
        """The next answers to requests on a path; then, unless `forever`, the documents answer again."""
        waiting = list(answers)

        async def rule(call: Call) -> web.StreamResponse | None:
            if (call.method, call.path) != (method, path) or not waiting:
                return None
            found = waiting[0] if forever and len(waiting) == 1 else waiting.pop(0)
            if isinstance(found, int):
                return web.Response(status=found)
            return web.Response(status=found.status, body=found.body, headers=found.headers)

        self.rules.append(rule)

    def gets(self) -> list[str]:
        return [call.path + (f"?{call.query}" if call.query else "") for call in self.calls if call.method == "GET"]

    def sent(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method and call.path != SESSIONS]

    # --- what the BMC does ---

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if request.content_type == "application/json" and raw else raw or None
        call = Call(request.method, request.path, request.query_string, dict(request.headers), body)
        self.calls.append(call)
        for rule in self.rules:
            try:
                found = await rule(call)
            except HangUp:
                assert request.transport is not None
                request.transport.close()
                return web.Response()
            if found is not None:
                return found
        if call.path == SESSIONS and call.method == "POST":
            return self._login(body)
        if call.path.rstrip("/") != ROOT.rstrip("/") and call.headers.get("X-Auth-Token") not in self.tokens:
            return refusal(401, "NoValidSession")
        answer: web.StreamResponse = getattr(self, f"_{call.method.lower()}")(call)
        return answer

    def _login(self, body: Any) -> web.Response:
        self.logins += 1
        if body != {"UserName": USER, "Password": self.password}:
            return refusal(401, "ResourceAtUriUnauthorized", f"wrong password {body['Password']}")
        token = f"token-{self.logins}"
        self.tokens.add(token)
        return web.json_response({}, status=201, headers={"X-Auth-Token": token, "Location": f"{SESSIONS}/{token}"})

    def _find(self, path: str) -> str | None:
        wanted = path.rstrip("/")
        return next((known for known in self.documents if known.rstrip("/") == wanted), None)

    def _get(self, call: Call) -> web.Response:
        path = self._find(call.path)
        if path is None:
            return refusal(404, "ResourceMissingAtURI")
        document = self.documents[path]
        if "$expand" in call.query and isinstance(document.get("Members"), list):
            members = [self.documents.get(item["@odata.id"], item) for item in document["Members"]]
            document = {**document, "Members": members}
        return web.json_response(document, headers=self._etag_header(path))

    def _tag(self, path: str) -> str:
        return f'"{self.versions.get(path, 1)}"'

    def _etag_header(self, path: str) -> dict[str, str]:
        tag = self._tag(path)
        weak = self.etag_style.startswith("weak")
        return {"ETag": "" if self.etag_style == "empty" else f"W/{tag}" if weak else tag}

    def _accepts(self, path: str, given: str | None) -> bool:
        if given is None:
            return True
        tag = self._tag(path)
        styles = {"strong": [tag], "weak": [f"W/{tag}"], "weak-compared-strong": [tag]}
        return given in styles.get(self.etag_style, [])

    def _patch(self, call: Call) -> web.Response:
        path = self._find(call.path)
        if path is None:
            return refusal(404, "ResourceMissingAtURI")
        if not self._accepts(path, call.headers.get("If-Match")):
            return refusal(412, "PreconditionFailed")
        _merge(self.documents[path], call.body)
        self.versions[path] = self.versions.get(path, 1) + 1
        return web.Response(status=204)

    def _post(self, call: Call) -> web.Response:
        act = self.actions.get(call.path)
        if act is None:
            return refusal(404, "ResourceMissingAtURI")
        return act(call.body) or web.Response(status=204)

    def _delete(self, call: Call) -> web.Response:
        self.tokens.discard(call.path.rsplit("/", 1)[-1])
        return web.Response(status=204)

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Bench]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def client(self, **changes: Any) -> RedfishBmc:
        return client(self.url, **changes)


def client(url: str, *, username: str = USER, password: str = PASSWORD, **changes: Any) -> RedfishBmc:
    now = changes.pop("now", lambda: NOW)
    options: dict[str, Any] = {
        "secret": "bmc",
        "credentials": lambda: Credentials(username, Secret(password)),
        "ca_pem": None,
        "insecure": True,
        "node": "gpu-a001",
        "connect_timeout": 2,
        "read_timeout": 2,
        "bmc_registry": BmcRegistry(now),
    }
    return RedfishBmc(url, **{**options, **changes})


def play(bench: Bench, steps: Callable[[Bench, RedfishBmc], Awaitable[Any]], **changes: Any) -> Any:
    """Serve `bench` and run steps with a client of it."""

    async def run() -> Any:
        async with bench.serving():
            bmc = bench.client(**changes)
            try:
                return await asyncio.wait_for(steps(bench, bmc), 30)
            finally:
                await bmc.close()

    return asyncio.run(run())


def _merge(document: Any, change: Any) -> None:
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(document.get(name), dict):
            _merge(document[name], value)
        else:
            document[name] = value


# --- a machine ---


def machine() -> Bench:
    bench = Bench(deepcopy(_DOCUMENTS))
    system, cd, settings = bench.documents[SYSTEM], bench.documents[CD], bench.documents[SETTINGS]

    def reset(body: Any) -> web.Response | None:
        wanted = {"On": "On", "ForceOn": "On", "ForceOff": "Off", "GracefulShutdown": "Off"}.get(body["ResetType"])
        if wanted == system["PowerState"]:
            return refusal(409, "PSU501", "Server is already powered ON.")
        system["PowerState"] = wanted or system["PowerState"]
        if system["PowerState"] == "On":  # POST puts settings into force
            bench.documents[BIOS]["Attributes"].update(settings["Attributes"])
            settings["Attributes"].clear()
        return None

    def insert(body: Any) -> None:
        cd.update(Image=body["Image"], Inserted=True)

    def eject(_: Any) -> None:
        cd.update(Image=None, Inserted=False)

    def update(body: Any) -> web.Response:
        if body.get("Targets") != [f"{INVENTORY}/BIOS"]:
            return refusal(400, "ActionParameterValueNotInList", "Targets", ("Targets",))
        task = {"@odata.id": f"{TASKS}/2", "@odata.type": "#Task.v1_4_3.Task", "Id": "2", "TaskState": "Running"}
        bench.documents[f"{TASKS}/2"] = task
        bench.documents[TASKS]["Members"].append({"@odata.id": f"{TASKS}/2"})
        return web.json_response(task, status=202, headers={"Location": "/redfish/v1/TaskService/Monitors/2"})

    bench.actions = {
        f"{SYSTEM}/Actions/ComputerSystem.Reset": reset,
        f"{CD}/Actions/VirtualMedia.InsertMedia": insert,
        f"{CD}/Actions/VirtualMedia.EjectMedia": eject,
        f"{UPDATE}/Actions/UpdateService.SimpleUpdate": update,
        f"{MANAGER}/Actions/Manager.Reset": lambda _: bench.tokens.clear(),
    }
    return bench


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _resource(path: str, **content: Any) -> dict[str, Any]:
    return {path: {"@odata.id": path, "Id": path.rsplit("/", 1)[-1], "Name": "x", **content}}


def _collection(path: str, **members: dict[str, Any]) -> dict[str, Any]:
    listed = {path: {"@odata.id": path, "Name": "x", "Members": [_link(f"{path}/{id_}") for id_ in members]}}
    for id_, content in members.items():
        listed |= _resource(f"{path}/{id_}", **content)
    return listed


_OK = {"State": "Enabled", "Health": "OK"}
_ATTRIBUTES = {"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1", "BootTimeout": 5, "QuietBoot": True}
_REGISTRY = [
    {
        "AttributeName": "SriovGlobalEnable",
        "Type": "Enumeration",
        "Value": [{"ValueName": "Enabled"}, {"ValueName": "Disabled"}],
    },
    {
        "AttributeName": "NumaNodesPerSocket",
        "Type": "Enumeration",
        "Value": [{"ValueName": "NPS1"}, {"ValueName": "NPS4"}],
    },
    {"AttributeName": "BootTimeout", "Type": "Integer", "LowerBound": 1, "UpperBound": 60},
    {"AttributeName": "QuietBoot", "Type": "Boolean"},
    {"AttributeName": "Serial", "Type": "String", "ReadOnly": True},
]
_DOCUMENTS: dict[str, Any] = {
    ROOT: {
        "@odata.id": ROOT,
        "Systems": _link("/redfish/v1/Systems"),
        "Managers": _link("/redfish/v1/Managers"),
        "Tasks": _link("/redfish/v1/TaskService"),
        "UpdateService": _link(UPDATE),
        "Registries": _link("/redfish/v1/Registries"),
        "SessionService": _link("/redfish/v1/SessionService"),
        "Links": {"Sessions": _link(SESSIONS)},
        "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": True, "Levels": True}},
    },
    **_collection("/redfish/v1/Systems", **{"1": {}}),
    **_resource(
        SYSTEM,
        Manufacturer="Supermicro",
        Model="SYS-821GE-TNHR",
        SerialNumber="S889914X3710910",
        UUID="38947555-7742-3448-3784-823347823834",
        PowerState="On",
        Status={**_OK, "HealthRollup": "OK"},
        BootProgress={"LastState": "OSRunning"},
        ProcessorSummary={"Count": 2},
        MemorySummary={"TotalSystemMemoryGiB": 128},
        Boot={
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideMode": "UEFI",
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Cd", "UsbCd", "Hdd"],
            "BootOptions": _link(f"{SYSTEM}/BootOptions"),
            "BootOrder": ["Boot0001", "Boot0002", "Boot0003"],
        },
        **{
            name: _link(f"{SYSTEM}/{name}")
            for name in ("Bios", "SecureBoot", "Memory", "EthernetInterfaces", "Storage")
        },
        LogServices=_link(f"{SYSTEM}/LogServices"),
        Links={"Chassis": [_link("/redfish/v1/Chassis/1")], "ManagedBy": [_link(MANAGER)]},
        Actions={
            "#ComputerSystem.Reset": {
                "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "GracefulRestart"],
            }
        },
    ),
    **_resource(
        BIOS,
        AttributeRegistry="BiosAttributeRegistry.v1_0_0",
        Attributes=_ATTRIBUTES,
        **{"@Redfish.Settings": {"SettingsObject": _link(SETTINGS), "SupportedApplyTimes": ["OnReset"]}},
    ),
    **_resource(SETTINGS, Attributes={}),
    **_resource(f"{SYSTEM}/SecureBoot", SecureBootEnable=True, SecureBootCurrentBoot="Enabled"),
    **_collection(
        f"{SYSTEM}/BootOptions",
        Boot0001={"BootOptionReference": "Boot0001", "Alias": "Pxe"},
        Boot0002={"BootOptionReference": "Boot0002", "Alias": "Hdd"},
        Boot0003={"BootOptionReference": "Boot0003", "Alias": "Pxe"},
    ),
    **_collection(
        f"{SYSTEM}/Memory",
        A1={"CapacityMiB": 65536, "Status": _OK},
        A2={"CapacityMiB": 65536, "Status": _OK},
        A3={"CapacityMiB": 0, "Status": {"State": "Absent"}},
    ),
    **_collection(
        f"{SYSTEM}/EthernetInterfaces",
        eno1={"MACAddress": "3C:EC:EF:00:00:01", "LinkStatus": "LinkUp", "SpeedMbps": 10000, "Status": _OK},
        ToManager={"MACAddress": "be:3a:f2:b6:05:9f"},
    ),
    **_collection(f"{SYSTEM}/Storage", NVMe={"Drives": [_link(f"{SYSTEM}/Storage/NVMe/Drives/0")]}),
    **_resource(
        f"{SYSTEM}/Storage/NVMe/Drives/0",
        SerialNumber="S6C1NA0TA04209",
        Model="SAMSUNG MZQL2960",
        CapacityBytes=960197124096,
        Identifiers=[{"DurableName": "0025389A21013360", "DurableNameFormat": "EUI"}],
        Status=_OK,
    ),
    **_collection(f"{SYSTEM}/LogServices", SEL={"Entries": _link(f"{SYSTEM}/LogServices/SEL/Entries")}),
    **_collection(
        f"{SYSTEM}/LogServices/SEL/Entries",
        **{
            "2": {"Created": "2026-11-02T00:00:00Z", "Severity": "Critical", "Message": "PSU lost"},
            "1": {"Created": "2026-11-01T00:00:00Z", "Severity": "OK", "Message": "Log cleared"},
        },
    ),
    **_resource(
        "/redfish/v1/Chassis/1",
        Thermal=_link("/redfish/v1/Chassis/1/Thermal"),
        Power=_link("/redfish/v1/Chassis/1/Power"),
    ),
    **_resource(
        "/redfish/v1/Chassis/1/Thermal",
        Temperatures=[
            {"Name": "Inlet", "ReadingCelsius": 21, "Status": _OK},
            {"Name": "GPU9", "ReadingCelsius": 0, "Status": {"State": "Absent", "Health": "Critical"}},
        ],
        Fans=[{"Name": "FAN1", "Reading": 4200, "ReadingUnits": "RPM", "Status": {**_OK, "Health": "Warning"}}],
    ),
    **_resource(
        "/redfish/v1/Chassis/1/Power",
        PowerControl=[{"Name": "System", "PowerConsumedWatts": 2161, "Status": _OK}],
        Voltages=[{"Name": "12V", "ReadingVolts": 12.1, "Status": _OK}],
    ),
    **_collection("/redfish/v1/Managers", **{"1": {}}),
    **_resource(
        MANAGER,
        Model="ASPEED",
        FirmwareVersion="01.05.03",
        DateTime="2026-11-21T10:00:00+01:00",
        VirtualMedia=_link(f"{MANAGER}/VirtualMedia"),
        Actions={
            "#Manager.Reset": {
                "target": f"{MANAGER}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": ["GracefulRestart"],
            }
        },
    ),
    **_collection(f"{MANAGER}/VirtualMedia", Usb={"MediaTypes": ["USBStick"]}, Viewer={"MediaTypes": ["CD"]}, Cd={}),
    **_resource(
        f"{MANAGER}/VirtualMedia/Viewer",
        MediaTypes=["CD"],
        Inserted=False,
        Actions={
            "#VirtualMedia.EjectMedia": {"target": f"{MANAGER}/VirtualMedia/Viewer/Actions/VirtualMedia.EjectMedia"}
        },
    ),
    **_resource(
        CD,
        MediaTypes=["CD", "DVD"],
        Image=None,
        Inserted=False,
        Actions={
            "#VirtualMedia.InsertMedia": {"target": f"{CD}/Actions/VirtualMedia.InsertMedia"},
            "#VirtualMedia.EjectMedia": {"target": f"{CD}/Actions/VirtualMedia.EjectMedia"},
        },
    ),
    **_resource(
        UPDATE,
        FirmwareInventory=_link(INVENTORY),
        Actions={
            "#UpdateService.SimpleUpdate": {
                "target": f"{UPDATE}/Actions/UpdateService.SimpleUpdate",
                "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"],
            }
        },
    ),
    **_collection(
        INVENTORY,
        BIOS={"Version": "BIOS Date: 08/04/2023 Ver 2.4", "Updateable": True, "Status": _OK},
        BMC={"Version": "01.05.03", "Updateable": True, "Status": _OK},
        NIC0={"Version": "n/a", "Status": _OK},
        PSU9={"Version": "1.0", "Status": {"State": "Absent"}},
    ),
    **_resource("/redfish/v1/TaskService", Tasks=_link(TASKS)),
    **_collection(TASKS, **{"1": {"TaskState": "Completed", "TaskStatus": "OK"}}),
    **_collection(
        "/redfish/v1/Registries",
        **{"BiosAttributeRegistry.v1_0_0": {"Location": [{"Language": "en", "Uri": "/redfish/v1/registry.json"}]}},
    ),
    **_resource("/redfish/v1/registry.json", RegistryEntries={"Attributes": _REGISTRY}),
}
