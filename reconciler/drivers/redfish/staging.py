"""Stage BIOS attributes for the next boot, and drop them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.drivers.redfish import bios
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, last_segment, link, objects, path, quote, text
from reconciler.drivers.redfish.hot import pending
from reconciler.drivers.redfish.quirks import Operation
from reconciler.drivers.redfish.session import Resource
from reconciler.drivers.redfish.tree import Tree, action, settings_link
from reconciler.model.abilities import BiosLimit
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import AttributeValue

_APPLY_TIME = "@Redfish.SettingsApplyTime"


def stage_bios(tree: Tree, wanted: Mapping[str, AttributeValue]) -> None:
    found = tree.system().body
    resource = tree.follow(found, "Bios")
    current = resource.body
    values = bios.attributes(current)
    # Checked against the registry where the BMC serves one: it may try to apply an invalid value for ever (G1).
    problems = list(bios.problems(wanted, {**{name: BiosLimit() for name in values}, **limits(tree, current)}))
    if problems:
        raise DriverError(Failure.REJECTED, "; ".join(problems))
    settings, staged = settings_of(tree, resource)
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
    if "OnReset" in bios.apply_times(current):  # G2: some need it, others refuse it
        change[_APPLY_TIME] = {"@odata.type": "#Settings.v1_1_0.PreferredApplyTime", "ApplyTime": "OnReset"}
    tree.session.patch(settings, change, patience=_patience(tree))


def settings_of(tree: Tree, current: Resource) -> tuple[Resource, Mapping[str, AttributeValue]]:
    """Return what takes changes of BIOS attributes, and those that wait in it.

    It is the settings object, or Bios itself where there is none, which applies changes at once.
    """
    where = settings_link(current.body)
    if where is None:
        return current, {}
    settings = tree.get(where)
    return settings, bios.staged(settings.body)


def limits(tree: Tree, current: Document) -> Mapping[str, BiosLimit]:
    """Read the registry that this BIOS names, once; {} where it is not served."""
    name = text(current, "AttributeRegistry") or "BiosAttributeRegistry"  # OpenBMC serves one that it does not name
    if name not in tree.bios_limits:
        tree.bios_limits[name] = _registry(tree, name)
    return tree.bios_limits[name]


def _registry(tree: Tree, name: str) -> Mapping[str, BiosLimit]:
    """Read a registry, listed under its name, else under that of another version (iDRAC9)."""
    where = link(tree.session.root(), "Registries")
    if where is None:
        return {}
    try:
        listed = [uri for uri, _ in tree.listed(where)]
        for matches in (_named(name), _named(_unversioned(name))):
            for uri in filter(matches, listed):
                places = list(objects(tree.get(uri).body, "Location"))
                places.sort(key=lambda place: text(place, "Language") != "en")
                target = next((found for place in places if (found := path(place.get("Uri")))), None)
                if target is not None:
                    return bios.limits(tree.get(target).body)
    except Unknown:
        return {}
    except DriverError as error:
        if not isinstance(error, HttpError) and error.kind is not Failure.MALFORMED:
            raise
    return {}  # then the BMC itself checks the values


def _named(name: str) -> Callable[[str], bool]:
    return lambda uri: name.casefold() in (last_segment(uri).casefold(), _unversioned(last_segment(uri)).casefold())


def _unversioned(name: str) -> str:
    return re.sub(r"\.v?[0-9].*", "", name)


def clear_bios(tree: Tree) -> None:
    found = tree.system().body
    quirks = tree.quirks(found)
    staged = pending(tree, found, quirks)
    if not staged:
        return
    settings = tree.bios_settings(found)
    assert settings is not None, "something is pending in it"
    drop = action(settings.body, quirks.clear_pending) if quirks is not None and quirks.clear_pending else None
    if drop is not None:
        tree.session.post(drop[0], {}, patience=_patience(tree))
        return
    # There is no standard way: pending attributes are set to the values in force.
    values = bios.attributes(tree.follow(found, "Bios").body)
    lacking = sorted(set(staged) - set(values))
    if lacking:
        raise Unknown(f"no current value to return to: {quote(', '.join(lacking))}; reset the BIOS or reboot")
    _put_back(tree, settings, {name: values[name] for name in staged})


def _put_back(tree: Tree, settings: Resource, values: Mapping[str, AttributeValue]) -> None:
    try:
        tree.session.patch(settings, {"Attributes": values}, patience=_patience(tree))
    except HttpError as error:
        if error.kind is Failure.REJECTED:
            raise DriverError(Failure.UNSUPPORTED, f"pending BIOS settings can't be dropped: {error.detail}") from None
        raise


def _patience(tree: Tree) -> float:
    return tree.behaviours().patience.get(Operation.BIOS, 0.0)
