"""Judge the declared inventory: too few and too many parts both fail, a part that was not read is unjudged (rule 3)."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.diff.facts import managed
from reconciler.diff.readings import Missing
from reconciler.gate.tools.common import ResultBuilder, Tool
from reconciler.health.parts import nvme_signals
from reconciler.health.table import HealthTable, health_table, table_of
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import NvmeHealth, Observed, Silent
from reconciler.model.vocab import Concern


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return ()


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder(version="1")
    declared = [row for row in managed(desired.profile) if row.concern is Concern.HARDWARE]
    if not declared:
        builder.unjudged("HardwareProfile.inventory declares nothing")
    for row in declared:
        seen = row.read(observed)
        if isinstance(seen, Missing):
            builder.unjudged(f"{row.path}: {seen.reason} {seen.detail}".strip())
        elif seen != row.wanted:
            builder.fail(f"{row.path}: {seen}, declared {row.shown}")
        elif isinstance(seen, int):
            builder.metrics[row.path] = float(seen)
    if not isinstance(observed.host, Silent):
        if any(gpu.mig_current for gpu in observed.host.value.gpus or ()):
            builder.unjudged("MIG is on: NVLinks can't be counted")
        for drive in observed.host.value.nvme or ():
            _judge_drive(builder, drive, table_of(desired.profile))
    return builder.result(test, outputs, evidence="")


def _judge_drive(builder: ResultBuilder, drive: NvmeHealth, table: HealthTable) -> None:
    """Fail for each fault in the SMART log. Where the number of drives is declared, a missing log shows in that.

    A row of the fleet that says less than the packaged one admits no drive.
    """
    name = f"drive {drive.serial or drive.device}"
    if drive.critical_warning or drive.media_errors:
        builder.fail(f"{name}: critical warning {drive.critical_warning}, {drive.media_errors} media errors")
    for _, detail in dict.fromkeys([*nvme_signals(drive, health_table()), *nvme_signals(drive, table)]):
        builder.fail(f"{name}: {detail}")


TOOL = Tool(_commands, _judge)
