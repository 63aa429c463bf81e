"""Judge passive health: no XID or SXid since boot, no health signal, every NVLink up, and every cell read.

Acceptance is stricter than operation: on an idle node even the XID of an application is suspect, so only those that the
remediation policy lists are allowed (acceptance 3.1), and of these none that isolates a node in service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.diff.facts import managed
from reconciler.diff.gpus import lacks_ecc_counters, summarise_gpus
from reconciler.diff.readings import Missing
from reconciler.gate.tools.common import ResultBuilder, Tool
from reconciler.health.signals import strictest_host_signals
from reconciler.health.xids import isolates
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gpus import Gpu
from reconciler.model.observed import Observed, Silent
from reconciler.model.vocab import Concern, Source

# Signals that count corrected errors over the life of a board. They become metrics, for thresholds to judge.
LIFETIME: Mapping[str, str] = {"ecc_ever": "ecc_uncorrectable_ever", "rows_remapped": "remapped_uncorrectable"}
# Signals of how a node is configured and built. No repair changes that, so a failure would keep the node out forever.
BY_DESIGN = frozenset({"persistence_off", "pcie_narrow", "port_uneven"})
# Signals of programs around the hardware, and their warnings: what these are about, the other tests measure.
OF_PROGRAMS = frozenset({"clock_free", "clock_off", "fabric_manager_down", "dcgm_warning"})
# A volume of the network may be gone, and an array works without one of its disks: the tests of drives measure the
# node's own.
OF_VOLUMES = frozenset({"fs_read_only", "md_degraded"})
NOT_JUDGED = frozenset({*LIFETIME, *BY_DESIGN, *OF_PROGRAMS, *OF_VOLUMES})
TRANSIENT = frozenset({"fabric_recovers"})  # soon over, so the test is run again rather than failed


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return ()


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder(version="1")
    if isinstance(observed.host, Silent):
        builder.error(f"the host did not answer: {observed.host.reason}")
        return builder.result(test, outputs, evidence="")
    facts = observed.host.value
    if facts.xids is None or facts.kernel_events is None:
        builder.error(f"the kernel log could not be read: {facts.unknown.get('xids', 'no reason given')}")
    if facts.gpus is None:
        builder.error(f"the GPUs could not be read: {facts.unknown.get('gpus', 'no reason given')}")
    else:
        _demand_cells(builder, facts.gpus)
    for row in managed(desired.profile):
        told_by_host = row.concern is Concern.HARDWARE and row.source is Source.SSH
        if told_by_host and isinstance(seen := row.read(observed), Missing):
            builder.unjudged(f"{row.path}: {seen.reason} {seen.detail}".strip())
    ignored = desired.profile.remediation.ignore_xids if desired.profile.remediation else ()
    bad = [xid for xid in facts.xids or () if xid.code not in ignored or isolates(xid.code)]
    for xid in bad:
        builder.fail(f"{'SXid' if xid.switch else 'XID'} {xid.code} on {xid.device}, {xid.count} times since boot")
    for signal in strictest_host_signals(desired.profile, observed):
        if signal.name in TRANSIENT:
            builder.unjudged(signal.detail)
        elif not signal.name.startswith("xid_") and signal.name not in NOT_JUDGED:
            builder.fail(signal.detail)
    for gpu in facts.gpus or ():
        for name in LIFETIME.values():
            builder.metrics[name] = builder.metrics.get(name, 0.0) + float(getattr(gpu, name) or 0)
    builder.metrics["xids"] = float(sum(xid.count for xid in bad))
    return builder.result(test, outputs, evidence="")


def _demand_cells(builder: ResultBuilder, gpus: tuple[Gpu, ...]) -> None:
    found = summarise_gpus(gpus)
    if found.unread:
        builder.unjudged(found.unread)
    for gpu in gpus:
        if not gpu.lost and lacks_ecc_counters(gpu):
            builder.unjudged(f"GPU {gpu.index} gives no ECC counters")
        if gpu.mig_current:
            builder.unjudged(f"GPU {gpu.index} is in MIG mode, where rows and NVLinks can't be read")


TOOL = Tool(_commands, _judge)
