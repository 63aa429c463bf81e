"""The `cluster restore` use case: find a snapshot, restore the K3s cluster from it, and let its servers join again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.workspace import Workspace
from reconciler.converge.k3s_birth import server_names as server_names
from reconciler.converge.k3s_restore import Found as Found
from reconciler.converge.k3s_restore import WantedSnapshot as WantedSnapshot
from reconciler.converge.k3s_restore import look, servers_of
from reconciler.converge.k3s_restore_run import Restored as Restored
from reconciler.converge.k3s_restore_run import RestoreRequest, restore
from reconciler.model.errors import LedgerError, ReconcilerError, UsageError

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


def check_cluster(workspace: Workspace, name: str) -> None:
    """Raise UsageError unless the fleet's cluster has this name, and is of K3s."""
    access = workspace.fleet.settings.cluster
    if access is None or access.name != name:
        has = "no cluster" if access is None else f"the cluster {access.name!r}"
        raise UsageError(f"fleet {workspace.fleet.settings.fleet} has {has}, and not {name!r}")
    if not server_names(workspace.fleet):
        raise UsageError(f"cluster {name} is not of `type: k3s`: only of those does the reconciler know the servers")


def find_snapshot(workspace: Workspace, wanted: WantedSnapshot) -> Found:
    """Return what a restore would work with. Nothing is changed. Raise as `look` does."""

    async def work() -> Found:
        fabric = workspace.fabric()
        try:
            return await look(servers_of(workspace.fleet, fabric, workspace.clock, None), wanted)
        finally:
            await fabric.close()

    return run_async(work())


def restore_cluster(workspace: Workspace, ledger: SqlLedger, name: str, wanted: WantedSnapshot) -> Restored:
    """Restore the cluster as one run of the ledger. Afterwards one server serves, and the others wait to join it."""
    clock = workspace.clock
    run = new_id("run", clock.now())
    request = RestoreRequest(workspace.fleet, name, wanted, f"{whoami()}, {run}")

    async def work() -> Restored:
        fabric = workspace.fabric(ledger)
        try:
            return await restore(request, fabric=fabric, ledger=ledger, clock=clock, tell=workspace.frontend.say)
        finally:
            await fabric.close()

    ledger.start_run(run, "cluster restore", workspace.fleet.source.commit, run, clock.now())
    try:
        done = run_async(work())
    except ReconcilerError as error:
        with suppress(LedgerError):  # the ledger may be why the run ended
            ledger.end_run(run, workspace.frontend.exit_code(error), str(error), clock.now())
        raise
    ledger.end_run(run, 0, f"restored on {done.server}", clock.now())
    return done
