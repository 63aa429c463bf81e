"""The texts of pull requests that we open."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from reconciler.model.drift import ACTIONABLE, DriftItem
from reconciler.model.inventory import InventoryDifference, InventoryPolicy, NodeStep
from reconciler.model.report import DriftReport
from reconciler.render.markdown import MarkdownWriter, write
from reconciler.render.text import NodeNames, clock, count, value
from reconciler.spec.edit.accept import WrittenValue

_STEP: Final = ("node", "pool", "edit", "evidence")
_HEAD: Final = ("node", "path", "spec", "observed", "since", "source")


def drift_text(
    report: DriftReport, adopted: Collection[tuple[str, str]], written: Sequence[WrittenValue], left: Sequence[str]
) -> str:
    """Return what the change adopts, with its evidence, and what it leaves to be corrected.

    `adopted`: nodes with paths. What is shown of them is the report's, which may be redacted. It is cut to what a forge
    takes, and then says of how many nodes nothing is shown.
    """
    items = [item for item in report.items if (item.node, item.path) in adopted]
    others = [item for item in report.items if item.kind in ACTIONABLE and (item.node, item.path) not in adopted]

    def document(out: MarkdownWriter) -> None:
        out.raw(
            "Nodes differ from the spec. **Merging this has the spec want what they have;** closing it leaves the spec "
            "as it is: then `reconciler apply` corrects the nodes, or the page of `run`, where an admin approves their "
            "plans. It is edited in place while the drift changes."
        )
        out.heading("Adopted", 4)
        out.table(("nodes", "value", "line"), [_edit(one) for one in written])
        out.heading("Evidence", 4)
        out.table(_HEAD, [_row(one) for one in items])
        if others:
            out.heading("Not adopted: an apply would correct it", 4)
            out.table(_HEAD, [_row(one) for one in others])
        out.bullet_list(left)
        shown = {one.node for part in (items, others) for one in part[: out.level.rows]}
        if hidden := {one.node for one in (*items, *others)} - shown:
            out.raw(f"**{count(len(hidden), 'node')} not shown here.**")

    return write(document, "the commit and `reconciler drift` have all of it").text


def inventory_text(difference: InventoryDifference, policy: InventoryPolicy) -> str:
    """Return what brings the spec in step with its inventory, node by node with the evidence, and what is left."""

    def document(out: MarkdownWriter) -> None:
        out.raw(
            f"The inventory ({policy.kind}) names {count(difference.known, 'node')}, and the spec has others. "
            "**Merging this brings the spec in step;** closing it leaves the spec as it is, and the same is "
            "not proposed again. It is edited in place while the inventory changes."
        )
        if difference.added:
            out.heading("New: managed once this is merged", 4)
            out.table(_STEP, [_step(one) for one in difference.added])
        if difference.changed:
            out.heading("Changed", 4)
            out.table(_STEP, [_step(one) for one in difference.changed])
        if difference.retired:
            out.heading("Retired: nothing acts on them any more, and nothing is erased", 4)
            out.table(_STEP, [_step(one) for one in difference.retired])
            out.raw(
                "They stay in the spec with their data on their drives. To erase a node before it leaves, give it "
                "`state: decommissioned` with `erase` instead, and let it go when that is done."
            )
        if difference.left:
            out.heading("Left to you", 4)
            out.bullet_list(f"{node}: {why}" for node, why in difference.left)
        shown = sum(min(len(one), out.level.rows) for one in (difference.added, difference.changed, difference.retired))
        if hidden := len(difference.steps) - shown:
            out.raw(f"**{count(hidden, 'node')} not shown here.**")

    return write(document, "the commit and `reconciler inventory propose --dry-run` have all of it").text


def _step(one: NodeStep) -> tuple[str, str, str, str]:
    edits = "; ".join(
        f"{edit.path}: {edit.after}" + (f" (was {edit.before})" if edit.before else "") for edit in one.edits
    )
    return one.node, one.pool, edits, one.why


def _edit(one: WrittenValue) -> tuple[NodeNames, str, str]:
    return NodeNames(one.nodes), one.path, f"{one.where}: {one.why}"


def _row(item: DriftItem) -> tuple[str, ...]:
    since = "" if item.first_seen is None else clock(item.first_seen)
    source = "" if item.source is None else item.source.value
    return item.node, item.path, value(item.desired), value(item.observed), since, source
