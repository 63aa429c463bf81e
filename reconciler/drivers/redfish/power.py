"""The machine's power, and the restart of the BMC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.drivers.redfish import system
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, objects, path, quote, text, texts
from reconciler.drivers.redfish.tree import Tree, action
from reconciler.model.errors import DriverError, Failure
from reconciler.model.ports import PowerAction
from reconciler.model.vocab import Power

_RESET = "#ComputerSystem.Reset"
_RESET_TYPES = {
    PowerAction.ON: ("On", "ForceOn"),
    PowerAction.GRACEFUL_OFF: ("GracefulShutdown",),
    PowerAction.FORCE_OFF: ("ForceOff",),
}
_REACHES = {PowerAction.ON: Power.ON, PowerAction.GRACEFUL_OFF: Power.OFF, PowerAction.FORCE_OFF: Power.OFF}


def power(tree: Tree, what: PowerAction) -> None:
    found = tree.system().body
    target, reset = _action(found, _RESET)
    kind = _reset_type(tree, reset, _RESET_TYPES[what])
    try:
        tree.session.post(target, {"ResetType": kind})
    except HttpError as error:
        if error.status not in (400, 409):
            raise
        # The machine is in that state already, or the BMC isn't ready: both are answered with 400 or 409 (A7).
        state = _power(tree)
        if state is not None and state is _REACHES[what]:
            return
        if error.kind is Failure.BUSY or error.status == 409:
            wait = error.retry_after or tree.behaviours(found).conflict_wait
            raise DriverError(Failure.BUSY, error.detail, retry_after=wait) from None
        raise


def check(tree: Tree, found: Document) -> None:
    """Raise Unknown where the machine can't be switched off and on."""
    reset = _action(found, _RESET)[1]
    _reset_type(tree, reset, _RESET_TYPES[PowerAction.ON])
    _reset_type(tree, reset, _RESET_TYPES[PowerAction.FORCE_OFF] + _RESET_TYPES[PowerAction.GRACEFUL_OFF])


def reset_types(tree: Tree, found: Document) -> tuple[str, ...]:
    return allowable(tree, _action(found, _RESET)[1], "ResetType")


def _power(tree: Tree) -> Power | None:
    try:
        return system.power(tree.system().body)
    except Unknown:
        return None


def reset_bmc(tree: Tree) -> None:
    target, kind = bmc_reset(tree, tree.system().body)
    tree.session.post(target, {"ResetType": kind})
    tree.forget()


def bmc_reset(tree: Tree, found: Document) -> tuple[str, str]:
    """Return where and with which word to restart the BMC."""
    target, reset = _action(tree.manager(found).body, "#Manager.Reset")
    return target, _reset_type(tree, reset, ("GracefulRestart", "ForceRestart"))


def _action(document: Document, name: str) -> tuple[str, Document]:
    found = action(document, name)
    if found is None:
        raise Unknown(f"the BMC offers no {name.removeprefix('#')}")
    return found


def _reset_type(tree: Tree, reset: Document, words: Sequence[str]) -> str:
    """Return the first of our words that the BMC allows, or the first of all where it lists none."""
    allowed = allowable(tree, reset, "ResetType")
    chosen = next((word for word in words if word in allowed), None) if allowed else words[0]
    if chosen is None:
        raise Unknown(f"the BMC knows no {' or '.join(words)}: {quote(', '.join(allowed))}")
    return chosen


def allowable(tree: Tree, offered: Document, parameter: str) -> tuple[str, ...]:
    """Return the allowed values of a parameter, from the action or its ActionInfo; () where none are given."""
    return values(offered, parameter, None) or values(offered, parameter, parameters(tree, offered))


def values(offered: Document, parameter: str, described: Mapping[str, Document] | None) -> tuple[str, ...]:
    """Return the allowed values of a parameter that the action gives, or else the `parameters` of its ActionInfo."""
    given = texts(offered, f"{parameter}@Redfish.AllowableValues")
    return given or texts((described or {}).get(parameter, {}), "AllowableValues")


def parameters(tree: Tree, offered: Document) -> Mapping[str, Document] | None:
    """Return the parameters in an action's ActionInfo by name; None where it has none that can be read."""
    where = path(offered.get("@Redfish.ActionInfo"))
    if where is None:
        return None
    try:
        info = tree.get(where).body
    except HttpError:
        return None
    return {name: entry for entry in objects(info, "Parameters") if (name := text(entry, "Name")) is not None}
