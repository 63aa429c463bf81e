"""The `isolation` use cases: list isolated nodes, retract a health signal, and restore it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.workspace import Workspace
from reconciler.converge.guarded_ports import TimedCluster, known
from reconciler.converge.lease import held_lease
from reconciler.converge.retraction import IsolatedNode, isolated_nodes, take_back, why_it_stays
from reconciler.health.table import HealthTable, health_table
from reconciler.model.errors import LeaseHeld, UsageError, did_you_mean
from reconciler.model.records import RETRACTED
from reconciler.planner.node.holds import by_subject, is_active, retracted, stopped
from reconciler.spec.signals import PREFIX

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


@dataclass(frozen=True, slots=True)
class Retraction:
    """The result of a retraction. `nodes`: pairs of node and what became of its cordon.

    `left_to`: the holder of the lease, whose run lifts the cordons; "" when they were lifted here.
    """

    signal: str
    nodes: Sequence[tuple[str, str]]
    left_to: str = ""

    @property
    def failed(self) -> bool:
        return any(end.startswith("not lifted") for _, end in self.nodes)


def list_isolation(workspace: Workspace) -> list[tuple[str, str, str, str]]:
    """Return rows of subject, signal, since and state, first of isolated nodes and then of retracted signals."""
    _need_cluster(workspace)
    with workspace.present_ledger() as ledger:
        rows = [
            (one.node, ", ".join(one.signals), one.mark.at, "drained or treated" if one.drained else "not drained yet")
            for one in isolated(workspace, ledger)
        ]
        now = workspace.clock.now()
        for hold in ledger.holds():
            if hold.subject.startswith(RETRACTED) and is_active(hold, now):
                signal = PREFIX + hold.subject.removeprefix(RETRACTED)
                state = f"retracted by {hold.owner}: {hold.reason}"
                rows.append(("signal", signal, hold.since.isoformat(timespec="seconds"), state))
    return rows


def retract(workspace: Workspace, signal: str, reason: str, duration_s: float | None) -> Retraction:
    """Retract `signal` for `duration_s`, or until it is restored, and lift the cordons that it alone has set."""
    name = _known_signal(signal, _table(workspace))
    if not reason.strip():
        raise UsageError("a retraction needs a --reason: every report of the signal shows it")
    _need_cluster(workspace)
    now = workspace.clock.now()
    until = None if duration_s is None else now + timedelta(seconds=duration_s)
    with workspace.ledger() as ledger:
        ledger.hold(RETRACTED + name, reason, whoami(), until, now)
        try:
            return Retraction(PREFIX + name, lift_cordons(workspace, ledger))
        except LeaseHeld as held:
            return Retraction(PREFIX + name, (), str(held))


def restore(workspace: Workspace, signal: str) -> str:
    """Let a retracted signal isolate nodes again, and return its full name."""
    name = _known_signal(signal, _table(workspace))
    with workspace.ledger() as ledger:
        if not ledger.release(RETRACTED + name, whoami(), workspace.clock.now()):
            raise UsageError(f"{PREFIX}{name} is not retracted; `reconciler isolation list` names those that are")
    return PREFIX + name


def lift_cordons(workspace: Workspace, ledger: SqlLedger) -> list[tuple[str, str]]:
    """Lift the cordons of nodes isolated by retracted signals alone. Return (node, what became of it) for each.

    Raise LeaseHeld when a run has the lease, which then lifts them itself.
    """
    settings, clock = workspace.fleet.settings, workspace.clock
    holds = by_subject(workspace.fleet.holds, ledger.holds())
    if stopped(holds, clock.now()):
        return [("all", "not lifted: the fleet is stopped; `reconciler resume` lifts the stop")]
    wrong = retracted(holds, clock.now())
    records = dict(ledger.nodes(list(workspace.fleet.nodes)))

    async def lift() -> list[tuple[str, str]]:
        fabric = workspace.fabric()
        try:
            port = fabric.cluster()
            assert port is not None, "the spec names one"
            async with held_lease(
                ledger, settings.fleet, f"{whoami()}, {new_id('retract', clock.now())}", clock
            ) as lease:
                cluster = TimedCluster(port, clock, settings, lease)
                ends = []
                for one in isolated_nodes(known(await cluster.state()), records, ledger.id):
                    if not wrong >= set(one.signals):
                        continue
                    desired, record = workspace.fleet.nodes[one.node], records[one.node]
                    if why := why_it_stays(one, desired, record, holds, wrong, clock.now()):
                        ends.append((one.node, f"left as it is: {why}"))
                        continue
                    trouble = await take_back(cluster, ledger, one.node, one.signals, clock)
                    ends.append((one.node, f"not lifted: {trouble}" if trouble else "back in service"))
                return ends
        finally:
            await fabric.close()

    return run_async(lift())


def isolated(workspace: Workspace, ledger: SqlLedger) -> list[IsolatedNode]:
    records = dict(ledger.nodes(list(workspace.fleet.nodes)))

    async def read() -> list[IsolatedNode]:
        fabric = workspace.fabric()
        try:
            port = fabric.cluster()
            assert port is not None, "the spec names one"
            return isolated_nodes(known(await port.state()), records, ledger.id)
        finally:
            await fabric.close()

    return run_async(read())


def _need_cluster(workspace: Workspace) -> None:
    if workspace.fleet.settings.cluster is None:
        raise UsageError("the spec names no cluster, and only nodes of a cluster are isolated")


def _table(workspace: Workspace) -> HealthTable:
    return health_table(workspace.fleet.settings.health)


def _known_signal(said: str, table: HealthTable) -> str:
    """Return the name without "health.". Raise UsageError for a signal that isolates no node: a typo must not look like
    a remedy.
    """
    name = said.removeprefix(PREFIX)
    if not table.isolating((PREFIX + name,)):
        names = [known for known in table.rules if table.isolating((PREFIX + known,))]
        guess = did_you_mean(name, names) or f"those that do: {', '.join(names)}"
        raise UsageError(f"{said!r} is not a signal that isolates nodes; {guess}")
    return name
