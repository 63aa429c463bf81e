"""The packaged table of signals, and the rows that a fleet has instead.

The table is data of reconciler/health. It is read here, since `validate` compares a fleet's rows with it. People write
signals.yaml; `make signals` writes signals.json from it, which every command reads, as YAML takes 90 ms more.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from reconciler.model.desired import IgnoreRule
from reconciler.model.signal_changes import SignalChange
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.spec.kinds.signals import First, Next, SignalClass, SignalRow, SignalTable
from reconciler.strict_yaml.read import InvalidFile

PACKAGE: Final = "reconciler.health"
FILE: Final = "signals.yaml"
COMPILED: Final = "signals.json"
# `amd-smi reset --gpureset` prints "Failed to reset GPU" where a success is printed, and ends with status 0
# (ROCm/amdsmi, amdsmi_cli/amdsmi_commands.py, AMDSMICommands.reset), and its counters outlast a reset: none is offered.
_OF_AMD: Final = "amd_"  # what the names of their signals begin with
PREFIX: Final = "health."  # before the name of a signal, in its value path
R = TypeVar("R")

_FIRST: Final = (First.REPORT, First.DRAIN, First.ISOLATE)  # the strictest last
_NEXT: Final = (None, Next.LADDER, Next.POWER, Next.PERSON)


@cache
def packaged() -> SignalTable:
    """Return the table of this version, read from the package when it is first needed."""
    found = pkgutil.get_data(PACKAGE, COMPILED)
    if found is None:
        raise InvalidFile(f"{COMPILED}: is not in the package")
    return SignalTable.model_validate_json(found)


def row_for(name: str, rows: Mapping[str, R]) -> R | None:
    """Return the row of a signal, or else of the longest name ending in "_" that it begins with; None without one."""
    found = rows.get(name)
    if found is not None:
        return found
    prefixes = [known for known in rows if known.endswith("_") and name.startswith(known)]
    return rows[max(prefixes, key=len)] if prefixes else None


def rows_of(changes: Iterable[SignalChange]) -> Mapping[str, SignalRow]:
    """Return the packaged rows with those of a fleet. Raise ValueError for a row that breaks a rule of the table.

    A row for a single signal, like xid_119, takes what it does not say from the row that was the signal's before.
    """
    rows = dict(packaged().signals)
    for change in sorted(changes, key=lambda one: (not one.name.endswith("_"), one.name)):
        rows[change.name] = changed(row_for(change.name, rows), change)
    return rows


def changed(row: SignalRow | None, change: SignalChange) -> SignalRow:
    """Return a row with what a fleet says instead. Raise ValueError, in words, where that breaks a rule of the table.

    `row`: None for a row of the fleet's own. One that is only reported has no next action, whatever it had before.
    """
    if change.name.startswith(_OF_AMD) and RungAction.GPU_RESET in (change.rungs or ()):
        raise ValueError("the rung gpu_reset resets GPUs of NVIDIA's alone; soft_restart resets those of AMD's")
    said: dict[str, Any] = {} if row is None else row.model_dump(mode="json", by_alias=True, exclude_none=True)
    alias = {name: entry.alias or name for name, entry in SignalRow.model_fields.items()}
    said |= {alias[name]: value for name, value in change.keys().items()}
    if change.first == First.REPORT and change.next is None:
        said.pop("next", None)
    try:
        return SignalRow.model_validate_json(json.dumps(said))
    except ValidationError as error:
        faults = error.errors(include_url=False)
        lacking = [str(fault["loc"][-1]) for fault in faults if fault["type"] == "missing"]
        told = [f"a row of your own has {', '.join(lacking)}, too"] if lacking else []
        told += [_words(fault) for fault in faults if fault["type"] != "missing"]
        raise ValueError("; ".join(told)) from None


def _words(fault: Mapping[str, Any]) -> str:
    found = fault.get("ctx", {}).get("error")
    return str(found or fault["msg"])


def is_guarded(row: SignalRow) -> bool:
    """Return whether a row is evidence hard enough to isolate a node at once, or of a part that must be replaced."""
    return row.first is First.ISOLATE or row.cause is SignalClass.TERMINAL


def guarded_by(rule: IgnoreRule) -> tuple[str, ...]:
    """Return the packaged signals of hard evidence that an ignore rule covers, all of them or some of a family."""
    start = re.split(r"[*?[]", rule.path, maxsplit=1)[0]
    if not start.startswith("health") and not "health".startswith(start):
        return ()  # as for most rules, which need no table
    guarded = [name for name, row in packaged().signals.items() if is_guarded(row)]
    return tuple(name for name in guarded if rule.covers(PREFIX + name) or _is_of(rule.path, name))


def _is_of(path: str, name: str) -> bool:
    """Return whether a path is that of a signal which has this family's row."""
    signal = path.removeprefix(PREFIX)
    return signal != path and name.endswith("_") and row_for(signal, packaged().signals) is packaged().signals[name]


def weaker(before: SignalRow, now: SignalRow) -> tuple[str, ...]:
    """Return in words what a row does less than the one before. Another threshold counts: it may have either sense."""
    found = []
    if _FIRST.index(now.first) < _FIRST.index(before.first):
        found.append(f"first is {now.first}, not {before.first}")
    if _NEXT.index(now.next) < _NEXT.index(before.next) and now.first is not First.REPORT:
        found.append(f"next is {now.next}, not {before.next}")
    if now.reads > before.reads:
        found.append(f"it takes {now.reads} readings, not {before.reads}")
    if now.threshold != before.threshold:
        found.append(f"the threshold is {now.threshold:g}, not {before.threshold:g}")
    if now.window != before.window:
        found.append(f"the window is {now.window}, not {before.window}")
    if more := [one for one in now.may_be_caused_by if not {one, "*"} & set(before.may_be_caused_by)]:
        found.append(f"many nodes of one {' or '.join(more)} are an incident, for which none is treated")
    if lost := [proof.value for proof in before.healed_by if proof not in now.healed_by]:
        found.append(f"{' and '.join(lost)} need not show that it is healed")
    return tuple(found)
