"""Keep a pull request that has the spec want what nodes have, and says what it leaves to be corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from reconciler.app.adopt import Adoption, ObservedValues, edit_spec, read_tree, unadoptable_nodes
from reconciler.app.drift import DriftResult
from reconciler.app.forge_job import connect_forge
from reconciler.app.proposing import ProposedChange, propose
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.diff.ignore import IgnoreRules
from reconciler.drivers.git import folder
from reconciler.model.errors import UsageError
from reconciler.model.forge import ProposingForge
from reconciler.render.proposal import drift_text
from reconciler.render.redact import Redaction, names_of
from reconciler.spec.edit.accept import WriteLevel
from reconciler.spec.edit.files import SpecFiles


def check_proposable(workspace: Workspace) -> None:
    """Raise UsageError where no pull request can be made: of a spec that is not committed, or of some nodes alone."""
    request, source = workspace.request, workspace.fleet.source
    if request.limit or request.exclude:
        raise UsageError(
            "the one pull request is of the whole fleet, and would lose other nodes: give --propose no --limit and no "
            "--exclude, or adopt these nodes by `reconciler adopt`"
        )
    if not source.commit or source.dirty or source.rev:
        raise UsageError("a pull request is made of the spec as committed: commit or stash, and give no --rev")


def propose_drift(
    workspace: Workspace, found: DriftResult, repository: str, say: Callable[[str], None], *, redact: bool
) -> None:
    """Keep the pull request of this fleet's drift. `repository`: "" = that of the CI job. `redact`: as `found` is.

    Raise UsageError where nothing was seen.
    """
    if found.outage:
        raise UsageError(f"nothing is proposed: {found.outage}")
    adoption, excluded = _adopted(workspace, found, redact=redact)
    below, adopted = folder(workspace.request.spec), {(item.node, item.path) for item in adoption.items}
    place = f"{workspace.request.spec}/"
    written = [replace(one, where=one.where.removeprefix(place)) for one in adoption.written]
    change = ProposedChange(
        branch=f"reconciler/drift/{workspace.fleet.settings.fleet}",
        base=workspace.fleet.source.commit,
        files={f"{below}/{name}" if below else name: text for name, text in adoption.files.edited.items()},
        title=f"Adopt drift of fleet {workspace.fleet.settings.fleet}",
        text=drift_text(found.report, adopted, written, adoption.left),
        settled=not found.report.incomplete and not found.report.unknown and not excluded,
    )
    run_async(_propose(repository, change, say))


def _adopted(workspace: Workspace, found: DriftResult, *, redact: bool) -> tuple[Adoption, Mapping[str, str]]:
    """Return the edit, and node -> why none of its values is adopted."""
    files = SpecFiles(read_tree(workspace.request.spec), str(workspace.request.spec))
    names, fleet, seen = workspace.selection[0], workspace.fleet, found.observation.nodes
    with workspace.present_ledger() as ledger:
        records, acting = ledger.nodes(list(seen)), {node for _, node, *_ in ledger.unfinished()}
    hidden = Redaction(names_of(workspace.watched, found.observation, records) if redact else {}, strict=redact)
    excluded = unadoptable_nodes(fleet, names, "", seen, records, acting)
    rules = IgnoreRules(fleet.settings.ignore, workspace.clock.now())
    values = ObservedValues(fleet, names, "", seen, rules, excluded, hidden)
    return edit_spec(values, files, WriteLevel.AUTO), excluded


async def _propose(repository: str, change: ProposedChange, say: Callable[[str], None]) -> None:
    forge = connect_forge(repository)
    try:
        if not isinstance(forge, ProposingForge):
            raise UsageError("this forge takes no pull requests of ours")
        await propose(forge, change, say)
    finally:
        await forge.close()
