"""A document as text although the part of one node crashes the renderer: the others are shown (invariant 22)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from reconciler.model.crash import Crash, of_its_own
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.render.text import plain

D = TypeVar("D", Plan, DriftReport, ApplyOutcome, Observation)


def shown_apart(document: D, render: Callable[[D], str]) -> str:
    """Return what `render` makes of a document. Where it crashes, show the other nodes, and name the crashed ones.

    Raise the error again when no single node causes it.
    """
    try:
        return render(document)
    except Exception:  # the loop below finds the node that causes it; an error of no single node is raised again
        crashes = [crash for name in _names(document) if (crash := _alone(document, name, render)) is not None]
        if not crashes:
            raise
        rest = render(_only(document, set(_names(document)) - {crash.node for crash in crashes}))
    return rest + "".join(f"\n{crash.node} can't be shown: {plain(crash.sentence, 600)}\n" for crash in crashes)


def _alone(document: D, name: str, render: Callable[[D], str]) -> Crash | None:
    def work() -> None:
        render(_only(document, {name}))

    return of_its_own(name, "showing it", work, lambda crash: crash)


def _names(document: Plan | DriftReport | ApplyOutcome | Observation) -> list[str]:
    names = (item.node for item in document.items) if isinstance(document, DriftReport) else document.nodes
    return list(dict.fromkeys(names))


def _only(document: D, names: Iterable[str]) -> D:
    kept, whole = set(names), document
    parts: dict[str, Any]
    if isinstance(document, DriftReport):
        parts = {"items": tuple(item for item in document.items if item.node in kept)}
    else:
        parts = {"nodes": {name: node for name, node in document.nodes.items() if name in kept}}
    return replace(whole, **parts)
