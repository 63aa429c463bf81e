"""The pull request that brings the nodes of a spec in step with an inventory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from reconciler.app.adopt import read_tree
from reconciler.app.inventory.compare import compare
from reconciler.app.inventory.fields import InventoryRow
from reconciler.app.inventory.sources import InventorySource, fetch_rows
from reconciler.app.proposing import ProposedChange
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.drivers.git import folder
from reconciler.drivers.secrets import SecretStore
from reconciler.model.desired import Fleet
from reconciler.model.errors import UsageError
from reconciler.model.inventory import InventoryDifference, InventoryPolicy
from reconciler.render.proposal import inventory_text
from reconciler.spec.edit.files import SpecFiles
from reconciler.spec.edit.nodes import write_steps

_TOLD: Final = 20  # sentences at once; the text of the pull request and --dry-run have all


def left_to_you(difference: InventoryDifference, told: Collection[tuple[str, str]] = ()) -> list[str]:
    """Return sentences on what only a person can settle, without those `told` already."""
    new = [one for one in difference.left if one not in told]
    said = [f"the inventory leaves {node} to you: {why}" for node, why in new[:_TOLD]]
    if len(new) > _TOLD:
        said.append(f"{len(new) - _TOLD} more are left to you: `reconciler inventory propose --dry-run` lists them")
    return said


async def read_source(policy: InventoryPolicy, secrets: SecretStore) -> list[InventoryRow]:
    """Return the rows of the spec's inventory. Raise UsageError or DriverError, and never return a part."""
    source = InventorySource(policy.kind, policy.place, dict(policy.names))
    if not source.is_queried:
        return await fetch_rows(source, "")
    token = await asyncio.to_thread(secrets.resolve, policy.secret, policy.place, fresh=True)  # a program may print it
    return await fetch_rows(source, token.reveal())


def inventory_change(fleet: Fleet, difference: InventoryDifference, files: SpecFiles, below: str) -> ProposedChange:
    """Return the change that brings the spec in step. `below`: the spec's folder in the repository."""
    write_steps(files, fleet, difference)
    name, policy = fleet.settings.fleet, policy_of(fleet)
    return ProposedChange(
        branch=f"reconciler/inventory/{name}",
        base=fleet.source.commit,
        files={f"{below}/{one}" if below else one: text for one, text in files.edited.items()},
        title=f"Bring the nodes of fleet {name} in step with {policy.kind}",
        text=inventory_text(difference, policy),
    )


def policy_of(fleet: Fleet) -> InventoryPolicy:
    """Return the inventory that the spec names. Raise UsageError when it names none."""
    if fleet.settings.inventory is None:
        raise UsageError("the Fleet names no inventory: give it spec.inventory, with kind and url or file")
    return fleet.settings.inventory


def difference_of(workspace: Workspace) -> InventoryDifference:
    """Read the inventory, and return how the spec differs from it."""
    fleet = workspace.fleet
    policy = policy_of(fleet)
    rows = run_async(read_source(policy, workspace.secrets))
    with workspace.present_ledger() as ledger:
        return compare(fleet, policy, rows, ledger.nodes(list(fleet.nodes)))


def drafted_change(workspace: Workspace, difference: InventoryDifference) -> tuple[ProposedChange, SpecFiles]:
    """Return the change, and the edited files of the spec, of which none is written."""
    spec = workspace.request.spec
    files = SpecFiles(read_tree(spec), str(spec))
    return inventory_change(workspace.fleet, difference, files, folder(spec)), files


def check_committed(workspace: Workspace) -> None:
    """Raise UsageError where no pull request can be made, of a spec that is not as committed."""
    source = workspace.fleet.source
    if not source.commit or source.dirty or source.rev:
        raise UsageError("a pull request is made of the spec as committed: commit or stash, and give no --rev")
