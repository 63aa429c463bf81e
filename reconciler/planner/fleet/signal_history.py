"""The history of health signals: since when a node shows each, and which change came shortly before.

The ledger keeps the time at which a signal was first seen beside the node's silences, under the signal's value path;
when a change of reconciler, spec or driver came less than an hour before, under "PATH after CHANGE", which is kept for
a day even if the signal disappears meanwhile. The changes of a fleet have a record of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import lru_cache, partial

from reconciler import __version__
from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.certificate import digest_of
from reconciler.health.signals import Signal
from reconciler.health.table import Effect
from reconciler.model.crash import Crash, of_its_own
from reconciler.model.desired import Desired, DesiredInventory, Fleet, Profile, Remediation
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.records import LASTS, NodeRecord
from reconciler.model.signal_changes import SignalChange
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.domain_incidents import shared_updates
from reconciler.planner.fleet.tally import Tally
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.boot_proofs import boot_signals
from reconciler.planner.node.counted import counter_signals, counter_updates
from reconciler.planner.node.late_events import log_updates, with_late
from reconciler.planner.node.signal_cache import SignalCache
from reconciler.planner.node.unhealed import kept_updates, unhealed_signals
from reconciler.planner.node.withheld import lasting_updates

Updates = tuple[tuple[str, bool], ...]  # (key, whether the signal is shown now)

NEWS = timedelta(hours=1)
AFTER = " after "
UNREAD = "unread "  # before a pool, among the keys of its nodes: the driver of this one was not read
FLAPS = timedelta(days=1)  # a signal that returns within a day after a change is still that change's


def first_seen(key: str) -> tuple[str, str]:
    """Split a key of `NodeRecord.silent_since` into (signal, the change before it); ("", "") if it is no signal's."""
    if not key.startswith("health."):
        return "", ""
    signal, _, change = key.partition(AFTER)
    return signal, change


def states_of(node: Desired, seen: Observed | None) -> tuple[str, ...]:
    """Return the spec and the driver of a node, as keys of the fleet's record of changes; or that it was not read."""
    driver = None if seen is None else _driver(seen)
    return _spec(node.pool, node.profile), f"driver {node.pool} {driver}" if driver is not None else UNREAD + node.pool


def tally_states(fleet: Fleet, observation: Observation) -> Tally[str]:
    """Count the specs and drivers of all nodes of a fleet."""
    found = Tally[str]()
    for name, node in fleet.nodes.items():
        found.take(name, states_of(node, observation.nodes.get(name)))
    return found


def states(tally: Iterable[str]) -> frozenset[str]:
    """Return the current version, specs and drivers, each as a key of the fleet's record of changes."""
    return frozenset([f"reconciler {__version__}", *(key for key in tally if not key.startswith(UNREAD))])


def gone(tally: Iterable[str], known: Mapping[str, datetime], now: frozenset[str]) -> frozenset[str]:
    """Return the recorded keys that no longer hold. A pool that was not read in full keeps its drivers."""
    kept = tuple(f"driver {key.removeprefix(UNREAD)} " for key in tally if key.startswith(UNREAD))
    return frozenset(key for key in known if key not in now and not (kept and key.startswith(kept)))


def after_change(
    fleet: Fleet, observed: Observed, record: NodeRecord, changes: NodeRecord | None, now: datetime
) -> str:
    """Return the change, in words, that came less than an hour before `now`; "" when there was none."""
    node = fleet.nodes[observed.node]
    words = {
        f"reconciler {__version__}": f"reconciler {__version__} runs",
        _spec(node.pool, node.profile): f"the spec expects something else of pool {node.pool}",
    }
    driver = _driver(observed)
    if driver is not None:
        words[f"driver {node.pool} {driver}"] = f"pool {node.pool} runs driver {driver}"
    known = {} if changes is None else changes.silent_since
    for key, what in words.items():
        since = known.get(key, now)  # a state that is not recorded yet is new
        if since > now - NEWS:
            return f"{what} since {since:%Y-%m-%d %H:%M} UTC"
    for attempt in reversed(record.attempts):
        if spec_of(attempt.action).overwrites and attempt.outcome != "refused" and attempt.begun > now - NEWS:
            return f"{attempt.action} at {attempt.begun:%Y-%m-%d %H:%M} UTC"
    return ""


def kept_signals(
    desired: Desired, seen: Observed, record: NodeRecord, signals: SignalCache | None = None
) -> tuple[tuple[Signal, ...], Updates]:
    """Return the signals of a node, and what the ledger keeps to judge them later: signals, and looks at counters.

    The latter as (key, whether it is kept from now on). `signals`: shared with others that ask what nodes show.
    """
    risen = counter_signals(desired, seen, record)
    shown = (signals or SignalCache()).of(desired.profile, seen)
    found = (*shown, *boot_signals(desired, seen, record), *risen)
    found = with_late(found, desired, seen, record)
    earlier = unhealed_signals(desired, seen, record, found)
    looks, events = counter_updates(desired, seen, record, risen), kept_updates(desired, seen, record, found)
    return (*found, *earlier), (*looks, *events, *log_updates(seen, record))


def signal_updates(
    fleet: Fleet,
    observation: Observation,
    records: Mapping[str, NodeRecord],
    changes: NodeRecord | None,
    now: datetime,
    signals: SignalCache | None = None,
) -> Iterator[tuple[str, str, bool]]:
    """Yield (node, key, whether it is shown now) for signals that are new to the ledger, or over."""
    signals = signals or SignalCache()
    rules = IgnoreRules(fleet.settings.ignore, now)
    for name, seen in observation.nodes.items():
        desired, record = fleet.nodes.get(name), records.get(name)
        if desired is None or record is None:
            continue
        change = partial(after_change, fleet, seen, record, changes, now)
        look = partial(_updates_of, desired, seen, record, rules, change, now, signals)
        yield from ((name, *update) for update in of_its_own(name, "noting its signals", look, _nothing_noted))


def _nothing_noted(_crash: Crash) -> Updates:
    return ()


def _updates_of(
    desired: Desired,
    seen: Observed,
    record: NodeRecord,
    rules: IgnoreRules,
    change: Callable[[], str],
    now: datetime,
    signals: SignalCache,
) -> Updates:
    """Return what is new of one node. `change`: as `after_change`."""
    if desired.state is not NodeState.ACTIVE:  # whoever has it reads its log
        return tuple(log_updates(seen, record))
    kept = {first_seen(key)[0]: key for key in record.silent_since if key.startswith("health.")}
    found, updates = kept_signals(desired, seen, record, signals)
    outside = {one.path for one in found if one.rule.domains and rules.match(desired, one.path) is None}
    news = [*updates, *shared_updates(desired, seen, record, outside, now, signals)]
    if not kept and not found and not any(key.startswith(LASTS) for key in record.silent_since):
        return tuple(news)
    missing = signals.unread(desired.profile, seen)
    news += lasting_updates(found, missing, record)
    hard = (signal.path for signal in found if signal.effect is Effect.ISOLATES)
    shown = {path for path in hard if rules.match(desired, path) is None}
    for signal in sorted(shown - kept.keys()):
        before = change()
        news.append((signal + (AFTER + before if before else ""), True))
    for signal, key in kept.items():
        if signal in shown or (missing and signal.startswith(missing)):
            continue
        if not first_seen(key)[1] or record.silent_since[key] <= now - FLAPS:
            news.append((key, False))
    return tuple(news)


def _driver(seen: Observed) -> str | None:
    return seen.host.value.driver if isinstance(seen.host, Answered) else None


def _spec(pool: str, profile: Profile) -> str:
    """Return the key of what signals are judged by: inventory, policy on XIDs and conditions, rows of the table."""
    return f"spec {pool} {_judged_by(profile.inventory, profile.remediation, profile.health)}"


@lru_cache(maxsize=256)
def _judged_by(inventory: DesiredInventory, policy: Remediation | None, health: tuple[SignalChange, ...]) -> str:
    said = None if policy is None else [policy.ignore_xids, [asdict(one) for one in policy.node_conditions]]
    rows = [[asdict(change) for change in health]] if health else []
    return digest_of([asdict(inventory), said, *rows])[:16]
