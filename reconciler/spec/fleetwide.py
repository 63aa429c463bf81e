"""Check the Fleet against its nodes: that its rules, limits and addresses apply to something."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.vocab import Activation, BootWay
from reconciler.spec.by_person import check_by_person
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.limits import check_limits
from reconciler.spec.node_source import NodeSource
from reconciler.spec.notifications import check_notifications
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.resolve import choices
from reconciler.spec.schedulers import check_schedulers
from reconciler.spec.serving import check_serving


def check_fleet(
    fleet: DeclaredResource[FleetSpec], declared: Declarations, nodes: list[NodeSource]
) -> Iterator[Diagnostic]:
    """Yield the problems of the Fleet. Call it for a spec that was read in full: half a spec misses too much."""
    yield from _ignored_exist(fleet, declared, {node.name for node in nodes})
    yield from check_limits(fleet, declared, nodes)
    yield from check_notifications(fleet, declared)
    yield from _extensions_are_named(fleet)
    if fleet.spec.redfish is None and any(node.endpoints.bmc for node in nodes):
        yield fleet.problem((), "nodes have a bmc, and spec.redfish does not say how to reach it")
    if fleet.spec.ssh is None and any(node.endpoints.host for node in nodes):
        yield fleet.problem((), "nodes have a host, and spec.ssh does not say how to reach it")
    yield from check_schedulers(fleet, declared, {node.name for node in nodes})
    yield from check_serving(declared, nodes)
    yield from check_by_person(declared, nodes)
    yield from _pxe_is_offered(fleet, declared)
    yield from _mains_can_be_cut(declared, nodes)
    if fleet.spec.cluster is None:
        for persona in declared.personas.values():
            yield from _clusterless(persona)


def _ignored_exist(fleet: DeclaredResource[FleetSpec], declared: Declarations, nodes: set[str]) -> Iterator[Diagnostic]:
    for index, rule in enumerate(fleet.spec.ignore):
        for kind, given, known in (("pools", rule.pools, set(declared.pools)), ("nodes", rule.nodes, nodes)):
            for at, name in enumerate(given):
                if name not in known:
                    problem = f"there is no {kind.removesuffix('s')} {name!r}"
                    yield fleet.problem(("ignore", index, kind, at), problem, did_you_mean(name, known))


def _extensions_are_named(fleet: DeclaredResource[FleetSpec]) -> Iterator[Diagnostic]:
    """Yield a problem for each use of an extension where no package is named, and for one that is named twice."""
    packages = [one.package for one in fleet.spec.extensions]
    for index, package in enumerate(packages):
        if package in packages[:index]:
            yield fleet.problem(("extensions", index, "package"), f"{package} is named twice", "one version counts")
    used = [
        ("notifications", index, "via") for index, one in enumerate(fleet.spec.notifications) if one.via is not None
    ]
    if fleet.spec.installer is not None and fleet.spec.installer.via is not None:
        used.append(("installer", "via"))  # type: ignore[arg-type]  # places differ in length
    if not packages:
        for place in used:
            yield fleet.problem(place, "no package offers it", "name the package in `extensions`, with its version")


def _pxe_is_offered(fleet: DeclaredResource[FleetSpec], declared: Declarations) -> Iterator[Diagnostic]:
    if fleet.spec.installer is not None and fleet.spec.installer.pxe:
        return
    for hardware in declared.hardware.values():
        for index, way in enumerate(hardware.spec.boot_ways or ()):
            if way is BootWay.PXE:
                hint = "write `pxe: true` in its `installer`, after docs/how-to/installer.md"
                yield hardware.problem(("bootWays", index), "the Fleet does not offer PXE", hint)


def _mains_can_be_cut(declared: Declarations, nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    """Yield a problem for each firmware that an AC cycle brings in, if a node that has it names no outlets."""
    without: dict[str, str] = {}
    for node in nodes:
        if not node.outlets and "hardware" in (chosen := choices(declared, node.pool, node.entry)):
            without.setdefault(chosen["hardware"].value, node.name)
    for name, hardware in declared.hardware.items():
        for index, item in enumerate(hardware.spec.firmware):
            if item.activation is Activation.AC_CYCLE and name in without:
                problem = f"nothing can bring it in on node {without[name]}, which names no outlets of rack PDUs"
                hint = "give its entry `outlets`, as https://PDU#OUTLET"
                yield hardware.problem(("firmware", index, "activation"), problem, hint)


def _clusterless(persona: DeclaredResource[PersonaSpec]) -> Iterator[Diagnostic]:
    spec = persona.spec
    if "drain" in spec.model_fields_set and spec.drain.provider.asks_cluster:
        hint = "use provider command, or none to take nodes out without waiting for their work"
        yield persona.problem(("drain", "provider"), "the fleet names no cluster to drain from", hint)
    if spec.labels or spec.taints:
        place = ("labels",) if spec.labels else ("taints",)
        problem = f"the fleet names no cluster, so no node gets these {place[0]}"
        yield persona.problem(place, problem, severity="warning")
