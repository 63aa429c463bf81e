"""Boot settings: the one-time override, the boot order, and secure boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.drivers.redfish import inventory, system
from reconciler.drivers.redfish.fields import Unknown, link, member, quote, text, texts
from reconciler.drivers.redfish.hot import boot_of
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.errors import DriverError, Failure

# Names of each device. Virtual media are USB drives: where a BMC knows both names, UsbCd finds them (D5).
_DEVICES = {"cd": ("UsbCd", "Cd"), "disk": ("Hdd",), "pxe": ("Pxe",)}
_DEFAULT_DEVICES = {"cd": "Cd", "disk": "Hdd", "pxe": "Pxe"}


def boot_once(tree: Tree, device: str) -> None:
    found = tree.system()
    boot, target = boot_of(tree, found)
    allowed = texts(boot, system.TARGETS)
    words = _DEVICES[device]
    word = next((name for name in words if name in allowed), None) if allowed else _DEFAULT_DEVICES[device]
    if word is None:
        raise Unknown(f"the BMC can't boot from {device} once: {quote(', '.join(allowed))}")
    change: dict[str, Any] = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": word}
    quirks = tree.quirks(found.body)
    mode = text(boot, "BootSourceOverrideMode")
    if quirks is not None and quirks.restate_boot_mode and mode is not None:
        change["BootSourceOverrideMode"] = mode
    tree.session.patch(target, {"Boot": change})


def set_boot_order(tree: Tree, order: Sequence[str]) -> None:
    """Set the persistent order. `order`: aliases or references; all other options follow in their present order."""
    found = tree.system()
    aliases = inventory.boot_aliases(tree, found.body)
    boot = member(found.body, "Boot")
    by_alias = text(boot, "BootOrderPropertySelection") == "AliasBootOrder"
    name = "AliasBootOrder" if by_alias else "BootOrder"
    current = texts(boot, name)
    wanted = [reference for word in order for reference in _references(word, current, aliases)]
    full = list(dict.fromkeys([*wanted, *current]))
    if full == list(current):
        return
    where = link(member(found.body, "@Redfish.Settings"), "SettingsObject")
    settings = None if where is None else tree.get(where)
    target = settings if settings is not None and name in member(settings.body, "Boot") else found
    tree.session.patch(target, {"Boot": {name: full}})


def _references(word: str, current: Sequence[str], aliases: Mapping[str, str | None]) -> list[str]:
    same = word.casefold()
    found = [ref for ref in current if same in (ref.casefold(), (aliases.get(ref) or "").casefold())]
    if not found:
        known = ", ".join(dict.fromkeys(aliases.get(ref) or ref for ref in current))
        raise DriverError(Failure.REJECTED, f"no boot option {word!r}; there are {quote(known) or 'none'}")
    return found


def set_secure_boot(tree: Tree, enabled: bool) -> None:
    found = tree.follow(tree.system().body, "SecureBoot")
    where = link(member(found.body, "@Redfish.Settings"), "SettingsObject")
    tree.session.patch(tree.get(where) if where else found, {"SecureBootEnable": enabled})
