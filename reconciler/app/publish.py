"""Documents for readers who may not see serials, host names and addresses: --publish and --redact."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from reconciler.app.documents import write_file
from reconciler.app.workspace import Workspace
from reconciler.model.documents import dump
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.ports import Recollection
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.render.publish import publish
from reconciler.render.redact import names_of, redact

D = TypeVar("D", Plan, DriftReport, ApplyOutcome)


def publish_observation(workspace: Workspace, observation: Observation, path: Path) -> None:
    """Write what offline plans may be made from. Raise ReconcilerError when it can't be written.

    A pass on which this machine saw nothing leaves the file as it is.
    """
    if blind := observer_outage(workspace.watched, observation):
        workspace.frontend.say(f"not published: {blind}")
        return
    images = (node.profile.image for node in workspace.fleet.nodes.values())
    names = {image.key for image in images if image is not None and image.key is not None}
    keys = {name: key for name in sorted(names) if (key := workspace.secrets.public_key(name)) is not None}
    with workspace.memory() as ledger:
        published = publish(workspace.fleet, observation, ledger, secrets.token_bytes(32), keys)
    overlay = workspace.overlay
    write_file(path, dump(published if overlay is None else replace(published, epoch=overlay.epoch)))


def redacted(document: D, workspace: Workspace, observation: Observation, memory: Recollection) -> D:
    """Return `document` without the serials, names, addresses and vendors' logins of the observed machines."""
    names = names_of(workspace.watched, observation, memory.nodes(list(observation.nodes)))
    return redact(document, names, workspace.watched)
