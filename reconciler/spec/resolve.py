"""Resolve a checked spec into model.desired.Fleet: merge settings, share equal profiles, keep positions by value path.

Equal declarations give equal fleets, in whatever order files were read. The digest of a profile covers its values
alone, so moving a line, or setting the same value in another layer, changes nothing (pitfall M1).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from reconciler.model.desired import (
    Acceptance,
    Desired,
    DesiredGpu,
    DesiredHost,
    DesiredImage,
    DesiredInventory,
    DesiredMembership,
    Fleet,
    NodeCondition,
    Profile,
    Remediation,
    RolloutPolicy,
    Rung,
    Settings,
    SpecHold,
    SpecSource,
)
from reconciler.model.errors import Position
from reconciler.model.k3s import DesiredK3s, K3sRole
from reconciler.model.reference import Reference, hardware_of
from reconciler.model.serving import DesiredServing
from reconciler.model.units import parse_duration, parse_size
from reconciler.model.vocab import BootWay, ReimagedBy
from reconciler.spec.cohorts import with_peers
from reconciler.spec.health import health_positions
from reconciler.spec.k3s_files import k3s_of
from reconciler.spec.kinds.golden_image import GoldenImageSpec, ImageVersion
from reconciler.spec.kinds.hardware_profile import HardwareProfileSpec
from reconciler.spec.kinds.node_pool import Rollout as RolloutSpec
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.kinds.remediation_policy import RepairLimit
from reconciler.spec.kinds.settings import NodeSettings
from reconciler.spec.layers import (
    Layer,
    Setting,
    below,
    choices_of,
    hardware_layer,
    merge,
    persona_layer,
    values_of,
)
from reconciler.spec.measurements import boot_measurements, platform_measurements
from reconciler.spec.node_source import NodeSource
from reconciler.spec.nodes import root_disk, spec_hold
from reconciler.spec.operands import is_networked, is_validated, offered_gpus
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.policies import acceptance_of, backup_of, drain_of, layout_of
from reconciler.spec.policy_positions import policy_positions
from reconciler.spec.preserve import with_kept
from reconciler.spec.serving import serving_of
from reconciler.spec.shared_outlets import with_bars, with_shared_outlets
from reconciler.strict_yaml.parse import Steps

# Value paths that follow from another setting: explain shows the position of that one.
_DERIVED: Final[Mapping[str, str]] = {
    "trust.firmware": "hardware",
    "trust.secure_boot": "boot.secure_boot",
    "health": "remediation",
    "installed.kernel_arguments": "image.kernel_arguments",
    "installed.user_ca": "host.user_ca",
}


def digest_of(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of a value, in hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def choices(declared: Declarations, pool: str, entry: int | None) -> dict[str, Setting]:
    """Return the image and the profiles of a pool's nodes, or of one entry's: `image.name`, `hardware` and so on."""
    return merge(choices_of(*declaration) for declaration in settings_of(declared, pool, entry))


def settings_of(
    declared: Declarations, pool: str, entry: int | None
) -> Iterator[tuple[DeclaredResource[Any], NodeSettings, Steps]]:
    """Yield the resources whose settings apply to such nodes, each overriding the one before, with their steps."""
    fleet, owner = declared.fleets[0], declared.pools[pool]
    yield fleet, fleet.spec.defaults, ("defaults",)
    yield owner, owner.spec, ()
    if entry is not None:
        yield owner, owner.spec.nodes[entry], ("nodes", entry)


def resolve(
    declared: Declarations,
    nodes: Iterable[NodeSource],
    settings: Settings,
    source: SpecSource,
    references: Sequence[Reference] = (),
) -> Fleet:
    """Return the fleet. The declarations must have no errors: every name in them is taken to exist.

    `references`: what certified nodes measured, for the bars by peers.
    """
    nodes = with_shared_outlets(nodes)
    resolver = _Resolver(declared, settings, references, serving_of(declared, nodes))
    resolved = {node.name: resolver.node(node) for node in sorted(nodes, key=lambda node: (node.pool, node.name))}
    values = asdict(replace(settings, insecure=()))  # its sentences name lines, and follow from the rest
    resolved = with_bars(resolved)
    digest = digest_of([values, [_identity(node) for node in resolved.values()]])
    return Fleet(
        settings=settings,
        source=source,
        nodes=resolved,
        digest=digest,
        rollouts={name: _rollout(pool.spec.rollout) for name, pool in declared.pools.items()},
        holds=tuple(_holds(declared, nodes)),
        objectives={
            name: float(persona.spec.availability.rstrip("%")) / 100
            for name, persona in declared.personas.items()
            if persona.spec.availability is not None
        },
    )


def _rollout(spec: RolloutSpec) -> RolloutPolicy:
    return RolloutPolicy(spec.waves, parse_duration(spec.bake), spec.max_failures)


def _holds(declared: Declarations, nodes: Iterable[NodeSource]) -> Iterator[SpecHold]:
    """Yield the holds of pools, then those of nodes, in order of name."""
    for name, pool in sorted(declared.pools.items()):
        if pool.spec.hold is not None:
            yield spec_hold(f"pool/{name}", pool.spec.hold, pool.at("hold"))
    yield from sorted((node.hold for node in nodes if node.hold is not None), key=lambda hold: hold.subject)


def _identity(node: Desired) -> list[Any]:
    disk = asdict(node.root_disk) if node.root_disk else None
    network = asdict(node.network) if node.network else None
    where = [node.endpoints.bmc, node.endpoints.host, sorted(node.domains.items()), network]
    own = [node.node, node.pool, node.persona, node.state, node.hostname, node.serial, node.uuid, node.erase]
    own += [] if node.provision is None else [node.provision]
    own += [f"{outlet.pdu}#{outlet.name}" for outlet in node.outlets]
    serving = [] if node.serving is None else [asdict(node.serving)]
    return [*own, *where, disk, node.profile.digest, *serving, *(["by person"] if node.by_person else [])]


class _Resolver:
    def __init__(
        self,
        declared: Declarations,
        settings: Settings,
        references: Sequence[Reference],
        serving: Mapping[str, DesiredServing],
    ) -> None:
        self._declared = declared
        self._serving = serving  # by node
        self._user_ca = settings.user_ca
        self._health = settings.health
        self._releases = settings.releases
        self._health_places = health_positions(declared.fleets[0])
        self._references = references
        self._profiles: dict[tuple[str, int | None], tuple[Profile, Setting | None, str]] = {}
        self._interned: dict[tuple[Hashable, ...], Profile] = {}

    def node(self, node: NodeSource) -> Desired:
        key = (node.pool, node.entry)
        if key not in self._profiles:
            self._profiles[key] = self._profile(*key)
        profile, from_name, persona = self._profiles[key]
        provenance = node.provenance
        if node.hostname is None and from_name is not None:
            provenance = {**provenance, "host.hostname": from_name.at}
        serving = self._serving.get(node.name)
        if serving is not None:
            provenance = {**provenance, "serving": self._declared.pools[node.pool].at("serving")}
        return Desired(
            node=node.name,
            pool=node.pool,
            state=node.state,
            endpoints=node.endpoints,
            domains=node.domains,
            hostname=node.hostname or (node.name if from_name else None),
            serial=node.serial,
            uuid=node.uuid,
            root_disk=node.root_disk,
            profile=profile,
            provenance=provenance,
            persona=persona,
            provision=node.provision,
            erase=node.erase or (),
            network=node.network,
            outlets=node.outlets,
            by_person=self._declared.pools[node.pool].spec.reimaged_by is ReimagedBy.PERSON,
            serving=serving,
        )

    def _profile(self, pool: str, entry: int | None) -> tuple[Profile, Setting | None, str]:
        """Return the profile, the setting that names hosts after their nodes, and the name of the persona."""
        declared = self._declared
        chosen = choices(declared, pool, entry)
        persona = declared.personas[chosen["persona"].value] if "persona" in chosen else None
        hardware = declared.hardware[chosen["hardware"].value] if "hardware" in chosen else None
        layers: list[Layer] = []
        if hardware is not None:
            layers.append(hardware_layer(hardware))
        if persona is not None:
            layers.append(persona_layer(persona))
        layers += [values_of(*declaration) for declaration in settings_of(declared, pool, entry)]
        merged = merge(layers)
        from_name = merged.pop("host.hostname", None)
        image, image_places = self._image(chosen)
        image, kept_places = with_kept(image, persona)
        image_places |= kept_places
        membership, member_places = self._membership(merged)
        k3s, k3s_places = self._k3s(pool)
        provenance = policy_positions(declared, chosen, merged, settings_of(declared, pool, entry))
        provenance |= {path: setting.at for path, setting in (chosen | merged).items()} | image_places | member_places
        provenance |= k3s_places
        provenance |= self._health_places
        user_ca = self._user_ca if image is not None else ()  # an installer writes it
        if user_ca:
            provenance["host.user_ca"] = declared.fleets[0].at("ssh", "userCa")
        for path, origin in _DERIVED.items():
            if origin in provenance:
                provenance[path] = provenance[origin]
        services = {name: state.value for name, state in below(merged, "host.services.").items()}
        inventory = DesiredInventory(**below(merged, "hardware."))
        profile = Profile(
            digest="",
            image=image,
            inventory=inventory,
            firmware=tuple(sorted(below(merged, "firmware.").values(), key=lambda item: (item.stage, item.component))),
            bios=below(merged, "bios."),
            secure_boot=merged["boot.secure_boot"].value if "boot.secure_boot" in merged else None,
            boot_order=merged["boot.order"].value if "boot.order" in merged else None,
            host=DesiredHost(sysctls=below(merged, "host.sysctls."), services=services, user_ca=user_ca),
            gpu=DesiredGpu(merged["gpu.mig"].value or None) if "gpu.mig" in merged else None,
            membership=membership,
            drain=drain_of((persona.spec if persona else PersonaSpec()).drain),
            acceptance=self._acceptance(merged, hardware.spec.rates if hardware is not None else {}, inventory, image),
            remediation=self._remediation(chosen),
            provenance=dict(sorted(provenance.items())),
            measurements=platform_measurements(hardware.spec.measurements if hardware is not None else None),
            boot_ways=boot_ways(declared, hardware),
            health=self._health,
            k3s=k3s,
            backup=backup_of(persona.spec.backup if persona else None),
        )
        return self._intern(profile), from_name, persona.name if persona else ""

    def _intern(self, profile: Profile) -> Profile:
        """Return one object for equal values with equal positions. Equal values set elsewhere share only the digest."""
        digest = digest_of(asdict(replace(profile, provenance={})))
        key = (digest, tuple(profile.provenance.items()))
        return self._interned.setdefault(key, replace(profile, digest=digest))

    def _image(self, chosen: Layer) -> tuple[DesiredImage | None, dict[str, Position]]:
        if "image.name" not in chosen:
            return None, {}
        name, wanted = chosen["image.name"].value, chosen["image.version"].value
        image = self._declared.images[name]
        found = find_version(image, wanted)
        assert found is not None
        index, version = found
        at = ("versions", index)
        provenance = {f"image.{part}": image.at(*at, "contents", part) for part in version.contents}
        given = ("url", "sha256", "format", "size", "signature", "layout", "preserve", "measurements")
        provenance |= {f"image.{part}": image.at(*at, part) for part in given}
        provenance["image.in_place"] = image.at(*at, "inPlace")
        provenance["image.kernel_arguments"] = image.at(*at, "kernelArguments")
        provenance |= {"image.key": image.at(*at, "signature", "key"), "trust.image": image.at(*at, "signature")}
        if version.root_disk is not None:
            provenance["image.root_disk"] = image.at(*at, "rootDisk")
        signature = version.signature
        return (
            DesiredImage(
                name=name,
                version=wanted,
                url=version.url,
                sha256=version.sha256,
                signature=signature.text if signature else None,
                key=signature.key if signature else None,
                contents=dict(sorted(version.contents.items())),
                root_disk=root_disk(version.root_disk),
                preserve=version.preserve,
                format=version.format,
                size=parse_size(version.size) if version.size else None,
                layout=layout_of(version.layout),
                kernel_arguments=version.kernel_arguments,
                measurements=boot_measurements(version.measurements),
                in_place=version.in_place,
            ),
            provenance,
        )

    def _membership(self, merged: Layer) -> tuple[DesiredMembership | None, dict[str, Position]]:
        fleet = self._declared.fleets[0]
        if fleet.spec.cluster is None:
            return None, {}
        cluster = self._declared.clusters[fleet.spec.cluster]
        join = cluster.spec.join.command if cluster.spec.join else ()
        taints = tuple(sorted(below(merged, "cluster.taints.").values()))
        hardware, mig = below(merged, "hardware."), merged["gpu.mig"].value if "gpu.mig" in merged else None
        gpus = hardware.get("gpus"), hardware.get("gpu_model")
        follows = offered_gpus(self._releases, *gpus, mig)
        waits = is_validated(self._releases, *gpus), is_networked(self._releases)
        places = {f"cluster.allocatable.{name}": merged["hardware.gpus"].at for name in follows}
        places |= {"cluster.validated": cluster.at("operators")}
        allocatable = dict(sorted((follows | below(merged, "cluster.allocatable.")).items()))
        return DesiredMembership(below(merged, "cluster.labels."), taints, join, allocatable, *waits), {
            "cluster.member": fleet.at("cluster"),
            "cluster.join": cluster.at("join", "command"),
            **{path: at for path, at in places.items() if path not in merged},
        }

    def _k3s(self, pool: str) -> tuple[DesiredK3s | None, dict[str, Position]]:
        fleet = self._declared.fleets[0]
        cluster = self._declared.clusters[fleet.spec.cluster] if fleet.spec.cluster is not None else None
        if cluster is None or cluster.spec.k3s is None:
            return None, {}
        spec, wanted = cluster.spec.k3s, k3s_of(cluster.spec.k3s, pool)
        release = "agents" if wanted.role is K3sRole.AGENT and spec.agents is not None else "release"
        places = {"k3s": cluster.at("k3s"), "k3s.version": cluster.at("k3s", release, "version")}
        places |= {"k3s.images": cluster.at("k3s", release, "images")}
        return wanted, places | {f"cluster.{path}": at for path, at in places.items()}

    def _acceptance(
        self, merged: Layer, rates: Mapping[str, float], inventory: DesiredInventory, image: DesiredImage | None
    ) -> Acceptance | None:
        if "gate.certificate" not in merged:
            return None
        profile = self._declared.acceptance[merged["gate.certificate"].value]
        acceptance = acceptance_of(profile.name, profile.spec, rates)
        return with_peers(acceptance, self._references, hardware_of(inventory), "" if image is None else image.sha256)

    def _remediation(self, chosen: Layer) -> Remediation | None:
        if "remediation" not in chosen:
            return None
        policy = self._declared.remediation[chosen["remediation"].value]
        limit = policy.spec.limit
        return Remediation(
            name=policy.name,
            ladder=tuple(Rung(rung.action.value, rung.attempts) for rung in policy.spec.ladder),
            window_s=parse_duration(policy.spec.window),
            ignore_xids=policy.spec.ignore_xids,
            host_down_after_s=parse_duration(policy.spec.host_down_after),
            node_conditions=tuple(
                NodeCondition(condition.type, condition.status.value) for condition in policy.spec.node_conditions
            ),
            # One ladder a week: a node that falls ill again has a fault that no rung finds (health.md 1.8: NVSentinel
            # asks for a person at the second repair within 7 days, gpud at the third).
            most=sum(rung.attempts for rung in policy.spec.ladder) if limit is None else limit.attempts,
            most_of_class=() if limit is None else _by_class(limit),
            most_within_s=parse_duration(limit.within if limit is not None else "7d"),
        )


def _by_class(limit: RepairLimit) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name.value, most) for name, most in limit.per_class.items()))


def boot_ways(declared: Declarations, hardware: DeclaredResource[HardwareProfileSpec] | None) -> tuple[BootWay, ...]:
    """Return the ways of the hardware profile, else all, with PXE where the Fleet allows it; () without installer."""
    installer = declared.fleets[0].spec.installer
    if installer is None:
        return ()
    if hardware is not None and hardware.spec.boot_ways is not None:
        return hardware.spec.boot_ways
    return tuple(BootWay) if installer.pxe else (BootWay.VIRTUAL_MEDIA, BootWay.HTTP)


def find_version(image: DeclaredResource[GoldenImageSpec], version: str) -> tuple[int, ImageVersion] | None:
    """Return a version of an image with its index; None when there is no such version."""
    return next(((at, found) for at, found in enumerate(image.spec.versions) if found.version == version), None)
