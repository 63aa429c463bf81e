"""reconciler migrate"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.app.migrate import MigrationRequest, look, readable_spec, refuse
from reconciler.app.migrate import migrate as run_migration
from reconciler.app.ports import FleetRequest
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.listing import print_listing
from reconciler.cli.options import OutFile, grouped, ledger_location_options, output_option
from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from reconciler.app.migrate import Outlook


@click.command()
@ledger_location_options
@grouped(
    MigrationRequest,
    click.option("--to", type=click.IntRange(min=1), metavar="VERSION", help="Version of the ledger. Default: the "
                 "one that this reconciler works with. A lower one takes the ledger back, where that loses nothing."),
    click.option("--backup", type=OutFile(), metavar="FILE", help="File for the backup of before. Default: beside an "
                 "SQLite file; of a PostgreSQL database, in the state directory."),
    click.option("--no-backup", is_flag=True, help="Make no backup: you have one."),
)  # fmt: skip
@click.option("--check", is_flag=True, help="Only say what would be done, and what forbids it.")
@click.option("--detailed-exitcode", is_flag=True, help="With --check: exit code 2 when a migration is due.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@output_option
def migrate(
    request: FleetRequest, wanted: MigrationRequest, check: bool, detailed_exitcode: bool, yes: bool, output: str
) -> int:  # fmt: skip
    """Bring the ledger to the version that this reconciler works with, after a backup; or back to an older one.

    A SPEC that this reconciler does not read is named line by line (exit code 3), before the ledger is touched.

    It is refused (exit code 6) while a process holds a lease: stop what works with the ledger first. A version is left
    only where the older one can do without what it added; else (exit code 8) the backup to restore is named.
    """
    if request.create_ledger:
        raise UsageError("migrate makes no ledger: leave --create-ledger out")
    _check_options(wanted, check=check, detailed=detailed_exitcode)
    workspace = workspace_for(request)
    if check:
        outlook = look(workspace, wanted)
        spec = readable_spec(workspace, outlook)
        _print(outlook, None, output, "would be")
        _print_spec(request, outlook, spec, output)
        refuse(outlook)
        return ExitCode.CHANGES if detailed_exitcode and outlook.steps else ExitCode.DONE
    if not yes and not sys.stdin.isatty():
        raise UsageError("off a terminal, migrate needs --yes; --check only says what would be done")

    def confirm(outlook: Outlook) -> None:
        if not yes:
            _print(outlook, None, "human", "would be", err=True)
            click.confirm(f"Bring {outlook.name} to version {outlook.to}?", abort=True, err=True)

    done = run_migration(workspace, wanted, confirm)
    _print(done.outlook, done.backup, output, "was")
    _print_spec(request, done.outlook, done.spec, output)
    return ExitCode.DONE


def _check_options(wanted: MigrationRequest, *, check: bool, detailed: bool) -> None:
    if wanted.backup is not None and wanted.no_backup:
        raise UsageError("--backup and --no-backup contradict each other")
    if check and (wanted.backup is not None or wanted.no_backup):
        raise UsageError("--check makes no backup: leave --backup and --no-backup out")
    if detailed and not check:
        raise UsageError("--detailed-exitcode is for --check")


def _print(outlook: Outlook, backup: Path | None, output: str, done: str, *, err: bool = False) -> None:
    if output == "json":
        migrated = done == "was" and bool(outlook.steps)
        document = asdict(outlook) | {"backup": str(backup or outlook.backup), "migrated": migrated}
        show(json.dumps(document, indent=1, sort_keys=True, default=str) + "\n", output)
        return
    rows = [
        (f"{step.before} -> {step.after}", ("adds " if step.after > step.before else "takes away ") + step.adds)
        for step in outlook.steps
    ]
    if not rows:
        say(f"the ledger {outlook.name} is of version {outlook.version}: nothing to do", err=err)
        return
    print_listing(("version", "what"), rows, output, empty="", err=err)
    say(f"the ledger {outlook.name} {done} brought from version {outlook.version} to {outlook.to}", err=err)
    if backup is not None:
        say(f"backup of version {outlook.version}: {backup}", err=err)
    for lease in outlook.leases:
        say(f"lease on {lease.scope}: held by {lease.holder}", err=err)
    for obstacle in outlook.obstacles:
        say(f"no way back: {obstacle}", err=err)


def _print_spec(request: FleetRequest, outlook: Outlook, spec: Path | None, output: str) -> None:
    """Say beside the document how the spec fares with the version that is to work with it."""
    if spec is not None:
        told = f"the spec {spec} is read by this version: nothing to change"
    elif outlook.to < outlook.own:
        told = (
            f"the spec is not looked at: let `reconciler validate {request.spec}` of the older version read it before "
            "you start that one; it names each field that it does not know"
        )
    else:
        told = "no spec is looked at: give its directory, and no --fleet, to have this version read it"
    say(told, err=output != "human")
