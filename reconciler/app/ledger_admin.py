"""Administration of a ledger: opening it without a spec, leases, and nodes that carry the mark of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.app.holds import check_subject
from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.validate import check_directory
from reconciler.app.workspace import Workspace
from reconciler.converge.adoption import Adopted as Adopted
from reconciler.converge.adoption import adopt, foreign_mark
from reconciler.converge.guarded_ports import TimedCluster
from reconciler.converge.lease import held_lease
from reconciler.model.errors import NoLedger, UsageError
from reconciler.model.records import Lease
from reconciler.spec.naming import fleet_name

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


@contextmanager
def existing_ledger(workspace: Workspace, *, create: bool = False) -> Iterator[SqlLedger]:
    """Open the ledger that the request names, by its URL, its fleet, its lab or a spec that need not be valid.

    `create` makes one that is missing, if it is that of a spec. Raise UsageError when there is none: an empty one made
    for a mistyped name would protect nobody.
    """
    request = workspace.request
    where = ledger_place(workspace)
    of_spec = request.fleet is None and request.ledger is None
    try:
        ledger = workspace.open_ledger(where, create=request.create_ledger or (create and of_spec))
    except NoLedger as missing:
        raise absent(missing) from None
    try:
        yield ledger
    finally:
        ledger.close()


def absent(missing: NoLedger) -> UsageError:
    """Return the error for a ledger that is named and not there."""
    return UsageError(
        f"{missing}: no run has ever used it; name the right one with --ledger, --fleet, --endpoints or SPEC"
    )


def ledger_place(workspace: Workspace) -> str | Path:
    """Return the file or URL of the ledger that the request names."""
    return workspace.ledger_place(_fleet_name(workspace))


def _fleet_name(workspace: Workspace) -> str:
    """Return the name of the fleet, or "" when the ledger is found without it."""
    request = workspace.request
    if request.fleet is not None or request.ledger is not None or request.endpoints is not None:
        return request.fleet or ""
    check_directory(request.spec)
    found = fleet_name(request.spec)
    if found is None:
        raise UsageError(f"{request.spec} does not say which fleet it is; name it with --fleet, or the --ledger")
    return found


def release_lease(workspace: Workspace, token: int) -> Lease:
    """Take the lease with this ID away from its holder. Raise UsageError when there is none."""
    with existing_ledger(workspace) as ledger:
        taken = ledger.take_away(token, whoami(), workspace.clock.now())
        if taken is None:
            others = [f"{one.token} ({one.scope}, {one.holder})" for one in ledger.leases()]
            held = f"held is {', '.join(others)}" if others else "nobody holds one"
            raise UsageError(f"no lease has the id {token} now; {held}")
    return taken


def adopt_marked(
    workspace: Workspace, names: Sequence[str], confirm: Callable[[Sequence[Adopted]], None] | None
) -> list[Adopted]:
    """Take over nodes that carry the mark of another ledger.

    `confirm` gets the marks before anything is written, and raises to stop. The lease is not held meanwhile.
    """
    nodes = tuple(dict.fromkeys(names))
    for node in nodes:
        check_subject(workspace.fleet, node)
    if workspace.fleet.settings.cluster is None:
        raise UsageError("the spec names no cluster, and only nodes of a cluster carry marks")
    with workspace.ledger() as ledger:
        if confirm is not None:
            found = _adopt(workspace, ledger, nodes, write=False)
            if all(one.problem for one in found):
                return found
            confirm(found)
        return _adopt(workspace, ledger, nodes, write=True)


def _adopt(workspace: Workspace, ledger: SqlLedger, nodes: Sequence[str], *, write: bool) -> list[Adopted]:
    async def each() -> list[Adopted]:
        fabric = workspace.fabric()
        try:
            port = fabric.cluster()
            assert port is not None  # the spec names one
            settings, clock = workspace.fleet.settings, workspace.clock
            async with held_lease(
                ledger, settings.fleet, f"{whoami()}, {new_id('adopt', clock.now())}", clock
            ) as lease:
                cluster = TimedCluster(port, clock, settings, lease)
                if not write:
                    return [await foreign_mark(cluster, node, ledger.id) for node in nodes]
                return [await adopt(cluster, ledger, node, whoami(), clock) for node in nodes]
        finally:
            await fabric.close()

    return run_async(each())
