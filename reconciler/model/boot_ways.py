"""Choose the way by which an installer gets into a machine: the first of the spec's that its BMC can go."""

from __future__ import annotations

from typing import Final

from reconciler.model.abilities import Abilities, Ability
from reconciler.model.desired import Desired
from reconciler.model.network import attempt_network
from reconciler.model.vocab import BootWay

_NEEDS: Final = {
    BootWay.VIRTUAL_MEDIA: (Ability.MEDIA, Ability.BOOT_ONCE),
    BootWay.HTTP: (Ability.HTTP_BOOT,),
    BootWay.PXE: (Ability.PXE_BOOT,),
}


def choose(desired: Desired, abilities: Abilities | None) -> BootWay | None:
    """Return the way that will be gone; None if none can be. What is not known of a BMC rules nothing out."""
    return next((way for way in desired.profile.boot_ways if not why_not(way, desired, abilities)), None)


def why_not(way: BootWay, desired: Desired, abilities: Abilities | None) -> str:
    """Return why a way can't be gone; "" if it can be."""
    if way is BootWay.PXE and attempt_network(desired.network).mac is None:
        return "PXE needs the MAC address of the port that boots, in the node's `network`"
    found = abilities or Abilities()
    return "; ".join(why for ability in _NEEDS[way] if (why := found.why_not(ability)))


def passed_over(desired: Desired, abilities: Abilities | None) -> str:
    """Return why each way of the spec before the chosen one is not gone."""
    chosen = choose(desired, abilities)
    ways = desired.profile.boot_ways
    if not ways:
        return "the spec names no installer"
    before = ways if chosen is None else ways[: ways.index(chosen)]
    return "; ".join(why for way in before if (why := why_not(way, desired, abilities)))
