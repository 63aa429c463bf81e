"""The drift report as text. Identical drift on many nodes is one row; details follow the summary (DESIGN 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.report import DriftReport
from reconciler.model.vocab import Concern
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import clock, count, fold, markdown, source, stop, value, warnings

ORDER = (
    DriftClass.CONFLICT,
    DriftClass.DRIFTED,
    DriftClass.PENDING,
    DriftClass.IN_PROGRESS,
    DriftClass.RENEWAL,
    DriftClass.UNKNOWN,
)
# Counted, not listed: they are not managed, or not to be acted upon (conventions D3).
COUNTED = (DriftClass.UNMANAGED, DriftClass.IGNORED, DriftClass.CONVERGED)


class Row:
    """The same drift on one or more nodes."""

    def __init__(self, first: DriftItem) -> None:
        self.item = first
        self.nodes: list[str] = []

    @property
    def since(self) -> str:
        return self.item.first_seen.strftime("%m-%d %H:%M") if self.item.first_seen else ""


def grouped(items: Iterable[DriftItem]) -> Mapping[DriftClass, list[Row]]:
    """Rows by class, by concern and path; values that are each node's own fold into one row a path."""
    rows: dict[tuple[object, ...], Row] = {}
    for item in items:
        own = item.path in ("host.hostname", "identity.serial", "identity.uuid", "image.nonce")
        wanted, found = ("(its own)", "(another)") if own else (value(item.desired), value(item.observed))
        key = (item.kind, item.path, wanted, found, item.detail)
        rows.setdefault(key, Row(item)).nodes.append(item.node)
    concerns = list(Concern)
    result: dict[DriftClass, list[Row]] = {}
    for row in sorted(rows.values(), key=lambda r: (concerns.index(r.item.concern), r.item.path, r.nodes[0])):
        result.setdefault(row.item.kind, []).append(row)
    return result


def verdict(report: DriftReport) -> str:
    """One sentence: what a person reads first."""
    nodes = {item.node for item in report.items if item.kind in ACTIONABLE}
    clean = report.scope.selected - len(nodes | set(report.incomplete))
    differ = "differs" if len(nodes) == 1 else "differ"
    parts = [f"{count(len(nodes), 'node')} {differ} from the spec" if nodes else "no node differs from the spec"]
    if report.incomplete:
        parts.append(f"{count(len(report.incomplete), 'node')} could not be read in full")
    parts.append(f"{clean} of {report.scope.selected} as specified")
    return "; ".join(parts)


def human(report: DriftReport) -> str:
    rows = grouped(report.items)
    lines = [
        f"Drift of fleet {report.fleet}: {verdict(report)}",
        *(f"  {line}" for line in stop(report.stopped, report.braked)),
        f"  spec {source(report.source)}",
        f"  observed {clock(report.started_at)} to {report.finished_at.strftime('%H:%M:%S')}; "
        f"scope {report.scope.selected} of {count(report.scope.total, 'node')}",
        *(f"  {line}" for line in warnings(report.insecure, report.time_scale)),
    ]
    for kind in ORDER:
        found = rows.get(kind, [])
        if found:
            lines += ["", f"{kind.value} ({sum(len(row.nodes) for row in found)})"]
            lines += table(_UNKNOWN_HEAD, _unknown(found)) if kind is DriftClass.UNKNOWN else table(_HEAD, _all(found))
    counted = [
        f"{len_} {kind.value}" for kind in COUNTED if (len_ := sum(len(row.nodes) for row in rows.get(kind, [])))
    ]
    if counted:
        lines += ["", "not shown: " + ", ".join(counted) + " (--output json has them)"]
    if report.incomplete:
        lines += ["", "Next: `reconciler doctor` says what to do about what does not answer."]
    if report.changes:
        lines += ["", "Next: `reconciler plan` shows what would be done, `reconciler explain NODE` why."]
    return "\n".join(lines) + "\n"


_HEAD = ("path", "wanted", "found", "since", "nodes", "why")


def _cells(row: Row) -> tuple[str, ...]:
    item = row.item
    several = len(row.nodes) > 1 and item.path in ("host.hostname", "identity.serial", "identity.uuid", "image.nonce")
    wanted, found = ("each its own", "others") if several else (value(item.desired), value(item.observed))
    nodes = fold(row.nodes) + (f" ({len(row.nodes)})" if len(row.nodes) > 1 else "")
    return (item.path, wanted, found, row.since, nodes, item.detail)


_UNKNOWN_HEAD = ("nodes", "source", "why", "not known")


def _all(found: list[Row]) -> list[tuple[str, ...]]:
    return [_cells(row) for row in found]


def _unknown(found: list[Row]) -> list[tuple[str, ...]]:
    """One row per cause: a silent source takes many values with it. Few values are named, many are counted."""
    causes: dict[tuple[str, str, str], list[str]] = {}
    for row in found:
        source_ = row.item.source.value if row.item.source else ""
        causes.setdefault((fold(row.nodes), source_, row.item.detail), []).append(row.item.path)
    rows: list[tuple[str, ...]] = []
    for (nodes, source_, why), paths in causes.items():
        concerns = dict.fromkeys(path.partition(".")[0] for path in paths)
        what = ", ".join(paths) if len(paths) <= 3 else f"{len(paths)} values of {', '.join(concerns)}"
        rows.append((nodes, source_, why, what))
    return rows


def as_markdown(report: DriftReport) -> str:
    rows = grouped(report.items)
    sign = "⚠️" if report.incomplete else ("🔶" if report.changes else "✅")
    lines = [f"## {sign} Drift of fleet {markdown(report.fleet)}", "", f"**{markdown(verdict(report), 400)}**", ""]
    for line in [*stop(report.stopped, report.braked), *warnings(report.insecure, report.time_scale)]:
        lines += [f"> {markdown(line, 400)}", ""]
    for kind in ORDER:
        found = rows.get(kind, [])
        if not found:
            continue
        lines += [f"### {kind.value} ({sum(len(row.nodes) for row in found)})", ""]
        head, cells = (_UNKNOWN_HEAD, _unknown(found)) if kind is DriftClass.UNKNOWN else (_HEAD, _all(found))
        lines += [*markdown_table(head, [tuple(markdown(cell, 400) for cell in row) for row in cells]), ""]
    lines.append(
        f"<sub>spec {markdown(source(report.source), 200)} · observed {clock(report.started_at)} · "
        f"scope {report.scope.selected} of {report.scope.total}</sub>"
    )
    return "\n".join(lines) + "\n"
