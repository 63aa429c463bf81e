"""What a pass teaches the ledger: identities, silences, drift, and what nodes have converged to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from reconciler.converge.status import standing
from reconciler.diff import normalise
from reconciler.diff.facts import Managed, managed
from reconciler.health.signals import unread
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import NodePlan, is_crashed
from reconciler.model.ports import Ledger
from reconciler.model.records import CHANGES, NodeRecord
from reconciler.model.vocab import BootPhase, UnknownReason
from reconciler.planner.fleet import signal_history
from reconciler.planner.node.holds import end_of, is_active, is_copy

LOOKS_APART = timedelta(hours=2)  # scheduled ones come hourly, and late
# A bug of ours is no silence of theirs, and no evidence of a host that is down.
_NO_SILENCE = frozenset({UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED, UnknownReason.CRASHED})


def remember_facts(
    ledger: Ledger, observed: Iterable[Observed], records: Mapping[str, NodeRecord], now: datetime
) -> bool:
    """Identity that BMC and host agree on, and since when sources have been silent. Whether anything was news."""
    identities: dict[str, tuple[str | None, str | None]] = {}
    silent: list[tuple[str, str, bool]] = []
    for seen in observed:
        record = records.get(seen.node) or NodeRecord(seen.node)
        if record.fleet:
            continue
        identity, changed = of_its_own(seen.node, "noting who it is", partial(_news, seen, record), _none)
        if identity is not None:
            identities[seen.node] = identity
        silent += changed
    if identities or silent:
        with ledger.batch():
            ledger.remember_identities(identities, now)
            ledger.note_silences(silent, now)
    return bool(identities or silent)


_News = tuple[tuple[str | None, str | None] | None, list[tuple[str, str, bool]]]  # identity, silences


def _none(_crash: Crash) -> _News:
    return None, []


def _unknown(_crash: Crash) -> None:
    return None


def _news(seen: Observed, record: NodeRecord) -> _News:
    """The identity that the ledger does not know yet (None: it does), and the silences that have begun or ended."""
    serial, uuid = agreed_identity(seen)
    is_new = serial is not None and (serial, uuid or record.uuid) != (record.serial, record.uuid)
    changed = [
        (seen.node, source, silent)
        for source, silent in silences(seen).items()
        if silent is not (source in record.silent_since)
    ]
    return (serial, uuid) if is_new else None, changed


def remember_evidence(
    ledger: Ledger, fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord], now: datetime
) -> None:
    """Since when nodes have shown what isolates, and since when version, spec and drivers are what they are.

    `records`: of the nodes that were looked at, and of the fleet's changes (`records_needed`).
    """
    name = CHANGES + fleet.settings.fleet
    kept = records.get(name)
    known = {} if kept is None else kept.silent_since
    current = signal_history.states(fleet, observation)
    over = signal_history.gone(fleet, observation, known, current)
    news = [(name, key, True) for key in sorted(current - known.keys())] + [(name, key, False) for key in sorted(over)]
    news += signal_history.signal_updates(fleet, observation, records, kept, now)
    if news:
        ledger.note_silences(news, now)


def agreed_identity(seen: Observed) -> tuple[str | None, str | None]:
    """Serial that the BMC and the host both give; UUID that both give, or the host alone where its BMC gives none."""
    if isinstance(seen.hot, Silent) or isinstance(seen.host, Silent):
        return None, None
    bmc, host = seen.hot.value, seen.host.value
    if bmc.serial is None or host.serial is None or normalise.text(bmc.serial) != normalise.text(host.serial):
        return None, None
    if bmc.uuid is None or host.uuid is None:
        return bmc.serial, host.uuid if bmc.uuid is None else None
    return bmc.serial, bmc.uuid if normalise.same(bmc.uuid, host.uuid) else None


def silences(seen: Observed) -> Mapping[str, bool]:
    """By source: silent without a known cause. `not_ready`: the cluster says that there is no Ready node.

    A boot is a known cause and counts all the same: one that takes for ever is none.
    """
    found = {"redfish": _silent(seen.hot), "ssh": _silent(seen.host) or _boots(seen)}
    if isinstance(seen.member, Answered):
        found["not_ready"] = seen.member.value is None or seen.member.value.ready is False
    return found


def _boots(seen: Observed) -> bool:
    if isinstance(seen.hot, Silent) or isinstance(seen.host, Answered):
        return False
    return seen.hot.value.boot_phase in (BootPhase.POST, BootPhase.INSTALLER, BootPhase.OS_BOOTING)


def _silent(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason not in _NO_SILENCE


def remember_holds(ledger: Ledger, fleet: Fleet, now: datetime) -> None:
    """Copy what the spec holds, once each, so that it outlives its line there (invariant 10)."""
    kept = ledger.holds() if fleet.holds else ()
    new = [hold for hold in fleet.holds if is_active(hold, now) and not any(is_copy(known, hold) for known in kept)]
    if not new:
        return
    with ledger.batch():
        for hold in new:
            ledger.hold(hold.subject, hold.reason, hold.owner, end_of(hold), now, position=hold.position)


def remember_plans(
    ledger: Ledger,
    fleet: Fleet,
    plans: Mapping[str, NodePlan],
    observed: Mapping[str, Observed],
    records: Mapping[str, NodeRecord],
    run: str,
    now: datetime,
    tables: dict[str, tuple[Managed, ...]] | None = None,
) -> Mapping[tuple[str, str], tuple[datetime, datetime]]:
    """Drift as of now, with its first and last sight by (node, path); and what is as desired is as applied.

    `observed`: what the plans were made of. A node that nobody could plan was not compared: it stays as it was known.
    """
    tables = {} if tables is None else tables
    plans = {
        name: plan
        for name, plan in plans.items()
        if not is_crashed(plan) and (name not in records or not records[name].fleet)
    }
    hiding = {
        name: of_its_own(name, "noting its drift", partial(unread, fleet.nodes[name].profile, observed[name]), _unknown)
        for name in plans
    }
    dark = {name: hidden for name, hidden in hiding.items() if hidden}
    plans = {name: plan for name, plan in plans.items() if hiding[name] is not None}
    items = [(i.node, i.path, i.kind.value, i.desired, i.observed) for plan in plans.values() for i in plan.drift]
    met: dict[frozenset[str], list[str]] = {}
    with ledger.batch():
        for name, plan in plans.items():
            desired = fleet.nodes[name]
            table = tables.get(desired.profile.digest)
            if table is None:
                table = tables[desired.profile.digest] = managed(desired.profile)
            if name not in records or records[name].paths is None:
                met.setdefault(_managed_paths(desired, table), []).append(name)
            values = _converged(desired, plan, table, records.get(name) or NodeRecord(name))
            if values:
                ledger.remember_applied(name, values, desired.profile.digest, fleet.source.commit, now)
        for paths, names in met.items():
            ledger.remember_paths(names, paths)
        return ledger.record_drift(run, items, list(plans), now, unread=dark)


def remember_service_status(
    ledger: Ledger, fleet: Fleet, plans: Mapping[str, NodePlan], now: datetime, *, acting: Collection[str] = (),
    within: timedelta = LOOKS_APART,
) -> None:  # fmt: skip
    """How these nodes stand, for reports of availability. `within`: of a longer gap nobody knows anything."""
    ledger.record_service_status(
        standing(plans, acting=acting), now, within=within, whole=len(plans) == len(fleet.nodes)
    )


def _managed_paths(desired: Desired, table: tuple[Managed, ...]) -> frozenset[str]:
    """With those of the node's own that no change of the spec brings about."""
    own = ("identity.serial", "identity.uuid", "image.nonce", *(("host.hostname",) if desired.hostname else ()))
    return frozenset({*own, *(row.path for row in table)})


def _converged(desired: Desired, plan: NodePlan, table: tuple[Managed, ...], record: NodeRecord) -> Mapping[str, Any]:
    """Managed values that the node has and the ledger does not know of yet. What differs or is unknown is drift."""
    differing = {item.path for item in plan.drift}
    values = {row.path: row.shown for row in table}
    if desired.hostname is not None:
        values["host.hostname"] = desired.hostname
    return {
        path: value
        for path, value in values.items()
        if path not in differing and (path not in record.applied or record.applied[path].value != value)
    }
