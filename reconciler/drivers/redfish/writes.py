"""What changes a node: power, boot, BIOS, secure boot, the BMC itself. Each function is one write of the port."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reconciler.drivers.redfish import bios, inventory, system
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    last_segment,
    link,
    member,
    objects,
    path,
    quote,
    text,
    texts,
)
from reconciler.drivers.redfish.hot import boot_of, pending
from reconciler.drivers.redfish.session import Resource
from reconciler.drivers.redfish.tree import Tree, action, settings_link
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import AttributeValue
from reconciler.model.ports import PowerAction
from reconciler.model.vocab import Power

_RESET = "#ComputerSystem.Reset"
_RESET_TYPES = {
    PowerAction.ON: ("On", "ForceOn"),
    PowerAction.GRACEFUL_OFF: ("GracefulShutdown",),
    PowerAction.FORCE_OFF: ("ForceOff",),
    PowerAction.GRACEFUL_RESTART: ("GracefulRestart",),
}
_REACHES = {PowerAction.ON: Power.ON, PowerAction.GRACEFUL_OFF: Power.OFF, PowerAction.FORCE_OFF: Power.OFF}
_CONFLICT_WAIT_S = 10.0  # A7: iDRAC10 refuses On for a while after power-off
# What each device may be called. Virtual media are USB drives: where a BMC knows both words, UsbCd finds them (D5).
_DEVICES = {"cd": ("UsbCd", "Cd"), "disk": ("Hdd",), "pxe": ("Pxe",)}
_DEFAULT_DEVICES = {"cd": "Cd", "disk": "Hdd", "pxe": "Pxe"}
_APPLY_TIME = "@Redfish.SettingsApplyTime"


# --- power -------------------------------------------------------------------------------------------------------


def power(tree: Tree, what: PowerAction) -> None:
    found = tree.system().body
    target, reset = _action(found, _RESET)
    kind = _reset_type(tree, reset, _RESET_TYPES[what])
    try:
        tree.session.post(target, {"ResetType": kind})
    except HttpError as error:
        if error.status not in (400, 409):
            raise
        # Refused because it is so already, or because the BMC isn't ready: both come as 400 and as 409 (A7).
        state = _power(tree)
        if state is not None and state is _REACHES.get(what):
            return
        if what is PowerAction.GRACEFUL_RESTART and state is Power.OFF:
            raise DriverError(Failure.REJECTED, f"{error.detail}; the machine is off") from None
        if error.kind is Failure.BUSY or error.status == 409:
            wait = error.retry_after or _CONFLICT_WAIT_S
            raise DriverError(Failure.BUSY, error.detail, retry_after=wait) from None
        raise


def _power(tree: Tree) -> Power | None:
    try:
        return system.power(tree.system().body)
    except Unknown:
        return None


def reset_bmc(tree: Tree) -> None:
    found = tree.manager(tree.system().body).body
    target, reset = _action(found, "#Manager.Reset")
    kind = _reset_type(tree, reset, ("GracefulRestart", "ForceRestart"))
    tree.session.post(target, {"ResetType": kind})
    tree.forget()


def _action(document: Document, name: str) -> tuple[str, Document]:
    found = action(document, name)
    if found is None:
        raise Unknown(f"the BMC offers no {name.removeprefix('#')}")
    return found


def _reset_type(tree: Tree, reset: Document, words: Sequence[str]) -> str:
    """The first of our words that the BMC knows; the first at all where it does not say."""
    allowed = allowable(tree, reset, "ResetType")
    chosen = next((word for word in words if word in allowed), None) if allowed else words[0]
    if chosen is None:
        raise Unknown(f"the BMC knows no {' or '.join(words)}: {quote(', '.join(allowed))}")
    return chosen


def allowable(tree: Tree, described: Document, parameter: str) -> tuple[str, ...]:
    """Allowed values of an action's parameter: beside the action, or in its ActionInfo. Empty: it does not say."""
    given = texts(described, f"{parameter}@Redfish.AllowableValues")
    where = path(described.get("@Redfish.ActionInfo"))
    if given or where is None:
        return given
    try:
        info = tree.get(where).body
    except HttpError:
        return ()
    for entry in objects(info, "Parameters"):
        if text(entry, "Name") == parameter:
            return texts(entry, "AllowableValues")
    return ()


# --- boot --------------------------------------------------------------------------------------------------------


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
    """`order`: aliases or references. What it does not name follows in the order it has."""
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


# --- BIOS --------------------------------------------------------------------------------------------------------


def stage_bios(tree: Tree, wanted: Mapping[str, AttributeValue]) -> None:
    found = tree.system().body
    current = tree.follow(found, "Bios").body
    values = bios.attributes(current)
    # By the registry where the BMC serves one: an invalid value can make it apply for ever (G1).
    problems = list(bios.problems(wanted, _registry(tree, current) or {name: {} for name in values}))
    if problems:
        raise DriverError(Failure.REJECTED, "; ".join(problems))
    settings = tree.get(settings_link(current))
    staged = bios.attributes(settings.body, strict=True)
    quirks = tree.quirks(found)
    if quirks is None or not quirks.pending_is_delta:
        staged = bios.differing(staged, values)
    foreign = sorted(set(staged) - set(wanted))
    if foreign:
        why = "other BIOS settings wait for the next boot, and would be applied or lost with ours (G3)"
        raise DriverError(Failure.REJECTED, f"{why}: {quote(', '.join(foreign))}; clear them or reboot first")
    expected = {**values, **staged}
    needed = {name: value for name, value in wanted.items() if name not in expected or value != expected[name]}
    if not needed:
        return
    change: dict[str, Any] = {"Attributes": needed}
    if "OnReset" in bios.apply_times(current):  # G2: some need it said, others refuse to hear it
        change[_APPLY_TIME] = {"@odata.type": "#Settings.v1_1_0.PreferredApplyTime", "ApplyTime": "OnReset"}
    tree.session.patch(settings, change)


def _registry(tree: Tree, current: Document) -> Mapping[str, Document]:
    """The attribute registry that this BIOS names; BMCs list it with or without its version. Empty: not served."""
    name = text(current, "AttributeRegistry") or ""
    where = link(tree.session.root(), "Registries")
    if not name or where is None:
        return {}
    try:
        listed = [uri for uri, _ in tree.listed(where)]
        for fits in (_named(name), _named(name.split(".v", 1)[0])):
            for uri in filter(fits, listed):
                places = list(objects(tree.get(uri).body, "Location"))
                places.sort(key=lambda place: text(place, "Language") != "en")
                target = next((found for place in places if (found := path(place.get("Uri")))), None)
                if target is not None:
                    return bios.entries(tree.get(target).body)
    except Unknown:
        return {}
    except DriverError as error:
        if not isinstance(error, HttpError) and error.kind is not Failure.MALFORMED:
            raise
    return {}  # then the BMC itself is the judge


def _named(name: str) -> Callable[[str], bool]:
    return lambda uri: last_segment(uri).casefold() == name.casefold()


def clear_bios(tree: Tree) -> None:
    found = tree.system().body
    quirks = tree.quirks(found)
    staged = pending(tree, found, quirks)
    if not staged:
        return
    settings = tree.bios_settings(found)
    drop = action(settings.body, quirks.clear_pending) if quirks is not None and quirks.clear_pending else None
    if drop is not None:
        tree.session.post(drop[0], {})
        return
    # No standard way: what is pending is set to what is in force.
    values = bios.attributes(tree.follow(found, "Bios").body)
    lacking = sorted(set(staged) - set(values))
    if lacking:
        raise Unknown(f"no current value to return to: {quote(', '.join(lacking))}; reset the BIOS or reboot")
    _put_back(tree, settings, {name: values[name] for name in staged})


def _put_back(tree: Tree, settings: Resource, values: Mapping[str, AttributeValue]) -> None:
    try:
        tree.session.patch(settings, {"Attributes": values})
    except HttpError as error:
        if error.kind is Failure.REJECTED:
            raise DriverError(Failure.UNSUPPORTED, f"pending BIOS settings can't be dropped: {error.detail}") from None
        raise
