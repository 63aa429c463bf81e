"""Refuse operators that would own what we own: drivers, MIG and cordons have one owner each.

The names of values and their defaults are those of NVIDIA/gpu-operator deployments/gpu-operator/values.yaml (commit
a22dbf67) and Mellanox/network-operator deployment/network-operator/values.yaml (commit b06827e0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.model.errors import Diagnostic, Position
from reconciler.model.releases import OperatorKind
from reconciler.spec.kinds.operators import Owned
from reconciler.spec.node_source import NodeSource
from reconciler.spec.operators import DeclaredRelease
from reconciler.spec.parse import Declarations
from reconciler.spec.resolve import choices, find_version


@dataclass(frozen=True, slots=True)
class _Claim:
    """A value by which an operator takes something of the nodes. `default`: the chart's own value."""

    kind: OperatorKind
    path: tuple[str, ...]
    default: bool
    owned: Owned
    does: str
    needs: tuple[tuple[str, ...], bool] | None = None  # another value, with its default, without which it does nothing


_GPU, _NETWORK = OperatorKind.GPU, OperatorKind.NETWORK
_DRIVER: Final = (("driver", "enabled"), True)
_CLAIMS: Final = (
    _Claim(_GPU, *_DRIVER, Owned.DRIVER, "installs the GPU driver"),
    _Claim(
        _GPU, ("driver", "upgradePolicy", "autoUpgrade"), True, Owned.CORDON, "cordons nodes and takes their pods away",
        needs=_DRIVER,
    ),
    _Claim(_GPU, ("migManager", "enabled"), True, Owned.MIG, "sets MIG by the label nvidia.com/mig.config"),
    # Up to 25.x the chart made the NicClusterPolicy by itself (`deployCR`); later it is an object of its own.
    _Claim(
        _NETWORK, ("ofedDriver", "deploy"), False, Owned.DRIVER, "installs the driver of the NICs",
        needs=(("deployCR",), False),
    ),
    _Claim(
        _NETWORK, ("ofedDriver", "upgradePolicy", "autoUpgrade"), False, Owned.CORDON, "cordons and drains nodes",
        needs=(("ofedDriver", "deploy"), False),
    ),
    _Claim(_NETWORK, ("sriovNetworkOperator", "enabled"), False, Owned.CORDON, "drains nodes when virtual NICs change"),
    _Claim(_NETWORK, ("maintenanceOperator", "enabled"), False, Owned.CORDON, "cordons and drains nodes"),
)  # fmt: skip


def check_ownership(
    declared: Declarations, releases: Sequence[DeclaredRelease], nodes: Sequence[NodeSource]
) -> Iterator[Diagnostic]:
    """Yield a problem for each thing that has two owners, or that an operator takes without being declared."""
    ours = _ours(declared, nodes) if releases else {}
    for release in releases:
        taken = {claim.owned for claim in _CLAIMS if _takes(claim, release)}
        yield from _undeclared(release)
        for owned in release.operator.owns:
            at = (*release.steps, "owns")
            if owned not in taken:
                problem = f"it says that it owns `{owned}`, and its values do nothing with that: nobody would own it"
                yield release.cluster.problem(at, problem, "take it out of `owns`, or let the values do it")
            elif owned in ours:
                where, why = ours[owned]
                problem = f"`{owned}` would have two owners: {why} ({where})"
                yield release.cluster.problem(at, problem, "keep one of them")
    yield from _one_feature_discovery(releases)


def _takes(claim: _Claim, release: DeclaredRelease) -> bool:
    values = release.values
    if release.operator.kind is not claim.kind or not values.get(*claim.path, default=claim.default):
        return False
    return claim.needs is None or bool(values.get(*claim.needs[0], default=claim.needs[1]))


def _undeclared(release: DeclaredRelease) -> Iterator[Diagnostic]:
    for claim in _CLAIMS:
        if _takes(claim, release) and claim.owned not in release.operator.owns:
            value = ".".join(claim.path)
            left_out = release.values.get(*claim.path, default=None) is None
            how = f"`{value}` is true" + (" unless the values say otherwise" if left_out else "")
            problem = f"{how}: {release.operator.kind.value} {claim.does}, which the reconciler does here"
            hint = f"set `{value}: false`, or let it own that: `owns: [{claim.owned.value}]`"
            yield release.problem(claim.path, problem, hint)


def _ours(declared: Declarations, nodes: Sequence[NodeSource]) -> dict[Owned, tuple[Position, str]]:
    """Return what the spec itself gives to us, each with where it says so and in which words."""
    found: dict[Owned, tuple[Position, str]] = {}
    for pool, entry in sorted({(node.pool, node.entry) for node in nodes}, key=str):
        chosen = choices(declared, pool, entry)
        image = declared.images.get(chosen["image.name"].value) if "image.name" in chosen else None
        version = find_version(image, chosen["image.version"].value) if image and "image.version" in chosen else None
        if image is not None and version is not None and "driver" in version[1].contents:
            at = image.at("versions", version[0], "contents", "driver")
            found.setdefault(Owned.DRIVER, (at, f"image {image.name} {version[1].version} carries a driver"))
        persona = declared.personas.get(chosen["persona"].value) if "persona" in chosen else None
        if persona is not None and persona.spec.gpu.mig is not None:
            found.setdefault(Owned.MIG, (persona.at("gpu", "mig"), f"persona {persona.name} sets MIG"))
    return found


def _one_feature_discovery(releases: Sequence[DeclaredRelease]) -> Iterator[Diagnostic]:
    """Both operators bring Node Feature Discovery by default, and two of them fight over the labels of nodes."""
    both = [one for one in releases if one.operator.kind in (_GPU, _NETWORK) and one.values.get(*_NFD, default=True)]
    for later in both[1:]:
        problem = f"Node Feature Discovery would run twice: {both[0].operator.name} brings it, too"
        yield later.problem(_NFD, problem, "set `nfd.enabled: false` here")


_NFD: Final = ("nfd", "enabled")
