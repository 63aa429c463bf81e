"""The `conformance tickets` use case: a tracker of the spec, over the driver that keeps its tickets."""

from __future__ import annotations

from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.drivers.tickets.conformance import check_tracker
from reconciler.drivers.tickets.trackers import client_of
from reconciler.model.conformance import ConformanceReport
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.model.tickets import Tracker


def check_tickets(workspace: Workspace, name: str, *, writes: bool) -> ConformanceReport:
    """Run the suite of trackers on `name`. Without `writes` no ticket is opened."""
    tracker = named_tracker(workspace, name)

    async def run() -> ConformanceReport:
        client = client_of(tracker, workspace.secrets, workspace.clock)
        try:
            return await check_tracker(client, tracker, workspace.clock, writes=writes)
        finally:
            await client.close()

    return run_async(run())


def named_tracker(workspace: Workspace, name: str) -> Tracker:
    """Return a tracker of the spec. Raise UsageError where there is none of that name."""
    declared = {one.name: one for one in workspace.fleet.settings.tickets}
    if name not in declared:
        hint = did_you_mean(name, declared) or f"it names {', '.join(declared) or 'none'} (docs/how-to/tickets.md)"
        raise UsageError(f"the Fleet names no tracker {name!r} under `tickets`: {hint}")
    return declared[name]
