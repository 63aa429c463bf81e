"""Hosts of an Ansible inventory, as `ansible-inventory --list` prints it.

Ansible has no variable for a BMC: those that inventories use most are looked for, and another is named by the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.app.inventory.fields import InventoryRow, Names, row
from reconciler.model.errors import UsageError

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": (),
    "bmc": ("bmc", "bmc_url", "bmc_address", "bmc_ip", "baseuri", "oob_ip", "idrac_ip", "ilo_ip", "ipmi_address"),
    "host": ("ansible_host",),
    "pool": ("pool",),
    "rack": ("rack",),
}


def rows(document: Any, where: str, names: Names) -> list[InventoryRow]:
    """Return the hosts in the order of the inventory. One without `ansible_host` is reached by its name."""
    meta = document.get("_meta") if isinstance(document, Mapping) else None
    variables = meta.get("hostvars") if isinstance(meta, Mapping) else None
    if not isinstance(variables, Mapping):
        raise UsageError(f"{where}: _meta.hostvars is missing; write the file with `ansible-inventory --list`")
    hosts: dict[str, None] = {}
    for group in document.values():
        listed = group.get("hosts") if isinstance(group, Mapping) else None
        if isinstance(listed, list):
            hosts |= dict.fromkeys(str(host) for host in listed)
    hosts |= dict.fromkeys(map(str, variables))
    return [_row(host, variables.get(host, {}), f"{where}: host {host}", names) for host in hosts]


def _row(host: str, variables: Any, where: str, names: Names) -> InventoryRow:
    made = row(variables, where, names, _PATHS, **({} if "name" in names else {"name": host}))
    cells = {"host": host, **made.cells}
    port = variables.get("ansible_port") if isinstance(variables, Mapping) else None
    if "host" not in names and isinstance(port, int | str) and str(port) != "22":
        cells["host"] = f"{cells['host']}:{port}"
    return InventoryRow(cells, where, frozenset({"host"} - made.cells.keys()))
