"""The status of a fleet as text: one screen, whatever its size. What needs a person comes before what does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime

from reconciler.model.fleet_overview import ClusterOverview, FleetOverview, K3sOverview, NodeCounts, Trouble
from reconciler.model.plan import BlockCode
from reconciler.model.status import NodeStatus
from reconciler.model.units import format_duration
from reconciler.model.vocab import UnknownReason
from reconciler.render import section
from reconciler.render.headline import Headline, Verdict
from reconciler.render.markdown import Cell
from reconciler.render.plan import spares
from reconciler.render.releases import said
from reconciler.render.section import Section
from reconciler.render.text import NodeNames, clock, count, page, plain, source, stop, warnings

SCREEN = 60  # lines: half of a large monitor
_ROWS = (20, 12, 8, 5, 3)  # of one section: the first number that fits on the screen; JSON has all
_NAMES = 60  # characters of the nodes of one row
_WHY = 160


def verdict(found: FleetOverview) -> str:
    """Return the sentence that a person reads first."""
    counts = found.counts
    parts = [f"{counts.as_asked:,} of {count(counts.nodes, 'node')} as specified"]
    parts += [f"{counts.in_service:,} in service", f"{counts.out:,} out"]
    if found.isolated:
        parts.append(f"{found.isolated:,} isolated")
    if found.trouble:
        parts.append(f"{len(found.trouble):,} {'needs' if len(found.trouble) == 1 else 'need'} a person")
    if found.incomplete:
        parts.append(f"{len(found.incomplete):,} could not be read in full")
    return ", ".join(parts)


def headline(found: FleetOverview) -> Headline:
    sign = "⚠️" if found.needs_person or found.incomplete else "🔶" if found.changes else "✅"
    return Headline(sign, verdict(found), Verdict.BAD if found.needs_person else Verdict.GOOD)


def human(found: FleetOverview, screen: int = SCREEN) -> str:
    """Return the status in at most `screen` lines, if that is at all enough for the heads of its sections."""
    tries = (_lines(found, most) for most in _ROWS)
    return page(next((lines for lines in tries if len(lines) <= screen), _lines(found, _ROWS[-1])))


def _lines(found: FleetOverview, most: int) -> list[str]:
    lines = [f"Status of fleet {plain(found.fleet)}: {verdict(found)}"]
    lines += [f"  {line}" for line in _notes(found)]
    for part in sections(found):
        lines += part.lines(most, _NAMES, _WHY)
    if found.trouble:
        lines += ["", "Next: `reconciler explain NODE` says why a node stands still, and what would let it go."]
    elif found.changes:
        lines += ["", "Next: `reconciler plan` shows what would be done."]
    if found.incomplete:
        lines += ["", "Next: `reconciler doctor` says what to do about what does not answer."]
    return lines


def as_markdown(found: FleetOverview) -> str:
    title = f"{headline(found).sign} Status of fleet {found.fleet}"
    return section.as_markdown(title, verdict(found), _notes(found), sections(found))


def _notes(found: FleetOverview) -> Iterator[str]:
    yield from stop(found.stopped, found.braked)
    yield from (f"REFUSED: {plain(why, 400)}" for why in found.refused)
    yield from (plain(note, 600) for note in found.notes)
    yield f"spec {source(found.source)}; read {clock(found.started_at)} to {found.finished_at:%H:%M:%S}"
    for line in found.budget:
        yield f"budget of the fleet: {len(line.out):,} of {line.limit:,} out ({line.rule})"
    yield from spares(found.spares)
    if found.finish_s:
        yield f"what is planned takes about {format_duration(found.finish_s)}"
    yield from warnings(found.insecure, found.time_scale)


def sections(found: FleetOverview) -> Iterator[Section]:
    if found.work or found.holders:
        yield _now(found)
    if found.trouble:
        nodes = f"Needs a person ({len(found.trouble):,})"
        yield Section(nodes, (), ("nodes", "why"), list(_trouble(found.trouble)))
    if found.incidents:
        met = [(one.signal, one.scope, NodeNames(one.nodes), one.detail) for one in found.incidents]
        yield Section(f"Incidents ({len(met)})", (), ("signal", "scope", "nodes", "what to do"), met)
    if found.rollouts:
        yield _rollouts(found)
    yield _pools(found.pools)
    for cluster in found.clusters:
        yield Section(_cluster(cluster), (*_kubelets(cluster), *_k3s(cluster)))
    if found.releases:
        rows = [(one.name, one.runs, one.status, "; ".join((said(one), *one.not_ready))) for one in found.releases]
        yield Section(f"Helm releases ({len(rows)})", (), ("release", "chart", "status", "what"), rows)
    if found.silent:
        yield Section("Did not answer", (), ("source", "nodes", "why"), [*_silent(found.silent)])


def _silent(silent: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    for what, number in silent.items():
        told, _, reason = what.partition(" ")
        known = "powered off, starting, or in the installer"
        yield told, f"{number:,}", known if reason == UnknownReason.EXPLAINED else reason.replace("_", " ")


def _now(found: FleetOverview) -> Section:
    says = []
    for one in found.holders:
        since = f" since {clock(one.since)}" if one.since is not None else ""
        says.append(f"{one.holder} acts on {one.scope}{since}")
    if not found.holders:
        says.append("no run holds the fleet: the next one goes on with what is unfinished")
    now = found.generated_at
    rows = [(one.node, one.action, _span(one.since, now), one.far, _span(now, one.end)) for one in found.work]
    head = ("node", "action", "for", "how far", "node done in about")
    return Section(f"Runs now ({len(rows):,})", tuple(says), head, rows)


def _span(begin: datetime | None, end: datetime | None) -> str:
    """Return the time between, at least 0s; "" where one of them is not known."""
    return "" if begin is None or end is None else format_duration(max((end - begin).total_seconds(), 0.0))


def _trouble(found: tuple[Trouble, ...]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each cause. The most nodes come first."""
    causes: dict[tuple[BlockCode | None, str], list[str]] = defaultdict(list)
    for one in found:
        causes[one.code, one.why].append(one.node)
    for (code, why), nodes in sorted(causes.items(), key=lambda cause: (-len(cause[1]), cause[1])):
        yield NodeNames(tuple(nodes)), f"{code}: {why}" if code is not None else why


def _rollouts(found: FleetOverview) -> Section:
    rows = []
    for one in sorted(found.rollouts, key=lambda one: (not one.halted, one.pool)):
        end = "" if one.end is None else f"about {clock(one.end)}"
        what = "rollback" if one.rollback else "rollout"
        state = f"HALTED: {one.halted}" if one.halted else what
        rows.append((one.pool, f"{one.wave} of {one.waves}", f"{one.done:,} of {one.nodes:,}", state, end))
    return Section(f"Rollouts ({len(rows)})", (), ("pool", "wave", "nodes done", "state", "through"), rows)


_COLUMNS = (
    NodeStatus.CONVERGED, NodeStatus.ACTING, NodeStatus.PLANNED, NodeStatus.WAITING, NodeStatus.BLOCKED,
    NodeStatus.HELD, NodeStatus.SET_ASIDE, NodeStatus.UNKNOWN,
)  # fmt: skip
_WORDS = {NodeStatus.CONVERGED: "as specified"}


def _pools(pools: Mapping[str, NodeCounts]) -> Section:
    """Return the table of pools, those with most nodes that are not as asked for first."""
    head = ("pool", "nodes", "in service", "out", *(_WORDS.get(one, one.replace("_", " ")) for one in _COLUMNS))
    rows = [
        (pool, f"{one.nodes:,}", *map(_number, (one.in_service, one.out, *(one.statuses.get(c, 0) for c in _COLUMNS))))
        for pool, one in sorted(pools.items(), key=lambda pair: (pair[1].as_asked - pair[1].nodes, -pair[1].out, pair))
    ]
    return Section(f"Pools ({len(rows):,})", (), head, rows)


def _number(many: int) -> str:
    return f"{many:,}" if many else ""


def _cluster(cluster: ClusterOverview) -> str:
    name = f"Cluster {plain(cluster.cluster)}"
    if cluster.trouble:
        return f"{name} can't be read: {plain(cluster.trouble, 300)}"
    parts = [f"{cluster.ready:,} ready", f"{cluster.not_ready:,} not ready", f"{cluster.cordoned:,} cordoned"]
    if cluster.absent:
        parts.append(f"{cluster.absent:,} not in it")
    if cluster.control_plane:
        parts.append(f"control plane {cluster.control_plane_ready} of {cluster.control_plane} ready")
    return f"{name} {plain(cluster.version, 40)}: {', '.join(parts)}"


def _k3s(cluster: ClusterOverview) -> Iterator[str]:
    found = cluster.k3s
    if found is None or cluster.trouble:
        return
    state = f"state in the database at {plain(found.database)}" if found.database else _etcd(found)
    yield (
        f"K3s: servers {found.servers_ready} of {found.servers} ready, agents {found.agents_ready:,} of "
        f"{found.agents:,} ready; {state}"
    )
    if found.first_end is not None:
        yield f"the first certificate ends {clock(found.first_end[0])}, on {plain(found.first_end[1])}"
    if found.ending:
        more = f" and {len(found.ending) - 4:,} more" if found.ending[4:] else ""
        yield f"certificates end within 60 days on {', '.join(map(plain, found.ending[:4]))}{more}: a start renews them"


def _etcd(found: K3sOverview) -> str:
    members = f"etcd has {found.members} {'member' if found.members == 1 else 'members'}"
    if found.spare is None:
        return f"{members}, as far as their hosts were read"
    return f"{members} and no quorum" if found.spare < 0 else f"{members}, of which {found.spare} may be lost now"


def _kubelets(cluster: ClusterOverview) -> tuple[str, ...]:
    if cluster.trouble or not cluster.kubelets:
        return ()
    versions = sorted(cluster.kubelets.items(), key=lambda pair: (-pair[1], pair[0]))
    told = [f"{version} ({many:,})" for version, many in versions[:4]]
    return (f"kubelets: {', '.join(told)}" + (f" and {len(versions) - 4} more versions" if versions[4:] else ""),)
