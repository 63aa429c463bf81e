"""The signals that a node shows now: those that were read, and those that the ledger keeps."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.decline import GRAY_DECLINE, declines
from reconciler.health.peer_ports import unlike_peers
from reconciler.health.signals import Signal
from reconciler.health.table import table_of
from reconciler.model.desired import Desired, Profile
from reconciler.model.gate import Certificate
from reconciler.model.observed import Observed, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Source
from reconciler.planner.node.boot_proofs import boot_signals
from reconciler.planner.node.conditions import Context
from reconciler.planner.node.counted import counter_signals
from reconciler.planner.node.late_events import with_late
from reconciler.planner.node.unhealed import unhealed_signals
from reconciler.planner.node.watchdog import silence_signals


def shown_signals(desired: Desired, observed: Observed, record: NodeRecord, context: Context) -> tuple[Signal, ...]:
    """Return the signals that were read now, and those of the ledger: of earlier events, of the boot, of the gate."""
    shown = (*context.signals.of(desired.profile, observed), *boot_signals(desired, observed, record))
    shown = (*shown, *counter_signals(desired, observed, record), *silence_signals(desired, observed, record))
    if record.certificate is not None and record.certificate.first:
        shown = (*shown, *_gray_decline(record.certificate, desired.profile))
    shown = (*shown, *_unlike_peers(desired, observed, context))
    shown = with_late(shown, desired, observed, record)
    return (*shown, *unhealed_signals(desired, observed, record, shown))


def _unlike_peers(desired: Desired, observed: Observed, context: Context) -> Iterator[Signal]:
    pool = context.pool_ports.get(desired.pool)
    if pool is None or isinstance(observed.host, Silent):
        return
    table, profile = table_of(desired.profile), desired.profile
    for name, detail in unlike_peers(profile.inventory, observed.host.value.links or (), pool, table):
        yield Signal(name, detail, table.rule_of(name))


def _gray_decline(certificate: Certificate, profile: Profile) -> Iterator[Signal]:
    """Yield a signal for each metric that is less than when the node first passed the test. They are reported only."""
    for one in declines(certificate, profile.acceptance):
        now, first = (f"{value:g} {one.unit}".rstrip() for value in (one.now, one.first))
        said = f"{now}, {one.share:.1%} less than the {first} when it first passed"
        name = f"{GRAY_DECLINE}{one.test}.{one.metric}"
        yield Signal(name, said, table_of(profile).rule_of(name), Source.LEDGER)


def split_ignored(
    desired: Desired, found: tuple[Signal, ...], rules: IgnoreRules | None
) -> tuple[tuple[Signal, ...], tuple[Signal, ...]]:
    """Return the signals that count, and those that an ignore rule of the spec covers."""
    if not found or rules is None:
        return found, ()
    ignored = tuple(signal for signal in found if rules.match(desired, signal.path) is not None)
    return tuple(signal for signal in found if signal not in ignored), ignored
