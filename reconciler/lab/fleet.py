"""Build the machines of a spec: each one exactly as desired, then changed by a scenario, then started."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.lab.build import build_state, known_sysctls
from reconciler.lab.drifts import DRIFTS, Draft
from reconciler.lab.hardware import bios
from reconciler.lab.hardware.control_plane import ClusterTruth
from reconciler.lab.hardware.installer_side import Serve
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.mains import Mains
from reconciler.lab.hardware.slowness import rail
from reconciler.lab.hardware.timings import TYPICAL, Timings
from reconciler.lab.install_server import InstallServer
from reconciler.lab.k3s import install, k3s_site
from reconciler.lab.pair_network import PairNetwork
from reconciler.lab.scenario import Drift, Scenario
from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import UsageError
from reconciler.model.measurements import BootMeasurements
from reconciler.model.operands import GPU_RESOURCE
from reconciler.model.releases import OperatorKind

CONTROL_PLANE = "control-1"  # a node that is in no spec, as in a shared cluster


@dataclass(slots=True)
class Lab:
    """A simulated fleet. `installs`: what serves installers in this process. `images`: (name, version) -> contents of
    all images that can be installed."""

    fleet: Fleet
    scenario: Scenario
    machines: Mapping[str, Machine]
    cluster: ClusterTruth | None
    by_bmc: Mapping[str, Machine]  # address in the spec -> its machine
    by_host: Mapping[str, Machine]
    public_keys: Mapping[str, str]
    installs: InstallServer
    images: dict[tuple[str, str], Mapping[str, str]]
    network: PairNetwork
    mains: Mains

    def machine(self, node: str) -> Machine:
        """Return the machine of a node. Raise UsageError when there is none."""
        if node not in self.machines:
            raise UsageError(f"the lab has no node {node!r}")
        return self.machines[node]

    def node_events(self, node: str) -> dict[str, Any]:
        """Return the latest events of a node as JSON values. Times are seconds on the clock of "now"."""
        machine = self.machine(node)
        machine.catch_up()
        cluster = [] if self.cluster is None else self.cluster.node_events(node)
        return {"now": machine.now, "cluster": cluster, "bmc": machine.state.events}

    def dump(self) -> dict[str, Any]:
        """Return the state of everything as JSON values, for `lab state`."""
        nodes = {
            name: machine.dump() | {"expect": self.scenario.expect(name).value}
            for name, machine in self.machines.items()
        }
        return {"nodes": nodes, "cluster": None if self.cluster is None else self.cluster.dump()}


def build_lab(
    fleet: Fleet,
    scenario: Scenario,
    clock: Callable[[], float],
    *,
    seed: int | None = None,
    timings: Timings = TYPICAL,
    public_keys: Mapping[str, str] | None = None,
    serve_documents: bool = True,
) -> Lab:
    """Build the fleet of a spec under a scenario. The same seed builds the same fleet.

    `serve_documents` False: installers ask over HTTP, see lab/up.py. Raise UsageError when the scenario does not fit.
    """
    scenario.check(list(fleet.nodes))
    chosen = seed if seed is not None else scenario.seed if scenario.seed is not None else 0
    installs = InstallServer()
    serve = installs.answer if serve_documents else None
    drafts = {name: _draft(desired, scenario, chosen) for name, desired in fleet.nodes.items()}
    machines = start_machines(fleet, drafts, clock, seed=chosen, serve=serve, timings=lambda _: timings)
    cluster = _cluster(fleet, drafts, machines, clock, chosen)
    for name, machine in machines.items():  # after the start, because a fault may need a running system
        for rule in scenario.rules_for(name):
            for kind, parameters in rule.faults.items():
                machine.inject(kind, **parameters)
    return connect(fleet, scenario, machines, cluster, public_keys or {}, installs)


def start_machines(
    fleet: Fleet,
    drafts: Mapping[str, Draft],
    clock: Callable[[], float],
    *,
    seed: int,
    serve: Serve | None,
    timings: Callable[[str], Timings],
) -> dict[str, Machine]:
    images = _firmware_images(fleet)
    machines = {
        name: Machine(
            draft.state,
            clock,
            timings(name),
            random.Random(f"{seed} life {name}"),  # noqa: S311  identifiers of a lab, not secrets
            serve,
            firmware_images=images,
            registry=draft.registry,
            kernel_sysctls=known_sysctls(draft.desired.profile),
        )
        for name, draft in drafts.items()
    }
    for name, draft in drafts.items():
        machines[name].start(draft.power)
    return machines


def connect(
    fleet: Fleet,
    scenario: Scenario,
    machines: Mapping[str, Machine],
    cluster: ClusterTruth | None,
    public_keys: Mapping[str, str],
    installs: InstallServer,
) -> Lab:
    """Return a lab that has each machine at its addresses in the spec."""
    endpoints = {name: desired.endpoints for name, desired in fleet.nodes.items()}
    images = golden_images(fleet)
    network = PairNetwork.of_nodes(fleet.nodes)
    network.pace_of = lambda name, port: rail(machines[name].state, port).pace
    sources = {
        node.serving.sync.address: machines[name]
        for name, node in fleet.nodes.items()
        if node.serving is not None and node.serving.sync is not None and node.serving.sync.address is not None
    }
    for name, machine in machines.items():
        machine.copied_from = sources
        machine.images, machine.measured = images, measured_images(fleet)
        machine.network = network
        platform = fleet.nodes[name].profile.measurements
        machine.components = platform.components if platform is not None else ()
        machine.installer_measured = fleet.settings.installer.measurements if fleet.settings.installer else None
    return Lab(
        fleet=fleet,
        scenario=scenario,
        machines=machines,
        cluster=cluster,
        by_bmc={ends.bmc: machines[name] for name, ends in endpoints.items() if ends.bmc is not None},
        by_host={ends.host: machines[name] for name, ends in endpoints.items() if ends.host is not None},
        public_keys=public_keys,
        installs=installs,
        images=images,
        network=network,
        mains=Mains(fleet.nodes, machines),
    )


def _draft(desired: Desired, scenario: Scenario, seed: int) -> Draft:
    state, disk, root_disk = build_state(desired)
    membership = desired.profile.membership
    draft = Draft(
        desired=desired,
        state=state,
        registry=bios.learn(desired.profile.bios),
        disk=disk,
        root_disk=root_disk,
        labels=dict(membership.labels) if membership else {},
        taints=list(membership.taints) if membership else [],
        rng=random.Random(f"{seed} {desired.node}"),  # noqa: S311  the draw of a scenario
    )
    install(desired, disk)
    for rule in scenario.rules_for(desired.node):
        for drift in rule.drift:
            if not _apply_drift(draft, drift):
                raise UsageError(f"{desired.node}: the spec gives the drift {drift.kind!r} nothing to differ from")
        if rule.pick is not None:
            choice = draft.rng.sample(rule.pick.of, len(rule.pick.of))
            count = draft.rng.randint(rule.pick.least, rule.pick.most)
            for drift in choice:
                if count and _apply_drift(draft, drift):
                    count -= 1
    draft.put_disk()
    return draft


def _apply_drift(draft: Draft, drift: Drift) -> bool:
    return DRIFTS[drift.kind].apply(draft, drift.parameters)


def _firmware_images(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Return image URL -> {inventory id: version in it}."""
    images: dict[str, dict[str, str]] = {}
    for profile in {desired.profile.digest: desired.profile for desired in fleet.nodes.values()}.values():
        for item in profile.firmware:
            if item.url is not None:
                images.setdefault(item.url, {})[item.inventory_id] = item.version
    return images


def measured_images(fleet: Fleet) -> dict[tuple[str, str], BootMeasurements]:
    """Return what each image of the spec measures when it boots, where that is declared."""
    images = (desired.profile.image for desired in fleet.nodes.values())
    return {
        (image.name, image.version): image.measurements
        for image in images
        if image is not None and image.measurements is not None
    }


def golden_images(fleet: Fleet) -> dict[tuple[str, str], Mapping[str, str]]:
    """Return (name, version) of each image of the spec -> its contents, which no install document has."""
    profiles = {desired.profile.digest: desired.profile for desired in fleet.nodes.values()}.values()
    return {(i.name, i.version): i.contents for profile in profiles if (i := profile.image) is not None}


def _cluster(
    fleet: Fleet,
    drafts: Mapping[str, Draft],
    machines: Mapping[str, Machine],
    clock: Callable[[], float],
    seed: int,
) -> ClusterTruth | None:
    """Build the cluster. Members run the default pods, and GPU work unless they are cordoned."""
    if fleet.settings.cluster is None:
        return None
    truth = ClusterTruth(machines, clock, random.Random(f"{seed} cluster"))  # noqa: S311  names of pods
    if (site := k3s_site(fleet, machines, clock, seed)) is not None:
        truth.serve_k3s(site)
    else:
        truth.add_node(CONTROL_PLANE, control_plane=True).ready = "True"
    for name, draft in drafts.items():
        if draft.member:
            truth.add_node(name, labels=draft.labels, control_plane=truth.is_k3s_server(name))
            add_default_pods(truth, name, gpus=len(draft.state.gpus), busy=draft.power == "on" and not draft.cordoned)
            truth.update_node(name, taints=draft.taints, unschedulable=draft.cordoned)
    truth.devices |= advertised(fleet)
    truth.count_outages({name: _groups(desired) for name, desired in fleet.nodes.items()})
    return truth


def advertised(fleet: Fleet) -> dict[str, Mapping[str, int]]:
    """Return what device plugins but NVIDIA's advertise on each node: what the spec declares of them."""
    found: dict[str, Mapping[str, int]] = {}
    for name, desired in fleet.nodes.items():
        membership = desired.profile.membership
        declared = {} if membership is None else membership.allocatable
        found[name] = {one: count for one, count in declared.items() if one != GPU_RESOURCE}
    return found


def has_gpu_operator(fleet: Fleet) -> bool:
    return any(release.kind is OperatorKind.GPU for release in fleet.settings.releases)


def add_default_pods(truth: ClusterTruth, name: str, *, gpus: int, busy: bool) -> None:
    """Add the pods of a GPU node: DaemonSets, a mirror pod, a finished job; if `busy`, a GPU job and a server too."""
    for namespace, owner in (
        ("kube-system", "kube-proxy"),
        ("gpu-operator", "nvidia-device-plugin-daemonset"),
        ("monitoring", "node-exporter"),
    ):
        truth.add_pod(namespace, f"{owner}-{name}", name, ("DaemonSet", owner), labels={"app": owner})
    truth.add_pod("kube-system", f"haproxy-{name}", name, ("Node", name), labels={"component": "haproxy"})
    truth.add_pod("default", f"prepare-{name}", name, ("Job", f"prepare-{name}"), phase="Succeeded")
    if busy:
        labels = {"app": "trainer"}
        truth.add_pod("default", f"trainer-{name}-0", name, ("Job", f"trainer-{name}"), labels=labels, gpus=gpus)
        truth.add_pod("default", f"router-{name}", name, ("ReplicaSet", "router-7c9d8f6b5"), labels={"app": "router"})


def _groups(desired: Desired) -> list[str]:
    """Return a node's groups for Outages: its fleet, pool and failure domains."""
    return ["fleet", f"pool {desired.pool}", *(f"{label} {value}" for label, value in desired.domains.items())]
