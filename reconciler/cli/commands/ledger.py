"""reconciler ledger"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from reconciler.app.accept_tpm import Exchange, accept_tpm
from reconciler.app.ledger_admin import Adopted, adopt_marked, existing_ledger
from reconciler.app.ports import FleetRequest
from reconciler.app.retention import PruneRequest
from reconciler.app.retention import prune as run_prune
from reconciler.app.waive import waive_tests
from reconciler.cli.completion import node_names
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.listing import print_listing
from reconciler.cli.options import Duration, grouped, ledger_location_options, output_option, spec_options
from reconciler.cli.terminal import say, show
from reconciler.model.errors import LedgerError, UsageError
from reconciler.model.records import LEAST_RETENTION
from reconciler.model.units import format_duration

if TYPE_CHECKING:
    from reconciler.app.retention import Pruned


@click.group(cls=Group)
def ledger() -> None:
    """Show the ledger, drop old results, take over nodes of another, waive tests, and accept an exchanged TPM."""


@ledger.command()
@ledger_location_options
@output_option
def info(request: FleetRequest, output: str) -> None:
    """Show which ledger this is, and how much it holds."""
    with existing_ledger(workspace_for(request)) as opened:
        found = opened.info()
    if output == "json":
        show(json.dumps(asdict(found), indent=1) + "\n", output)
        return
    rows: list[tuple[str, str | int]] = [
        ("ledger", found.name), ("id", found.id), ("database", found.database), ("version", found.version),
        ("size", f"{found.bytes / 1024:,.0f} KiB"), *((f"rows of {name}", n) for name, n in found.rows.items()),
    ]  # fmt: skip
    print_listing(("what", "value"), rows, output, empty="")


@ledger.command()
@ledger_location_options
@grouped(
    PruneRequest,
    click.option("--older", "age_s", type=Duration(), required=True, metavar="DURATION",
                 help="Drop results of gates that began longer ago than this, such as 400d."),
    click.option("--journal", is_flag=True, help="Prune rows of the journal that are older, too, at least 30d."),
    click.option("--dry-run", "dry", is_flag=True, help="Only count the rows of the journal; needs --journal."),
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
def prune(request: FleetRequest, wanted: PruneRequest, yes: bool) -> None:
    """Drop what gates measured long ago, and what their tools printed. The newest result of each test of a node stays.

    So do certificates with the first results of each node, and the journal, which tells what was dropped.

    With --journal its old rows go too, but for those that something goes by: attempts that did not end and the newest
    200 of each node, what is held or sealed, evidence of erased drives and backups, certificates in force and the
    first of each image. Older certificates go with their rows. `audit verify` goes on to verify what is left.
    """
    if wanted.journal and wanted.age_s < LEAST_RETENTION.total_seconds():
        raise UsageError(f"rows of the journal are kept for {LEAST_RETENTION.days} days at least")
    if wanted.dry and not wanted.journal:
        raise UsageError("--dry-run counts rows of the journal: it needs --journal")
    if not yes and not wanted.dry and not sys.stdin.isatty():
        raise UsageError("off a terminal, ledger prune needs --yes")

    def confirm(planned: Pruned | None) -> None:
        if not yes:
            rows = f" and {_rows(planned)}" if planned is not None else ""
            question = f"Drop results{rows} older than {format_duration(wanted.age_s)} for good?"
            click.confirm(question, abort=True, err=True)

    dropped, pruned = run_prune(workspace_for(request), wanted, confirm)
    if dropped is None and pruned is not None:
        say(f"would prune {_rows(pruned)}")
    elif dropped is not None:
        say(f"dropped {dropped.tests:,} tests with {dropped.rows:,} figures, and {dropped.outputs:,} outputs")
        if pruned is not None:
            say(f"pruned {_rows(pruned)}")
    if pruned is not None and pruned.problem:
        raise LedgerError(f"the journal was not pruned as a whole: {pruned.problem}")


def _rows(pruned: Pruned) -> str:
    several = ", ".join(f"{number:,} {event}" for event, number in pruned.rows.items())
    return f"{pruned.total:,} rows of the journal" + (f" ({several})" if several else "")


@ledger.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@spec_options()
@output_option
def adopt(request: FleetRequest, nodes: tuple[str, ...], yes: bool, output: str) -> int:
    """Take over nodes that carry the mark of another ledger whose reconciler is gone.

    They stay out of service until the next apply has tested them.
    """
    if not yes and not sys.stdin.isatty():
        raise UsageError("off a terminal, ledger adopt needs --yes")
    ends = adopt_marked(workspace_for(request), nodes, None if yes else _confirm_adoption)
    _print_adopted(ends, output)
    return ExitCode.PARTLY_FAILED if any(end.problem for end in ends) else ExitCode.DONE


def _confirm_adoption(found: Sequence[Adopted]) -> None:
    _print_adopted(found, "human", "to be adopted", err=True)
    if not click.confirm("Is their reconciler gone for good? Take them over?", err=True):
        raise click.Abort


def _print_adopted(ends: Sequence[Adopted], output: str, outcome: str = "adopted", *, err: bool = False) -> None:
    rows = []
    for end in ends:
        mark = end.before
        of = (mark.ledger, mark.at, mark.reason) if mark is not None else ("", "", "")
        rows.append((end.node, end.problem or outcome, *of))
    print_listing(("node", "outcome", "marked by ledger", "at", "reason"), rows, output, empty="", err=err)


@ledger.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
@click.option("--reason", required=True, help="Why the nodes need no test. The ledger keeps it with your name.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@spec_options()
@output_option
def waive(request: FleetRequest, nodes: tuple[str, ...], reason: str, yes: bool, output: str) -> int:
    """Waive the tests of nodes that were in service before this ledger knew them. Each gets an adopted certificate.

    `init` does the same for the ledger that it writes to. A node gets no certificate when the ledger records work on
    it, when it is out of service, or when it differs from the spec or could not be read in full.
    """
    if not yes and not sys.stdin.isatty():
        raise UsageError("off a terminal, ledger waive needs --yes")
    workspace = workspace_for(replace(request, limit=nodes))

    def confirm(good: int, asked: int) -> None:
        if not yes:
            question = f"{good} of {asked} nodes are in service as specified. Waive their tests?"
            click.confirm(question, abort=True, err=True)

    ends = waive_tests(workspace, reason, confirm)
    rows = [(name, why or "waived") for name, why in ends.items()]
    print_listing(("node", "outcome"), rows, output, empty="")
    return ExitCode.PARTLY_FAILED if any(ends.values()) else ExitCode.DONE


@ledger.command(name="accept-tpm")
@click.argument("node", metavar="NODE", shell_complete=node_names)
@click.option("--reason", required=True, help="Why the machine has another TPM. The ledger keeps it with your name.")
@click.option("--confirm", default="", metavar="TEXT", help="The typed consent: 'accept TPM of NODE'.")
@spec_options()
def accept(request: FleetRequest, node: str, reason: str, confirm: str) -> None:
    """Accept the TPM that a node showed last and that was refused, because its mainboard was replaced.

    The old TPM is never accepted again by itself. The node is admitted once the new one has proved what it booted.
    """
    sentence = f"accept TPM of {node}"

    def ask(found: Exchange) -> None:
        show(f"{node} is enrolled with the TPM {found.before}, and showed {found.after}.\n", err=True)
        if confirm == sentence:
            return
        if confirm or not sys.stdin.isatty():
            raise UsageError(f"to accept another TPM needs --confirm {sentence!r}")
        if click.prompt(f"Type '{sentence}' to go on", err=True) != sentence:
            raise click.Abort

    found = accept_tpm(workspace_for(request), node, reason, ask)
    say(f"{node}: the TPM {found.after} is enrolled in place of {found.before}")
