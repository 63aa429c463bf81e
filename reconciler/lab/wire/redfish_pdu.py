"""The lab's rack PDU on the wire: the tree of DSP2043's mockup public-rackmount, as far as outlets need it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Sequence

from aiohttp import web

from reconciler.lab.hardware.mains import Mains
from reconciler.lab.wire.redfish_protocol import ROOT, Document, link, odata, status
from reconciler.lab.wire.redfish_sessions import Sessions

_SESSIONS = f"{ROOT}/SessionService/Sessions"
_UNITS = f"{ROOT}/PowerEquipment/RackPDUs"
_OUTLETS = f"{_UNITS}/1/Outlets"
_MAX_SESSIONS, _SESSION_S = 8, 1800.0


class PduServer:
    """One service with one PDU. `address`: its URL in the spec. `clock`: seconds, for the age of sessions."""

    def __init__(self, mains: Mains, address: str, *, username: str, password: str, clock: Callable[[], float]) -> None:
        self._mains, self._address, self._clock = mains, address, clock
        self._sessions = Sessions(username, password, _MAX_SESSIONS, _SESSION_S)
        self._runner: web.ServerRunner | None = None

    @property
    def _names(self) -> Sequence[str]:
        return self._mains.pdus()[self._address]

    async def start(self, ssl_context: ssl.SSLContext) -> int:
        """Start serving on loopback and return the port."""
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._address in self._mains.silent:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        where, body = request.path.rstrip("/"), {}
        if request.method == "POST":
            body = json.loads(await request.read())
        if (request.method, where) == ("POST", _SESSIONS):
            return self._login(body)
        if where != ROOT and not self._sessions.authorised(
            request.headers.get("X-Auth-Token"), request.headers.get("Authorization"), self._clock()
        ):
            return _reply(401, _error("Base.1.8.NoValidSession"))
        if request.method == "DELETE" and where.startswith(f"{_SESSIONS}/"):
            return _reply(204 if self._sessions.delete(where.rsplit("/", 1)[1]) else 404, {})
        if request.method == "POST":
            return self._act(where, body)
        document = self._document(where)
        return _reply(404, _error("Base.1.8.ResourceMissingAtURI")) if document is None else _reply(200, document)

    def _login(self, body: Document) -> web.Response:
        username = str(body.get("UserName", ""))
        if not self._sessions.accepts(username, str(body.get("Password", "")), self._clock()):
            return _reply(401, _error("Base.1.8.ResourceAtUriUnauthorized"))
        session = self._sessions.login(username, self._clock())
        if session is None:
            return _reply(503, _error("Base.1.8.SessionLimitExceeded"))
        headers = {"X-Auth-Token": session.token, "Location": f"{_SESSIONS}/{session.id}"}
        return _reply(201, odata(f"{_SESSIONS}/{session.id}", "Session.v1_3_0", "User Session"), headers)

    def _document(self, where: str) -> Document | None:
        if where.startswith(f"{_OUTLETS}/"):
            name = where.rsplit("/", 1)[1]
            return self._outlet(name) if name in self._names else None
        return {
            ROOT: odata(ROOT, "ServiceRoot.v1_9_0", "Rack PDU")
            | {
                "RedfishVersion": "1.13.0",
                "PowerEquipment": link(f"{ROOT}/PowerEquipment"),
                "SessionService": link(f"{ROOT}/SessionService"),
                "Links": {"Sessions": link(_SESSIONS)},
            },
            f"{ROOT}/SessionService": odata(f"{ROOT}/SessionService", "SessionService.v1_1_8", "Session Service")
            | {"Sessions": link(_SESSIONS)},
            f"{ROOT}/PowerEquipment": odata(f"{ROOT}/PowerEquipment", "PowerEquipment.v1_1_0", "Power equipment")
            | {"RackPDUs": link(_UNITS)},
            _UNITS: _collection(_UNITS, "PowerDistribution", ["1"]),
            f"{_UNITS}/1": odata(f"{_UNITS}/1", "PowerDistribution.v1_2_1", "RackPDU1")
            | {"EquipmentType": "RackPDU", "Status": status(), "Outlets": link(_OUTLETS)},
            _OUTLETS: _collection(_OUTLETS, "Outlet", self._names),
        }.get(where)

    def _outlet(self, name: str) -> Document:
        on = self._mains.gives_power((self._address, name))
        return odata(f"{_OUTLETS}/{name}", "Outlet.v1_4_0", f"Outlet {name}") | {
            "Status": status(),
            "OutletType": "IEC_60320_C19",
            "PowerState": "On" if on else "Off",
            "PowerEnabled": on,
            "Actions": {
                "#Outlet.PowerControl": {
                    "target": f"{_OUTLETS}/{name}/Outlet.PowerControl",
                    "PowerState@Redfish.AllowableValues": ["On", "Off", "PowerCycle"],
                }
            },
        }

    def _act(self, where: str, body: Document) -> web.Response:
        name, _, action = where.removeprefix(f"{_OUTLETS}/").partition("/")
        if name not in self._names or action != "Outlet.PowerControl":
            return _reply(404, _error("Base.1.8.ResourceMissingAtURI"))
        if body.get("PowerState") not in ("On", "Off"):
            return _reply(400, _error("Base.1.8.ActionParameterValueNotInList"))
        self._mains.switch([(self._address, name)], on=body["PowerState"] == "On")
        return _reply(204, {})


def _collection(where: str, kind: str, members: Sequence[str]) -> Document:
    return {
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "@odata.id": where,
        "Name": f"{kind} Collection",
        "Members@odata.count": len(members),
        "Members": [link(f"{where}/{member}") for member in members],
    }


def _error(code: str) -> Document:
    return {"error": {"code": code, "message": code.rsplit(".", 1)[1], "@Message.ExtendedInfo": [{"MessageId": code}]}}


def _reply(code: int, document: Document, headers: Document | None = None) -> web.Response:
    text = "" if code == 204 else json.dumps(document)
    return web.Response(status=code, text=text, content_type="application/json", headers=headers)
