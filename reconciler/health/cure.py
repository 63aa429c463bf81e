"""Tell what may heal a node with some signals: rungs, a restart of one service, a reset of the GPUs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from reconciler.health.signals import Signal
from reconciler.health.table import HealthTable, Remedy
from reconciler.health.xids import reset_answers
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.spec.kinds.signals import Proof, SignalRow

# They carry the driver's own word for what the GPU needs, which overrides the row of its code.
_DRIVERS_WORD: Final = frozenset({"gpu_recovery", "xid_154"})


@dataclass(frozen=True, slots=True)
class Cure:
    """All that may heal the signals of a node: what heals one of them alone does not bring it back.

    `rungs`: those that rows name; None = no row names any. `service`: the unit whose restart may heal all; "" = none.
    `resets`: a reset of the GPUs may heal all.
    """

    remedy: Remedy
    rungs: frozenset[str] | None
    service: str
    resets: bool


def cure_of(table: HealthTable, shown: Collection[Signal]) -> Cure:
    names = [signal.name for signal in shown]
    services = {signal.rule.row.service or "" for signal in shown}
    return Cure(
        table.remedy_of(names),
        table.rungs_of(names),
        services.pop() if len(services) == 1 else "",
        bool(names) and all(_resets(signal) for signal in shown),
    )


def _resets(signal: Signal) -> bool:
    if signal.name in _DRIVERS_WORD:
        return "Reboot" not in signal.detail
    row = signal.rule.row
    return RungAction.GPU_RESET in (row.rungs or ()) or proved_by_reset(signal.name, row)


def proved_by_reset(name: str, row: SignalRow) -> bool:
    """Return whether a reset of the GPUs, and no sign of it since, is the proof that a signal is healed."""
    if Proof.FACT_CLEAR_AFTER_RESET in row.healed_by:
        return True
    return Proof.FACT_CLEAR_AFTER_NEW_BOOT in row.healed_by and reset_answers(name)
