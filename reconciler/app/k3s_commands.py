"""The `cluster` use cases: restore a K3s cluster from a snapshot, take a lost server out of it, or take it away."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.workspace import Workspace
from reconciler.converge.k3s_birth import server_names as server_names
from reconciler.converge.k3s_hosts import k3s_hosts
from reconciler.converge.k3s_lost_server import LostServer, remove_server
from reconciler.converge.k3s_lost_server import find as find_lost
from reconciler.converge.k3s_restore import NOT_READ as NOT_READ
from reconciler.converge.k3s_restore import Found as Found
from reconciler.converge.k3s_restore import WantedSnapshot as WantedSnapshot
from reconciler.converge.k3s_restore import look
from reconciler.converge.k3s_restore_run import Restored as Restored
from reconciler.converge.k3s_restore_run import RestoreRequest, restore
from reconciler.converge.k3s_teardown import TeardownRequest, TornDown, bucket_of, database_of, tear_down
from reconciler.converge.k3s_teardown import concerned as concerned
from reconciler.model.desired import Fleet
from reconciler.model.errors import LedgerError, ReconcilerError, Refused, UsageError
from reconciler.model.ports import Fabric

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

T = TypeVar("T")


def check_cluster(workspace: Workspace, name: str) -> None:
    """Raise UsageError unless the fleet's cluster has this name, and is of K3s."""
    access = workspace.fleet.settings.cluster
    if access is None or access.name != name:
        has = "no cluster" if access is None else f"the cluster {access.name!r}"
        raise UsageError(f"fleet {workspace.fleet.settings.fleet} has {has}, and not {name!r}")
    if not server_names(workspace.fleet):
        raise UsageError(f"cluster {name} is not of `type: k3s`: only of those does the reconciler know the servers")


def wanted_snapshot(workspace: Workspace, name: str, server: str, *, stored: bool) -> WantedSnapshot:
    """Return the snapshot that is asked for. `stored`: in the object store that the spec names.

    Raise Refused where the cluster has no etcd, UsageError where the spec names no store, or the name is a path.
    """
    servers = [workspace.fleet.nodes[one].profile.k3s for one in server_names(workspace.fleet)]
    first = next((one for one in servers if one is not None), None)
    if first is not None and first.external:
        raise Refused(
            f"the cluster's state is in the database at {first.database}, and not in etcd: stop K3s on all servers, "
            "restore the database from a backup of its own, with the same token, and start K3s again"
        )
    bucket = first.bucket if first is not None and stored else ""
    if stored and not bucket:
        raise UsageError("--from-store: the spec names no `k3s.snapshots.s3`")
    if stored and "/" in name:
        raise UsageError(f"--from-store: {name!r} is no name of a snapshot in {bucket}")
    return WantedSnapshot(name, server, bucket)


def find_snapshot(workspace: Workspace, wanted: WantedSnapshot) -> Found:
    """Return what a restore would work with. Nothing is changed. Raise as `look` does."""

    async def work() -> Found:
        fabric = workspace.fabric()
        try:
            return await look(
                k3s_hosts(workspace.fleet, server_names(workspace.fleet), fabric, workspace.clock, None), wanted
            )
        finally:
            await fabric.close()

    return run_async(work())


def restore_cluster(workspace: Workspace, ledger: SqlLedger, name: str, wanted: WantedSnapshot) -> Restored:
    """Restore the cluster as one run of the ledger. Afterwards one server serves, and the others wait to join it."""
    request = RestoreRequest(workspace.fleet, name, wanted, whoami())
    tell = workspace.frontend.say
    return _as_run(
        workspace, ledger, "cluster restore",
        lambda fabric: restore(request, fabric=fabric, ledger=ledger, clock=workspace.clock, tell=tell),
    )  # fmt: skip


def find_lost_server(workspace: Workspace, ledger: SqlLedger, node: str) -> LostServer:
    """Return the server that would be taken out. Nothing is changed. Raise as converge.k3s_lost_server does."""

    async def work() -> LostServer:
        fabric = workspace.fabric(ledger)
        try:
            return await find_lost(
                workspace.fleet, node, fabric=fabric, ledger=ledger, clock=workspace.clock, holder=whoami()
            )
        finally:
            await fabric.close()

    return run_async(work())


def remove_lost_server(workspace: Workspace, ledger: SqlLedger, node: str) -> None:
    """Take a lost server out of the cluster, as one run of the ledger."""
    tell, fleet = workspace.frontend.say, workspace.fleet
    _as_run(
        workspace, ledger, "cluster remove-server",
        lambda fabric: remove_server(
            fleet, node, fabric=fabric, ledger=ledger, clock=workspace.clock, holder=whoami(), tell=tell
        ),
    )  # fmt: skip


def lost_with(fleet: Fleet) -> str:
    """Return what of the cluster goes with its servers, beside volumes and images."""
    if database := database_of(fleet):
        return f"keys and files (all but the database at {database})"
    if bucket := bucket_of(fleet):
        return f"snapshots of etcd (all but the copies in {bucket}) and all that the cluster knows"
    return "snapshots of etcd and all that the cluster knows"


def tear_down_cluster(workspace: Workspace, ledger: SqlLedger, name: str) -> TornDown:
    """Take the cluster from all nodes, as one run of the ledger."""
    request = TeardownRequest(workspace.fleet, name, whoami())
    tell = workspace.frontend.say
    return _as_run(
        workspace, ledger, "cluster teardown",
        lambda fabric: tear_down(request, fabric=fabric, ledger=ledger, clock=workspace.clock, tell=tell),
    )  # fmt: skip


def _as_run(
    workspace: Workspace, ledger: SqlLedger, command: str, act: Callable[[Fabric], Coroutine[Any, Any, T]]
) -> T:
    clock = workspace.clock
    run = new_id("run", clock.now())

    async def work() -> T:
        fabric = workspace.fabric(ledger)
        try:
            return await act(fabric)
        finally:
            await fabric.close()

    ledger.start_run(run, command, workspace.fleet.source.commit, run, clock.now())
    try:
        done = run_async(work())
    except ReconcilerError as error:
        with suppress(LedgerError):  # the ledger may be why the run ended
            ledger.end_run(run, workspace.frontend.exit_code(error), str(error), clock.now())
        raise
    ledger.end_run(run, 0, "done", clock.now())
    return done
