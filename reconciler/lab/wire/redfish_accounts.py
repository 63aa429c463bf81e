"""The account service: the one account that the lab's BMC has, beside an empty slot, as Dell's has them.

Shapes: DSP0268, AccountService and ManagerAccount; NVIDIA/infra-controller-core, its mock of a BMC; the tree of a Cisco
C240 (akaliwod/iserver, doc/redfish-tests-cisco-ucsc-c240-m4sx/UriAccountService.md).
"""

from __future__ import annotations

from reconciler.lab.wire.redfish_messages import SUCCESS, Refusal
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
    only,
    status,
)

SERVICE = f"{ROOT}/AccountService"
ACCOUNTS = f"{SERVICE}/Accounts"
_SLOTS = ("1", "2")  # the first is empty: IPMI keeps it for an anonymous user
OURS = "2"


def _service(bmc: Bmc, _: str) -> Document:
    quirks = bmc.quirks
    return odata(SERVICE, "AccountService.v1_9_0", "Account Service") | {
        "Status": status(),
        "ServiceEnabled": True,
        "LocalAccountAuth": "Fallback",
        "AccountLockoutThreshold": quirks.locks_after,
        "AccountLockoutDuration": round(quirks.locked_s) if quirks.locks_after else 0,
        "AccountLockoutCounterResetAfter": round(quirks.locked_s) if quirks.locks_after else 0,
        "MinPasswordLength": quirks.shortest_password,
        "MaxPasswordLength": quirks.longest_password,
        "Accounts": link(ACCOUNTS),
    }


def _account(bmc: Bmc, id_: str) -> Document | None:
    if id_ not in _SLOTS:
        return None
    used = id_ == OURS
    return odata(f"{ACCOUNTS}/{id_}", "ManagerAccount.v1_8_0", "User Account") | {
        "UserName": bmc.sessions.username if used else "",
        "Password": None,
        "RoleId": "Administrator" if used else "None",
        "Enabled": used,
        "Locked": used and bmc.sessions.is_locked(bmc.machine.now),
        "PasswordChangeRequired": False,
    }


def _change(bmc: Bmc, id_: str, body: Document) -> Reply:
    only(body, "Password")
    password = body.get("Password")
    if id_ != OURS:
        raise Refusal("ResourceMissingAtURI", f"{ACCOUNTS}/{id_}")
    if bmc.quirks.password_refusal:
        raise Refusal(bmc.quirks.password_refusal)
    if (
        not isinstance(password, str)
        or not bmc.quirks.shortest_password <= len(password) <= bmc.quirks.longest_password
        or (bmc.quirks.refuses_used_passwords and bmc.sessions.has_used(password))
    ):
        raise Refusal("PropertyValueFormatError", str(password), "Password", related=["Password"])
    if bmc.machine.takes_password():
        bmc.sessions.change_password(password)
    return Reply(200, SUCCESS)


ROUTES: Routes = {
    SERVICE: Resource(get=_service),
    ACCOUNTS: Resource(get=collection(ACCOUNTS, "ManagerAccount", "Accounts Collection", lambda _: _SLOTS)),
    f"{ACCOUNTS}/*": Resource(get=_account, patch=_change),
}
