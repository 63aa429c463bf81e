"""Read what a BMC can write, by the code that each write begins with: where it goes to, and in which words.

What was seen once is not looked for again before the BMC restarts: it costs a dozen requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from reconciler.drivers.redfish import bios, boot, firmware, integrity, power, staging, system
from reconciler.drivers.redfish.fields import Document, Unknown, texts
from reconciler.drivers.redfish.hot import boot_of
from reconciler.drivers.redfish.media import Media
from reconciler.drivers.redfish.session import Resource
from reconciler.drivers.redfish.tree import Survey, Tree
from reconciler.model.abilities import Abilities, Ability, BiosLimit

T = TypeVar("T")

# Each raises Unknown, with the reason, where the BMC lacks the ability.
_PROBES: Mapping[Ability, Callable[[Tree, Resource], object]] = {
    Ability.POWER: lambda tree, found: power.check(tree, found.body),
    Ability.BMC_RESET: lambda tree, found: power.bmc_reset(tree, found.body),
    Ability.BIOS: lambda tree, found: staging.settings_of(tree, tree.follow(found.body, "Bios")),
    Ability.SECURE_BOOT: lambda tree, found: boot.secure_boot_target(tree, found.body),
    Ability.BOOT_ORDER: boot.read_order,
    Ability.BOOT_ONCE: lambda tree, found: boot.once_word(boot_of(tree, found)[0], "cd"),
    Ability.MEDIA: lambda tree, _: Media(tree).slot(),
    Ability.HTTP_BOOT: boot.check_http,
    Ability.PXE_BOOT: lambda tree, found: boot.once_word(boot_of(tree, found)[0], "pxe"),
    Ability.FIRMWARE: lambda tree, _: firmware.update_service(tree),
    Ability.MEASUREMENTS: lambda tree, _: integrity.collection(tree),
}


def read_abilities(tree: Tree, found: Resource, survey: Survey) -> Abilities:
    lacks = {}
    for ability, probe in _PROBES.items():
        why = "" if ability in tree.able else survey.read(f"abilities.{ability}", _attempt(probe, tree, found))
        if why is not None:
            lacks[ability.value] = why
        if why == "":
            tree.able.add(ability)
    return Abilities(
        lacks=lacks,
        bios=_told(survey, lambda: _limits(tree, tree.follow(found.body, "Bios").body)),
        boot_targets=_told(survey, lambda: texts(boot_of(tree, found)[0], system.TARGETS)),
        http_attributes=_told(survey, lambda: boot.http_attributes(tree, found)) or {},
        reset_types=_told(survey, lambda: power.reset_types(tree, found.body)),
        firmware_ways=_told(survey, lambda: firmware.ways(tree)),
    )


def _limits(tree: Tree, current: Document) -> dict[str, BiosLimit]:
    """Return the limits of the attributes that this BIOS has: a registry may be of a whole generation."""
    known = staging.limits(tree, current)
    return {name: known[name] for name in bios.attributes(current) if name in known and known[name] != BiosLimit()}


def _attempt(probe: Callable[[Tree, Resource], object], tree: Tree, found: Resource) -> Callable[[], str]:
    def attempt() -> str:
        try:
            probe(tree, found)
        except Unknown as gap:
            return str(gap)
        return ""

    return attempt


def _told(survey: Survey, reader: Callable[[], T]) -> T | None:
    """Return what the BMC tells, None if it does not: the ability that it belongs to says why."""
    value = survey.read("abilities", reader)
    survey.unknown.pop("abilities", None)
    return value
