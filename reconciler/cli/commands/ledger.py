"""reconciler ledger"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.commands.hold import check_subject, endpoints, session_for, spec
from reconciler.cli.commands.hold import ledger as at_ledger
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.listing import print_listing
from reconciler.cli.options import output_option
from reconciler.cli.place import Place, place_options
from reconciler.cli.terminal import show
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.app.session import Session
    from reconciler.converge.adoption import Adopted
    from reconciler.drivers.ledger import SqlLedger


@click.group()
def ledger() -> None:
    """What the reconciler remembers, and what it may call its own."""


@ledger.command()
@place_options
@output_option
def info(place: Place, output: str) -> None:
    """Which ledger this is, and how much is in it."""
    with place.open(place.session()) as book:
        found = book.info()
    if output == "json":
        show(json.dumps(asdict(found), indent=1) + "\n", output)
        return
    rows: list[tuple[str, str | int]] = [
        ("ledger", found.name), ("id", found.id), ("database", found.database), ("version", found.version),
        ("size", f"{found.bytes / 1024:,.0f} KiB"), *((f"rows of {name}", n) for name, n in found.rows.items()),
    ]  # fmt: skip
    print_listing(("what", "value"), rows, output, empty="")


@ledger.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@spec
@at_ledger
@endpoints
@output_option
def adopt(
    nodes: tuple[str, ...], yes: bool, spec: Path, ledger: str | None, endpoints: Path | None, output: str
) -> int:
    """Take over nodes that carry the mark of another ledger, whose reconciler is known to be gone.

    They stay out of service; the next apply tests them and brings them back.
    """
    if not yes and not sys.stdin.isatty():
        raise UsageError("off a terminal, ledger adopt needs --yes")
    session = session_for(spec, ledger, endpoints)
    for node in nodes:
        check_subject(session.fleet, node)
    if session.fleet.settings.cluster is None:
        raise UsageError("the spec names no cluster, and only nodes of a cluster carry marks")
    with session.ledger() as book:
        ends = _adopt(session, book, tuple(dict.fromkeys(nodes)), ask=not yes)
    _tell(ends, output, done=True)
    return ExitCode.PARTLY_FAILED if any(end.problem for end in ends) else ExitCode.DONE


def _adopt(session: Session, book: SqlLedger, nodes: Sequence[str], *, ask: bool) -> list[Adopted]:
    from reconciler.app.session import new_id, run_async, whoami
    from reconciler.converge.adoption import adopt, foreign_mark
    from reconciler.converge.guarded_ports import TimedCluster
    from reconciler.converge.lease import held_lease

    async def each(*, write: bool) -> list[Adopted]:
        fabric = session.fabric()
        try:
            port = fabric.cluster()
            assert port is not None  # the spec names one
            settings, clock = session.fleet.settings, session.clock
            async with held_lease(book, settings.fleet, f"{whoami()}, {new_id('adopt', clock.now())}", clock) as lease:
                cluster = TimedCluster(port, clock, settings, lease)
                if not write:
                    return [await foreign_mark(cluster, node, book.id) for node in nodes]
                return [await adopt(cluster, book, node, whoami(), clock) for node in nodes]
        finally:
            await fabric.close()

    if ask:
        found = run_async(each(write=False))
        if all(one.problem for one in found):
            return found
        _tell(found, "human", done=False, err=True)
        if not click.confirm("Is their reconciler gone for good? Take them over?", err=True):
            raise click.Abort
    return run_async(each(write=True))


def _tell(ends: Sequence[Adopted], output: str, *, done: bool, err: bool = False) -> None:
    rows = []
    for end in ends:
        mark = end.before
        told = "adopted" if done else "to be adopted"
        of = (mark.ledger, mark.at, mark.reason) if mark is not None else ("", "", "")
        rows.append((end.node, end.problem or told, *of))
    print_listing(("node", "outcome", "marked by ledger", "at", "reason"), rows, output, empty="", err=err)


@ledger.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why they need no test; it stays in the ledger beside who said so.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@spec
@at_ledger
@endpoints
@output_option
def waive(
    nodes: tuple[str, ...], reason: str, yes: bool, spec: Path, ledger: str | None, endpoints: Path | None, output: str
) -> int:
    """Vouch for nodes that served before this ledger knew them: an adopted certificate each, and no test.

    As `init` does, for another ledger than the one it wrote to. A node that has a story here, is not in service, or of
    which anything is not as specified or not known, is not vouched for.
    """
    from dataclasses import replace

    from reconciler.app.session import new_id
    from reconciler.app.waive import save, trouble, waive
    from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
    from reconciler.planner.fleet.planner import plan_fleet

    if not yes and not sys.stdin.isatty():
        raise UsageError("off a terminal, ledger vouch needs --yes")
    session = session_for(spec, ledger, endpoints)
    session.common = replace(session.common, limit=nodes)
    names, _ = session.selection
    seen = session.observe()
    with session.ledger() as book:
        records, now = book.nodes(list(session.fleet.nodes)), session.clock.now()
        made = waive(session.fleet, seen, records, now)
        snapshot = LedgerSnapshot(book.id, made.known, holds=tuple(book.holds()))
        request = PlanRequest(new_id("vouch", now), session.signatures, names)
        plan = plan_fleet(session.fleet, seen, snapshot, now, request)
        ends = {name: made.left.get(name) or trouble(session.fleet, plan.nodes[name]) for name in names}
        good = [one for one in made.certificates if not ends.get(one.node, "not asked for")]
        if good and not yes:
            question = f"{len(good)} of {len(names)} nodes are in service as specified. Vouch for them without a test?"
            click.confirm(question, abort=True, err=True)
        if good:
            ends |= save(session, book, "vouch", good, reason)
    rows = [(name, why or "vouched for") for name, why in ends.items()]
    print_listing(("node", "outcome"), rows, output, empty="")
    return ExitCode.PARTLY_FAILED if any(ends.values()) else ExitCode.DONE
