"""A published observation with the names that the reader's own spec has for its digests (render/publish.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.model.desired import Fleet
from reconciler.model.observed import HIDDEN, Answered, Observation, Observed, Silent, Taint
from reconciler.model.printable import SEALED
from reconciler.model.published import OWN_NAMES, PUBLISHED_FORMAT, Published
from reconciler.model.records import Hold, NodeRecord, Rollout
from reconciler.model.vocab import UnknownReason
from reconciler.render.publish import PUBLISHED, Mentioned, Screen, own_names


@dataclass(frozen=True, slots=True)
class Restored:
    """A published document as a reader of the spec knows it. `unjudged`: path -> nodes at which nobody can tell."""

    observation: Observation
    records: Mapping[str, NodeRecord]
    holds: tuple[Hold, ...]
    rollouts: Mapping[str, Rollout]
    unjudged: Mapping[str, tuple[str, ...]]


def restore(published: Published, then: Fleet | None, revisions: Iterable[Fleet]) -> Restored:
    """Return a published document with the names that the spec knows.

    `then`: the spec of the commit at which it was published, None where it is not available; `revisions`: the specs to
    judge by. Each of their nodes gets an entry, also one that nobody had observed.

    A digest without a name in `then` is a name that the spec of then did not have. Nobody can tell whether a later
    revision names it, so it is taken out, and becomes unknown instead of drift.
    """
    fleets = list(revisions)
    words = (
        {}
        if then is None
        else {
            digest: own_names(then.nodes[name])[path]
            for name, node in published.nodes.items()
            if name in then.nodes
            for path, digest in node.wanted.items()
            if path in own_names(then.nodes[name])
        }
    )
    before = Mentioned(frozenset(published.bios), frozenset(published.labels), frozenset(published.taints))
    added = Mentioned.by(fleets) - before
    screen = Screen(lambda name: words.get(name, name), before)
    nodes: dict[str, Observed] = {}
    unjudged: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for fleet in fleets for name in fleet.nodes):
        if name not in published.nodes:
            silent = Silent(published.finished_at, UnknownReason.UNREACHABLE, "not among what was published")
            nodes[name] = Observed(name, silent, silent, silent, silent)
            continue
        seen = _with_hidden(screen.observed(published.nodes[name].observed), added)
        said_then = None if then is None or name not in then.nodes else own_names(then.nodes[name])
        later = [own_names(fleet.nodes[name]) for fleet in fleets if name in fleet.nodes]
        for path in OWN_NAMES:
            if any(path in said and (said_then is None or said[path] != said_then.get(path)) for said in later):
                seen, sealed = _without(seen, path)
                if sealed:
                    unjudged.setdefault(path, []).append(name)
        nodes[name] = seen
    observation = Observation(
        PUBLISHED_FORMAT,
        published.fleet,
        published.spec_commit,
        published.started_at,
        published.finished_at,
        nodes,
        insecure=published.insecure,
        time_scale=published.time_scale,
        control_plane=published.control_plane,
    )
    records = {
        name: replace(screen.record(node.record), paths=None if node.paths is None else frozenset(node.paths))
        for name, node in published.nodes.items()
    }
    rollouts = {pool: PUBLISHED.show(rollout, screen) for pool, rollout in published.rollouts.items()}
    return Restored(
        observation, records, published.holds, rollouts, {path: tuple(names) for path, names in unjudged.items()}
    )


def _without(seen: Observed, path: str) -> tuple[Observed, bool]:
    """Return the observation without the name at this path if it is a digest, and whether it was."""
    reading = "host" if path == "host.hostname" else "hot"
    field = path.rpartition(".")[2]
    answer: Answered[Any] | Silent = getattr(seen, reading)
    value = None if isinstance(answer, Silent) else getattr(answer.value, field)
    if isinstance(answer, Silent) or value is None or not value.startswith(SEALED):
        return seen, False
    unknown = {**answer.value.unknown, field: HIDDEN}
    changes: dict[str, Any] = {reading: replace(answer, value=replace(answer.value, **{field: None}, unknown=unknown))}
    return replace(seen, **changes), True


def _with_hidden(seen: Observed, added: Mentioned) -> Observed:
    """Put HIDDEN at all that the spec asks for by now and that was not published: nobody knows if it is there."""
    inventory, member = seen.inventory, seen.member
    if added.bios and isinstance(inventory, Answered) and inventory.value.bios is not None:
        value = replace(inventory.value, bios={**inventory.value.bios, **dict.fromkeys(added.bios, HIDDEN)})
        inventory = replace(inventory, value=value)
    if (added.labels or added.taints) and isinstance(member, Answered) and member.value is not None:
        own = member.value
        marks = tuple(Taint(key, HIDDEN, "") for key in sorted(added.taints))
        own = replace(own, labels={**own.labels, **dict.fromkeys(added.labels, HIDDEN)}, taints=(*own.taints, *marks))
        member = replace(member, value=own)
    return replace(seen, inventory=inventory, member=member)
