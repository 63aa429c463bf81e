"""BareMetalHost objects of Metal3: manifests, or `kubectl get baremetalhosts -A -o json` (or yaml).

https://github.com/metal3-io/baremetal-operator/blob/main/docs/api.md has the forms of a BMC's address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from reconciler.app.inventory.fields import Guess, InventoryRow, Names, objects, row, value_at
from reconciler.model.errors import UsageError

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("metadata.name",),
    "host": (Guess("status.hardware.hostname"), Guess("metadata.name")),
}
# redfish, redfish-virtualmedia, redfish-uefihttp, idrac-redfish, idrac-virtualmedia, ilo5-redfish, ilo5-virtualmedia
_REDFISH: Final = re.compile(r"(?:[a-z0-9]+-)?(?:redfish|virtualmedia)(?:-[a-z]+)?(\+https?)?://([^/]+)(/.*)?")


def rows(document: Any, where: str, names: Names) -> list[InventoryRow]:
    """Return the hosts of a list, or of one object. Objects of other kinds, such as their Secrets, are left out."""
    if isinstance(document, Mapping) and document.get("kind") not in (None, "List", "BareMetalHostList"):
        document = [document]
    found = objects(document, where, "items", "BareMetalHost objects")
    return [_row(one, where, names) for one in found if one.get("kind") == "BareMetalHost"]


def _row(host: Mapping[str, Any], where: str, names: Names) -> InventoryRow:
    meta = host.get("metadata")
    name = "/".join(str(part) for key in ("namespace", "name") if (part := value_at(meta, key)))
    at = f"{where}: BareMetalHost {name or '?'}"
    known = {} if "bmc" in names else {"bmc": _bmc(value_at(host, "spec.bmc.address"), at)}
    return row(host, at, names, _PATHS, **known)


def _bmc(address: Any, where: str) -> str:
    """Return the URL of a BMC that speaks Redfish; "" where there is no address."""
    if not address:
        return ""
    if "@" in str(address):
        raise UsageError(f"{where}: the address of its BMC has a user or password: keep them in its Secret")
    found = _REDFISH.fullmatch(str(address))
    if found is None:
        raise UsageError(f"{where}: {address} is no Redfish address; BMCs are reached over Redfish")
    if found[1] == "+http":
        raise UsageError(f"{where}: {address} is without TLS; credentials are sent over https:// alone")
    return f"https://{found[2]}"
