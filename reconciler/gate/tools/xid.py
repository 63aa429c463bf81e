"""Passive health: no XID or SXid since boot, no uncorrectable error, every NVLink up.

Acceptance is stricter than running: on an idle node even an application's code is a suspect, so none but those that the
remediation policy names is allowed (acceptance 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.gate.tools.common import Sheet, Tool
from reconciler.health.signals import host_signals
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed, Silent


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return ()


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    sheet = Sheet(version="1")
    if isinstance(observed.host, Silent):
        sheet.error(f"the host did not answer: {observed.host.reason}")
        return sheet.result(test, outputs, evidence="")
    facts = observed.host.value
    if facts.xids is None:
        sheet.error(f"the kernel log could not be read: {facts.unknown.get('xids', 'no reason given')}")
    if facts.gpus is None:
        sheet.error(f"the GPUs could not be read: {facts.unknown.get('gpus', 'no reason given')}")
    else:
        for gpu in facts.gpus:
            if not gpu.lost and gpu.ecc_uncorrectable is None:
                sheet.unjudged(f"GPU {gpu.index} gives no ECC counters")
    ignored = desired.profile.remediation.ignore_xids if desired.profile.remediation else ()
    bad = [xid for xid in facts.xids or () if xid.code not in ignored]
    for xid in bad:
        sheet.fail(f"{'SXid' if xid.switch else 'XID'} {xid.code} on {xid.device}, {xid.count} times since boot")
    for signal in host_signals(desired.profile, observed):
        if not signal.name.startswith("xid_"):
            sheet.fail(signal.detail)
    sheet.metrics["xids"] = float(sum(xid.count for xid in bad))
    return sheet.result(test, outputs, evidence="")


TOOL = Tool(_commands, _judge)
