"""Migrations of a ledger that a person asks for: what they would do, a backup, and the way back.

A spec has no tables to bring along: the version that is to work with it reads it, or names what it does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.app.ledger_admin import absent, ledger_place
from reconciler.app.runtime import whoami
from reconciler.app.workspace import Workspace
from reconciler.model.errors import Diagnostic, LeaseHeld, NoLedger, Position, Refused, SpecError
from reconciler.render.text import clock

if TYPE_CHECKING:
    from reconciler.drivers.ledger import LedgerMigrator
    from reconciler.drivers.ledger import Outlook as Outlook

_UNREADABLE: Final = (
    "this version does not read this spec, so the ledger is left as it is: change the spec, or give --fleet NAME to "
    "migrate the ledger alone"
)


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """A request for a migration. `to`: a version; None: that of this program.

    `backup`: a file; None: one beside the ledger. `no_backup`: make none.
    """

    to: int | None = None
    backup: Path | None = None
    no_backup: bool = False


@dataclass(frozen=True, slots=True)
class Migrated:
    """A migration that was done. `backup`: None: none was made. `spec`: as `readable_spec` says."""

    outlook: Outlook
    backup: Path | None
    spec: Path | None


def look(workspace: Workspace, wanted: MigrationRequest) -> Outlook:
    """Say what a migration would do now, and what forbids it."""
    with _migrator(workspace) as migrator:
        return migrator.outlook(_version(wanted))


def refuse(outlook: Outlook) -> None:
    """Raise LeaseHeld or Refused where a migration would now."""
    from reconciler.drivers.ledger import refusal

    if outlook.obstacles:
        raise Refused(refusal(outlook))
    for lease in outlook.leases:
        raise LeaseHeld(
            lease.holder,
            f"{lease.holder} holds the lease on {lease.scope} until {clock(lease.expires_at)}: stop that process first",
        )


def readable_spec(workspace: Workspace, outlook: Outlook) -> Path | None:
    """Return the directory of the spec, which this version reads; None where it need not, or where none is named.

    Raise SpecError for one that it does not read: with its ledger migrated neither version would work, this one for the
    spec and the older one for the ledger.
    """
    request = workspace.request
    if outlook.to < outlook.own or request.fleet is not None or not request.spec.is_dir():
        return None
    try:
        _ = workspace.fleet
    except SpecError as error:
        alone = Diagnostic(Position(str(request.spec)), "", _UNREADABLE)
        raise SpecError((*error.diagnostics, alone)) from None
    return request.spec


def migrate(workspace: Workspace, wanted: MigrationRequest, confirm: Callable[[Outlook], None]) -> Migrated:
    """Bring a ledger to another version. `confirm` gets what would be done, and raises to stop."""
    from reconciler.drivers.ledger import Order

    with _migrator(workspace) as migrator:
        outlook = migrator.outlook(_version(wanted))
        spec = readable_spec(workspace, outlook)
        refuse(outlook)
        if not outlook.steps:
            return Migrated(outlook, None, spec)
        confirm(outlook)
        now = workspace.clock.now()
        backup = None if wanted.no_backup else wanted.backup or _beside(workspace, outlook, now)
        return Migrated(migrator.migrate(Order(outlook.to, whoami(), now, backup)), backup, spec)


def _version(wanted: MigrationRequest) -> int:
    from reconciler.drivers.ledger import SCHEMA_VERSION

    return SCHEMA_VERSION if wanted.to is None else wanted.to


@contextmanager
def _migrator(workspace: Workspace) -> Iterator[LedgerMigrator]:
    from reconciler.drivers.ledger import LedgerMigrator

    try:
        with LedgerMigrator.opened(ledger_place(workspace), workspace.clock) as found:
            yield found
    except NoLedger as missing:
        raise absent(missing) from None


def _beside(workspace: Workspace, outlook: Outlook, now: datetime) -> Path:
    """Return the file for the backup: beside an SQLite file; of a PostgreSQL database, in the state directory."""
    end = f".v{outlook.version}-{now:%Y%m%dT%H%M%SZ}.backup"
    if outlook.database == "sqlite":
        return Path(f"{outlook.name}{end}")
    folder = workspace.state_directory()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"ledger{end}"
