"""The rules for the states of Slurm's nodes: what each means for a drain, an admission and a hold.

The states are those of sinfo(1), "NODE STATE CODES", and of scontrol(1), "State", in the names that `scontrol show
node` prints: a base state and flags, joined by "+". A word that no rule knows holds the node: who does not know what it
means leaves it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """`out`: no job starts there. `ill`: Slurm would not use it as it is. `silent`: its slurmd does not answer.

    `busy`: jobs are on it. `hold`: who maintains it meanwhile, in words; it is left alone.
    """

    out: bool = False
    ill: bool = False
    silent: bool = False
    busy: bool = False
    hold: str = ""


_PLAIN: Final = Rule()
_POWER: Final = "Slurm's power saving has it"
_REBOOT: Final = "Slurm reboots it"
_RULES: Final = {
    "IDLE": _PLAIN,
    "ALLOCATED": Rule(busy=True),
    "MIXED": Rule(busy=True),
    "COMPLETING": Rule(busy=True),  # jobs are gone from the queue's view, and their processes or epilogs are not
    "DOWN": Rule(out=True, ill=True),
    "ERROR": Rule(out=True, ill=True),
    "UNKNOWN": Rule(silent=True),  # slurmctld has started and not heard of it yet
    "FUTURE": _PLAIN,  # only defined: `decode` says that there is no such node
    "NOT_RESPONDING": Rule(silent=True),
    "NO_RESPOND": Rule(silent=True),
    "INVALID_REG": Rule(out=True, ill=True),  # it registered with less than slurm.conf says
    "INVAL": Rule(out=True, ill=True),
    "DRAIN": Rule(out=True),
    "DRAINED": Rule(out=True),
    "DRAINING": Rule(out=True, busy=True),
    # "Expected to fail soon, and unavailable per system administrator request": a person has decided.
    "FAIL": Rule(out=True, hold="an administrator expects it to fail"),
    "FAILING": Rule(out=True, busy=True, hold="an administrator expects it to fail"),
    "MAINTENANCE": Rule(out=True, hold="it is in a maintenance reservation"),
    "MAINT": Rule(out=True, hold="it is in a maintenance reservation"),
    "REBOOT": Rule(out=True, hold=_REBOOT),
    "REBOOT_REQUESTED": Rule(hold=_REBOOT),
    "REBOOT_ISSUED": Rule(out=True, hold=_REBOOT),
    "POWER_DOWN": Rule(hold=_POWER),
    "POWERING_DOWN": Rule(out=True, hold=_POWER),
    "POWERED_DOWN": Rule(hold=_POWER),
    "POWER_UP": Rule(hold=_POWER),
    "POWERING_UP": Rule(hold=_POWER),
    "POWER_DRAIN": Rule(out=True, hold=_POWER),
    "RESERVED": _PLAIN,  # a reservation for users, in which jobs run as elsewhere
    "PLANNED": _PLAIN,  # the backfill scheduler has a job in mind for it
    "BLOCKED": _PLAIN,  # an exclusive job next to it keeps other jobs away
    "CLOUD": _PLAIN,
    "DYNAMIC_NORM": _PLAIN,
    "DYNAMIC_FUTURE": _PLAIN,
    "EXTERNAL": _PLAIN,
    "REBOOT_CANCEL": _PLAIN,
    "PERFCTRS": _PLAIN,
    "NET": _PLAIN,
    "RESUME": _PLAIN,
    "UNDRAIN": _PLAIN,
}
MAINTENANCE: Final = frozenset({"MAINTENANCE", "MAINT"})


def rule_of(flags: frozenset[str], *, reserved_by_us: bool = False) -> Rule:
    """Return the rules of a node's states, as one. A reservation of ours is none: our mark takes the node out."""
    holds: dict[str, None] = {}
    rules = []
    for flag in sorted(flags - MAINTENANCE if reserved_by_us else flags):
        rule = _RULES.get(flag, Rule(hold=f"it is in a state that this version does not know ({flag})"))
        rules.append(rule)
        if rule.hold:
            holds.setdefault(rule.hold)
    return Rule(
        out=any(rule.out for rule in rules),
        ill=any(rule.ill for rule in rules),
        silent=any(rule.silent for rule in rules),
        busy=any(rule.busy for rule in rules),
        hold="; ".join(holds),
    )
