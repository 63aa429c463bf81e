"""The drift report as text. Identical drift on many nodes is one row; details follow the summary (DESIGN 10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from reconciler.gate.decline import GRAY_DECLINE
from reconciler.model.drift import ACTIONABLE, DEPRECATED, DriftClass, DriftItem
from reconciler.model.report import DriftReport
from reconciler.model.vocab import Concern
from reconciler.render.headline import Headline, Verdict
from reconciler.render.markdown import Cell, MarkdownWriter
from reconciler.render.measured import range_of_values, wording_of
from reconciler.render.tables import table
from reconciler.render.text import NodeNames, clock, count, incidents, page, source, stop, value, warnings

ORDER = (
    DriftClass.CONFLICT,
    DriftClass.DRIFTED,
    DriftClass.PENDING,
    DriftClass.IN_PROGRESS,
    DriftClass.RENEWAL,
    DriftClass.REPORTED,
    DriftClass.UNKNOWN,
)
OWN = ("host.hostname", "identity.serial", "identity.uuid", "image.nonce")  # values that no two nodes share
_GRAY = f"health.{GRAY_DECLINE}"
_OWN_OF_LINKS = (".mac", ".addresses", ".gateway")
# Counted, not listed: they are not managed, or not to be acted upon (conventions D3).
COUNTED = (DriftClass.UNMANAGED, DriftClass.IGNORED, DriftClass.CONVERGED)


def is_own(path: str) -> bool:
    """Return whether the value at this path is one that no two nodes share, and that names a machine."""
    return path in OWN or (path.startswith("installed.network.") and path.endswith(_OWN_OF_LINKS))


class Row:
    """The same drift on one or more nodes, which may differ in what was measured."""

    def __init__(self) -> None:
        self.items: list[DriftItem] = []

    @cached_property
    def item(self) -> DriftItem:
        """The first, with the range of what was measured."""
        if wording_of(self.items[0]) == self.items[0].observed:
            return self.items[0]
        return replace(self.items[0], observed=range_of_values([item.observed for item in self.items]))

    @property
    def nodes(self) -> list[str]:
        return [item.node for item in self.items]

    @property
    def since(self) -> str:
        return self.item.first_seen.strftime("%m-%d %H:%M") if self.item.first_seen else ""


def grouped(items: Iterable[DriftItem]) -> Mapping[DriftClass, list[Row]]:
    """Rows by class, by concern and path; values that are each node's own fold into one row a path."""
    rows: dict[tuple[object, ...], Row] = {}
    for item in items:
        own = is_own(item.path)
        wanted, found = ("(its own)", "(another)") if own else (value(item.desired), value(wording_of(item)))
        key = (item.kind, item.path, wanted, found, item.detail)
        rows.setdefault(key, Row()).items.append(item)
    concerns = list(Concern)
    result: dict[DriftClass, list[Row]] = {}
    for row in sorted(rows.values(), key=lambda r: (concerns.index(r.item.concern), r.item.path, r.nodes[0])):
        result.setdefault(row.item.kind, []).append(row)
    return result


def verdict(report: DriftReport) -> str:
    """One sentence: what a person reads first."""
    nodes = {item.node for item in report.items if item.kind in ACTIONABLE}
    unsure = report.unknown - nodes - set(report.incomplete)
    clean = report.scope.selected - len(nodes | unsure | set(report.incomplete))
    differ = "differs" if len(nodes) == 1 else "differ"
    parts = [f"{count(len(nodes), 'node')} {differ} from the spec" if nodes else "no node differs from the spec"]
    troubled = {item.node for item in report.items if item.kind is DriftClass.REPORTED}
    if troubled:
        parts.append(f"{count(len(troubled), 'node')} with trouble that is reported only")
    if report.incomplete:
        parts.append(f"{count(len(report.incomplete), 'node')} could not be read in full")
    if unsure:
        parts.append(f"{count(len(unsure), 'node')} with values that are not known")
    parts.append(f"{clean:,} of {report.scope.selected:,} as specified")
    return "; ".join(parts)


def human(report: DriftReport) -> str:
    rows = grouped(report.items)
    lines = [
        f"Drift of fleet {report.fleet}: {verdict(report)}",
        *(f"  {line}" for line in (*stop(report.stopped, report.braked), *incidents(report.incidents))),
        f"  spec {source(report.source)}",
        f"  observed {clock(report.started_at)} to {report.finished_at.strftime('%H:%M:%S')}; "
        f"scope {report.scope.selected:,} of {count(report.scope.total, 'node')}",
        *(f"  {line}" for line in warnings(report.insecure, report.time_scale)),
    ]
    for kind in ORDER:
        found = rows.get(kind, [])
        if found:
            lines += ["", f"{kind.value} ({sum(len(row.nodes) for row in found)})"]
            head, cells = (_UNKNOWN_HEAD, _unknown(found)) if kind is DriftClass.UNKNOWN else (_HEAD, _all(found))
            lines += table(head, [tuple(str(cell) for cell in row) for row in cells])
    if counted := _counted(rows):
        lines += ["", f"not shown: {counted} (--output json has them)"]
    if report.incomplete:
        lines += ["", "Next: `reconciler doctor` says what to do about what does not answer."]
    elif DriftClass.UNKNOWN in rows:
        lines += ["", "Next: `reconciler explain NODE` says what of it is not known, and why."]
    if report.changes:
        lines += [
            "", "Next: `reconciler plan` shows what would be done, `reconciler explain NODE` why;",
            "`reconciler adopt NODE` makes the spec ask for what was found.",
        ]  # fmt: skip
    return page(lines)


def _counted(rows: Mapping[DriftClass, list[Row]]) -> str:
    counts = ((sum(len(row.nodes) for row in rows.get(kind, ())), kind) for kind in COUNTED)
    return ", ".join(f"{number} {kind.value}" for number, kind in counts if number)


_HEAD = ("path", "wanted", "found", "since", "nodes", "why")


def _cells(row: Row) -> tuple[Cell, ...]:
    item = row.item
    several = len(row.nodes) > 1 and is_own(item.path)
    wanted, found = ("each its own", "others") if several else (value(item.desired), value(item.observed))
    return (item.path, wanted, found, row.since, NodeNames(tuple(row.nodes)), item.detail)


_UNKNOWN_HEAD = ("nodes", "source", "why", "not known")


def _nameless(row: Row) -> tuple[Cell, ...]:
    """Serials name hardware, which is nobody's business in a comment (pitfall M5)."""
    path, wanted, found, *others = _cells(row)
    return (path, "its own", "another", *others) if is_own(str(path)) else (path, wanted, found, *others)


def _all(found: list[Row]) -> list[tuple[Cell, ...]]:
    return [_cells(row) for row in found]


REPORTED_HEAD = ("path", "wanted", "found", "nodes", "why")


def reported(items: Iterable[DriftItem]) -> list[tuple[Cell, ...]]:
    """Return the rows of what only a new install sets, of gray decline, and of deprecated APIs. No plan acts on them.

    Other signs of trouble that are reported only are in the drift report.
    """
    told = [item for item in items if item.kind is DriftClass.REPORTED and _told_in_plans(item)]
    rows = grouped(told).get(DriftClass.REPORTED, [])
    return [(path, wanted, found, nodes, why) for path, wanted, found, _, nodes, why in map(_nameless, rows)]


def _told_in_plans(item: DriftItem) -> bool:
    return item.concern is Concern.INSTALLED or item.path.startswith((_GRAY, DEPRECATED))


def _unknown(found: list[Row]) -> list[tuple[Cell, ...]]:
    """One row per cause: a silent source takes many values with it. Few values are named, many are counted."""
    causes: dict[tuple[tuple[str, ...], str, str], list[str]] = {}
    for row in found:
        source_ = row.item.source.value if row.item.source else ""
        causes.setdefault((tuple(row.nodes), source_, row.item.detail), []).append(row.item.path)
    rows: list[tuple[Cell, ...]] = []
    for (nodes, source_, why), paths in causes.items():
        concerns = dict.fromkeys(path.partition(".")[0] for path in paths)
        what = ", ".join(paths) if len(paths) <= 3 else f"{len(paths)} values of {', '.join(concerns)}"
        rows.append((NodeNames(nodes), source_, why, what))
    return rows


@dataclass(frozen=True, slots=True)
class Section:
    """The differences of one kind, as a table."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


def sections(rows: Mapping[DriftClass, list[Row]]) -> Iterator[Section]:
    for kind in ORDER:
        if found := rows.get(kind):
            title = f"{kind.value} ({sum(len(row.nodes) for row in found)})"
            if kind is DriftClass.UNKNOWN:
                yield Section(title, _UNKNOWN_HEAD, _unknown(found))
            else:
                yield Section(title, _HEAD, [_nameless(row) for row in found])


def headline(report: DriftReport) -> Headline:
    nodes = {item.node for item in report.items if item.kind in ACTIONABLE}
    unsure = report.unknown - nodes - set(report.incomplete)
    sign = "⚠️" if report.incomplete or unsure else "🔶" if nodes else "✅"
    differ = "differs" if len(nodes) == 1 else "differ"
    text = f"{count(len(nodes), 'node')} {differ}" if nodes else "no node differs"
    if report.incomplete:
        text += f", {len(report.incomplete):,} could not be read in full"
    if unsure:
        text += f", {len(unsure):,} unknown"
    return Headline(sign, text, Verdict.GOOD if report.tolerated else Verdict.BAD)


def write(writer: MarkdownWriter, report: DriftReport) -> None:
    """The same for a comment."""
    rows = grouped(report.items)
    writer.paragraph(verdict(report)[:1].upper() + verdict(report)[1:] + ".", bold=True)
    above = [*stop(report.stopped, report.braked), *incidents(report.incidents)]
    writer.quoted_list([*above, *warnings(report.insecure, report.time_scale)])
    for section in sections(rows):
        writer.heading(section.title)
        writer.table(section.head, section.rows)
    if counted := _counted(rows):
        writer.paragraph(f"Not shown: {counted}.")
    if report.changes or report.incomplete:
        with writer.details("What to do next"):
            writer.raw("\n".join([*(_UNDO if report.changes else ()), *(_LOOK if report.incomplete else ())]))
    writer.footnote(
        (
            f"spec {source(report.source)}",
            f"observed {clock(report.started_at)} to {report.finished_at:%H:%M:%S}",
            f"scope {report.scope.selected:,} of {count(report.scope.total, 'node')}",
        )
    )


_UNDO = (
    "- undo it: `reconciler plan --out plan.json`, then `reconciler apply --plan plan.json --yes`",
    "- accept it: `reconciler adopt NODE.path` edits the spec to ask for what was found",
    "- leave it out: a rule under `ignore:` in the Fleet, with a reason, an owner and an end",
)
_LOOK = ("- find out why a node does not answer: `reconciler doctor`",)
