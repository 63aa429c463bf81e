"""Lines of the live view, made from the documents of a pass."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from reconciler.app.live.forge_links import SpecPages
from reconciler.converge.status import node_status
from reconciler.diff.facts import Managed, managed
from reconciler.diff.readings import Missing
from reconciler.model.drift import ACTIONABLE
from reconciler.model.live import FeedEntry, NodeLine, PoolLine, ValueLine, VersionLine
from reconciler.model.observed import Observation
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.records import JournalEntry
from reconciler.model.status import FleetStatus, NodeStatus
from reconciler.render.explain_waiting import headline
from reconciler.render.explanation import Explanation, Value, values
from reconciler.render.text import plain, position
from reconciler.strict_yaml.edit import inline, scalar

_LONG = 400  # characters of a sentence
_VERSIONS = ("image.version", "firmware.")
_WELL = ("done",)


def node_line(
    made: Explanation, status: FleetStatus | None, acting: frozenset[str], turned: datetime | None = None
) -> NodeLine:
    """Return the line of a planned node. `acting`: nodes that something is done to by now.

    `turned`: since when it is one of them, or no longer. The status after the latest pass knows nothing of it yet.
    """
    plan = made.node_plan
    assert plan is not None
    known = None if status is None else status.nodes.get(made.node)
    found = NodeStatus.ACTING if made.node in acting else node_status(plan, acting=False)
    same = known is not None and known.status is found
    return NodeLine(
        name=made.node,
        pool=plan.pool,
        persona=made.desired.persona,
        domains=made.desired.domains,
        status=found,
        since=known.since if same and known is not None else turned,
        in_service=plan.in_service,
        out_since=None if known is None else known.out_since,
        why=plain(_why(made, plan), _LONG),
        blocked="" if plan.blocked is None else plan.blocked.code.value,
        drift=sum(item.kind in ACTIONABLE for item in plan.drift),
        actions=len(plan.actions),
        disruption=plan.disruption.label,
    )


def _why(made: Explanation, plan: NodePlan) -> str:
    said = headline(made)
    if made.under_way or plan.blocked is None or not plan.blocked.detail:
        return said
    return f"{said}: {plan.blocked.detail}"


def pool_lines(lines: Sequence[NodeLine], versions: Iterable[VersionLine]) -> list[PoolLine]:
    """Return the pools in the order of their names."""
    matrix = list(versions)
    found = []
    for pool in sorted({line.pool for line in lines}):
        own = [line for line in lines if line.pool == pool]
        found.append(
            PoolLine(
                pool, len(own), sum(line.in_service is True for line in own),
                sum(line.in_service is False for line in own), Counter(line.status for line in own),
                tuple(line for line in matrix if line.pool == pool),
            )
        )  # fmt: skip
    return found


def version_lines(plan: Plan, made: Explanation, seen: Observation) -> Iterator[VersionLine]:
    """Yield how many nodes of each pool have which version of image and firmware; "unknown" is one, too."""
    counted: Counter[tuple[str, str, str, bool]] = Counter()
    wanted: set[tuple[str, str, str]] = set()
    rows: dict[str, list[Managed]] = {}  # by profile, which many nodes share
    for name, node in plan.nodes.items():
        profile = made.fleet.nodes[name].profile
        if profile.digest not in rows:
            rows[profile.digest] = [row for row in managed(profile) if row.path.startswith(_VERSIONS)]
        for row in rows[profile.digest]:
            what = row.path.removeprefix("firmware.").removesuffix(".version")
            read = row.read(seen.nodes[name])
            item = next((item for item in node.drift if item.path == row.path), None)
            same = item is None and not isinstance(read, Missing)
            found = row.shown if same else "unknown" if item is None or isinstance(read, Missing) else item.observed
            counted[node.pool, what, plain(str(found), 80), same] += 1
            wanted.add((node.pool, what, plain(str(row.shown), 80)))
    for pool, what, version in sorted(wanted):
        counted.setdefault((pool, what, version, True), 0)
    for (pool, what, version, same), many in sorted(counted.items()):
        yield VersionLine(pool, what, version, same, many)


def value_lines(made: Explanation, pages: SpecPages, requests: Mapping[str, int]) -> list[ValueLine]:
    """Return what the spec manages of a node. `requests`: the number of the pull request that brought a commit."""
    return [_value_line(one, pages, requests) for one in values(made)]


def _value_line(one: Value, pages: SpecPages, requests: Mapping[str, int]) -> ValueLine:
    commit = "" if one.origin is None else one.origin.commit
    return ValueLine(
        one.path, one.wanted, one.found, one.verdict, position(one.place), one.origin,
        pages.commit(commit), pages.pull(requests.get(commit, 0)),
    )  # fmt: skip


def difference(lines: Iterable[ValueLine]) -> str:
    """Return a unified diff of the values as YAML, desired first; a value that was not read is in neither."""
    known = [line for line in lines if line.observed is not None]
    desired = _yaml({line.path: line.desired for line in known})
    observed = _yaml({line.path: line.observed for line in known})
    return "".join(difflib.unified_diff(desired, observed, "desired", "observed", n=2))


def _yaml(paths: Mapping[str, Any]) -> list[str]:
    """Return the lines of a document with the paths of one concern below it."""
    concerns: dict[str, dict[str, Any]] = {}
    for path, value in sorted(paths.items()):
        concern, _, rest = path.partition(".")
        concerns.setdefault(concern, {})[rest or "value"] = json.loads(json.dumps(value, default=str, sort_keys=True))
    return [f"{line}\n" for concern, values in concerns.items() for line in _block(concern, values, "")]


def _block(key: str, value: Any, indent: str) -> Iterator[str]:
    """Yield a key and its value in YAML, one line for each scalar."""
    name = f"{indent}{scalar(key, flow=False)}:"
    if isinstance(value, dict) and value:
        yield name
        for inner, part in value.items():
            yield from _block(inner, part, indent + "  ")
    elif isinstance(value, list) and value:
        yield name
        for part in value:
            yield f"{indent}  - {inline(part, flow=isinstance(part, list | dict))}"
    else:
        yield f"{name} {inline(value)}"


def feed_entry(number: int, entry: JournalEntry) -> FeedEntry:
    """Return an entry of the events feed."""
    ended = entry.event == "outcome"
    return FeedEntry(
        number, entry.at, entry.run, entry.node, entry.event, entry.action, plain(entry.detail, _LONG), entry.commit,
        ended and entry.evidence.get("outcome") not in _WELL,
    )  # fmt: skip


def explained(base: Explanation, node: str, under_way: str = "") -> Explanation:
    """Return the explanation of another node from the same documents."""
    return replace(base, node=node, under_way=under_way)
