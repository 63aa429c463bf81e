"""Keep a pull request that has the spec want what nodes have, and says what it leaves to be corrected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.app.adopt import ObservedValues, edit_spec, read_tree, unadoptable_nodes
from reconciler.app.drift import DriftResult
from reconciler.app.proposing import ProposedChange, propose_by_hand
from reconciler.app.workspace import Workspace
from reconciler.diff.ignore import IgnoreRules
from reconciler.drivers.git import folder
from reconciler.model.desired import Fleet
from reconciler.model.errors import UsageError
from reconciler.model.observed import Observation
from reconciler.model.records import NodeRecord
from reconciler.model.report import DriftReport
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


@dataclass(frozen=True, slots=True)
class SeenDrift:
    """A fleet's drift, and what the ledger knows of its nodes. `report`: may be redacted, as `redaction` is.

    `nodes`: those that are looked at. `acting`: nodes with an unfinished action.
    """

    fleet: Fleet
    report: DriftReport
    observation: Observation
    nodes: Sequence[str]
    records: Mapping[str, NodeRecord]
    acting: Collection[str]
    redaction: Redaction


def proposed_change(seen: SeenDrift, files: SpecFiles, below: str, now: datetime) -> ProposedChange:
    """Return the change that adopts what can be adopted. `below`: the spec's folder in the repository."""
    fleet, nodes = seen.fleet, seen.observation.nodes
    excluded = unadoptable_nodes(fleet, seen.nodes, "", nodes, seen.records, seen.acting)
    rules = IgnoreRules(fleet.settings.ignore, now)
    values = ObservedValues(fleet, seen.nodes, "", nodes, rules, excluded, seen.redaction)
    adoption = edit_spec(values, files, WriteLevel.AUTO)
    written = [replace(one, where=one.where.removeprefix(f"{files.directory}/")) for one in adoption.written]
    adopted = {(item.node, item.path) for item in adoption.items}
    return ProposedChange(
        branch=f"reconciler/drift/{fleet.settings.fleet}",
        base=fleet.source.commit,
        files={f"{below}/{name}" if below else name: text for name, text in adoption.files.edited.items()},
        title=f"Adopt drift of fleet {fleet.settings.fleet}",
        text=drift_text(seen.report, adopted, written, adoption.left),
        unsure=frozenset(seen.report.incomplete) | seen.report.unknown | frozenset(excluded),
        adopted=frozenset((item.node, item.path, repr(item.observed)) for item in adoption.items),
    )


def propose_drift(
    workspace: Workspace, found: DriftResult, repository: str, say: Callable[[str], None], *, redact: bool
) -> None:
    """Keep the pull request of this fleet's drift. `repository`: "" = that of the CI job. `redact`: as `found` is.

    Raise UsageError where nothing was seen.
    """
    if found.outage:
        raise UsageError(f"nothing is proposed: {found.outage}")
    spec, fleet, seen = workspace.request.spec, workspace.fleet, found.observation
    files = SpecFiles(read_tree(spec), str(spec))
    with workspace.present_ledger() as ledger:
        records, acting = ledger.nodes(list(seen.nodes)), {node for _, node, *_ in ledger.unfinished()}
    hidden = Redaction(names_of(workspace.watched, seen, records) if redact else {}, strict=redact)
    drift = SeenDrift(fleet, found.report, seen, workspace.selection[0], records, acting, hidden)
    propose_by_hand(proposed_change(drift, files, folder(spec), workspace.clock.now()), repository, say)
