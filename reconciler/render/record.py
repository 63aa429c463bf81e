"""Drift reports and outcomes as `--record` keeps them: files that differ only when the fleet does, and a message.

A node that differs has a file of its own, without ages and instants; any other node has none. Text in a message may
come from machines: each is one printable line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from reconciler.model.documents import dump
from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.recording import KEPT, Recording
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.model.vocab import Concern
from reconciler.render import drift as drift_text
from reconciler.render import outcome as outcome_text
from reconciler.render.text import NodeNames, count, plain, source, value

_ROWS = 60  # of a message
_LINE = 300
_LEFT_OUT = (DriftClass.UNMANAGED, DriftClass.CONVERGED)
_ABOUT = """# What happened to fleets

Kept by `reconciler --record`: a commit for each change, and none when nothing changed.

- `FLEET/drift/POOL/NODE.json`: how this node differs from its spec; none when it does not
- `FLEET/applies/RUN.json`: what a run did; `reconciler show` renders it
"""


def of_drift(report: DriftReport, pools: Mapping[str, str]) -> Recording:
    """Return the recording of a drift report. `pools`: the pool of every node in the report."""
    by_node: dict[str, list[DriftItem]] = {}
    for item in report.items:
        if item.kind not in _LEFT_OUT:
            by_node.setdefault(item.node, []).append(item)
    root = f"{report.fleet}/drift/"
    files = {f"{root}{pools[node]}/{node}.json": _node(items) for node, items in by_node.items()}
    whole = report.scope.selected == report.scope.total
    return Recording(
        subject=f"drift: {_differs(report)}",
        body="\n".join([drift_text.verdict(report), "", *_rows(report), *_told(report)]),
        at=report.finished_at,
        files={KEPT: _ABOUT, **files},
        root=root,
        nodes=None if whole else frozenset(pools),
    )


def of_apply(outcome: ApplyOutcome, left: DriftReport, pools: Mapping[str, str], name: str = "") -> Recording:
    """Return the recording of an apply; without actions, that of the drift.

    `left`: the drift as the run left it. `name`: the name of its file, if that is not the run's.
    """
    seen = of_drift(left, pools)
    if not outcome.actions:
        return seen
    done = Counter((end.action, end.outcome) for end in outcome.actions)
    lines = [f"- {action}: {came}, {count(number, 'time')}" for (action, came), number in done.items()]
    failed = [f"- {node}: {end.detail}" for node, end in outcome.nodes.items() if end.state in ("failed", "crashed")]
    body = [outcome_text.verdict(outcome), "", *_some([*failed, *lines]), f"Left: {_differs(left)}", "", *_told(left)]
    ends = outcome_text.ends(outcome, idle=False)
    return replace(
        seen,
        subject=f"apply: {ends}; {count(len(outcome.actions), 'action')}",
        body="\n".join([*body, f"Run: {outcome.run}"]),
        files={**seen.files, f"{outcome.fleet}/applies/{name or outcome.run}.json": dump(outcome)},
    )


def _node(items: list[DriftItem]) -> str:
    """Return a node's file, without details: they are for people, and have other words each time."""
    told = {}
    for item in sorted(items, key=lambda item: item.path):
        told[item.path] = {"class": item.kind.value, "wanted": item.desired, "found": item.observed}
        if item.kind is DriftClass.CONFLICT or item.kind is DriftClass.PENDING:
            told[item.path]["applied"] = item.applied
    return json.dumps(told, indent=1, sort_keys=True) + "\n"


def _differs(report: DriftReport) -> str:
    items = [item for item in report.items if item.kind in ACTIONABLE]
    nodes = len({item.node for item in items})
    of = Counter(concern for _, concern in {(item.node, item.concern) for item in items})
    order = list(Concern)
    ranked = sorted(of, key=lambda concern: (-of[concern], order.index(concern)))
    told = ", ".join(f"{of[concern]} {concern.value}" for concern in ranked)
    differ = "differs" if nodes == 1 else "differ"
    text = f"{count(nodes, 'node')} {differ} ({told})" if nodes else "no node differs"
    return text + (f"; {len(report.incomplete)} not read in full" if report.incomplete else "")


def _rows(report: DriftReport) -> list[str]:
    rows = [
        f"- {row.item.path} {kind.value}: {value(row.item.observed)} instead of "
        f"{value(row.item.desired)} on {NodeNames(tuple(row.nodes)).within(_LINE // 2)}"
        for kind, found in drift_text.grouped(report.items).items()
        if kind in drift_text.ORDER
        for row in found
    ]
    return _some(rows)


def _some(lines: list[str]) -> list[str]:
    shown = [plain(line, _LINE) for line in lines[:_ROWS]]
    return [*shown, *([f"- and {len(lines) - _ROWS:,} more"] if len(lines) > _ROWS else []), *([""] if lines else [])]


def _told(report: DriftReport) -> list[str]:
    scope = report.scope
    part = [f"Scope: {scope.selected} of {scope.total} nodes"] if scope.selected != scope.total else []
    return [f"Fleet: {report.fleet}", f"Spec: {plain(source(report.source), _LINE)}", *part]
