"""Choose the goal of a node by its situation: the first one that matches (DESIGN 7.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from reconciler.health.cure import Cure, cure_of
from reconciler.health.ladder import Treated, limit_reached, next_rung
from reconciler.health.table import Effect, Remedy, table_of
from reconciler.model.desired import Desired, Rung
from reconciler.model.plan import BlockCode, Blocked, Goal
from reconciler.model.records import NodeRecord
from reconciler.model.repairs import Repair, RepairPhase
from reconciler.model.units import format_duration
from reconciler.model.vocab import Activation, NodeState
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import admission_requires, spec_of
from reconciler.planner.node.backoff import failures
from reconciler.planner.node.catalogue import Catalogue, Row
from reconciler.planner.node.conditions import Conditions
from reconciler.planner.node.decommission import Leaving, buried
from reconciler.planner.node.holds import Holds, held, stopped
from reconciler.planner.node.leaving_variants import leaving_requires
from reconciler.planner.node.repair import repair_requires, repair_sentence

_SERVES = frozenset({c.IN_SERVICE, c.SERVING_RESTORED})  # what only a node in service has
FAILURES = 3  # of one action in a row within a day, after which a person must look (pitfalls F7, I5)


@dataclass(frozen=True, slots=True)
class Situation:
    """The situation of a node, and the goal that follows from it.

    `wanted`: the conditions of the goal. `harmless_only`: only actions that no workload notices may run. `evidence`:
    value paths given as the reason of actions that no later action requires. `service`: the unit that a rung restarts.
    """

    goal: Goal
    sentence: str
    wanted: frozenset[str]
    blocked: Blocked | None = None
    harmless_only: bool = False
    rung: Rung | None = None
    evidence: tuple[str, ...] = ()
    service: str = ""
    watched: bool = False  # all is done but its admission, which waits until its counters have been watched


def situation(desired: Desired, record: NodeRecord, holds: Holds, state: Conditions, now: datetime) -> Situation:
    """Return the situation of a node, its goal, and what blocks it."""
    stop = _untouchable(desired, record, holds, state, now)
    if stop is not None:
        return Situation(Goal.NOTHING, stop.detail, frozenset(), stop)
    if state.leaving is not None:
        tombstone = buried(desired, record, holds, now)
        if tombstone is not None:
            return Situation(Goal.DECOMMISSIONED, tombstone.detail, frozenset())
        return _leaving(state.leaving, state)
    if record.repair is not None:
        return _in_repair(record.repair, desired, state)
    wanted = goal_conditions(desired, state)
    if c.HOST_CERTIFICATE in state.because and not _failed_to_renew(record, now):
        wanted |= {c.HOST_CERTIFICATE}  # else it would keep all other work from the node
    if state.foreign_hold:
        return _waits_for_others(state, wanted)
    if state.foreign_cordon:
        detail = "somebody else cordoned this node; their cordon is kept"
        blocked = Blocked(BlockCode.FOREIGN_CORDON, detail)
        return Situation(Goal.CONVERGED_CORDONED, detail, wanted - _SERVES, blocked, harmless_only=True)
    if state.waiting and c.IN_SERVICE in state.true and (ill := _isolating_evidence(state)):
        # Waiting for a boot that never ends would leave an ill node schedulable.
        return isolate(f"unhealthy ({ill}); {state.waiting}", BlockCode.UNKNOWN)
    if state.waiting:
        blocked = Blocked(BlockCode.UNDER_WAY, state.waiting, state.waits_until)
        return Situation(Goal.IN_SERVICE, state.waiting, wanted, blocked, harmless_only=True)
    if c.BMC_ANSWERS in state.because:  # not before: who maintains the node, or an installer, may use its BMC
        wanted |= {c.BMC_ANSWERS}
    if c.HEALTHY in state.because and c.HEALTHY not in state.unknown and c.HEALTHY not in state.explained:
        return _unhealthy(desired, record, state, wanted, now)
    return _with_password(_well(desired, state, wanted), state)


def _with_password(found: Situation, state: Conditions) -> Situation:
    """Return the situation, with another password of the BMC where nothing else is to be done and it is due."""
    due = c.BMC_PASSWORD in state.because and found.wanted <= state.true
    return replace(found, wanted=found.wanted | {c.BMC_PASSWORD}) if due else found


def _watched(state: Conditions, wanted: frozenset[str]) -> Blocked | None:
    """Return why a node of which all else is as wanted is not admitted yet; None where it may be."""
    if c.IN_SERVICE in state.true or not wanted - _SERVES <= state.true:
        return None
    if state.unread_log:
        return Blocked(BlockCode.UNKNOWN, f"{state.unread_log}; it is not admitted before that is read")
    if state.watched_until is None:
        return None
    why = "its counters of errors are watched for a minute of this boot before it serves"
    return Blocked(BlockCode.UNDER_WAY, why, state.watched_until)


def _well(desired: Desired, state: Conditions, wanted: frozenset[str]) -> Situation:
    """Return the situation of a node that nobody holds, and that shows no sign of illness."""
    if desired.other_tests is not None:
        detail = f"out of service for the tests of {desired.other_tests.name}, which admit nobody"
        return Situation(Goal.TESTED, detail, frozenset({c.GATE}))
    if state.spare:
        detail = f"kept as a spare of persona {desired.persona}"
        return Situation(Goal.SPARE, detail, wanted - _SERVES | {c.RESERVED})
    if watched := _watched(state, wanted):
        return Situation(Goal.IN_SERVICE, watched.detail, wanted, watched, harmless_only=True, watched=True)
    return Situation(Goal.IN_SERVICE, "in service as specified", wanted)


def _in_repair(repair: Repair, desired: Desired, state: Conditions) -> Situation:
    """Return the situation of a node whose parts a person exchanges. The signals are why, as in other repairs."""
    sentence, wanted = repair_sentence(repair), repair_requires(repair)
    if state.waiting and repair.phase is RepairPhase.RETURNING:
        blocked = Blocked(BlockCode.UNDER_WAY, state.waiting, state.waits_until)
        return Situation(Goal.REPAIR, state.waiting, wanted, blocked, harmless_only=True)
    table = table_of(desired.profile)
    paths = tuple(dict.fromkeys(table.for_a_person(signal.path for signal in state.signals)))
    rests = Blocked(BlockCode.HELD, sentence) if wanted <= state.true else None
    return Situation(Goal.REPAIR, sentence, wanted, rests, evidence=paths)


def _waits_for_others(state: Conditions, wanted: frozenset[str]) -> Situation:
    """Return the situation of a node that somebody else maintains: only what nobody notices is done meanwhile."""
    if c.IN_SERVICE in state.true and (ill := _isolating_evidence(state)):
        return isolate(f"unhealthy ({ill}); {state.foreign_hold}", BlockCode.FOREIGN_HOLD)
    detail = f"{state.foreign_hold}: nothing that disrupts is done until that ends"
    blocked = Blocked(BlockCode.FOREIGN_HOLD, detail)
    goal = Goal.CONVERGED_CORDONED if state.foreign_cordon else Goal.IN_SERVICE
    return Situation(goal, detail, wanted - _SERVES, blocked, harmless_only=True)


def _failed_to_renew(record: NodeRecord, now: datetime) -> bool:
    return failed_often(record, "renew_host_certificate", "", now)


def _leaving(leaving: Leaving, state: Conditions) -> Situation:
    """Return the situation of a node that is to be decommissioned. What can't be erased stops it before the drain."""
    if leaving.impossible:
        detail = "can't be decommissioned: " + "; ".join(leaving.impossible.values())
        return Situation(Goal.NOTHING, detail, frozenset(), Blocked(BlockCode.IMPOSSIBLE, detail))
    wanted = frozenset({*leaving_requires(leaving), c.BURIED})
    if state.waiting:
        blocked = Blocked(BlockCode.UNDER_WAY, state.waiting, state.waits_until)
        return Situation(Goal.DECOMMISSIONED, state.waiting, wanted, blocked, harmless_only=True)
    return Situation(Goal.DECOMMISSIONED, leaving.sentence, wanted)


def _isolating_evidence(state: Conditions) -> str:
    """Return the evidence on which the node is taken out of service at once; "" if there is none."""
    return "; ".join(signal.detail for signal in state.signals if signal.effect is Effect.ISOLATES)


def _untouchable(
    desired: Desired, record: NodeRecord, holds: Holds, state: Conditions, now: datetime
) -> Blocked | None:
    if desired.state is NodeState.RETIRED:
        return Blocked(BlockCode.RETIRED, "retired in the spec: not acted upon")
    if desired.state is NodeState.QUARANTINED:
        return Blocked(BlockCode.QUARANTINED, "quarantined in the spec: not acted upon")
    if state.leaving is None and (tombstone := buried(desired, record, holds, now)) is not None:
        return tombstone
    if record.fleet:
        return Blocked(
            BlockCode.UNKNOWN, f"this ledger has it as a node of fleet {record.fleet}, whose spec must give it up first"
        )
    if record.malformed:
        return Blocked(BlockCode.UNKNOWN, f"its ledger record can't be read: {record.malformed}")
    hold = stopped(holds, now) or held(desired, record, holds, now)
    if hold is not None:
        return hold
    if state.foreign_mark is not None:
        mark = state.foreign_mark
        return Blocked(
            BlockCode.FOREIGN_MARK,
            f"marked by another reconciler (ledger {mark.ledger}, {mark.at}: {mark.reason}); once that one is known to "
            f"be gone, `reconciler ledger adopt {desired.node}` takes the node over",
        )
    for identity in (c.IDENTITY, c.HOST_IDENTITY):
        if identity in state.because and identity not in state.unknown:
            return Blocked(BlockCode.IDENTITY, "; ".join(state.because[identity]))
    return None


def goal_conditions(desired: Desired, state: Conditions) -> frozenset[str]:
    """Return the conditions of a node that is in service as specified."""
    wanted = {*admission_requires(desired), c.IN_SERVICE}
    if desired.profile.membership is None:
        wanted -= {c.MEMBER, c.LABELS}
    if desired.serving is not None:
        wanted.add(c.SERVING_RESTORED)
    if desired.profile.acceptance is None and c.IN_SERVICE in state.true:
        wanted.discard(c.GATE)  # nothing can prove the node, and it is in service: leave it there
    if c.IN_SERVICE in state.true:
        wanted.discard(c.OPERATORS)  # it takes nobody out: operators restart their pods at any time
    return frozenset(wanted)


def _unhealthy(
    desired: Desired, record: NodeRecord, state: Conditions, wanted: frozenset[str], now: datetime
) -> Situation:
    evidence = "; ".join(signal.detail for signal in state.signals) or "the host is down"
    own = state.own_signals
    if state.signals and not own:
        return _of_domain(state, wanted, evidence)
    table = table_of(desired.profile)
    cure = cure_of(table, own)
    if cure.remedy is Remedy.PERSON:
        paths = tuple(dict.fromkeys(table.for_a_person(signal.path for signal in own)))
        which = ", ".join(path.removeprefix("health.") for path in paths)
        found = isolate(
            f"unhealthy ({evidence}); no action heals {which}: repair the node (`reconciler repair start NODE`), or "
            "set `state: quarantined` for it in the spec",
            BlockCode.NO_PATH,
        )
        return replace(found, wanted=found.wanted | {c.QUIESCED}, evidence=paths)
    may_help = partial(_may_be_tried, state=state, cure=cure)
    treated = Treated(frozenset(signal.rule.row.cause for signal in own), table.class_at)
    unseen = record.since_release
    rung = next_rung(desired.profile.remediation, record.attempts, now, may_help, treated, unseen)
    if rung is not None:
        sentence = f"unhealthy ({evidence}); next rung of the ladder: {rung.action}"
        return Situation(Goal.IN_SERVICE, sentence, wanted, rung=rung, service=cure.service)
    policy = desired.profile.remediation
    why = "the ladder's attempts are used up" if policy else "no remediation policy"
    if policy is not None and (limit := limit_reached(policy, unseen, now, treated)) is not None:
        most, name = limit
        of_class = f" for signals of class {name}" if name else ""
        within = format_duration(policy.most_within_s)
        if name or most < sum(one.attempts for one in policy.ladder):
            why = f"it was repaired {most} times within {within}{of_class}, the policy's limit: a person must look"
        else:
            why += f" within {within}: a person must look"
    elif policy is not None and not all(may_heal(rung.action, cure) for rung in policy.ladder):
        why += ", but for those that can't help"
    if policy is not None:
        impossible = {rung.action: state.impossible.get(rung.action, "") for rung in policy.ladder}
        why += "".join(f"; {action} is impossible: {lack}" for action, lack in impossible.items() if lack)
    return isolate(f"unhealthy ({evidence}); {why}", BlockCode.ATTEMPTS)


def _of_domain(state: Conditions, wanted: frozenset[str], evidence: str) -> Situation:
    """Return the situation of a node whose failure domain explains all that it shows: neither drained nor treated.

    What isolates still isolates, as new work would fail there: a cordon disrupts nobody (DESIGN 7.2).
    """
    where = " and ".join(dict.fromkeys(state.of_domain.values()))
    detail = f"unhealthy ({evidence}) by an incident of {where}: neither drained nor treated for it while it lasts"
    if c.REGISTERED in state.true and _isolating_evidence(state):
        return isolate(detail, BlockCode.DOMAIN)
    return Situation(Goal.IN_SERVICE, detail, wanted, Blocked(BlockCode.DOMAIN, detail), harmless_only=True)


def may_heal(action: str, cure: Cure) -> bool:
    """Return whether a treatment may heal all signals of a node: a new image heals nothing that needs power."""
    if cure.remedy is Remedy.PERSON or (cure.rungs is not None and action not in cure.rungs):
        return False
    return spec_of(action).may_heal(cure)


def is_rung(found: Situation, row: Row) -> bool:
    """Return whether this action is the rung that the node is to be treated with."""
    if found.rung is None or row.name != found.rung.action:
        return False
    return not spec_of(row.name).of_service or row.target == found.service


def _may_be_tried(action: str, state: Conditions, cure: Cure) -> bool:
    """Return whether a treatment may heal the node, and needs neither a silent host (C3) nor what its BMC lacks."""
    reaches = c.HOST_UP in state.true or c.HOST_UP not in spec_of(action).requires
    return may_heal(action, cure) and reaches and action not in state.impossible


def isolate(sentence: str, code: BlockCode) -> Situation:
    """Return the situation of a node that is taken out of service and reported, and to which nothing else is done."""
    return Situation(Goal.ISOLATED, sentence, frozenset({c.MARKED}), Blocked(code, sentence))


def taken_out(found: Situation, full: Catalogue) -> Situation:
    """Return the situation with what isolates this node: without a cluster there is no mark, so it is drained.

    That disrupts what runs there, which needs room in the budget, as every drain does.
    """
    if found.goal is not Goal.ISOLATED or any(c.MARKED in row.achieves for row in full.rows):
        return found
    return replace(found, wanted=found.wanted - {c.MARKED} | {c.QUIESCED})


def usable_rows(
    catalogue: Catalogue, state: Conditions, found: Situation, record: NodeRecord, now: datetime
) -> Catalogue:
    """Return the actions that may be planned: none that would act on an unknown, none that failed too often."""
    host_down = c.HOST_UP not in state.true and c.POWER_ON in state.true
    ill = bool(_isolating_evidence(state))
    rows = []
    for row in catalogue.rows:
        rung = is_rung(found, row)
        brings = catalogue.brings(row)
        if row.id in state.impossible or brings & set(state.unknown) or (_cuts_others(row) and not rung):
            continue
        if state.fell_back and spec_of(row.name).installs and not rung:
            continue
        if state.entry_awaits_image and c.BOOT_STAGED in row.achieves:
            row = replace(row, requires=(*row.requires, c.IMAGE))
        if (
            exhausted(row, record, now)
            and not (ill and c.MARKED in row.achieves)
            and not _tried_anew(row, catalogue, state)
        ):
            continue  # failures of the API server must not keep an ill node in service
        if c.GATE in row.achieves and state.gate_failed and not changes(state):
            if found.rung is None:
                continue
            row = replace(row, requires=(*row.requires, c.TREATED))  # after a treatment the gate may run again
        if host_down and c.BOOT_STAGED in row.achieves:
            row = replace(row, requires=(*row.requires, c.HOST_UP))  # it may hang in POST, which refuses these (A8)
        if host_down and c.POWER_ON in row.requires and c.HOST_UP in row.achieves and not rung:
            continue  # only the ladder reboots a host that is down
        unread = bool(state.unread.cause) and spec_of(row.name).installs
        if state.unread.cause and spec_of(row.name).boots and not unread:
            row = replace(row, requires=(*row.requires, c.IMAGE))  # there is no system to boot
        if spec_of(row.name).overwrites and not unread and brings & set(state.explained):
            # A machine that is off or hangs can't be read: it must be, before it is wiped or flashed (invariant 4).
            readable = (c.POWER_ON,) if rung or found.rung is None else (c.POWER_ON, c.TREATED)
            row = replace(row, requires=(*row.requires, *readable))
        rows.append(as_treatment(row) if rung else row)
    return Catalogue(tuple(rows), catalogue.staged)


def _cuts_others(row: Row) -> bool:
    """Return whether other nodes lose power with this one, which is for an illness alone."""
    return Activation.AC_CYCLE in row.activates and bool(row.target)


def _tried_anew(row: Row, full: Catalogue, state: Conditions) -> bool:
    """Return whether a new image or new firmware must come first: what failed was tried on the old one."""
    lacks = set(row.requires) & state.because.keys()
    return any(spec_of(one.name).renews(row.name) and not lacks.isdisjoint(full.brings(one)) for one in full.rows)


def changes(state: Conditions) -> bool:
    """Return whether image, firmware or BIOS settings are to change, which may remove why the gate failed."""
    return any(name in state.because for name in (c.IMAGE, c.BIOS)) or any(
        name.startswith("firmware_ok") for name in state.because
    )


def as_treatment(row: Row) -> Row:
    """Return an action as a treatment: it voids the certificate, and is expected to heal the node."""
    heals: tuple[str, ...] = (c.TREATED, c.HEALTHY, c.HARDWARE)
    requires = row.requires
    if Activation.AC_CYCLE in row.activates:  # it may begin from off, as a run that died in its midst leaves a machine
        heals, requires = (*heals, c.POWER_ON), tuple(name for name in requires if name != c.POWER_ON)
    return replace(row, requires=requires, achieves=(*row.achieves, *heals), breaks=(*row.breaks, c.GATE), forbids=())


def exhausted(row: Row, record: NodeRecord, now: datetime) -> bool:
    """Return whether the action failed too often in a row. The ledger keeps attempts over restarts (pitfall I1)."""
    return failed_often(record, row.name, row.target, now)


def failed_often(record: NodeRecord, action: str, target: str, now: datetime) -> bool:
    """Return whether the action failed as often in a row as it may within a day."""
    if not record.attempts:
        return False
    since = now - timedelta(days=1)
    return sum(attempt.begun >= since for attempt in failures(record, action, target)) >= FAILURES
