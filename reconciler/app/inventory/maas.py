"""Machines of MAAS: of `maas PROFILE machines read`, each with the `power_address` that power-parameters tells.

MAAS keeps a machine's BMC apart from it, with its password: `maas PROFILE machines power-parameters`, by system_id. The
guide puts the two together and leaves the password out. Pools of MAAS are pools here; zones and racks are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from reconciler.app.inventory.fields import Guess, InventoryRow, Names, objects, row
from reconciler.model.errors import UsageError

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("hostname",),
    "bmc": ("power_address",),
    "host": (Guess("fqdn"), Guess("hostname")),
    "pool": ("pool.name",),
    "rack": (),
}


def rows(document: Any, where: str, names: Names) -> list[InventoryRow]:
    """Raise UsageError for a machine whose BMC MAAS reaches by another protocol than Redfish."""
    return [_row(one, where, names) for one in objects(document, where, "machines", "a list of machines of MAAS")]


def _row(machine: Mapping[str, Any], where: str, names: Names) -> InventoryRow:
    at = f"{where}: machine {machine.get('hostname') or machine.get('system_id', '?')}"
    kind = machine.get("power_type")
    if "bmc" not in names and kind not in ("redfish", "", None):
        raise UsageError(
            f"{at}: power_type is {kind!r}, and BMCs are reached over Redfish: change it in MAAS, or name another "
            "place of the address with --field bmc=PATH"
        )
    addresses = machine.get("ip_addresses")
    known = list(addresses) if isinstance(addresses, Sequence) and not isinstance(addresses, str) else []
    if not known or not known[0] or "host" in names:
        return row(machine, at, names, _PATHS)
    made = row(machine, at, names, _PATHS, host=str(known[0]))
    return made if len(known) == 1 else replace(made, guessed=frozenset({"host"}))  # which is first, nobody says
