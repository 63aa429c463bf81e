"""The listener for events that BMCs post, by the spec of now, and whom it writes a subscription to."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.converge.guarded_ports import known
from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.redfish.event_listener import EventListener
from reconciler.drivers.redfish.event_posts import Posts
from reconciler.drivers.secrets import SecretStore
from reconciler.model.access import EventListenerPolicy
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError, Failure
from reconciler.model.ledger_ports import NodeStore
from reconciler.planner.node.corroboration import identity

_OF_A_LAB = EventListenerPolicy("127.0.0.1:0")


class PostedEvents:
    """Answers what `Posts` asks. Without a ledger there is no listener: nobody could find the subscriptions again.

    `in_lab`: it listens on loopback whatever the spec says, as a lab's BMCs are there.
    """

    def __init__(
        self,
        fleet: Fleet,
        secrets: SecretStore,
        ledger: NodeStore | None,
        bmc_of: Callable[[str], RedfishBmc | None],
        *,
        in_lab: bool,
    ) -> None:
        self._fleet = fleet
        self._secrets = secrets
        self._ledger = ledger
        self._reach = bmc_of
        self._in_lab = in_lab
        self._listener: EventListener | None = None
        self.posts = Posts(self._bmc_of, self._current, self._prove)

    def _bmc_of(self, name: str) -> RedfishBmc | None:
        return self._reach(name) if name in self._fleet.nodes else None

    def _current(self) -> EventListener | None:
        policy = self._fleet.settings.bmc_events
        if policy is None or self._ledger is None:
            return None
        if self._listener is None:
            self._listener = EventListener(_OF_A_LAB if self._in_lab else policy, self._secrets, self._ledger.id)
        return self._listener

    async def _prove(self, name: str) -> None:
        """Raise DriverError unless a BMC is proved to be the node's, by the spec or by what the ledger knows."""
        bmc, node = self._bmc_of(name), self._fleet.nodes.get(name)
        if bmc is None or node is None or self._ledger is None:
            raise DriverError(Failure.REJECTED, f"{name} has no BMC in the spec any more")
        verdict, why = identity(node, known(await bmc.hot()), None, self._ledger.node(name))
        if not verdict:
            raise DriverError(Failure.REJECTED, f"no subscription is written to its BMC: {why}")

    async def refit(self, fleet: Fleet) -> None:
        """Switch to a new spec."""
        before, self._fleet = self._fleet, fleet
        if before.settings.bmc_events != fleet.settings.bmc_events:
            await self.close()

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
