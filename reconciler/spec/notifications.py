"""Turn the Fleet's notifications into channels, and check that what they name exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.notices import Channel, NoticeEvent
from reconciler.model.units import parse_duration
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.kinds.notifications import Notification
from reconciler.spec.kinds.tickets import Tickets
from reconciler.spec.limits import hours
from reconciler.spec.parse import Declarations, DeclaredResource


def channels(declared: Declarations) -> tuple[Channel, ...]:
    return tuple(_channel(one, declared) for one in declared.fleets[0].spec.notifications)


def _channel(spec: Notification, declared: Declarations) -> Channel:
    owned = (name for name, pool in sorted(declared.pools.items()) if pool.spec.owner in spec.owners)
    return Channel(
        spec.name,
        spec.url or "",
        spec.events or tuple(NoticeEvent),
        spec.severity,
        spec.pools or tuple(owned),
        spec.personas,
        tuple(map(hours, spec.quiet_hours)),
        parse_duration(spec.digest) if spec.digest else 0.0,
        parse_duration(spec.window_notice),
        spec.kubernetes,
        spec.via or "",
    )


def check_notifications(fleet: DeclaredResource[FleetSpec], declared: Declarations) -> Iterator[Diagnostic]:
    """Yield a problem for each name that nothing has. Call it for a spec that was read in full."""
    for index, one in enumerate(fleet.spec.notifications):
        if one.kubernetes and fleet.spec.cluster is None:
            yield fleet.problem(
                ("notifications", index, "kubernetes"), "the Fleet names no `cluster` to write Events in"
            )
    yield from _check(fleet, declared, "notifications", "channels", fleet.spec.notifications)
    yield from _check(fleet, declared, "tickets", "trackers", fleet.spec.tickets)


def _check(
    fleet: DeclaredResource[FleetSpec],
    declared: Declarations,
    field: str,
    what: str,
    given: Sequence[Notification | Tickets],
) -> Iterator[Diagnostic]:
    owners = {pool.spec.owner for pool in declared.pools.values() if pool.spec.owner is not None}
    names: list[str] = []
    for index, one in enumerate(given):
        place = (field, index)
        if one.name in names:
            yield fleet.problem((*place, "name"), f"there are two {what} {one.name!r}")
        names.append(one.name)
        for key, kind, selected, known in (
            ("pools", "pool", one.pools, set(declared.pools)),
            ("owners", "pool with owner", one.owners, owners),
            ("personas", "Persona", one.personas, set(declared.personas)),
        ):
            for at, name in enumerate(selected):
                if name not in known:
                    yield fleet.problem((*place, key, at), f"there is no {kind} {name!r}", did_you_mean(name, known))
