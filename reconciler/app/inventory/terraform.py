"""Resources of a Terraform or OpenTofu state, as `terraform show -json` prints it.

https://developer.hashicorp.com/terraform/internals/json-format#values-representation: resources of the root module and,
below it, of child modules. No type of resource is a node to everybody: those are taken that have the value in which the
user says that the BMC's address is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.app.inventory.fields import Guess, InventoryRow, Names, row, value_at
from reconciler.model.errors import UsageError

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("hostname", "name"),
    "host": ("ip_address", "private_ip", Guess("hostname"), Guess("name")),
    "pool": ("pool",),
    "rack": ("rack",),
}


def rows(document: Any, where: str, names: Names) -> list[InventoryRow]:
    """Return the managed resources with a BMC. Paths are in their `values`. Raise UsageError when none is named."""
    if "bmc" not in names:
        raise UsageError(f"{where}: name the value that has a BMC's address, with --field bmc=PATH")
    root = value_at(document, "values.root_module")
    if not isinstance(root, Mapping):
        raise UsageError(f"{where}: values.root_module is missing; write the file with `terraform show -json`")
    return [
        row(one.get("values"), f"{where}: {one.get('address', '?')}", names, _PATHS)
        for one in _resources(root)
        if one.get("mode") == "managed" and value_at(one.get("values"), names["bmc"]) not in (None, "")
    ]


def _resources(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the resources of a module and of all below it."""
    modules = [root]
    while modules:
        module = modules.pop(0)
        yield from _objects(module, "resources")
        modules += _objects(module, "child_modules")


def _objects(module: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = module.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
