"""Take over from earlier runs: attempts that never ended, and our marks on nodes that left the spec."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime, timedelta
from typing import Any

from reconciler.converge.actions.context import Stop
from reconciler.converge.actions.install_plan import journaled_install
from reconciler.converge.actions.membership import lift_mark
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.lease import HeldLease
from reconciler.converge.observe import answer
from reconciler.converge.run import Step, Unended
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError
from reconciler.model.ledger_ports import AttemptStore, NodeStore
from reconciler.model.observed import Silent
from reconciler.model.ports import Clock, Cluster, Installer
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.model.releases import JOURNAL
from reconciler.planner.node.record import is_untouched

RESUME_WITHIN = timedelta(hours=2)  # an older intent says nothing about what is needed now
DIED = "its run ended before it did"


async def take_over(
    ledger: AttemptStore, installer: Installer | None, fleet: Fleet, selected: Container[str], now: datetime
) -> dict[Step, Unended]:
    """Return the attempts of dead runs that this run is to continue, and close those that are outdated.

    We hold the lease, so the runs that began them are dead. An installer that asks for its document gets it again. A
    flash and a soak are continued whatever their age: only the task on the BMC shows whether new firmware is staged,
    and only the node what came of its soak.
    """
    resumed: dict[Step, Unended] = {}
    for attempt, node, action, target, intent in ledger.unfinished():
        if node.startswith(JOURNAL):
            continue  # of a Helm release (converge/release_work.py)
        if node not in fleet.nodes or not (_recent(intent, now) or _lasts(intent)):
            ledger.finish(attempt, "ambiguous", DIED, now)
            continue
        if node not in selected:
            continue
        earlier = resumed.get((node, action, target))
        if earlier is not None:
            ledger.finish(earlier.attempt, "ambiguous", DIED, now)
        resumed[node, action, target] = Unended(attempt, intent)
        if installer is None or not intent.get("started"):
            continue
        install = await journaled_install(intent, installer)
        if install is not None and install.token:
            await installer.publish(install.token, install.document, None, pxe=install.by_pxe)
    return resumed


def _lasts(intent: Mapping[str, Any]) -> bool:
    return "tasks" in intent or "soak" in intent or "cut" in intent


def close_needless(ledger: AttemptStore, resumed: dict[Step, Unended], done: Container[str], now: datetime) -> None:
    """Close attempts of dead runs on nodes that need nothing any more: whatever they did was seen on the node."""
    for step in [step for step in resumed if step[0] in done]:
        left = resumed.pop(step)
        ledger.finish(left.attempt, "ambiguous", f"{DIED}; nothing of it is needed any more", now)


def _recent(intent: Mapping[str, Any], now: datetime) -> bool:
    try:
        return now - datetime.fromisoformat(intent["at"]) <= RESUME_WITHIN
    except (KeyError, TypeError, ValueError):
        return False


async def lift_forgotten_marks(
    ledger: NodeStore, cluster: Cluster | None, fleet: Fleet, clock: Clock, lease: HeldLease
) -> tuple[str, ...]:
    """Lift our marks on nodes that left the spec, and touch nothing else of them (invariant 8).

    Return the nodes that keep their mark, since something was done to them that no gate has judged.
    """
    if cluster is None:
        return ()
    state = await answer(cluster.state, fleet.settings.kubernetes_deadline_s, clock)
    if isinstance(state, Silent):
        return ()
    abandoned = []
    for name, member in state.value.members.items():
        mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
        if name in fleet.nodes or mark is None or mark.ledger != ledger.id:
            continue
        lifted, record = False, ledger.node(name)
        if record.fleet:
            continue
        if member.ready and is_untouched(record):
            try:
                lifted = await lift_mark(TimedCluster(cluster, clock, fleet.settings, lease), name, ledger.id)
            except (Stop, DriverError):
                lifted = False
        if not lifted:
            abandoned.append(name)
    return tuple(abandoned)
