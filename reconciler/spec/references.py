"""Check that what resources refer to by name exists: resources, tools, and value paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.vocab import Concern
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.kinds.golden_image import GoldenImageSpec, ImageVersion
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.kinds.settings import NodeSettings
from reconciler.spec.layers import CHOICES
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.tools import check_tests
from reconciler.strict_yaml.parse import Steps

_KIND_OF = {"hardware": "HardwareProfile", "persona": "Persona", "remediation": "RemediationPolicy"}
_OURS = "reconciler.dev/"
_NEVER_IGNORED = (Concern.IDENTITY, Concern.TRUST, Concern.GATE)


def check_references(declared: Declarations) -> Iterator[Diagnostic]:
    """Yield a problem for each name that refers to nothing, or to something it may not refer to."""
    for fleet in declared.fleets:
        if fleet.spec.cluster is not None:
            yield from _named(declared, "Cluster", fleet.spec.cluster, fleet, ("cluster",))
        yield from _settings(declared, fleet, fleet.spec.defaults, ("defaults",))
        yield from _reserved(fleet, fleet.spec.defaults.labels, ("defaults", "labels"))
        for index, rule in enumerate(fleet.spec.ignore):
            yield from _ignorable(fleet, index, rule.path)
        yield from _pools_of_inventory(declared, fleet)
    for image in declared.images.values():
        for index, version in enumerate(image.spec.versions):
            yield from _kernel_arguments(image, index, version)
            for at, name in enumerate(version.hardware):
                yield from _named(declared, "HardwareProfile", name, image, ("versions", index, "hardware", at))
    for persona in declared.personas.values():
        if persona.spec.acceptance is not None:
            yield from _named(declared, "AcceptanceProfile", persona.spec.acceptance, persona, ("acceptance",))
        yield from _persona(persona)
    for acceptance in declared.acceptance.values():
        yield from check_tests(acceptance, _components(declared))
    for pool in declared.pools.values():
        yield from _settings(declared, pool, pool.spec, ())
        yield from _reserved(pool, pool.spec.labels, ("labels",))
        for index, entry in enumerate(pool.spec.nodes):
            yield from _settings(declared, pool, entry, ("nodes", index))
            yield from _reserved(pool, entry.labels, ("nodes", index, "labels"))


def _components(declared: Declarations) -> frozenset[str] | None:
    """Return the components whose firmware the HardwareProfiles manage; None while one of them can't be read."""
    if declared.unread.get("HardwareProfile") or not all(one.whole for one in declared.hardware.values()):
        return None
    return frozenset(item.component for one in declared.hardware.values() for item in one.spec.firmware)


def _named(
    declared: Declarations, kind: str, name: str, resource: DeclaredResource[Any], steps: Steps
) -> Iterator[Diagnostic]:
    known = set(declared.table(kind)) | declared.unread.get(kind, set())
    if name in known:
        return
    hint = did_you_mean(name, known)
    if declared.unread_file and not hint.startswith("did you mean"):
        return  # it may stand in that file: one error of syntax is one message
    yield resource.problem(steps, f"there is no {kind} {name!r}", hint)


def _pools_of_inventory(declared: Declarations, fleet: DeclaredResource[FleetSpec]) -> Iterator[Diagnostic]:
    inventory = fleet.spec.inventory
    if inventory is None:
        return
    if inventory.pool is not None:
        yield from _named(declared, "NodePool", inventory.pool, fleet, ("inventory", "pool"))
    for at, name in enumerate(inventory.pools):
        yield from _named(declared, "NodePool", name, fleet, ("inventory", "pools", at))


def _kernel_arguments(
    image: DeclaredResource[GoldenImageSpec], index: int, version: ImageVersion
) -> Iterator[Diagnostic]:
    """Yield a problem for each argument that the image's kernel boots without: its installer would refuse it."""
    if version.command_line is None:
        return
    there = version.command_line.split()
    for at, argument in enumerate(version.kernel_arguments):
        if argument not in there:
            place: Steps = ("versions", index, "kernelArguments", at)
            problem = f"the image's kernel boots without {argument}: it is not in commandLine"
            yield image.problem(
                place, problem, f"build the image with it ({image.at('versions', index, 'commandLine')})"
            )


def _settings(
    declared: Declarations, resource: DeclaredResource[Any], settings: NodeSettings, steps: Steps
) -> Iterator[Diagnostic]:
    for choice in CHOICES:
        name = getattr(settings, choice)
        if name is not None:
            yield from _named(declared, _KIND_OF[choice], name, resource, (*steps, choice))
    if settings.image is None:
        return
    yield from _named(declared, "GoldenImage", settings.image.name, resource, (*steps, "image", "name"))
    image = declared.images.get(settings.image.name)
    if image is not None and image.whole:
        versions = [version.version for version in image.spec.versions]
        if settings.image.version not in versions:
            problem = f"GoldenImage {image.name!r} has no version {settings.image.version!r}"
            yield resource.problem(
                (*steps, "image", "version"), problem, did_you_mean(settings.image.version, versions)
            )


def _persona(persona: DeclaredResource[PersonaSpec]) -> Iterator[Diagnostic]:
    spec = persona.spec
    yield from _reserved(persona, spec.labels, ("labels",))
    keys = [taint.key for taint in spec.taints]
    for index, key in enumerate(keys):
        if key.startswith(_OURS):
            yield persona.problem(("taints", index, "key"), f"{_OURS} is reserved for the reconciler's own marks")
        if key in keys[:index]:
            yield persona.problem(("taints", index, "key"), f"taint {key!r} is listed twice")


def _reserved(resource: DeclaredResource[Any], labels: Iterable[str], steps: Steps) -> Iterator[Diagnostic]:
    for key in labels:
        if key.startswith(_OURS):
            yield resource.problem((*steps, key), f"{_OURS} is reserved for the reconciler's own marks")


def _ignorable(fleet: DeclaredResource[FleetSpec], index: int, path: str) -> Iterator[Diagnostic]:
    place: Steps = ("ignore", index, "path")
    concern = path.partition(".")[0].removesuffix("*")
    if "*" in path[:-1] or not concern:
        yield fleet.problem(place, f"{path!r} is not a value path", "write it like bios.BootTimeout or host.sysctls.*")
    elif concern not in list(Concern):
        yield fleet.problem(place, f"there is no concern {concern!r}", did_you_mean(concern, Concern))
    elif concern in _NEVER_IGNORED:
        yield fleet.problem(place, f"{concern} can't be ignored", "a node is admitted on its evidence")
