"""Checks across resources: what is named exists, what is combined fits together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.model.errors import Diagnostic
from reconciler.model.vocab import Concern, DrainProvider
from reconciler.spec.faults import did_you_mean
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.kinds.settings import NodeSettings
from reconciler.spec.layers import CHOICES, Setting
from reconciler.spec.load import Steps
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations, Declared
from reconciler.spec.resolve import choices, find_version
from reconciler.spec.tools import COUNTED, check_tests

_KIND_OF = {"hardware": "HardwareProfile", "persona": "Persona", "remediation": "RemediationPolicy"}
_OURS = "reconciler.dev/"
_NEVER_IGNORED = (Concern.IDENTITY, Concern.TRUST, Concern.GATE)


def check_references(declared: Declarations) -> Iterator[Diagnostic]:
    """Every name that one resource uses for another, for a tool, or for a value path."""
    for fleet in declared.fleets:
        if fleet.spec.cluster is not None:
            yield from _named(declared, "Cluster", fleet.spec.cluster, fleet, ("cluster",))
        yield from _settings(declared, fleet, fleet.spec.defaults, ("defaults",))
        yield from _reserved(fleet, fleet.spec.defaults.labels, ("defaults", "labels"))
        for index, rule in enumerate(fleet.spec.ignore):
            yield from _ignorable(fleet, index, rule.path)
    for image in declared.images.values():
        for index, version in enumerate(image.spec.versions):
            for at, name in enumerate(version.hardware):
                yield from _named(declared, "HardwareProfile", name, image, ("versions", index, "hardware", at))
    for persona in declared.personas.values():
        if persona.spec.acceptance is not None:
            yield from _named(declared, "AcceptanceProfile", persona.spec.acceptance, persona, ("acceptance",))
        yield from _persona(persona)
    for acceptance in declared.acceptance.values():
        yield from check_tests(acceptance)
    for pool in declared.pools.values():
        yield from _settings(declared, pool, pool.spec, ())
        yield from _reserved(pool, pool.spec.labels, ("labels",))
        for index, entry in enumerate(pool.spec.nodes):
            yield from _settings(declared, pool, entry, ("nodes", index))
            yield from _reserved(pool, entry.labels, ("nodes", index, "labels"))


def _named(declared: Declarations, kind: str, name: str, resource: Declared[Any], steps: Steps) -> Iterator[Diagnostic]:
    known = set(declared.table(kind)) | declared.unread.get(kind, set())
    if name not in known:
        yield resource.problem(steps, f"there is no {kind} {name!r}", did_you_mean(name, known))


def _settings(
    declared: Declarations, resource: Declared[Any], settings: NodeSettings, steps: Steps
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


def _persona(persona: Declared[PersonaSpec]) -> Iterator[Diagnostic]:
    spec = persona.spec
    yield from _reserved(persona, spec.labels, ("labels",))
    keys = [taint.key for taint in spec.taints]
    for index, key in enumerate(keys):
        if key.startswith(_OURS):
            yield persona.problem(("taints", index, "key"), f"{_OURS} is reserved for marks of the reconciler")
        if key in keys[:index]:
            yield persona.problem(("taints", index, "key"), f"taint {key!r} is listed twice")


def _reserved(resource: Declared[Any], labels: Iterable[str], steps: Steps) -> Iterator[Diagnostic]:
    for key in labels:
        if key.startswith(_OURS):
            yield resource.problem((*steps, key), f"{_OURS} is reserved for marks of the reconciler")


# --- what nodes end up with ----------------------------------------------------------------------------------------


def check_combinations(declared: Declarations) -> Iterator[Diagnostic]:
    """What each pool and entry ends up with, once defaults are applied. Dangling names are told elsewhere."""
    for pool in declared.pools.values():
        own = [index for index, entry in enumerate(pool.spec.nodes) if entry.has_settings]
        seen: set[Diagnostic] = set()
        shared = [] if pool.spec.nodes and len(own) == len(pool.spec.nodes) and not pool.spec.inventory else [None]
        for entry in (*shared, *own):
            chosen = choices(declared, pool.name, entry)
            found = [
                *_image_fits(declared, chosen),
                *_overrides_fit(declared, pool.name, entry, chosen),
                *_tests_fit(declared, chosen),
            ]
            yield from (problem for problem in found if problem not in seen)
            seen.update(found)
        for index, node in enumerate(pool.spec.nodes):
            if node.host_key is not None:
                chosen = choices(declared, pool.name, index)
                yield _pinned(pool, ("nodes", index, "hostKey"), "image.name" in chosen)


def _pinned(pool: Declared[Any], steps: Steps, managed: bool) -> Diagnostic:
    if managed:
        problem = "a pinned host key on a node whose image is managed: an install makes new host keys"
    else:
        problem = "not enforced by this version"
    return pool.problem(steps, problem, "let a CA sign host keys, and name it in ssh.hostKeys.authorities")


def _image_fits(declared: Declarations, chosen: dict[str, Setting]) -> Iterator[Diagnostic]:
    """Pitfall K9: an image on hardware that it was not built for."""
    image = declared.images.get(chosen["image.name"].value) if "image.name" in chosen else None
    if image is None:
        return
    wanted = chosen["image.version"]
    try:
        _, version = find_version(image, wanted.value)
    except StopIteration:
        return
    fitting = ", ".join(version.hardware)
    name = f"image {image.name} {version.version}"
    if version.hardware and "hardware" not in chosen:
        yield Diagnostic(wanted.at, "", f"{name} is for {fitting}, and these nodes have no hardware profile")
    elif version.hardware and chosen["hardware"].value in declared.hardware.keys() - set(version.hardware):
        hardware = chosen["hardware"]
        yield Diagnostic(
            wanted.at,
            "",
            f"{name} is not compatible with hardware {hardware.value} ({hardware.at})",
            f"it is for {fitting}",
        )


def _tests_fit(declared: Declarations, chosen: dict[str, Setting]) -> Iterator[Diagnostic]:
    """A test that counts devices passes only against a declared number (DESIGN 7.4)."""
    persona = declared.personas.get(chosen["persona"].value) if "persona" in chosen else None
    acceptance = declared.acceptance.get(persona.spec.acceptance or "") if persona else None
    hardware = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    if acceptance is None or ("hardware" in chosen and (hardware is None or not hardware.whole)):
        return
    for test in (test for phase in acceptance.spec.phases for test in phase.tests):
        counted = COUNTED.get(test.tool)
        if counted is None:
            continue
        if hardware is None:
            at = chosen["persona"].at
            yield Diagnostic(at, "", f"test {test.name!r} counts {counted}, and these nodes have no hardware profile")
        elif getattr(hardware.spec.inventory, counted) is None:
            problem = (
                f"test {test.name!r} of {acceptance.name!r} counts {counted}, and the inventory does not say how many"
            )
            yield hardware.problem(("inventory",), problem)


def _overrides_fit(
    declared: Declarations, pool: str, entry: int | None, chosen: dict[str, Setting]
) -> Iterator[Diagnostic]:
    """Firmware overrides name components of the hardware profile that the node ends up with."""
    profile = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    if "hardware" in chosen and (profile is None or not profile.whole):
        return
    components = [item.component for item in profile.spec.firmware] if profile else []
    fleet, owner = declared.fleets[0], declared.pools[pool]
    layers: list[tuple[Declared[Any], NodeSettings, Steps]] = [
        (fleet, fleet.spec.defaults, ("defaults",)),
        (owner, owner.spec, ()),
    ]
    if entry is not None:
        layers.append((owner, owner.spec.nodes[entry], ("nodes", entry)))
    for resource, settings, steps in layers:
        for index, override in enumerate(settings.firmware):
            if override.component not in components:
                where = f"hardware profile {profile.name!r} has" if profile else "without a hardware profile there is"
                yield resource.problem(
                    (*steps, "firmware", index, "component"),
                    f"{where} no firmware component {override.component!r}",
                    did_you_mean(override.component, components),
                )


# --- the Fleet against its nodes -----------------------------------------------------------------------------------


def check_fleet(fleet: Declared[FleetSpec], declared: Declarations, nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    """Only when all could be read: what is missing from half a spec may just not have been understood."""
    yield from _ignored_exist(fleet, declared, {node.name for node in nodes})
    yield from _budgets_apply(fleet, nodes)
    if fleet.spec.redfish is None and any(node.endpoints.bmc for node in nodes):
        yield fleet.problem((), "nodes have a bmc, and spec.redfish does not say how to reach it")
    if fleet.spec.ssh is None and any(node.endpoints.host for node in nodes):
        yield fleet.problem((), "nodes have a host, and spec.ssh does not say how to reach it")
    if fleet.spec.cluster is None:
        for persona in declared.personas.values():
            yield from _clusterless(persona)


def _ignored_exist(fleet: Declared[FleetSpec], declared: Declarations, nodes: set[str]) -> Iterator[Diagnostic]:
    for index, rule in enumerate(fleet.spec.ignore):
        for kind, given, known in (("pools", rule.pools, set(declared.pools)), ("nodes", rule.nodes, nodes)):
            for at, name in enumerate(given):
                if name not in known:
                    problem = f"there is no {kind.removesuffix('s')} {name!r}"
                    yield fleet.problem(("ignore", index, kind, at), problem, did_you_mean(name, known))


def _budgets_apply(fleet: Declared[FleetSpec], nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    labels = {label for node in nodes for label in node.domains}
    for index, budget in enumerate(fleet.spec.budgets):
        if budget.scope in {"fleet", "pool"}:
            continue
        place: Steps = ("budgets", index, "scope")
        if budget.scope not in labels:
            hint = did_you_mean(budget.scope, {"fleet", "pool", *labels})
            yield fleet.problem(place, f"no node has a failure domain {budget.scope!r}", hint)
            continue
        without = sum(budget.scope not in node.domains for node in nodes)
        if without:
            problem = f"{without} of {len(nodes)} nodes have no {budget.scope}, so this limit does not cover them"
            yield fleet.problem(place, problem, severity="warning")


def _clusterless(persona: Declared[PersonaSpec]) -> Iterator[Diagnostic]:
    spec = persona.spec
    if "drain" in spec.model_fields_set and spec.drain.provider is DrainProvider.KUBERNETES:
        hint = "use provider command, or none where nothing needs to be waited for"
        yield persona.problem(("drain", "provider"), "the fleet names no cluster to drain from", hint)
    if spec.labels or spec.taints:
        place = ("labels",) if spec.labels else ("taints",)
        yield persona.problem(place, "the fleet names no cluster, so nothing gets these", severity="warning")


def _ignorable(fleet: Declared[FleetSpec], index: int, path: str) -> Iterator[Diagnostic]:
    place: Steps = ("ignore", index, "path")
    concern = path.partition(".")[0].removesuffix("*")
    if "*" in path[:-1] or not concern:
        yield fleet.problem(place, f"{path!r} is not a value path", "write it like bios.BootTimeout or host.sysctls.*")
    elif concern not in list(Concern):
        yield fleet.problem(place, f"there is no concern {concern!r}", did_you_mean(concern, Concern))
    elif concern in _NEVER_IGNORED:
        yield fleet.problem(place, f"{concern} can't be ignored", "a node is admitted on its evidence")


def check_installable(declared: Declarations, nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    """Warnings about images that could be compared, but not installed or admitted."""
    fleet = declared.fleets[0]
    diskless: dict[tuple[str, int | None], str | None] = {}  # by pool and entry: a node that names no disk itself
    for node in nodes:
        key = (node.pool, node.entry)
        diskless[key] = diskless.get(key) or (node.name if node.root_disk is None else None)
    told: set[tuple[str, str]] = set()
    for (pool, entry), name in diskless.items():
        chosen = choices(declared, pool, entry)
        if "image.name" not in chosen:
            continue
        image, wanted = declared.images[chosen["image.name"].value], chosen["image.version"].value
        index, version = find_version(image, wanted)
        if version.root_disk is None and name is not None and ("disk", image.name) not in told:
            told.add(("disk", image.name))
            problem = f"{name} can't be installed: neither the image nor the node names a root disk"
            yield image.problem(("versions", index), problem, severity="warning")
        if version.signature is None and (wanted, image.name) not in told:
            told.add((wanted, image.name))
            problem = "no signature: nodes with this image can't be trusted, and so are not admitted"
            yield image.problem(("versions", index), problem, severity="warning")
        if fleet.spec.installer is None and ("installer", "") not in told:
            told.add(("installer", ""))
            yield fleet.problem((), "no installer: images are compared, and never written", severity="warning")
