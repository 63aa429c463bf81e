"""Give power again to machines whose outlets a dead run left off (converge/actions/ac_cycle.py)."""

from __future__ import annotations

from collections.abc import Collection, Container

from reconciler.converge.actions.ac_cycle import HOLDER
from reconciler.converge.guarded_ports import TimedPdu
from reconciler.converge.lease import HeldLease
from reconciler.converge.run import Unended
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError
from reconciler.model.ports import Clock, Fabric, Ledger
from reconciler.planner.node.holds import by_subject, stopped


class LeftDark:
    """The attempts of dead runs that may have left outlets off: those that had not ended when the lease was taken."""

    def __init__(self, ledger: Ledger, clock: Clock, lease: HeldLease) -> None:
        self._ledger, self._clock, self._lease = ledger, clock, lease
        self._left = {
            attempt: (node, intent["cut"])
            for attempt, node, _, _, intent in ledger.unfinished()
            if intent.get("cut") and not intent.get("powered")
        }

    async def give_power(
        self, fabric: Fabric, fleet: Fleet, resumed: Collection[Unended], at_work: Container[str] = ()
    ) -> None:
        """Switch the outlets on, whatever the spec says now: their machines are dark. While the fleet is stopped, wait.

        Each is switched on once: who switches it off later works there. Where a PDU does not do it, a hold of its node
        tells people, and the next call tries again. An attempt that is no longer among `resumed`, of a node that is
        worked on, gives power itself: this run continues it.
        """
        if not self._left or stopped(by_subject((), self._ledger.holds()), self._clock.now()):
            return
        waiting = {one.attempt for one in resumed}
        for attempt, (node, outlets) in list(self._left.items()):
            if node in at_work and attempt not in waiting:
                del self._left[attempt]
            elif all([await self._is_on(fabric, fleet, node, *outlet) for outlet in outlets]):
                del self._left[attempt]
                self._ledger.amend(attempt, {"powered": True}, self._clock.now())

    async def _is_on(self, fabric: Fabric, fleet: Fleet, node: str, address: str, outlet: str) -> bool:
        pdu = TimedPdu(fabric.pdu(address), self._clock, fleet.settings, self._lease)
        why = ""
        try:
            await pdu.switch([outlet], on=True)
            on = (await pdu.outlets([outlet]))[outlet]
        except DriverError as error:
            on, why = False, f": {error}"
        if not on and all(hold.subject != node or hold.owner != HOLDER for hold in self._ledger.holds()):
            reason = f"outlet {address}#{outlet} was switched off and can't be switched on again, do it by hand{why}"
            self._ledger.hold(node, reason, HOLDER, None, self._clock.now())
        return on
