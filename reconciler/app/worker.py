"""The `worker` use case: read nodes of one site for the leaders of an engine."""

from __future__ import annotations

from reconciler.app.runtime import end_with_parent, run_async
from reconciler.app.site_reader import WireSiteReader
from reconciler.app.workspace import Workspace
from reconciler.drivers.engine.access import EngineError
from reconciler.drivers.engine.worker import SitePlugin, serve
from reconciler.model.errors import ReconcilerError, UsageError


class SchedulerLost(ReconcilerError):
    """The worker has no scheduler to work for."""


def play_run(data: bytes) -> bytes:
    """Play a run of a rehearsal, in a process that imports the lab: a worker that only reads need not."""
    from reconciler.app.rehearsal.processes import run_packed

    return run_packed(data)


def work(workspace: Workspace, site: str, listen: str | None) -> None:
    """Work until SIGTERM. Raise UsageError for what can't be used, and SchedulerLost without a scheduler.

    `listen`: the address at which scheduler and workers reach this worker; None: loopback, for a scheduler there.
    """
    access = workspace.engine.access
    assert access is not None
    _ = workspace.secrets  # read at once: a file that is missing or open to others is told now
    if listen is None and not access.on_loopback:
        raise UsageError(f"--listen ADDRESS is needed: {access.url} is elsewhere, and has to reach this worker")
    plugin = SitePlugin(
        site, WireSiteReader(workspace), workspace.clock, workspace.frontend.say, play_run, end_with_parent
    )
    try:
        run_async(serve(access, plugin, site, listen, workspace.frontend.say))
    except EngineError as error:
        raise SchedulerLost(str(error)) from None
    raise SchedulerLost(f"{access.url} is gone")
