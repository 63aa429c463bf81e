"""Service root, sessions and registries: the resources that are not about the machine itself."""

from __future__ import annotations

from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import (
    ROOT,
    Bmc,
    Document,
    Reply,
    Resource,
    Routes,
    collection,
    link,
    odata,
    required,
    status,
)

SESSIONS = f"{ROOT}/SessionService/Sessions"
REGISTRIES = f"{ROOT}/Registries"
BIOS_REGISTRY = "BiosAttributeRegistry.v1_0_0"


def _versions(_: Bmc, __: str) -> Document:
    return {"v1": f"{ROOT}/"}


def _root(bmc: Bmc, _: str) -> Document:
    services = {
        "Systems": "Systems",
        "Chassis": "Chassis",
        "Managers": "Managers",
        "Tasks": "TaskService",
        "AccountService": "AccountService",
        "UpdateService": "UpdateService",
        "Registries": "Registries",
        "EventService": "EventService",
    }
    if bmc.machine.component_ids:
        services["ComponentIntegrity"] = "ComponentIntegrity"
    sessions = {"SessionService": link(f"{ROOT}/SessionService"), "Links": {"Sessions": link(SESSIONS)}}
    return {
        "@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot",
        "@odata.id": ROOT,
        "Id": "ServiceRoot",
        "Name": "Root Service",
        "RedfishVersion": "1.11.0",
        "UUID": bmc.machine.shown_identity[1],
        "Vendor": bmc.state.manufacturer,
        **{name: link(f"{ROOT}/{path}") for name, path in services.items()},
        **(sessions if bmc.quirks.max_sessions else {}),
        "ProtocolFeaturesSupported": {
            "FilterQuery": False,
            "SelectQuery": False,
            "ExcerptQuery": False,
            "OnlyMemberQuery": False,
            "DeepOperations": {"DeepPATCH": False, "DeepPOST": False},
            "ExpandQuery": {
                "Links": False,
                "NoLinks": bmc.quirks.expand,
                "ExpandAll": bmc.quirks.expand,
                "Levels": bmc.quirks.expand,
                "MaxLevels": 1,
            },
        },
    }


# --- sessions ---


def _session_service(bmc: Bmc, _: str) -> Document:
    return odata(f"{ROOT}/SessionService", "SessionService.v1_1_8", "Session Service") | {
        "Status": status(),
        "ServiceEnabled": True,
        "SessionTimeout": round(bmc.sessions.timeout_s),
        "Sessions": link(SESSIONS),
    }


def _session(bmc: Bmc, id_: str) -> Document | None:
    session = bmc.sessions.open(bmc.machine.now).get(id_)
    if session is None:
        return None
    return odata(f"{SESSIONS}/{id_}", "Session.v1_3_0", "User Session") | {"UserName": session.username}


def _login(bmc: Bmc, _: str, body: Document) -> Reply:
    username = required(body, "Sessions", "UserName")
    password = required(body, "Sessions", "Password")
    if not bmc.sessions.accepts(username, password, bmc.machine.now):
        raise Refusal("ResourceAtUriUnauthorized", SESSIONS)
    taken = bmc.machine.spend_fault("bmc_sessions")
    session = None if taken else bmc.sessions.login(username, bmc.machine.now)
    if session is None:
        raise Refusal("RAC0218")
    headers = {"X-Auth-Token": session.token, "Location": f"{SESSIONS}/{session.id}"}
    return Reply(201, _session(bmc, session.id), headers)


def _logout(bmc: Bmc, id_: str) -> Reply:
    if not bmc.sessions.delete(id_):
        raise Refusal("ResourceMissingAtURI", f"{SESSIONS}/{id_}")
    return Reply(204, None)


# --- registries ---


def _registry_file(_: Bmc, id_: str) -> Document | None:
    if id_ != BIOS_REGISTRY:
        return None
    return odata(f"{REGISTRIES}/{id_}", "MessageRegistryFile.v1_1_3", "BIOS Attribute Registry File") | {
        "Registry": BIOS_REGISTRY,
        "Languages": ["en"],
        "Location": [{"Language": "en", "Uri": f"{REGISTRIES}/{id_}/en"}],
    }


def _bios_registry(bmc: Bmc, _: str) -> Document:
    """Return the registry of the BIOS attributes and values that the firmware accepts (pitfall G1)."""
    attributes: list[Document] = []
    for name, attribute in sorted(bmc.machine.registry.items()):
        entry: Document = {
            "AttributeName": name,
            "DisplayName": name,
            "DefaultValue": attribute.default,
            "ReadOnly": False,
            "ResetRequired": True,
        }
        if attribute.values:
            entry |= {"Type": "Enumeration", "Value": [{"ValueName": value} for value in attribute.values]}
        elif isinstance(attribute.default, bool):
            entry |= {"Type": "Boolean"}
        elif isinstance(attribute.default, int):
            entry |= {"Type": "Integer", "LowerBound": 0, "UpperBound": 2**31 - 1}
        else:
            entry |= {"Type": "String", "MinLength": 0, "MaxLength": 255}
        attributes.append(entry)
    return {
        "@odata.type": "#AttributeRegistry.v1_3_6.AttributeRegistry",
        "@odata.id": f"{REGISTRIES}/{BIOS_REGISTRY}/en",
        "Id": BIOS_REGISTRY,
        "Name": "BIOS Attribute Registry",
        "Language": "en",
        "OwningEntity": bmc.state.manufacturer,
        "RegistryVersion": "1.0.0",
        "RegistryEntries": {"Attributes": attributes},
    }


ROUTES: Routes = {
    "/redfish": Resource(get=_versions, public="GET"),
    ROOT: Resource(get=_root, public="GET"),
    f"{ROOT}/SessionService": Resource(get=_session_service),
    SESSIONS: Resource(
        get=collection(SESSIONS, "Session", "Session Collection", lambda bmc: bmc.sessions.open(bmc.machine.now)),
        post=_login,
        public="POST",
    ),
    f"{SESSIONS}/*": Resource(get=_session, delete=_logout),
    REGISTRIES: Resource(
        get=collection(REGISTRIES, "MessageRegistryFile", "Registry File Collection", lambda _: [BIOS_REGISTRY])
    ),
    f"{REGISTRIES}/*": Resource(get=_registry_file),
    f"{REGISTRIES}/{BIOS_REGISTRY}/en": Resource(get=_bios_registry),
}
