"""Record in the ledger what an observation shows: identities, silences, drift, and what nodes have converged to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from reconciler.converge.status import service_statuses
from reconciler.diff import normalise
from reconciler.gate.asked import TESTS, kept_values
from reconciler.health.signals import unread_signals
from reconciler.model.bmc_log import unread_part
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.ledger_ports import HoldStore, NodeStore
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import NodePlan, is_crashed
from reconciler.model.records import CHANGES, IDLE, NodeRecord
from reconciler.model.vocab import BootPhase, Concern, NodeState, UnknownReason
from reconciler.planner.fleet import signal_history
from reconciler.planner.fleet.tally import Tally
from reconciler.planner.node.corroboration import same_uuid, unconfirmed
from reconciler.planner.node.holds import end_of, is_active, is_copy
from reconciler.planner.node.retest import is_idle
from reconciler.planner.node.signal_cache import SignalCache
from reconciler.planner.node.watchdog import BMC_LOG, WATCHED
from reconciler.spec.signals import PREFIX

Shown = frozenset[tuple[str, DriftClass]]  # the paths of the signals of a node, each with what is thought of it
LOOKS_APART = timedelta(hours=2)  # scheduled looks come hourly, and late
# A bug of ours is no silence of a source, and no evidence that a host is down.
_NO_SILENCE = frozenset({UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED, UnknownReason.CRASHED})


def remember_facts(
    ledger: NodeStore,
    nodes: Mapping[str, Desired],
    observed: Iterable[Observed],
    records: Mapping[str, NodeRecord],
    now: datetime,
) -> set[str]:
    """Record identities on which BMC and host agree, and since when sources have been silent.

    An identity other than the known one is not recorded before a person confirms it. Return the nodes of which anything
    was news. Nodes of another fleet are left out.
    """
    identities: dict[str, tuple[str | None, str | None]] = {}
    silent: list[tuple[str, str, bool]] = []
    for seen in observed:
        record = records.get(seen.node) or NodeRecord(seen.node)
        if record.fleet:
            continue
        identity, changed = of_its_own(
            seen.node, "noting who it is", partial(_news, nodes[seen.node], seen, record), _no_news
        )
        if identity is not None:
            identities[seen.node] = identity
        silent += changed
    if identities or silent:
        with ledger.batch():
            ledger.remember_identities(identities, now)
            ledger.note_silences(silent, now)
    return {*identities, *(node for node, _, _ in silent)}


_News = tuple[tuple[str | None, str | None] | None, list[tuple[str, str, bool]]]  # identity, silences


def _no_news(_crash: Crash) -> _News:
    return None, []


def _unknown(_crash: Crash) -> None:
    return None


def _news(desired: Desired, seen: Observed, record: NodeRecord) -> _News:
    """Return the identity that is new to the ledger (None = none is), and the silences that have begun or ended."""
    serial, uuid = (None, None) if unconfirmed(desired, agreed_identity(seen), record) else agreed_identity(seen)
    known = serial or record.serial, uuid or record.uuid
    is_new = (serial or uuid) is not None and known != (record.serial, record.uuid)
    changed = [
        (seen.node, source, silent)
        for source, silent in silences(seen).items()
        if silent is not (source in record.silent_since)
    ]
    idle = is_idle(desired, seen)
    if idle is not None and idle is not (record.idle_since is not None):
        changed.append((seen.node, IDLE, idle))
    return (serial, uuid) if is_new else None, changed


def remember_evidence(
    ledger: NodeStore,
    fleet: Fleet,
    observation: Observation,
    records: Mapping[str, NodeRecord],
    now: datetime,
    shown: SignalCache | None = None,
    states: Tally[str] | None = None,
) -> set[str]:
    """Record since when nodes show what isolates them, and since when version, spec and drivers are what they are.

    `records`: those of the nodes that were looked at, and that of the fleet's changes (`records_needed`). `shown`:
    shared with others that ask what nodes show. `states`: those of all nodes; None: the observation has them all.
    Return the nodes of which anything was news.
    """
    name = CHANGES + fleet.settings.fleet
    kept = records.get(name)
    known = {} if kept is None else kept.silent_since
    tally = signal_history.tally_states(fleet, observation) if states is None else states
    current = signal_history.states(tally)
    over = signal_history.gone(tally, known, current)
    news = [(name, key, True) for key in sorted(current - known.keys())] + [(name, key, False) for key in sorted(over)]
    news += signal_history.signal_updates(fleet, observation, records, kept, now, shown)
    if news:
        ledger.note_silences(news, now)
    return {node for node, _, _ in news}


def remember_signals(ledger: NodeStore, desired: Desired, seen: Observed, record: NodeRecord, now: datetime) -> bool:
    """Record events that a node shows, and looks at its counters, while it is worked on. Return whether any was news.

    Passes are far apart, and a node that was booted is admitted before the next one.
    """
    if record.fleet or desired.state is not NodeState.ACTIVE:
        return False
    _, updates = signal_history.kept_signals(desired, seen, record)
    if updates:
        ledger.note_silences([(desired.node, key, kept) for key, kept in updates], now)
    return bool(updates)


def agreed_identity(seen: Observed) -> tuple[str | None, str | None]:
    """Return the serial that BMC and host both report, and the UUID: of both, or of the host where the BMC has none.

    None where they disagree or one of them is silent. Where the BMC has no serial, an equal UUID shows that both are
    of one machine, and the serial is the host's.
    """
    if isinstance(seen.hot, Silent) or isinstance(seen.host, Silent):
        return None, None
    bmc, host = seen.hot.value, seen.host.value
    if bmc.serial is None and bmc.uuid is not None and host.uuid is not None:
        return (host.serial, bmc.uuid) if same_uuid(bmc.uuid, host.uuid) else (None, None)
    if bmc.serial is None or host.serial is None or normalise.text(bmc.serial) != normalise.text(host.serial):
        return None, None
    if bmc.uuid is None or host.uuid is None:
        return bmc.serial, host.uuid if bmc.uuid is None else None
    return bmc.serial, bmc.uuid if same_uuid(bmc.uuid, host.uuid) else None


def silences(seen: Observed) -> Mapping[str, bool]:
    """Return for each source and fact if it is silent without a known cause, and for `not_ready` what the cluster says.

    A host that boots counts as silent, though its cause is known: the boot may never end. Of a source that nobody read
    it is not known, so what the ledger has of it stays.
    """
    found = {}
    if not _is_unread(seen.hot):
        found["redfish"] = _silent(seen.hot)
    if isinstance(seen.inventory, Answered):
        found[BMC_LOG] = bool(unread_part(seen.inventory))
    if not _is_unread(seen.host):
        found["ssh"] = _silent(seen.host) or _boots(seen)
    if isinstance(seen.member, Answered):
        found["not_ready"] = seen.member.value is None or seen.member.value.ready is False
    if isinstance(seen.host, Answered):
        found |= {field: getattr(seen.host.value, field) is None for field in WATCHED}
    return found


def _boots(seen: Observed) -> bool:
    if isinstance(seen.hot, Silent) or isinstance(seen.host, Answered):
        return False
    return seen.hot.value.boot_phase in (BootPhase.POST, BootPhase.OS_BOOTING)


def _is_unread(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason is UnknownReason.NOT_READ


def _silent(reading: Answered[Any] | Silent) -> bool:
    return isinstance(reading, Silent) and reading.reason not in _NO_SILENCE


def remember_holds(ledger: HoldStore, fleet: Fleet, now: datetime) -> None:
    """Copy each hold of the spec to the ledger once, so that it outlives its line in the spec (invariant 10)."""
    kept = ledger.holds() if fleet.holds else ()
    new = [hold for hold in fleet.holds if is_active(hold, now) and not any(is_copy(known, hold) for known in kept)]
    if not new:
        return
    with ledger.batch():
        for hold in new:
            ledger.hold(hold.subject, hold.reason, hold.owner, end_of(hold), now, position=hold.position)


def remember_plans(
    ledger: NodeStore,
    fleet: Fleet,
    plans: Mapping[str, NodePlan],
    observed: Mapping[str, Observed],
    records: Mapping[str, NodeRecord],
    run: str,
    now: datetime,
    known: dict[str, Mapping[str, Any]] | None = None,
    shown: SignalCache | None = None,
) -> Mapping[tuple[str, str], tuple[datetime, datetime]]:
    """Record the drift of these plans, and values that are as desired as applied.

    Return when each difference was first and last seen, by (node, path). `observed`: what the plans were made from. A
    node whose planning crashed was not compared, so what is recorded of it stays. `known`: a cache of the values that
    profiles ask for, by digest. `shown`: shared with others that ask what nodes show.
    """
    known, shown = {} if known is None else known, shown or SignalCache()
    plans = {
        name: plan
        for name, plan in plans.items()
        if not is_crashed(plan) and (name not in records or not records[name].fleet)
    }
    hiding = {
        name: of_its_own(
            name, "noting its drift", partial(shown.unread, fleet.nodes[name].profile, observed[name]), _unknown
        )
        for name in plans
    }
    dark = {name: hidden for name, hidden in hiding.items() if hidden}
    plans = {name: plan for name, plan in plans.items() if hiding[name] is not None}
    items = [_row(item) for plan in plans.values() for item in plan.drift]
    met: dict[frozenset[str], list[str]] = {}
    with ledger.batch():
        for name, plan in plans.items():
            desired = fleet.nodes[name]
            asked = known.get(desired.profile.digest)
            if asked is None:
                asked = known[desired.profile.digest] = kept_values(desired.profile)
            if name not in records or records[name].paths is None:
                met.setdefault(_managed_paths(desired, asked), []).append(name)
            values = _converged(desired, plan, asked, records.get(name) or NodeRecord(name))
            if values:
                ledger.remember_applied(name, values, desired.profile.digest, fleet.source.commit, now)
        for paths, names in met.items():
            ledger.remember_paths(names, paths)
        return ledger.record_drift(run, items, list(plans), now, unread=dark)


def _row(item: DriftItem) -> tuple[str, str, str, Any, Any]:
    return item.node, item.path, item.kind.value, item.desired, item.observed


def remember_look(
    ledger: NodeStore, fleet: Fleet, look: tuple[Desired, Observed, NodeRecord, NodePlan], shown: Shown | None,
    run: str, now: datetime, *, worked: bool,
) -> Shown:  # fmt: skip
    """Record what a look at a node at work shows, and return its signals. `shown`: those of the look before;
    None = it is the first: a pass or a run that died may have recorded some which are gone.

    A fault that is told at once is healed within two minutes, and no pass may ever see it: reports know of it from
    here. `worked`: something was done to the node, so that its service status is recorded, too.
    """
    desired, seen, record, plan = look
    signals = [item for item in plan.drift if item.path.startswith(PREFIX)]
    now_shown = frozenset((item.path, item.kind) for item in signals)
    if now_shown != shown and not is_crashed(plan) and not record.fleet:
        unread = {plan.node: unread_signals(desired.profile, seen)}
        ledger.record_drift(run, [_row(one) for one in signals], [plan.node], now, unread=unread, under=PREFIX)
    if worked:
        remember_service_status(ledger, fleet, {plan.node: plan}, now, acting=[plan.node] if plan.changes else ())
    return now_shown


def remember_service_status(
    ledger: NodeStore,
    fleet: Fleet,
    plans: Mapping[str, NodePlan],
    now: datetime,
    *,
    acting: Collection[str] = (),
    within: timedelta = LOOKS_APART,
) -> None:
    """Record the service status of these nodes, for reports of availability.

    `acting`: nodes that are being worked on. `within`: the longest gap over which an earlier status still counts.
    """
    ledger.record_service_status(
        service_statuses(plans, acting=acting), now, within=within, whole=len(plans) == len(fleet.nodes)
    )


def _managed_paths(desired: Desired, asked: Mapping[str, Any]) -> frozenset[str]:
    """Return the paths of all values that are kept, with those that are the node's own and no profile's."""
    own = ("identity.serial", "identity.uuid", "image.nonce", *(("host.hostname",) if desired.hostname else ()))
    return frozenset({*own, *asked})


def _converged(desired: Desired, plan: NodePlan, asked: Mapping[str, Any], record: NodeRecord) -> Mapping[str, Any]:
    """Return the managed values that the node has and that the ledger has not recorded yet, by path."""
    differing = {item.path for item in plan.drift}
    values = dict(asked)
    if any(item.concern is Concern.GATE for item in plan.drift):  # what a void certificate still proves is not told
        differing.update(path for path in asked if path.startswith(TESTS))
    if desired.hostname is not None:
        values["host.hostname"] = desired.hostname
    return {
        path: value
        for path, value in values.items()
        if path not in differing and (path not in record.applied or record.applied[path].value != value)
    }
