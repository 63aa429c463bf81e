"""Devices of NetBox's REST API: https://netboxlabs.com/docs/netbox/integrations/rest-api/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.app.inventory.fields import InventoryRow, Names, objects, row

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("name",),
    "bmc": ("oob_ip.address",),
    "host": ("primary_ip.address", "primary_ip4.address", "primary_ip6.address"),
    "rack": ("rack.name",),
}


def rows(document: Any, where: str, names: Names) -> list[InventoryRow]:
    """Return the devices of one page, or of a list of devices."""
    found = objects(document, where, "results", "a list of devices, as /api/dcim/devices/ answers")
    return [row(one, f"{where}: device {one.get('name') or one.get('id', '?')}", names, _PATHS) for one in found]
