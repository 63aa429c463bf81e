"""Take a lost server out of a K3s cluster, so that another machine can join in its place.

etcd counts a member that is gone until it is removed, and no server joins meanwhile. K3s removes it when its node
object is deleted, and lets the object go only after that (k3s-io/k3s pkg/etcd/member_controller.go: OnRemove). Whether
a machine that answers nobody is gone for good, only a person knows: so this is a command, and no action of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from reconciler.converge.actions.adjust import take_back_all
from reconciler.converge.actions.context import Stop, growing_pause_s
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.k3s_hosts import k3s_hosts, quiet
from reconciler.converge.lease import HeldLease, held_lease
from reconciler.converge.observe import control_plane
from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import DriverError, PartlyDone, Refused, UsageError
from reconciler.model.k3s import K3sRole, servers_away
from reconciler.model.observed import Answered, Member
from reconciler.model.ports import Clock, Fabric, Ledger
from reconciler.model.records import FLEET
from reconciler.model.vocab import NodeState

HOLDER: Final = "reconciler cluster remove-server"
LEAVES_S: Final = 600.0
UNIT: Final = K3sRole.SERVER.unit


@dataclass(frozen=True, slots=True)
class LostServer:
    """A server that may be taken out. `member`: its node object; None = it is out. `off`: whether its BMC says so."""

    member: Member | None
    off: bool


async def look(fleet: Fleet, node: str, fabric: Fabric, clock: Clock, ledger: Ledger, lease: HeldLease) -> LostServer:
    """Return the server. Raise Refused where it may not be lost, or etcd could not do without it, else UsageError."""
    desired = fleet.nodes.get(node)
    if desired is not None and desired.state is NodeState.ACTIVE:
        at = desired.provenance.get("node")
        where = "" if at is None else f"{at}: "
        raise Refused(f"{where}{node} is active: set its state to quarantined first, so that no run brings it back")
    for hold in ledger.holds():
        if hold.subject in (FLEET, node) and hold.owner != HOLDER:
            what = "stopped" if hold.subject == FLEET else f"{node} is held"
            raise Refused(f"nothing is done: {what} by {hold.owner}: {hold.reason}")
    member = _lost(node, await _members(fleet, fabric, clock, lease), known=desired is not None, fleet=fleet)
    return LostServer(member, desired is not None and await _is_off(fleet, desired, fabric, clock))


async def _members(fleet: Fleet, fabric: Fabric, clock: Clock, lease: HeldLease) -> dict[str, Member]:
    state = await _cluster(fleet, fabric, clock, lease).state()
    if not isinstance(state, Answered):
        raise Refused(f"the API server does not answer ({state.detail}): without it, restore the cluster")
    servers = control_plane(state)
    members: dict[str, Member] = {name: member for name, member in state.value.members.items() if name in servers}
    return members


def _cluster(fleet: Fleet, fabric: Fabric, clock: Clock, lease: HeldLease) -> TimedCluster:
    cluster = fabric.cluster()
    if cluster is None:
        raise UsageError("the fleet has no cluster")
    return TimedCluster(cluster, clock, fleet.settings, lease)


def _lost(node: str, members: dict[str, Member], *, known: bool, fleet: Fleet) -> Member | None:
    """Return the node object of a server that is lost; None = it has none. Raise as `look` does."""
    member = members.get(node)
    if member is None:
        if not known:
            raise UsageError(f"the cluster has no server {node}; it has {', '.join(sorted(members)) or 'none'}")
        return None
    if member.ready:
        raise Refused(f"server {node} is Ready: one that is to leave is drained and decommissioned")
    ready = {name: bool(one.ready) for name, one in members.items()}
    away = servers_away(ready, node)
    left = len(members) - 1
    external = any(one.profile.k3s is not None and one.profile.k3s.external for one in fleet.nodes.values())
    needed = 1 if external else left // 2 + 1
    if left - len(away) < needed:
        raise Refused(
            f"of the {left} other servers, {needed} have to be Ready, and {', '.join(away) or 'none'} "
            f"{'are' if len(away) > 1 else 'is'} not: etcd would not let a member go; restore the cluster"
        )
    return member


async def _is_off(fleet: Fleet, desired: Desired, fabric: Fabric, clock: Clock) -> bool:
    """Return whether the BMC says that a machine is off. Raise Refused for one whose host answers and has K3s."""
    hosts = k3s_hosts(fleet, [desired.node], fabric, clock, None)
    if desired.node in hosts.hosts:
        try:
            running = await hosts.ask(desired.node, "systemctl", "is-active", UNIT)
            enabled = await hosts.ask(desired.node, "systemctl", "is-enabled", UNIT)
        except DriverError:
            return await hosts.is_off(desired.node)
        if running.stdout.strip() not in ("inactive", "failed", "unknown") or enabled.exit_status == 0:
            raise Refused(
                f"{desired.node} answers, and K3s runs on it, or starts when it boots: it would register again. Mend "
                f"it, or `systemctl disable --now {UNIT}` there first"
            )
    return await hosts.is_off(desired.node)


async def find(fleet: Fleet, node: str, *, fabric: Fabric, ledger: Ledger, clock: Clock, holder: str) -> LostServer:
    """Return what would be taken out. Nothing is changed. Raise as `look` does, and LeaseHeld."""
    async with held_lease(ledger, fleet.settings.fleet, holder, clock) as lease:
        return await look(fleet, node, fabric, clock, ledger, lease)


async def remove_server(
    fleet: Fleet, node: str, *, fabric: Fabric, ledger: Ledger, clock: Clock, holder: str,
    tell: Callable[[str], None] = quiet,
) -> None:  # fmt: skip
    """Delete the node object of a lost server, and see it go, as it does only after its member of etcd.

    Raise as `look` does before anything is changed, PartlyDone after: the same command goes on.
    """
    async with held_lease(ledger, fleet.settings.fleet, holder, clock) as lease:
        found = await look(fleet, node, fabric, clock, ledger, lease)
        cluster = _cluster(fleet, fabric, clock, lease)
        if found.member is None:
            tell(f"the cluster has no server {node}: it is out")
            return
        tell(f"deleting the node object of {node}, and with it its member of etcd")
        try:
            await take_back_all(cluster, found.member, ledger.id)
            await cluster.remove(found.member)
            began = clock.monotonic()
            while (there := await cluster.member(node)) is not None:
                if there.uid != found.member.uid:
                    raise PartlyDone(
                        f"the node object of {node} is deleted, and a kubelet has registered it again, so its machine "
                        "runs: switch it off, and delete its node object"
                    )
                waited = clock.monotonic() - began
                if waited > LEAVES_S:
                    raise PartlyDone(
                        f"the node object of {node} is to be deleted and still there: K3s keeps it until its member of "
                        "etcd is removed; see the log of K3s on the other servers"
                    )
                await clock.sleep(growing_pause_s(waited, 5.0))
        except (DriverError, Stop) as error:
            raise PartlyDone(f"{node}: {error}; the same command goes on") from error
        ledger.note(node, "server removed", "its node object, and its member of etcd", clock.now())
