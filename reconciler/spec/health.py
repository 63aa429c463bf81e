"""Read and check the rows of the table of signals that a fleet changes or adds.

What is terminal is so for every fleet: a node with a part that must be replaced is never admitted by a row. Other hard
evidence may be weakened for a reason, and is then told by `validate` and by each plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from reconciler.model.desired import IgnoreRule
from reconciler.model.errors import Diagnostic, Position, did_you_mean
from reconciler.model.signal_changes import SignalChange
from reconciler.model.units import parse_duration
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.kinds.health import ADDED, SignalOverride
from reconciler.spec.kinds.remediation_policy import RemediationPolicySpec
from reconciler.spec.kinds.signals import EVENTS, KERNEL_LOG, RAISED, First, SignalClass, SignalRow, code_set
from reconciler.spec.parse import DeclaredResource
from reconciler.spec.signals import PREFIX, changed, guarded_by, is_guarded, packaged, row_for, weaker
from reconciler.strict_yaml.parse import Steps

_KEYS = {"healed_by": "healedBy", "cause": "class"}


def health_changes(spec: FleetSpec) -> tuple[SignalChange, ...]:
    """Return the rows of a Fleet without problems, in order of name."""
    rows = sorted(spec.health.signals.items())
    return tuple(_change(name, row) for name, row in rows if row.off is None)


def switched_off(spec: FleetSpec) -> tuple[IgnoreRule, ...]:
    """Return an ignore rule for each signal that is off: what is left alone is counted the same everywhere."""
    rows = spec.health.signals.items()
    return tuple(IgnoreRule(_pattern(name), row.off) for name, row in sorted(rows) if row.off is not None)


def health_positions(fleet: DeclaredResource[FleetSpec]) -> Mapping[str, Position]:
    """Return the position of each row by the value path of its signal."""
    return {PREFIX + name: fleet.at("health", "signals", name) for name in fleet.spec.health.signals}


def check_health(fleet: DeclaredResource[FleetSpec]) -> Iterator[Diagnostic]:
    """Yield the problems of the rows, and a warning for each that weakens evidence which isolates."""
    yield from _ignored(fleet)
    rows = dict(packaged().signals)
    for name, said in sorted(fleet.spec.health.signals.items(), key=lambda item: (not item[0].endswith("_"), item[0])):
        steps: Steps = ("health", "signals", name)
        before = row_for(name, rows)
        problems = list(_misnamed(fleet, steps, name, said, before))
        if not problems and said.off is not None and before is not None:
            problems = list(_off(fleet, steps, name, before))
        elif not problems:
            try:
                rows[name] = changed(before, _change(name, said))
            except ValueError as error:
                problems = [fleet.problem(steps, str(error))]
            else:
                problems = list(_judged(fleet, steps, before, rows[name]))
        if before is not None and any(one.severity == "error" for one in problems):
            rows[name] = before  # what is refused changes nothing else
        yield from problems
    yield from _read_too_seldom(fleet, rows)


def _read_too_seldom(fleet: DeclaredResource[FleetSpec], rows: Mapping[str, SignalRow]) -> Iterator[Diagnostic]:
    """Yield a problem where a BMC's log is read so seldom that a row's entries are too old when they are first read."""
    windows = {name: row.window for name, row in rows.items() if row.fact == EVENTS and row.window is not None}
    name = min(windows, key=lambda one: (parse_duration(windows[one]), one))
    asked = fleet.spec.observation.inventory_max_age
    if parse_duration(asked) > parse_duration(windows[name]):
        window = windows[name]
        problem = f"{name} looks for entries of a BMC's log of the last {window}, and logs are read every {asked}"
        yield fleet.problem(("observation", "inventoryMaxAge"), problem, f"at most {window}")


def _change(name: str, row: SignalOverride) -> SignalChange:
    return SignalChange(
        name=name,
        because=row.because or "",
        fact=row.fact,
        contains=row.contains,
        scope=None if row.scope is None else row.scope.value,
        cause=None if row.cause is None else row.cause.value,
        reads=row.reads,
        window=row.window,
        threshold=row.threshold,
        domains=row.domains,
        first=None if row.first is None else row.first.value,
        next=None if row.next is None else row.next.value,
        rungs=None if row.rungs is None else tuple(rung.value for rung in row.rungs),
        service=row.service,
        healed_by=None if row.healed_by is None else tuple(proof.value for proof in row.healed_by),
        source=row.source,
    )


def _pattern(name: str) -> str:
    return f"{PREFIX}{name}*" if name.endswith("_") else PREFIX + name


def _misnamed(
    fleet: DeclaredResource[FleetSpec], steps: Steps, name: str, said: SignalOverride, before: SignalRow | None
) -> Iterator[Diagnostic]:
    """Yield problems of a name that nothing raises, and of keys that its row can't have."""
    own = said.contains is not None or said.fact == RAISED
    if before is None and (not own or said.off is not None):
        hint = did_you_mean(name, packaged().signals)
        hint = (
            hint
            if hint.startswith("did")
            else f"a row of your own has `fact: {EVENTS}` or `fact: {KERNEL_LOG}` and `contains`, or `fact: {RAISED}`"
        )
        yield _named(fleet, steps, f"there is no signal {name!r}", hint)
    elif before is None and name.endswith("_"):
        yield _named(fleet, steps, "a row of your own is for one signal: its name can't end in '_'")
    elif before is not None:
        given = [field for field in ADDED if getattr(said, field) is not None]
        for field in given:
            key = _KEYS.get(field, field)
            yield fleet.problem((*steps, key), f"{key} of {name} can't be changed: it follows from what raises it")
        for key in ("threshold", "window"):
            if getattr(said, key) is not None and getattr(before, key) is None:
                yield fleet.problem((*steps, key), f"{name} has no {key}: nothing would use it")
        kind, _, code = name.partition("_")
        if kind == "xid" and code.isdecimal() and int(code) in code_set(packaged().codes.application.codes):
            why = "no node is treated for what runs on it (K1)"
            yield _named(fleet, steps, f"XID {code} is an application's, and never raised as a signal: {why}")


def _named(fleet: DeclaredResource[FleetSpec], steps: Steps, problem: str, hint: str = "") -> Diagnostic:
    """Return a problem of the name of a row, at its key."""
    return replace(fleet.problem(steps, problem, hint), at=fleet.at(*steps, key=True))


def _off(fleet: DeclaredResource[FleetSpec], steps: Steps, name: str, before: SignalRow) -> Iterator[Diagnostic]:
    covered = [other for other in guarded_by(IgnoreRule(_pattern(name), "")) if other != name]
    if before.cause is SignalClass.TERMINAL:
        yield _terminal(fleet, (*steps, "off"), name)
    elif covered:
        problem = f"{name} covers {', '.join(covered)}, which isolate"
        yield fleet.problem((*steps, "off"), problem, "name the signals that you mean, one by one")
    elif is_guarded(before):
        yield _weakened(fleet, (*steps, "off"), f"{name} is off: it isolates no node")


def _ignored(fleet: DeclaredResource[FleetSpec]) -> Iterator[Diagnostic]:
    """Yield a warning for each ignore rule that covers evidence which isolates."""
    for index, rule in enumerate(fleet.spec.ignore):
        if names := guarded_by(IgnoreRule(rule.path, rule.reason)):
            problem = f"ignores {', '.join(names)}: no node is isolated for it"
            yield _weakened(fleet, ("ignore", index, "path"), problem)


def check_ignored_xids(policy: DeclaredResource[RemediationPolicySpec]) -> Iterator[Diagnostic]:
    """Yield the problems of codes that a policy ignores though their rows are evidence hard enough to isolate."""
    for index, code in enumerate(policy.spec.ignore_xids):
        name, steps = f"xid_{code}", ("ignoreXids", index)
        row = row_for(name, packaged().signals)
        if row is not None and row.cause is SignalClass.TERMINAL:
            yield _terminal(policy, steps, name)
        elif row is not None and is_guarded(row):
            yield _weakened(policy, steps, f"ignores XID {code}: no node is isolated for it")


def _judged(
    fleet: DeclaredResource[FleetSpec], steps: Steps, before: SignalRow | None, now: SignalRow
) -> Iterator[Diagnostic]:
    if now.domains is not None and not now.may_be_caused_by:
        problem = f"{steps[-1]} is only reported, or a line of a node's own log: no domain is asked for it"
        yield fleet.problem((*steps, "domains"), problem)
        return
    lost = () if before is None else weaker(before, now)
    if before is not None and lost and before.cause is SignalClass.TERMINAL:
        yield _terminal(fleet, steps, steps[-1], "; ".join(lost))
    elif before is not None and lost and is_guarded(before):
        yield _weakened(fleet, steps, f"{steps[-1]} isolates, and is weakened: {'; '.join(lost)}")
    elif now.first is First.ISOLATE and (before is None or before.first is not First.ISOLATE):
        hint = "within the caps on isolation, as every signal"
        yield fleet.problem(steps, f"{steps[-1]} isolates nodes at once in this fleet", hint, severity="warning")


def _terminal(fleet: DeclaredResource[Any], steps: Steps, name: object, lost: str = "") -> Diagnostic:
    problem = f"{name} is terminal, and no fleet may weaken it" + (f": {lost}" if lost else "")
    hint = f"if its telemetry errs, `reconciler isolation retract {name} --for ...` takes it back for a time"
    return fleet.problem(steps, problem, hint)


def _weakened(fleet: DeclaredResource[Any], steps: Steps, problem: str) -> Diagnostic:
    return fleet.problem(steps, problem, "each plan says so", severity="warning")
