"""Checks of the protocol: each is a function of the tree that returns what it saw.

It raises Unknown for what the BMC does not offer, and Broken or DriverError for what it does wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from reconciler.drivers.redfish.failures import HttpError, decode
from reconciler.drivers.redfish.fields import Document, Unknown, integer, link, path, quote, text
from reconciler.drivers.redfish.hot import Tasks, read_hot
from reconciler.drivers.redfish.session import ROOT
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.conformance import Check
from reconciler.model.errors import DriverError, Failure

Probe = Callable[[Tree], str]
MISSING: Final = f"{ROOT}Systems/reconciler-conformance-no-such-system"
_HOT_GETS: Final = 6  # of a pass, as drivers/redfish/hot.py bounds it


class Broken(Exception):
    """Raised where a BMC offers something and does it wrong; the message says what it did."""


def service_root(tree: Tree) -> str:
    body = _anonymous(tree, ROOT)
    lacking = [name for name in ("RedfishVersion", "Id", "Name") if text(body, name) is None]
    if link(body, "Systems") is None:
        lacking.append("Systems")
    if lacking:
        raise Broken(f"the service root lacks {', '.join(lacking)}")
    return f"RedfishVersion {quote(body['RedfishVersion'])}"


def versions(tree: Tree) -> str:
    body = _anonymous(tree, "/redfish")
    if path(body.get("v1")) != ROOT:
        raise Broken(f"GET /redfish: v1 is {quote(repr(body.get('v1')))}, not {ROOT}")
    return f"v1 is {ROOT}"


def certificate(tree: Tree) -> str:
    wire = tree.session.wire
    if not wire.address.startswith("https://"):
        raise Broken("the address is http://: passwords and tokens are sent in the clear")
    if not wire.verifies:
        raise Unknown("not verified: give --ca FILE in place of --insecure")
    wire.send("GET", ROOT)
    return "the certificate is trusted and names the address"


def login_required(tree: Tree) -> str:
    where = _systems(_anonymous(tree, ROOT))
    try:
        tree.session.wire.send("GET", where)
    except HttpError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            return f"GET {where} without a login: HTTP 401"
        raise Broken(f"GET {where} without a login: HTTP {error.status}, not 401") from None
    raise Broken(f"GET {where} is answered without a login")


def session_login(tree: Tree) -> str:
    tree.system()  # logs in, and shows that the login holds
    if tree.session.token is None:
        raise Unknown("the BMC has no sessions: each request is a login, by Basic")
    return "POST of a session gives X-Auth-Token, and it is good for the next request"


def session_end(tree: Tree) -> str:
    tree.system()
    token = tree.session.token
    if token is None:
        raise Unknown("the BMC has no sessions")
    where = _systems(tree.session.root())
    tree.session.close()
    try:
        tree.session.wire.send("GET", where, None, {"X-Auth-Token": token})
    except HttpError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            return "the token of a session that was deleted is refused"
        raise Broken(f"the token of a deleted session: HTTP {error.status}, not 401") from None
    raise Broken("the token of a session that was deleted is still good")


def etags(tree: Tree) -> str:
    found = tree.system()
    if found.etag is None:
        raise Unknown("no ETag with the system: changes are written without If-Match")
    return f"{'weak' if found.etag.startswith('W/') else 'strong'} ETag {quote(found.etag)}"


def missing_resource(tree: Tree) -> str:
    error = _refusal(tree)
    if error.status != HTTPStatus.NOT_FOUND:
        raise Broken(f"GET of a system that does not exist: HTTP {error.status}, not 404")
    return "HTTP 404"


def error_body(tree: Tree) -> str:
    error = _refusal(tree)
    if not error.messages:
        raise Broken(f"HTTP {error.status} without extended information")
    return f"MessageId {quote(error.messages[0].id)}"


def resource_ids(tree: Tree) -> str:
    found = tree.system()
    own = path(found.body.get("@odata.id"))
    if own is None or own.rstrip("/") != found.path.rstrip("/"):
        raise Broken(f"{found.path} calls itself {quote(repr(found.body.get('@odata.id')))}")
    lacking = [name for name in ("@odata.type", "Id", "Name") if text(found.body, name) is None]
    if lacking:
        raise Broken(f"{found.path} lacks {', '.join(lacking)}")
    return quote(found.body["@odata.type"])


def collections(tree: Tree) -> str:
    where = _systems(tree.session.root())
    listed = tree.listed(where)
    count = integer(tree.get(where).body, "Members@odata.count")
    if count is None:
        raise Broken(f"{where} has no Members@odata.count")
    if count != len(listed):
        raise Broken(f"{where} counts {count} members and lists {len(listed)}")
    return f"{where} counts and lists {count}"


def expand(tree: Tree) -> str:
    where = _systems(tree.session.root())
    if not tree.expands(where):
        raise Unknown("$expand is not offered")
    found = tree.expanded(where)
    if not tree.expands(where):
        raise Broken(f"$expand is offered, and refused for {where}")
    if any(text(item, "Id") is None for _, item in found):
        raise Broken(f"$expand of {where} is accepted, and gives links alone")
    return f"{len(found)} members with their content in one request"


def hot_read(tree: Tree) -> str:
    tasks = Tasks(tree)
    read_hot(tree, tasks)  # learns URIs and old tasks
    before = tree.session.gets
    read_hot(tree, tasks)
    spent = tree.session.gets - before
    if spent > _HOT_GETS:
        raise Broken(f"a pass takes {spent} requests; it may take {_HOT_GETS}")
    return f"{spent} requests for each pass"


def _anonymous(tree: Tree, where: str) -> Document:
    answer = tree.session.wire.send("GET", where)
    try:
        return decode(answer.content)
    except Unknown as malformed:
        raise DriverError(Failure.MALFORMED, f"GET {where}: {malformed}") from None


def _systems(root: Document) -> str:
    where = link(root, "Systems")
    if where is None:
        raise Broken("the service root has no Systems")
    return where


def _refusal(tree: Tree) -> HttpError:
    try:
        tree.session.get(MISSING)
    except HttpError as error:
        return error
    raise Broken("GET of a system that does not exist is answered as if it did")


# Before a login; nothing of these carries a password.
BEFORE_LOGIN: Final[tuple[tuple[Check, Probe], ...]] = (
    (
        Check(
            "service-root", "DSP0266 7.2.2 Service Root request", "nothing is read: this is no Redfish service to it"
        ),
        service_root,
    ),
    (
        Check("protocol-version", "DSP0266 6.6 Protocol version", "nothing changes: it asks for /redfish/v1/ itself"),
        versions,
    ),
    (
        Check(
            "certificate",
            "DSP0266 13.1.2 Certificates",
            "it sends no password, unless the spec says redfish.tls.insecure, which every report then shows",
            ("B5",),
        ),
        certificate,
    ),
    (
        Check(
            "login-required",
            "DSP0266 13.3.4 HTTP header authentication",
            "nothing changes; but whoever reaches the BMC can read it",
        ),
        login_required,
    ),
)
AFTER_LOGIN: Final[tuple[tuple[Check, Probe], ...]] = (
    (
        Check(
            "session-login",
            "DSP0266 13.3.5 Session management",
            "it sends the password with each request, and stops at the first refusal",
            ("B1", "B2", "B3"),
        ),
        session_login,
    ),
    (
        Check(
            "session-end",
            "DSP0266 13.3.5 Session management",
            "its sessions stay until they expire, and use up the few that a BMC has",
            ("B1",),
        ),
        session_end,
    ),
    (
        Check(
            "etags",
            "DSP0266 6.5 ETags",
            "it writes without If-Match, so a change of somebody else at the same moment is not noticed",
            ("A1",),
        ),
        etags,
    ),
    (
        Check(
            "missing-resource",
            "DSP0266 8.3 Status codes",
            "it can't tell a task that was forgotten, or a URI that moved, from an error of the BMC",
            ("A5",),
        ),
        missing_resource,
    ),
    (
        Check(
            "error-body",
            "DSP0266 8.6 Error responses",
            "its messages show the HTTP status alone, and no refusal is known as temporary",
            ("A4", "A10"),
        ),
        error_body,
    ),
    (
        Check(
            "resource-ids",
            "DSP0266 9.5.1 Resource identifier (@odata.id) property",
            "nothing changes: it keeps to the URI that the list of systems gave",
            ("A13",),
        ),
        resource_ids,
    ),
    (
        Check(
            "collections",
            "DSP0266 9.5.9 Count (Members@odata.count) property",
            "nothing changes: it counts what is listed, and follows next pages",
            ("A10",),
        ),
        collections,
    ),
    (
        Check(
            "expand",
            "DSP0266 7.3.1 The $expand query parameter",
            "it reads members one by one, which takes the BMC a request each",
            ("A12",),
        ),
        expand,
    ),
    (
        Check("hot-read", "DESIGN section 5", "a pass reads what fits, and the rest is unknown", ("A12",)),
        hot_read,
    ),
)
