"""Ports that check the invariants before each write, against the true state of the hardware and the cluster.

The checks are written apart from the code under test: they know the hardware and the cluster, not plans or guards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.converge.events import ActionStarted, Event
from reconciler.gate.attestation.expected import reference_of
from reconciler.lab.hardware.machine import Machine
from reconciler.model.desired import Desired
from reconciler.model.ports import PowerAction
from reconciler.model.records import isolated_for
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Disruption
from tests.converge.world import World

_BMC_WRITES = frozenset(
    {
        "power", "stage_bios", "clear_bios", "set_secure_boot", "set_boot_order", "boot_once", "insert_media",
        "eject_media", "update_firmware", "reset",
    }
)  # fmt: skip
DECIDED_S = 60.0  # an action that was decided upon before something happened may still begin
_HARMLESS = frozenset({PowerAction.ON})
_RESTARTS = (("systemctl", "reboot"), ("nvidia-smi", "-mig"), ("python3", "-c"))  # the last writes a slot


class InvariantChecker:
    """Wraps the ports between a run and the lab. `seen`: invariant -> what broke it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[str, list[str]] = {}
        self.held: set[str] = set()
        self.writes: list[tuple[str, str]] = []
        self.admitted: list[str] = []
        self.isolated: dict[str, float] = {}  # marked on evidence, and not drained since -> when
        self._fabric = world.fabric
        world.fabric = self  # type: ignore[assignment]  # a Fabric by structure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def bmc(self, desired: Desired) -> Any:
        port = self._fabric.bmc(desired)
        return None if port is None else _Port(port, self, desired.node)

    def host(self, desired: Desired) -> Any:
        port = self._fabric.host(desired)
        return None if port is None else _Host(port, self, desired.node)

    def cluster(self) -> Any:
        port = self._fabric.cluster()
        return None if port is None else _Cluster(port, self)

    def told(self, event: Event) -> None:
        self.world.events.append(event)
        if isinstance(event, ActionStarted) and event.node in self.held and event.action.disruption > Disruption.NONE:
            self.broken("held_node_is_never_disrupted", f"{event.action.id} on {event.node}")

    def broken(self, invariant: str, what: str) -> None:
        self.seen.setdefault(invariant, []).append(what)

    # --- the checks ---

    def machine(self, node: str) -> Machine:
        return self.world.machine(node)

    def before_bmc_write(self, node: str, name: str, args: Sequence[Any]) -> None:
        self.writes.append((node, name))
        machine = self.machine(node)
        if machine.shown_identity != (machine.state.serial, machine.state.uuid):
            self.broken("identity_before_any_bmc_write", f"{name} on {node}")
        destructive = name in ("update_firmware", "reset") or (name == "power" and args[0] not in _HARMLESS)
        if destructive:
            self.before_disruption(node, f"{name} {args}")

    def before_disruption(self, node: str, what: str) -> None:
        self.before_drain(node)
        cluster = self.world.lab.cluster
        work = [pod.name for pod in cluster.pods(node) if pod.evictable] if cluster is not None else []
        if work:
            self.broken("never_disrupt_unquiesced", f"{what} on {node} with {', '.join(work)}")
        if cluster is not None and any(found.name == node for found in cluster.nodes()) and self.world.serves(node):
            self.broken("never_disrupt_unquiesced", f"{what} on {node}, which is in service")

    def before_mark(self, node: str, evidence: Sequence[str]) -> None:
        """`evidence`: signals on which the node is isolated, whatever the budget says."""
        self.writes.append((node, "mark"))
        if not self.world.serves(node):
            return
        if evidence:
            self.isolated[node] = self.world.clock.elapsed
            most = parse_nodes("20%", len(self.world.fleet.nodes))
            if len(self.isolated) > most:
                self.broken("evidence_isolates_at_once", f"{sorted(self.isolated)} are isolated, {most} may be")
            return
        # Whoever was let go before an isolation goes all the same.
        new = {name for name, at in self.isolated.items() if self.world.clock.elapsed - at < DECIDED_S}
        out = {name for name in self.world.fleet.nodes if not self._serves(name)}
        self._within_budget(node, (out - new) | {node})

    def before_drain(self, node: str) -> None:
        """Draining an isolated node ends what still runs on it, so it needs room in the budget."""
        if node not in self.isolated:
            return
        del self.isolated[node]
        out = {name for name in self.world.fleet.nodes if not self._serves(name)}
        self._within_budget(node, (out - self.isolated.keys()) | {node})

    def _within_budget(self, node: str, out: set[str]) -> None:
        fleet = self.world.fleet
        for limit in fleet.settings.budgets:
            mine = fleet.nodes[node]
            group = [
                name
                for name, other in fleet.nodes.items()
                if limit.scope == "fleet" or other.domains.get(limit.scope) == mine.domains.get(limit.scope)
            ]
            if len(out & set(group)) > parse_nodes(limit.nodes, len(group)):
                self.broken("budget_never_exceeded", f"{node} with {sorted(out & set(group))} out of {len(group)}")

    def _serves(self, node: str) -> bool:
        cluster = self.world.lab.cluster
        return cluster is not None and any(found.name == node for found in cluster.nodes()) and self.world.serves(node)

    def node_of(self, pod: Any) -> str:
        cluster = self.world.lab.cluster
        found = (one.node for one in cluster.pods() if one.uid == pod.uid) if cluster is not None else ()
        return next(iter(found), None) or ""

    def before_unmark(self, node: str) -> None:
        self.isolated.pop(node, None)
        self.writes.append((node, "unmark"))
        self.admitted.append(node)
        if node not in self.world.fleet.nodes:
            return
        touched = [word for word in self.world.did(node) if not word.startswith(("mark", "drain"))]
        if touched and (wrong := unfit(self.world, node)):
            self.broken("never_admit_without_gate_and_trust", f"{node}: {wrong}")


def unfit(world: World, node: str) -> str:
    """Why this machine must not serve, told from the machine itself and from the ledger's certificate."""
    state, profile = world.machine(node).state, world.fleet.nodes[node].profile
    disk = world.machine(node).disk()
    certificate = world.ledger.node(node).certificate
    assert profile.image is not None
    wrong = []
    if (disk.version, disk.sha256) != (profile.image.version, profile.image.sha256):
        wrong.append(f"image {disk.version}")
    wrong += [f"{i.component} {i.version}" for i in state.firmware.values() if i.version != "2.0"]
    wrong += [f"{name}={state.bios[name]}" for name, value in profile.bios.items() if state.bios[name] != value]
    if not state.secure_boot:
        wrong.append("secure boot off")
    wrong += [f"GPU {gpu.index} lost" for gpu in state.gpus if gpu.lost]
    if certificate is None:
        wrong.append("no certificate")
    attestation, reference = world.ledger.node(node).attestation, reference_of(profile)
    if reference and (
        attestation is None
        or (attestation.boot_id, attestation.reference) != (world.machine(node).system().boot_id, reference)
    ):
        wrong.append("no quote of this boot")
    if certificate is None:
        return ", ".join(wrong)
    if certificate.binding.image_sha256 != disk.sha256:
        wrong.append("certificate of another image")
    elif certificate.binding.firmware != {i.component: i.version for i in state.firmware.values()}:
        wrong.append("certificate of other firmware")
    return ", ".join(wrong)


class _Port:
    def __init__(self, port: Any, checker: InvariantChecker, node: str) -> None:
        self._port = port
        self._witness = checker
        self._node = node

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)
        if name not in _BMC_WRITES:
            return call

        async def write(*args: Any) -> Any:
            self._witness.before_bmc_write(self._node, name, args)
            return await call(*args)

        return write


class _Host(_Port):
    async def run(self, argv: Sequence[str], **options: Any) -> Any:
        if tuple(argv[:2]) in _RESTARTS:
            self._witness.before_disruption(self._node, " ".join(argv))
        return await self._port.run(argv, **options)


class _Cluster:
    def __init__(self, port: Any, checker: InvariantChecker) -> None:
        self._port = port
        self._witness = checker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def mark(self, member: Any, mark: Any) -> None:
        self._witness.before_mark(member.name, isolated_for(mark.reason))
        await self._port.mark(member, mark)

    async def evict(self, pod: Any, **options: Any) -> None:
        self._witness.before_drain(self._witness.node_of(pod))
        await self._port.evict(pod, **options)

    async def delete(self, pod: Any, **options: Any) -> None:
        self._witness.before_drain(self._witness.node_of(pod))
        await self._port.delete(pod, **options)

    async def unmark(self, member: Any, *, uncordon: bool) -> None:
        self._witness.before_unmark(member.name)
        await self._port.unmark(member, uncordon=uncordon)


def counters(world: World) -> Mapping[str, tuple[int, int, int]]:
    """Count what must not happen twice, by node: installations, flashes, boots."""
    found = {name: machine.state.counters for name, machine in world.lab.machines.items()}
    return {name: (c.installs, c.flashes, c.boots) for name, c in found.items()}
