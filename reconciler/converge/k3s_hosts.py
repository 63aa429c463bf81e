"""The hosts of a K3s cluster, for commands that work on all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.converge.guarded_ports import TimedBmc, TimedHost
from reconciler.converge.k3s_birth import Asked
from reconciler.converge.lease import HeldLease
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError, Refused
from reconciler.model.gate import CommandResult
from reconciler.model.observed import Answered
from reconciler.model.ports import Clock, Fabric
from reconciler.model.vocab import Power

COMMAND_S: Final = 120.0


def quiet(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class K3sHosts:
    """Nodes of a K3s cluster, asked over SSH, and their BMCs."""

    hosts: Mapping[str, Asked]
    bmcs: Mapping[str, TimedBmc]
    clock: Clock
    tell: Callable[[str], None] = quiet

    async def ask(self, node: str, *argv: str, seconds: float = COMMAND_S, stdin: str = "") -> CommandResult:
        timeout = max(2.0, self.clock.real_seconds(seconds))
        return await self.hosts[node].run(argv, timeout=timeout, stdin=stdin)

    async def is_there(self, node: str, path: str) -> bool:
        """Return whether a file is there. Raise Refused where that can't be read."""
        result = await self.ask(node, "test", "-e", path)
        if result.timed_out or result.exit_status not in (0, 1):
            raise Refused(f"{node}: whether {path} is there can't be read: {result.stderr.strip()[-200:]}")
        return result.exit_status == 0

    async def is_off(self, node: str) -> bool:
        bmc = self.bmcs.get(node)
        hot = None if bmc is None else await bmc.hot()
        return isinstance(hot, Answered) and hot.value.power is Power.OFF


def k3s_hosts(fleet: Fleet, names: Iterable[str], fabric: Fabric, clock: Clock, lease: HeldLease | None) -> K3sHosts:
    """Return the hosts of these nodes. `lease`: proved before each command; None: only to be read."""
    hosts: dict[str, Asked] = {}
    bmcs = {}
    for name in names:
        host, bmc = fabric.host(fleet.nodes[name]), fabric.bmc(fleet.nodes[name])
        if host is not None:
            hosts[name] = host if lease is None else TimedHost(host, clock, fleet.settings, lease)
        if bmc is not None:
            bmcs[name] = TimedBmc(bmc, clock, fleet.settings)
    return K3sHosts(hosts, bmcs, clock)


async def answers_root(hosts: K3sHosts, node: str) -> bool:
    """Return False for a node that is off. Raise Refused where nothing proves that its K3s can be stopped."""
    try:
        user = await hosts.ask(node, "id", "-u")
    except DriverError as error:
        if await hosts.is_off(node):
            return False
        raise Refused(
            f"{node} does not answer ({error}), so nothing stops its K3s, and its BMC does not say that it is off: "
            "switch it off, or repair its access"
        ) from error
    if user.exit_status or user.stdout.strip() != "0":
        raise Refused(f"{node}: the user of SSH is not root, who alone may read and stop K3s")
    return True
