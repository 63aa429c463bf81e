"""The `worker` use case: read nodes of one site for the leaders of an engine."""

from __future__ import annotations

from reconciler.app.rehearsal.processes import run_packed
from reconciler.app.runtime import run_async
from reconciler.app.site_reader import WireSiteReader
from reconciler.app.workspace import Workspace
from reconciler.drivers.engine.access import EngineError
from reconciler.drivers.engine.worker import SitePlugin, serve
from reconciler.model.errors import ReconcilerError, UsageError


class SchedulerLost(ReconcilerError):
    """The worker has no scheduler to work for."""


def work(workspace: Workspace, site: str, listen: str | None) -> None:
    """Work until SIGTERM. Raise UsageError for what can't be used, and SchedulerLost without a scheduler.

    `listen`: the address at which scheduler and workers reach this worker; None: loopback, for a scheduler there.
    """
    access = workspace.engine.access
    assert access is not None
    _ = workspace.secrets  # read at once: a file that is missing or open to others is told now
    if listen is None and not access.on_loopback:
        raise UsageError(f"--listen ADDRESS is needed: {access.url} is elsewhere, and has to reach this worker")
    plugin = SitePlugin(site, WireSiteReader(workspace), workspace.clock, workspace.frontend.say, run_packed)
    try:
        run_async(serve(access, plugin, site, listen, workspace.frontend.say))
    except EngineError as error:
        raise SchedulerLost(str(error)) from None
    raise SchedulerLost(f"{access.url} is gone")
