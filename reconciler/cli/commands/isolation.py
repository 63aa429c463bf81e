"""reconciler isolation"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.commands.hold import endpoints, session_for, spec
from reconciler.cli.commands.hold import ledger as at_ledger
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.listing import print_listing
from reconciler.cli.options import Duration, output_option
from reconciler.cli.terminal import say
from reconciler.model.errors import LeaseHeld, UsageError
from reconciler.model.records import RETRACTED

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.converge.retraction import IsolatedNode
    from reconciler.drivers.ledger import SqlLedger

_PATH = "health."
_HEAD = ("what", "signal", "since", "state")


@click.group()
def isolation() -> None:
    """Nodes that were taken out of service at once, on evidence of illness."""


@isolation.command("list")
@spec
@at_ledger
@endpoints
@output_option
def list_(spec: Path, ledger: str | None, endpoints: Path | None, output: str) -> None:
    """List isolated nodes with the evidence, and signals that somebody has retracted."""
    from reconciler.planner.node.holds import is_active

    session = session_for(spec, ledger, endpoints)
    _need_cluster(session)
    with session.ledger() as book:
        rows = [
            (one.node, ", ".join(one.signals), one.mark.at, "drained or treated" if one.drained else "not drained yet")
            for one in _isolated(session, book)
        ]
        now = session.clock.now()
        for hold in book.holds():
            if hold.subject.startswith(RETRACTED) and is_active(hold, now):
                state = f"retracted by {hold.owner}: {hold.reason}"
                rows.append(("signal", _name(hold.subject), hold.since.isoformat(timespec="seconds"), state))
    print_listing(_HEAD, rows, output, empty="no node is isolated")


@isolation.command()
@click.argument("signal", metavar="SIGNAL")
@click.option("--reason", required=True, help="Why it is no evidence; every report of it will say so.")
@click.option("--for", "duration", type=Duration(), metavar="DURATION", help="How long; without it, until `restore`.")
@spec
@at_ledger
@endpoints
@output_option
def retract(
    signal: str, reason: str, duration: float | None, spec: Path, ledger: str | None, endpoints: Path | None,
    output: str,
) -> int:  # fmt: skip
    """Declare a signal wrong: lift the cordons that it alone has set, without a gate, and set no more of them.

    Nodes that were drained or treated since come back through their gate. The signal is reported from now on, and leads
    to nothing, until `reconciler isolation restore`.
    """
    from reconciler.app.session import whoami

    name = _known_signal(signal)
    if not reason.strip():
        raise UsageError("a retraction needs a --reason: everybody who sees the signal will read it")
    session = session_for(spec, ledger, endpoints)
    _need_cluster(session)
    now = session.clock.now()
    with session.ledger() as book:
        book.hold(
            RETRACTED + name, reason, whoami(), None if duration is None else now + timedelta(seconds=duration), now
        )
        try:
            rows = _lift(session, book)
        except LeaseHeld as held:
            say(f"{_PATH}{name} is retracted. The run that has the lease lifts the cordons: {held}", err=True)
            return ExitCode.DONE
    print_listing(("node", "outcome"), rows, output, empty=f"{_PATH}{name} is retracted; no cordon is to be lifted")
    return ExitCode.PARTLY_FAILED if any(end.startswith("not lifted") for _, end in rows) else ExitCode.DONE


@isolation.command()
@click.argument("signal", metavar="SIGNAL")
@spec
@at_ledger
@endpoints
def restore(signal: str, spec: Path, ledger: str | None, endpoints: Path | None) -> None:
    """Let a retracted signal isolate nodes again."""
    from reconciler.app.session import whoami

    name = _known_signal(signal)
    session = session_for(spec, ledger, endpoints)
    with session.ledger() as book:
        if not book.release(RETRACTED + name, whoami(), session.clock.now()):
            raise UsageError(f"{_PATH}{name} is not retracted; `reconciler isolation list` names those that are")
    say(f"{_PATH}{name} isolates again, from the next look on")


def _lift(session: Session, book: SqlLedger) -> list[tuple[str, str]]:
    """(node, what became of it), of all that are isolated for nothing but retracted signals. LeaseHeld."""
    from reconciler.app.session import new_id, run_async, whoami
    from reconciler.converge.guarded_ports import TimedCluster, known
    from reconciler.converge.lease import held_lease
    from reconciler.converge.retraction import isolated_nodes, take_back, why_it_stays
    from reconciler.planner.node.holds import by_subject, retracted, stopped

    settings, clock = session.fleet.settings, session.clock
    holds = by_subject(session.fleet.holds, book.holds())
    if stopped(holds, clock.now()):
        return [("all", "not lifted: the fleet is stopped; `reconciler resume` lifts the stop")]
    wrong = retracted(holds, clock.now())
    records = dict(book.nodes(list(session.fleet.nodes)))

    async def lift() -> list[tuple[str, str]]:
        fabric = session.fabric()
        try:
            port = fabric.cluster()
            assert port is not None, "the spec names one"
            async with held_lease(
                book, settings.fleet, f"{whoami()}, {new_id('retract', clock.now())}", clock
            ) as lease:
                cluster = TimedCluster(port, clock, settings, lease)
                ends = []
                for one in isolated_nodes(known(await cluster.state()), records, book.id):
                    if not wrong >= set(one.signals):
                        continue
                    desired, record = session.fleet.nodes[one.node], records[one.node]
                    if why := why_it_stays(one, desired, record, holds, wrong, clock.now()):
                        ends.append((one.node, f"left as it is: {why}"))
                        continue
                    trouble = await take_back(cluster, book, one.node, one.signals, clock)
                    ends.append((one.node, f"not lifted: {trouble}" if trouble else "back in service"))
                return ends
        finally:
            await fabric.close()

    return run_async(lift())


def _isolated(session: Session, book: SqlLedger) -> list[IsolatedNode]:
    from reconciler.app.session import run_async
    from reconciler.converge.guarded_ports import known
    from reconciler.converge.retraction import isolated_nodes

    records = dict(book.nodes(list(session.fleet.nodes)))

    async def read() -> list[IsolatedNode]:
        fabric = session.fabric()
        try:
            port = fabric.cluster()
            assert port is not None, "the spec names one"
            return isolated_nodes(known(await port.state()), records, book.id)
        finally:
            await fabric.close()

    return run_async(read())


def _need_cluster(session: Session) -> None:
    if session.fleet.settings.cluster is None:
        raise UsageError("the spec names no cluster, and only nodes of a cluster are isolated")


def _known_signal(said: str) -> str:
    """The name without health.; UsageError for one that isolates nobody: a typo must not look like a remedy."""
    from reconciler.health.table import TABLE, isolating
    from reconciler.spec.model_errors import did_you_mean

    name = said.removeprefix(_PATH)
    if not isolating((_PATH + name,)):
        names = [known for known in TABLE if isolating((_PATH + known,))]
        guess = did_you_mean(name, names) or f"those that do: {', '.join(names)}"
        raise UsageError(f"{said!r} is no signal that isolates nodes; {guess}")
    return name


def _name(subject: str) -> str:
    return _PATH + subject.removeprefix(RETRACTED)
