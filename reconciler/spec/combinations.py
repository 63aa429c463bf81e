"""Check that image, hardware and tests fit together on each node, with all defaults applied.

`references` reports names that don't exist; here such a name only ends a check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reconciler.model.errors import Diagnostic, Position, did_you_mean
from reconciler.model.gate_arguments import GROUP, PARTNERS, between_nodes
from reconciler.model.gate_tools import TOOLS, counted
from reconciler.model.measurements import ComponentReference, FirmwareReference
from reconciler.spec.kinds.acceptance_profile import AcceptanceProfileSpec, Test
from reconciler.spec.kinds.hardware_profile import HardwareProfileSpec
from reconciler.spec.kinds.settings import NodeSettings
from reconciler.spec.layers import Setting
from reconciler.spec.measurements import platform_measurements
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.preserve import check_preserve
from reconciler.spec.resolve import choices, find_version, settings_of
from reconciler.strict_yaml.parse import Steps


def check_combinations(declared: Declarations) -> Iterator[Diagnostic]:
    """Yield the problems of each pool and of each node entry that has settings of its own."""
    for pool in declared.pools.values():
        own = [index for index, entry in enumerate(pool.spec.nodes) if entry.has_settings]
        seen: set[Diagnostic] = set()
        shared = [] if pool.spec.nodes and len(own) == len(pool.spec.nodes) and not pool.spec.inventory else [None]
        for entry in (*shared, *own):
            chosen = choices(declared, pool.name, entry)
            found = [
                *_image_fits(declared, pool.name, chosen),
                *_overrides_fit(declared, pool.name, entry, chosen),
                *_tests_fit(declared, chosen),
                *_measured(declared, pool.name, entry, chosen),
                *_components(declared, pool.name, entry, chosen),
            ]
            yield from (problem for problem in found if problem not in seen)
            seen.update(found)
        for index, node in enumerate(pool.spec.nodes):
            if node.host_key is not None:
                chosen = choices(declared, pool.name, index)
                yield _pinned(pool, ("nodes", index, "hostKey"), "image.name" in chosen)


def _pinned(pool: DeclaredResource[Any], steps: Steps, managed: bool) -> Diagnostic:
    if managed:
        problem = "a pinned host key on a node whose image is managed: an install makes new host keys"
    else:
        problem = "not enforced by this version"
    return pool.problem(steps, problem, "let a CA sign host keys, and name it in ssh.hostKeys.authorities")


def _image_fits(declared: Declarations, pool: str, chosen: dict[str, Setting]) -> Iterator[Diagnostic]:
    """Yield a problem for an image on hardware that it was not built for (pitfall K9), or that keeps too little."""
    image = declared.images.get(chosen["image.name"].value) if "image.name" in chosen else None
    persona = declared.personas.get(chosen["persona"].value) if "persona" in chosen else None
    if image is None:
        yield from check_preserve(declared, pool, persona)
        return
    wanted = chosen["image.version"]
    found = find_version(image, wanted.value)
    if found is None:
        return
    _, version = found
    yield from check_preserve(declared, pool, persona, image.name, version)
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
    """Yield a problem for a test that counts devices whose number is not declared (DESIGN 7.4)."""
    persona = declared.personas.get(chosen["persona"].value) if "persona" in chosen else None
    acceptance = declared.acceptance.get(persona.spec.acceptance or "") if persona else None
    hardware = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    if acceptance is None or ("hardware" in chosen and (hardware is None or not hardware.whole)):
        return
    for test in (test for phase in acceptance.spec.phases for test in phase.tests):
        yield from _rates_declared(acceptance, hardware, test, chosen["persona"].at)
        for what in counted(test.tool, test.args):
            if hardware is None:
                at = chosen["persona"].at
                yield Diagnostic(at, "", f"test {test.name!r} counts {what}, and these nodes have no hardware profile")
            elif getattr(hardware.spec.inventory, what) is None:
                problem = (
                    f"test {test.name!r} of {acceptance.name!r} counts {what}, and the inventory declares no number"
                )
                yield hardware.problem(("inventory",), problem)
        yield from _has_two_gpus(acceptance, hardware, test)


def _has_two_gpus(
    acceptance: DeclaredResource[AcceptanceProfileSpec],
    hardware: DeclaredResource[HardwareProfileSpec] | None,
    test: Test,
) -> Iterator[Diagnostic]:
    """Yield that a collective has no GPU to send to: the gate refuses it, and would keep each node out."""
    is_local = GROUP in TOOLS[test.tool].arguments and not between_nodes(test.args)
    if hardware is not None and hardware.spec.inventory.gpus == 1 and is_local:
        problem = f"test {test.name!r} of {acceptance.name!r} is between GPUs of one node, and there is one"
        hint = f"give it args.{GROUP} or args.{PARTNERS}, or leave it out"
        yield hardware.problem(("inventory", "gpus"), problem, hint)


def _rates_declared(
    acceptance: DeclaredResource[AcceptanceProfileSpec],
    hardware: DeclaredResource[HardwareProfileSpec] | None,
    test: Test,
    at: Position,
) -> Iterator[Diagnostic]:
    """Yield a problem for a limit that is a share of a rate which nobody declares for these nodes."""
    rates = test.rates(hardware.spec.rates if hardware is not None else {})
    for threshold in test.thresholds:
        for name, share in threshold.shares().items():
            if share.rate not in rates:
                problem = f"{name} of {threshold.metric} in test {test.name!r} of {acceptance.name!r} is a share of "
                problem += f"{share.rate}, which neither its args nor the HardwareProfile's rates declare"
                yield hardware.problem(("rates",), problem) if hardware else Diagnostic(at, "", problem)


def _measured(declared: Declarations, pool: str, entry: int | None, chosen: dict[str, Setting]) -> Iterator[Diagnostic]:
    """Yield a problem for what an image with measurements lacks beside it. Nodes with it could never be admitted."""
    image = declared.images.get(chosen["image.name"].value) if "image.name" in chosen else None
    found = find_version(image, chosen["image.version"].value) if image is not None else None
    if image is None or found is None or found[1].measurements is None:
        return
    at = image.at("versions", found[0], "measurements")
    fleet = declared.fleets[0]
    if fleet.spec.installer is not None and fleet.spec.installer.measurements is None:
        needs = f"image {image.name} {found[1].version} declares measurements ({at}), and its installer must, too"
        yield fleet.problem(("installer",), f"measurements is missing: {needs}")
    hardware = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    fits = not found[1].hardware or (hardware is not None and hardware.name in found[1].hardware)
    if not fits or ("hardware" in chosen and (hardware is None or not hardware.whole)):
        return  # which is told of the image or the profile
    platform = platform_measurements(hardware.spec.measurements) if hardware is not None else None
    if hardware is None or platform is None or platform.secure_boot is None:
        which = f"hardware profile {hardware.name!r} declares none" if hardware else "there is no hardware profile"
        yield Diagnostic(at, "", f"measurements need those of the model of machine, and {which}")
    elif platform.firmware:
        yield from _referenced(hardware, "firmware", platform.firmware, settings_of(declared, pool, entry))


def _components(
    declared: Declarations, pool: str, entry: int | None, chosen: dict[str, Setting]
) -> Iterator[Diagnostic]:
    """Yield a problem for components without a reference for their firmware."""
    hardware = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    platform = platform_measurements(hardware.spec.measurements) if hardware is not None and hardware.whole else None
    if hardware is None or platform is None:
        return
    for index, group in enumerate(platform.components):
        if group.references:
            which = f"components[{index}].references"
            yield from _referenced(hardware, which, group.references, settings_of(declared, pool, entry))


def _referenced(
    hardware: DeclaredResource[HardwareProfileSpec],
    which: str,
    references: Sequence[FirmwareReference | ComponentReference],
    settings: Iterable[tuple[DeclaredResource[Any], NodeSettings, Steps]],
) -> Iterator[Diagnostic]:
    """Yield a problem for firmware without a reference: nodes that get it could not prove what they run.

    `which`: the key of the references below measurements.
    """
    versions = {
        item.component: (item.version, hardware.at("firmware", index, "version"))
        for index, item in enumerate(hardware.spec.firmware)
    }
    for resource, chosen, steps in settings:
        for index, override in enumerate(chosen.firmware):
            if override.version is not None:
                at = resource.at(*steps, "firmware", index, "version")
                versions[override.component] = (override.version, at)
    if any(reference.fits({name: version for name, (version, _) in versions.items()}) for reference in references):
        return
    judged = sorted({name for reference in references for name in reference.versions})
    below = which.partition("[")[0]
    told = ", ".join(f"{name} {versions[name][0] if name in versions else 'which is not declared'}" for name in judged)
    at = next((versions[name][1] for name in judged if name in versions), hardware.at("measurements", below))
    hint = "learn it from a machine whose profile has no references, and review it, before the firmware is rolled out"
    yield Diagnostic(at, "", f"no reference in measurements.{which} is for {told}", hint)


def _overrides_fit(
    declared: Declarations, pool: str, entry: int | None, chosen: dict[str, Setting]
) -> Iterator[Diagnostic]:
    """Yield a problem for each firmware override of a component that the node's hardware profile does not have."""
    profile = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    if "hardware" in chosen and (profile is None or not profile.whole):
        return
    components = [item.component for item in profile.spec.firmware] if profile else []
    for resource, settings, steps in settings_of(declared, pool, entry):
        for index, override in enumerate(settings.firmware):
            if override.component not in components:
                where = f"hardware profile {profile.name!r} has" if profile else "without a hardware profile there is"
                yield resource.problem(
                    (*steps, "firmware", index, "component"),
                    f"{where} no firmware component {override.component!r}",
                    did_you_mean(override.component, components),
                )


def check_installable(declared: Declarations, nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    """Yield warnings about images that can be compared, but not installed, or whose nodes can't be admitted."""
    fleet = declared.fleets[0]
    diskless: dict[tuple[str, int | None], str | None] = {}  # by pool and entry: a node that names no disk of its own
    for node in nodes:
        key = (node.pool, node.entry)
        diskless[key] = diskless.get(key) or (node.name if node.root_disk is None else None)
    reported: set[tuple[str, str]] = set()
    for (pool, entry), name in diskless.items():
        chosen = choices(declared, pool, entry)
        if "image.name" not in chosen:
            continue
        image, wanted = declared.images[chosen["image.name"].value], chosen["image.version"].value
        found = find_version(image, wanted)
        if found is None:
            continue
        index, version = found
        if version.root_disk is None and name is not None and ("disk", image.name) not in reported:
            reported.add(("disk", image.name))
            problem = f"{name} can't be installed: neither the image nor the node names a root disk"
            yield image.problem(("versions", index), problem, severity="warning")
        if version.signature is None and (wanted, image.name) not in reported:
            reported.add((wanted, image.name))
            problem = "no signature: nodes with this image can't be trusted, and so are not admitted"
            yield image.problem(("versions", index), problem, severity="warning")
        if fleet.spec.installer is None and ("installer", "") not in reported:
            reported.add(("installer", ""))
            yield fleet.problem((), "no installer: images are compared, but never installed", severity="warning")
