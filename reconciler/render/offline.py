"""The warnings of a plan that was made offline."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.plan import Plan
from reconciler.model.units import format_duration
from reconciler.render.text import NodeNames, clock

MOST_S = 86400.0  # as long as an inventory is good for, if a fleet says nothing else


def age_s(made: Plan) -> float:
    return 0.0 if made.offline is None else max(0.0, (made.created_at - made.offline.published_at).total_seconds())


def doubtful(made: Plan) -> bool:
    """Return whether a person has to look before anybody relies on the plan."""
    moved = made.change is not None and bool(made.change.endpoints)
    return made.offline is not None and (moved or bool(made.offline.unjudged) or _old(made))


def _old(made: Plan) -> bool:
    return age_s(made) > MOST_S * made.time_scale


def sentences(made: Plan) -> Iterator[str]:
    if made.offline is None:
        return
    yield (
        "Made offline: no node was contacted, and this plan is never applied. It uses what was published "
        f"{format_duration(age_s(made))} before, at {clock(made.offline.published_at)}"
    )
    if _old(made):
        yield "That is too old to rely on: run the drift workflow, which publishes anew, then this one again"
    for path, nodes in made.offline.unjudged.items():
        yield (
            f"Not judged: {path} of {NodeNames(nodes).within(300)}. The spec has changed it since, and only digests of "
            "the observed values were published"
        )
