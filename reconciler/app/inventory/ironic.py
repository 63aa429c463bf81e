"""Nodes of Ironic: of `GET /v1/nodes/detail`, or of `openstack baremetal node list --long --limit 0 -f json`.

Ironic knows how a BMC is reached and not how the host is: that is `extra.host`, or the node's name, which DNS knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.app.inventory.fields import Guess, InventoryRow, Names, objects, row, value_at
from reconciler.model.errors import UsageError

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("name",),
    "bmc": ("driver_info.redfish_address",),
    "host": ("extra.host", Guess("name")),
    "pool": ("extra.pool",),
    "rack": ("extra.rack",),
}


def rows(document: Any, where: str, names: Names) -> list[InventoryRow]:
    """Raise UsageError for a node whose BMC is known by another protocol than Redfish alone."""
    found = objects(document, where, "nodes", "a list of nodes, as /v1/nodes/detail answers")
    return [_row({_key(name): value for name, value in one.items()}, where, names) for one in found]


def _row(node: Mapping[str, Any], where: str, names: Names) -> InventoryRow:
    at = f"{where}: node {node.get('name') or node.get('uuid', '?')}"
    made = row(node, at, names, _PATHS)
    if "bmc" not in made.cells and value_at(node, "driver_info.ipmi_address"):
        raise UsageError(f"{at}: driver_info has ipmi_address and no redfish_address; BMCs are reached over Redfish")
    return made


def _key(title: str) -> str:
    """Return the API's name of a column that the command line heads: `Driver Info` is driver_info."""
    return str(title).lower().replace(" ", "_")
