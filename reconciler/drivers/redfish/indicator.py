"""The locator LED of a machine, by which a person finds it in its rack.

LocationIndicatorActive has taken the place of IndicatorLED. NVIDIA's GB200 and Supermicro show both, and do as the new
one says; DGX H100, iDRAC9 and iLO5 have the old one alone. There, blinking finds a machine best, but iLO5 refuses the
word, since its LED blinks for firmware updates.
"""

from __future__ import annotations

from typing import Final

from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, boolean, need, quote, text, texts
from reconciler.drivers.redfish.quirks import Quirks
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.errors import Failure

_ACTIVE: Final = "LocationIndicatorActive"
_LED: Final = "IndicatorLED"
_ON: Final = ("Blinking", "Lit")


def is_lit(system: Document, quirks: Quirks | None) -> bool:
    """Return whether the LED shows a person where the machine is. Raise Unknown where the BMC tells nothing of it."""
    active = boolean(system, _ACTIVE)
    if active is not None:
        return active
    if _LED not in system:
        raise Unknown("the BMC shows no locator LED")
    word = need(system, _LED, text)
    if word not in (*_ON, "Off"):
        raise Unknown(f"{_LED} is {quote(repr(word))}")
    return word in _ON and word != _rest(quirks)


def switch(tree: Tree, *, lit: bool) -> None:
    found = tree.system()
    if boolean(found.body, _ACTIVE) is not None:
        tree.session.patch(found, {_ACTIVE: lit})
        return
    if text(found.body, _LED) is None:
        raise Unknown("the BMC offers no locator LED")
    rest = _rest(tree.quirks(found.body))
    allowed = texts(found.body, f"{_LED}@Redfish.AllowableValues")
    words = [word for word in _ON if word != rest and (not allowed or word in allowed)] if lit else [rest]
    refused: HttpError | None = None
    for word in words:
        try:
            tree.session.patch(found, {_LED: word})
        except HttpError as error:
            if error.kind is not Failure.REJECTED:
                raise
            refused = error
        else:
            return
    raise refused or Unknown(f"the BMC knows no word to switch the locator LED on: {quote(', '.join(allowed))}")


def _rest(quirks: Quirks | None) -> str:
    return "Off" if quirks is None else quirks.indicator_at_rest
