"""The `plan` use case: what would be done, for one revision or a change between two, online or offline."""

from __future__ import annotations

from pathlib import Path

from reconciler.app.change_workspace import ChangeWorkspace, Revisions
from reconciler.app.documents import is_published
from reconciler.app.offline_workspace import OfflineChangeWorkspace, OfflineWorkspace
from reconciler.app.ports import FleetRequest, Frontend, PlanSource
from reconciler.app.publish import redacted
from reconciler.app.runtime import new_id
from reconciler.app.workspace import Workspace
from reconciler.model.documents import load
from reconciler.model.errors import UsageError
from reconciler.model.plan import Plan
from reconciler.model.published import Published


def open_workspace(request: FleetRequest, source: PlanSource, frontend: Frontend) -> Workspace:
    """Return the workspace for a plan of `source`; an offline one when its observation is a published one."""
    base, head = source.base, source.head
    if base is None and head is not None:
        raise UsageError(
            "--head needs --base, the revision that the change starts from; for a single revision use --rev"
        )
    if base is not None and request.rev is not None:
        raise UsageError("--rev excludes --base and --head: plan one revision, or a change between two")
    change = None if base is None else Revisions(base, head)
    text = b"" if source.observation is None else source.observation.read_bytes()
    if not is_published(text):
        return Workspace(request, frontend) if change is None else ChangeWorkspace(request, change, frontend)
    published = load(Published, text, name=str(source.observation))
    if change is None:
        return OfflineWorkspace(request, published, frontend)
    return OfflineChangeWorkspace(request, published, change, frontend)


def make_plan(workspace: Workspace, observation: Path | None, *, redact: bool) -> Plan:
    """Return the plan for the nodes as they are now, or as in the file `observation`."""
    workspace.check_selection()
    seen = workspace.observation(observation)
    with workspace.memory() as memory:
        if observation is None:
            workspace.foresee(seen, memory)
        plan = workspace.make_plan(seen, memory, new_id("plan", workspace.clock.now()))
        return redacted(plan, workspace, seen, memory) if redact else plan
