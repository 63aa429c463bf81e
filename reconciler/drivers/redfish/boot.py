"""Boot settings: the one-time override, the boot order, and secure boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.diff.boot_order import NoSuchEntry, is_as_wanted, resolve
from reconciler.drivers.redfish import bios, boot_options, staging, system
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, link, member, missing, quote, text, texts
from reconciler.drivers.redfish.hot import boot_of
from reconciler.drivers.redfish.session import Resource
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.abilities import URL, BiosLimit, BootOption
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import DISCS, HTTP

# Names of each device. Virtual media are USB drives: where a BMC knows both names, UsbCd finds them (D5).
_DEVICES = {"cd": ("UsbCd", "Cd"), "disk": ("Hdd",), "pxe": ("Pxe",), "http": (HTTP,)}
_DEFAULT_DEVICES = {"cd": "Cd", "disk": "Hdd", "pxe": "Pxe"}
_URI = "HttpBootUri"
_SAMPLE = f"https://192.0.2.1:8443/{'0' * 32}/boot.iso"  # a URI of ours, in form and length
_ENABLED, _TARGET = "BootSourceOverrideEnabled", "BootSourceOverrideTarget"
_APPLY_TIME = "@Redfish.SettingsApplyTime"
_FIXED, _UNUSED = "FixedBootOrder", "Disabled"


# --- the override ------------------------------------------------------------------------------------------------


def boot_once(tree: Tree, device: str) -> None:
    found = tree.system()
    boot, _ = boot_of(tree, found)
    times = texts(boot, f"{_ENABLED}@Redfish.AllowableValues")
    enabled = "Continuous" if times and "Once" not in times else "Once"
    _override(tree, found, {_ENABLED: enabled, _TARGET: once_word(boot, device)})


def boot_http(tree: Tree, url: str) -> None:
    """Set the URI, and then boot from it once: the URI alone selects nothing (bmclib PR#463).

    Where BIOS attributes hold the URI, they have it by now.
    """
    found = tree.system()
    check_http(tree, found)
    boot, target = boot_of(tree, found)
    if _takes_uri(tree, boot):
        tree.session.patch(target, {"Boot": {_URI: url}})
    boot_once(tree, "http")


def http_boot_uri(tree: Tree) -> str | None:
    found = tree.system()
    boot = boot_of(tree, found)[0]
    if _takes_uri(tree, boot):
        return text(boot, _URI) or None
    name = next(name for name, value in http_attributes(tree, found).items() if value == URL)
    return str(bios.attributes(tree.follow(found.body, "Bios").body).get(name) or "") or None


def check_http(tree: Tree, found: Resource) -> None:
    """Raise Unknown where this BMC can't boot from a URI that is given to it, in whatever way."""
    boot = boot_of(tree, found)[0]
    if HTTP not in texts(boot, system.TARGETS):
        raise Unknown("the BMC offers no boot from an HTTP URI")
    if not _takes_uri(tree, boot):
        http_attributes(tree, found)


def http_attributes(tree: Tree, found: Resource) -> Mapping[str, str]:
    """Return the BIOS attributes that hold the URI on this make, which need a reboot of their own; {} for HttpBootUri.

    Raise Unknown where this machine lacks them, or can't set them.
    """
    boot = boot_of(tree, found)[0]
    if _takes_uri(tree, boot):
        return {}
    wanted = tree.behaviours().http_attributes
    if not wanted:
        raise Unknown(f"the BMC {'takes' if _URI in boot else 'offers'} no HTTP URI to boot from")
    current = tree.follow(found.body, "Bios").body
    known = {**{name: BiosLimit() for name in bios.attributes(current)}, **staging.limits(tree, current)}
    problems = list(bios.problems({name: value.replace(URL, _SAMPLE) for name, value in wanted.items()}, known))
    if problems:
        raise Unknown(f"no boot from an HTTP URI: BIOS {'; '.join(problems)}")
    return wanted


def _takes_uri(tree: Tree, boot: Document) -> bool:
    """Say whether it takes HttpBootUri. ComputerSystem has it since 1.9; some makes show it and take no value (D11)."""
    return _URI in boot and tree.behaviours().http_boot


def clear_override(tree: Tree) -> None:
    """Drop the override. A BMC whose override is always Continuous (sushy-tools) boots from disk then."""
    boot = boot_of(tree, tree.system())[0]
    if text(boot, _ENABLED) == "Disabled":
        return
    change = {_ENABLED: "Disabled"} | ({_TARGET: "None"} if "None" in texts(boot, system.TARGETS) else {})
    try:
        _override(tree, tree.system(), change)
    except HttpError as error:
        if error.kind is not Failure.REJECTED:
            raise
    boot = boot_of(tree, tree.system())[0]
    if text(boot, _ENABLED) != "Disabled" and text(boot, _TARGET) in (*DISCS, HTTP):
        _override(tree, tree.system(), {_ENABLED: "Disabled", _TARGET: once_word(boot, "disk")})


def _override(tree: Tree, found: Resource, change: dict[str, Any]) -> None:
    boot, target = boot_of(tree, found)
    quirks = tree.quirks(found.body)
    mode = text(boot, "BootSourceOverrideMode")
    if quirks is not None and quirks.restate_boot_mode and mode is not None:
        change["BootSourceOverrideMode"] = mode
    tree.session.patch(target, {"Boot": change})


def once_word(boot: Document, device: str) -> str:
    """Return the BMC's word for a device in an override (pitfall D5)."""
    if _TARGET not in boot and system.TARGETS not in boot:
        raise Unknown("the BMC offers no one-time boot")
    allowed = texts(boot, system.TARGETS)
    words = _DEVICES[device]
    word = next((name for name in words if name in allowed), None) if allowed else _DEFAULT_DEVICES[device]
    if word is None:
        raise Unknown(f"the BMC can't boot from {device} once: {quote(', '.join(allowed))}")
    return word


# --- the boot order ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """The boot order, and where and how it is written.

    `staged`: references of the order that waits for the next boot, if it is another. `around`: the keys of the
    property in a change. `spelled`: what stands for a reference there, if not itself. `places`: the length of an order
    whose unused places must be given; 0 = any.
    """

    options: tuple[BootOption, ...]
    target: Resource
    around: tuple[str, ...]
    staged: tuple[str, ...] = ()
    spelled: Mapping[str, str] = field(default_factory=dict)
    places: int = 0


def read_order(tree: Tree, found: Resource) -> Order:
    """Read the boot order. Supermicro boots by its own list of kinds of devices, where it has one."""
    fixed = link(member(member(found.body, "Oem"), "Supermicro"), _FIXED)
    if fixed is not None:
        try:
            return _fixed_order(tree.get(fixed))
        except HttpError as error:
            if error.status != 404:
                raise
    name = system.order_property(member(found.body, "Boot"))
    order = system.boot_order(found.body)
    if not order:
        raise Unknown(f"{name} is empty")
    options = boot_options.in_order(order, _described(tree, found.body))
    if name == "AliasBootOrder":
        options = tuple(BootOption(alias, alias) for alias in order)
    settings = _settings(tree, found.body)
    if settings is None or name not in member(settings.body, "Boot"):
        return Order(options, found, ("Boot", name))
    staged = texts(member(settings.body, "Boot"), name)
    return Order(options, settings, ("Boot", name), staged if staged != order else ())


def _described(tree: Tree, found: Document) -> dict[str, BootOption]:
    """Return the boot options by reference; {} where the BMC describes none."""
    where = link(member(found, "Boot"), "BootOptions")
    if where is None:
        return {}
    options = [boot_options.option_of(resource.body) for resource in tree.members(where)]
    return {option.reference: option for option in options}


def _settings(tree: Tree, found: Document) -> Resource | None:
    where = link(member(found, "@Redfish.Settings"), "SettingsObject")
    try:
        return None if where is None else tree.get(where)
    except HttpError as error:
        if error.status != 404:
            raise
        return None


def _fixed_order(found: Resource) -> Order:
    """Decode Supermicro's order of kinds, each with its first device: "UEFI Network:(B26/D0/F0) UEFI PXE IPv4 ..."."""
    listed = texts(found.body, _FIXED)
    if not listed:
        raise Unknown(missing(found.body, _FIXED))
    used = {entry.split(":", 1)[0]: entry for entry in listed if entry != _UNUSED}
    options = tuple(BootOption(name, boot_options.kind_of("", entry), entry) for name, entry in used.items())
    return Order(options, found, (_FIXED,), spelled=used, places=len(listed))


def set_boot_order(tree: Tree, wanted: Sequence[str]) -> None:
    """Put the wanted entries first; all others follow in their present order."""
    order = read_order(tree, tree.system())
    try:
        if is_as_wanted(wanted, order.options):
            return
        first = resolve(wanted, order.options)
    except NoSuchEntry as error:
        raise DriverError(Failure.REJECTED, quote(error)) from None
    full = [order.spelled.get(option.reference, option.reference) for option in dict.fromkeys((*first, *order.options))]
    if _APPLY_TIME in order.target.body and tuple(full) == order.staged:
        return  # a job for it waits already, and iDRAC refuses a second one (D10)
    change: Any = full + [_UNUSED] * (order.places - len(full))
    for key in reversed(order.around):
        change = {key: change}
    if _APPLY_TIME in order.target.body:  # iDRAC makes a job of it, for the next boot
        change[_APPLY_TIME] = order.target.body[_APPLY_TIME]
    tree.session.patch(order.target, change)


# --- secure boot -------------------------------------------------------------------------------------------------


def secure_boot(document: Document) -> bool:
    """Return whether the current boot is secure. SecureBootEnable is about the next one."""
    word = text(document, "SecureBootCurrentBoot")
    if word not in ("Enabled", "Disabled"):
        raise Unknown(missing(document, "SecureBootCurrentBoot"))
    return word == "Enabled"


def secure_boot_target(tree: Tree, system: Document) -> Resource:
    """Return the resource that takes a change of secure boot."""
    found = tree.follow(system, "SecureBoot")
    where = link(member(found.body, "@Redfish.Settings"), "SettingsObject")
    target = found if where is None else tree.get(where)
    if "SecureBootEnable" not in found.body and "SecureBootEnable" not in target.body:
        raise Unknown(missing(found.body, "SecureBootEnable"))
    return target


def set_secure_boot(tree: Tree, enabled: bool) -> None:
    tree.session.patch(secure_boot_target(tree, tree.system().body), {"SecureBootEnable": enabled})
