"""`RedfishPdu`, which implements model.ports.Pdu: outlets of rack PDUs (DSP0268 PowerEquipment, Outlet).

DSP2043's mockup public-rackmount and its documentation name the target of an outlet's action without `/Actions/` in it,
so the target is read, never built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    last_segment,
    link,
    links,
    need_link,
    quote,
    text,
    texts,
)
from reconciler.drivers.redfish.port import RedfishPort
from reconciler.drivers.redfish.tree import Tree, action
from reconciler.model.errors import DriverError, Failure
from reconciler.model.ports import Pdu

_CONTROL = "#Outlet.PowerControl"
_STATES = {"On": True, "Off": False, "PoweringOn": False, "PoweringOff": True}


class RedfishPdu(RedfishPort, Pdu):
    """The service of rack PDUs. What the constructor takes is that of `RedfishPort`."""

    async def outlets(self, names: Sequence[str]) -> Mapping[str, bool]:
        return await self._run(lambda: {name: _gives_power(_outlet(self._tree, name), name) for name in names})

    async def switch(self, names: Sequence[str], *, on: bool) -> None:
        await self._run(lambda: _switch(self._tree, names, on=on))


def _switch(tree: Tree, names: Sequence[str], *, on: bool) -> None:
    """Switch each outlet, all of which are found before the first is switched."""
    word = "On" if on else "Off"
    targets = [_target(_outlet(tree, name), name, word) for name in names]
    for target in targets:
        tree.session.post(target, {"PowerState": word})


def _target(found: Document, name: str, word: str) -> str:
    offered = action(found, _CONTROL)
    if offered is None:
        raise Unknown(f"outlet {name} can't be switched: it offers no {_CONTROL.removeprefix('#')}")
    target, described = offered
    allowed = texts(described, "PowerState@Redfish.AllowableValues")
    if allowed and word not in allowed:
        raise Unknown(f"outlet {name} can't be switched {word.lower()}: it takes {quote(', '.join(allowed))}")
    return target


def _gives_power(found: Document, name: str) -> bool:
    state = text(found, "PowerState")
    if state not in _STATES:
        raise Unknown(f"outlet {name} does not tell whether it gives power: PowerState is {quote(state)!r}")
    return _STATES[state]


def _outlet(tree: Tree, name: str) -> Document:
    """Return the document of an outlet. Raise DriverError REJECTED unless exactly one has this name."""
    unit, _, outlet = name.rpartition("/")
    found = [uri for pdu in _units(tree) if unit in ("", last_segment(pdu)) for uri in _outlets(tree, pdu)]
    named = [uri for uri in found if last_segment(uri) == outlet]
    if len(named) != 1:
        several = f"{len(named)} PDUs have an outlet {outlet}; write PDU/{outlet}"
        raise DriverError(Failure.REJECTED, several if named else f"there is no outlet {name}")
    try:
        return tree.get(named[0]).body
    except HttpError as error:
        if error.status == 404:
            raise DriverError(Failure.REJECTED, f"there is no outlet {name}") from None
        raise


def _units(tree: Tree) -> tuple[str, ...]:
    equipment = tree.follow(tree.session.root(), "PowerEquipment").body
    return links(tree.get(need_link(equipment, "RackPDUs")).body, "Members")


def _outlets(tree: Tree, pdu: str) -> Iterator[str]:
    where = link(tree.get(pdu).body, "Outlets")
    if where is not None:
        yield from links(tree.get(where).body, "Members")
