"""The texts of pull requests that we open."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from reconciler.model.drift import ACTIONABLE, DriftItem
from reconciler.model.report import DriftReport
from reconciler.render.tables import markdown_table
from reconciler.render.text import clock, fold, markdown, value
from reconciler.spec.edit.accept import WrittenValue

_MOST: Final = 100  # rows of a table; the commit has all of it
_CELL: Final = 120


def drift_text(
    report: DriftReport, adopted: Collection[tuple[str, str]], written: Sequence[WrittenValue], left: Sequence[str]
) -> str:
    """Return what the change adopts, with its evidence, and what it leaves to be corrected.

    `adopted`: nodes with paths. What is shown of them is the report's, which may be redacted.
    """
    items = [item for item in report.items if (item.node, item.path) in adopted]
    others = [item for item in report.items if item.kind in ACTIONABLE and (item.node, item.path) not in adopted]
    return "\n".join(
        [
            "Nodes differ from the spec. **Merging this has the spec want what they have;** closing it leaves the spec "
            "as it is, and `reconciler apply` corrects the nodes. It is edited in place while the drift changes.",
            "",
            "#### Adopted",
            "",
            *_table(("nodes", "value", "line"), [_edit(one) for one in written]),
            "",
            "#### Evidence",
            "",
            *_table(("node", "path", "spec", "observed", "since", "source"), [_row(one) for one in items]),
            *_corrected(others, left),
        ]
    )


def _corrected(others: Sequence[DriftItem], left: Sequence[str]) -> Iterator[str]:
    if others:
        yield from ("", "#### Not adopted: an apply would correct it", "")
        yield from _table(("node", "path", "spec", "observed", "since", "source"), [_row(one) for one in others])
    if left:
        yield ""
        yield from (f"- {markdown(sentence, 400)}" for sentence in left[:_MOST])


def _edit(one: WrittenValue) -> tuple[str, ...]:
    return markdown(fold(list(one.nodes)), _CELL), markdown(one.path), markdown(f"{one.where}: {one.why}", _CELL)


def _row(item: DriftItem) -> tuple[str, ...]:
    since = "" if item.first_seen is None else clock(item.first_seen)
    source = "" if item.source is None else item.source.value
    told = (markdown(value(one), _CELL) for one in (item.desired, item.observed))
    return markdown(item.node), markdown(item.path), *told, since, source


def _table(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield from markdown_table(head, rows[:_MOST])
    if len(rows) > _MOST:
        yield f"\nand {len(rows) - _MOST} more"
