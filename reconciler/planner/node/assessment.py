"""Assess what does not depend on a node's drift: power, host, cluster, health, gate and identity."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.after import every_test, sentences, whole_reasons
from reconciler.gate.asked import moved_tests
from reconciler.gate.attestation.expected import is_measured
from reconciler.gate.certificate import ahead_of_clock, binding_of, due_tests, idle_tests, judge
from reconciler.health.signals import Signal
from reconciler.health.table import Effect, table_of
from reconciler.model.adjustments import passing
from reconciler.model.desired import Desired
from reconciler.model.gate import Binding
from reconciler.model.observed import Answered, HostFacts, Member, Observed, RedfishInventory, Silent
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, NodeRecord, is_spare, read_mark
from reconciler.model.stakes import stakes
from reconciler.model.vocab import DrainProvider, Power
from reconciler.planner.node.bmc_password import assess_bmc_password
from reconciler.planner.node.bmc_reset import assess_bmc
from reconciler.planner.node.conditions import (
    GATE,
    HEALTHY,
    HOST_UP,
    IDENTITY,
    IN_SERVICE,
    MARKED,
    POWER_ON,
    QUIESCED,
    REGISTERED,
    RESERVED,
    ConditionBuilder,
    Context,
    Unread,
)
from reconciler.planner.node.corroboration import (
    boot_is_stuck,
    host_down,
    identity,
    known_cause,
    not_installed,
    tampered,
    unproved_source,
)
from reconciler.planner.node.counted import watched_until
from reconciler.planner.node.decommission import Leaving, assess_leaving
from reconciler.planner.node.foreign_holds import foreign_hold
from reconciler.planner.node.health_condition import assess_health, not_read, unread_log
from reconciler.planner.node.in_place import fell_back, why_installer
from reconciler.planner.node.operands import assess_operators
from reconciler.planner.node.provision import never_answered, unread_disk
from reconciler.planner.node.record import (
    gate_failure,
    is_drained,
    was_tested,
)
from reconciler.planner.node.renewals import assess_host_certificate
from reconciler.planner.node.repair import assess_repair
from reconciler.planner.node.retest import asked_again, both, owed_since_isolation, renewals, voided_since_certificate
from reconciler.planner.node.shown_signals import shown_signals, split_ignored
from reconciler.planner.node.withheld import withheld

_ON = frozenset({Power.ON, Power.POWERING_ON})


@dataclass(frozen=True, slots=True)
class Assessment:
    """The conditions and evidence of a node that do not depend on its drift. `Conditions` describes most fields."""

    conditions: ConditionBuilder
    mig_off: bool | None  # the value of GPU_PLAIN; drift gives its evidence
    signals: tuple[Signal, ...]
    reported: tuple[Signal, ...]
    ignored: tuple[Signal, ...]
    withheld: tuple[tuple[Signal, str], ...]
    mark: Mark | None
    foreign_mark: Mark | None
    foreign_cordon: bool
    foreign_hold: str  # see `Conditions`
    tampered: str
    waiting: str
    waits_until: datetime | None
    watched_until: datetime | None  # see `Conditions`
    unread_log: str  # the same
    gate_failed: str
    unproved: str  # why it is not known that this boot is the declared one; "" = it is, or nothing is declared
    inventory: RedfishInventory | None  # as the BMC told it
    facts: HostFacts | None  # as the host told them
    unread: Unread  # whether the disk of a silent machine may be written
    leaving: Leaving | None
    needs_installer: str | None  # see `Conditions`
    fell_back: str
    moved_tests: Mapping[str, tuple[str, ...]]  # tests that the spec has changed -> why a node in service fails them
    asked_tests: frozenset[str]  # see `Conditions`


def assess(
    desired: Desired,
    observed: Observed,
    record: NodeRecord,
    context: Context,
    rules: IgnoreRules | None = None,
    retracted: Collection[str] = (),
) -> Assessment:
    """Assess a node. `retracted`: value paths of signals that a person took back (`reconciler isolation retract`)."""
    facts = observed.host.value if isinstance(observed.host, Answered) else None
    unread = unread_disk(desired, observed, record)
    explained_by, waiting = _host_cause(desired, observed, record, context, unread)
    builder = ConditionBuilder(explained_by if facts is None else "")
    _power(builder, desired, observed, record, context, waiting or unread.cause)
    counted, ignored = split_ignored(desired, shown_signals(desired, observed, record, context), rules)
    found = tuple(s for s in counted if s.path not in retracted and s.effect is not Effect.REPORTS)
    reported = tuple(signal for signal in counted if signal not in found)
    later = withheld(found, record, context.now)
    if later.signals:
        found = tuple(signal for signal in found if all(signal is not one for one, _ in later.signals))
    until = later.until if later.signals and not found and not waiting else None
    waiting = waiting or (later.sentence if until is not None else "")
    assess_health(builder, observed, found, later, not_read(desired, observed, record, rules, retracted))
    mark, foreign_mark, foreign_cordon = _cluster(builder, desired, observed, record, context)
    moved, asked = _gate(builder, desired, observed, record, context)
    _identity(builder, desired, observed, facts, record)
    _upkeep(builder, desired, observed, record, context, reported)
    clustered = context.settings.cluster is not None and desired.profile.membership is not None
    leaving = assess_leaving(builder, desired, observed, record, clustered=clustered)
    return Assessment(
        conditions=builder,
        mig_off=_gpu_plain(facts),
        signals=found,
        reported=reported,
        ignored=ignored,
        withheld=later.signals,
        mark=mark,
        foreign_mark=foreign_mark,
        foreign_cordon=foreign_cordon,
        foreign_hold=foreign_hold(observed),
        tampered=tampered(desired, facts),
        waiting=waiting,
        waits_until=until,
        watched_until=watched_until(desired, observed, record),
        unread_log=unread_log(desired, observed, rules),
        gate_failed=_failed_gate(builder, desired, observed, record, context),
        unproved=_unproved(desired, facts, record, context.of_profile(desired.profile).reference),
        inventory=observed.inventory.value if isinstance(observed.inventory, Answered) else None,
        facts=facts,
        unread=unread,
        leaving=leaving,
        needs_installer=why_installer(desired, facts, record, found, tampered(desired, facts)),
        fell_back=fell_back(desired, facts, record),
        moved_tests=moved,
        asked_tests=asked,
    )


def _upkeep(
    builder: ConditionBuilder,
    desired: Desired,
    observed: Observed,
    record: NodeRecord,
    context: Context,
    reported: Collection[Signal],
) -> None:
    """Set what is done beside a node's own state: its host certificate, its BMC, and the parts that a person swaps."""
    assess_host_certificate(builder, observed, record, context)
    assess_bmc_password(builder, desired, record, context)
    assess_bmc(builder, desired, observed, record, reported, context.now, chosen=context.bmc_to_reset == desired.node)
    assess_repair(builder, observed, record)


def _unproved(desired: Desired, facts: HostFacts | None, record: NodeRecord, reference: str) -> str:
    """Return why this boot is not proved by what is declared now; "" where it is, or need not be."""
    if not reference:
        return ""
    found = record.attestation
    boot = is_measured(desired.profile)
    if found is None:
        return f"no {'quote of its TPM has proved what it booted' if boot else 'component has signed what it runs'}"
    if facts is None:
        return f"it is not known which boot this is, so no {'quote of its TPM' if boot else 'signature'} proves it"
    if found.boot_id != (facts.boot_id or ""):  # both are "" in a published observation
        proof = "a quote of its TPM proved what it booted" if boot else "its components signed what they run"
        return f"it was booted since {proof}"
    return "" if found.reference == reference else "its boot was judged by other measurements than those declared"


def _host_cause(
    desired: Desired, observed: Observed, record: NodeRecord, context: Context, unread: Unread
) -> tuple[str, str]:
    """Return the known cause of the host's silence, and why to wait for it; "" for what there is not."""
    if unread.cause:
        return unread.cause, ""
    system = observed.hot.value if isinstance(observed.hot, Answered) else None
    explained_by, waiting = known_cause(system, observed)
    if waiting and not boot_is_stuck(record, context.now):
        return explained_by, waiting
    if explained_by and not waiting:
        return explained_by, ""
    if never_answered(record):
        return "", ""
    if not_installed(desired, observed, record, context.now, context.neighbours_answer):
        return "no system answers, and the node is in no cluster", ""
    if host_down(desired, observed, record, context.now, context.neighbours_answer):
        return "the host is down", ""
    return "", ""


def _power(
    builder: ConditionBuilder, desired: Desired, observed: Observed, record: NodeRecord, context: Context, cause: str
) -> None:
    """`cause`: why a silent host shows no fault of its own; "" if nothing explains it."""
    if isinstance(observed.hot, Silent):
        power: bool | None = True if isinstance(observed.host, Answered) else None
        builder.set(POWER_ON, power, f"BMC {observed.hot.why}")
    else:
        state = observed.hot.value.power
        builder.set(POWER_ON, None if state is None else state in _ON, f"power {state}")
    if isinstance(observed.host, Answered):
        builder.set(HOST_UP, True)
    elif POWER_ON not in builder.true and POWER_ON not in builder.unknown:
        builder.because[HOST_UP] = builder.because[POWER_ON]
    elif host_down(desired, observed, record, context.now, context.neighbours_answer) and not cause:
        builder.because[HOST_UP] = ("host_down: NotReady and SSH silent, while its BMC and its neighbours answer",)
    else:
        reason = f"SSH {observed.host.why}"
        if record.silent_since.keys() >= {"ssh", "not_ready"} and (why := unproved_source(desired, observed, record)):
            reason += f"; whether the host is down is not known: {why}"
        builder.set(HOST_UP, None, reason)


def _gpu_plain(facts: HostFacts | None) -> bool | None:
    if facts is None or facts.gpus is None:
        return None
    modes = {(gpu.mig_current, gpu.mig_pending) for gpu in facts.gpus if not gpu.lost}
    if any(current is None for current, _ in modes):
        return None
    return not any(current or pending for current, pending in modes)


def _cluster(
    builder: ConditionBuilder, desired: Desired, observed: Observed, record: NodeRecord, context: Context
) -> tuple[Mark | None, Mark | None, bool]:
    assess_operators(builder, desired, observed)
    drain = desired.profile.drain
    if context.settings.cluster is None or desired.profile.membership is None:
        # No scheduler of ours places work here: in service means that the host is up.
        builder.set(IN_SERVICE, HOST_UP in builder.true and not is_drained(record, None))
        quiet = POWER_ON not in builder.true or is_drained(record, None)
        builder.set(QUIESCED, quiet and POWER_ON not in builder.unknown)
        return None, None, False
    if isinstance(observed.member, Silent):
        why = f"cluster {observed.member.why}"
        for name in (REGISTERED, MARKED, QUIESCED, IN_SERVICE):
            builder.unknown[name] = why
        return None, None, False
    member = observed.member.value
    if member is None:
        builder.set(QUIESCED, True)  # no node object, no pods (pitfall H7)
        builder.because[REGISTERED] = ("cluster.member",)
        return None, None, False
    builder.set(REGISTERED, member.registered, *(() if member.registered else ("cluster.member",)))
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    ours = mark if mark is not None and mark.ledger == context.ledger else None
    tainted = any(taint.key == MARK_TAINT for taint in member.taints)
    builder.set(MARKED, ours is not None and tainted and member.unschedulable)
    builder.set(IN_SERVICE, bool(member.ready) and not member.unschedulable and not tainted)
    builder.set(RESERVED, MARKED in builder.true and is_spare(ours, desired.persona))
    refusal = stakes(member.work(observed.host, observed.member.at), drain).refusal(drain)
    quiet = MARKED in builder.true and _quiet(observed, member, ours, drain.provider, record)
    builder.set(QUIESCED, quiet, *([refusal] if refusal else ()))
    foreign_cordon = member.unschedulable and (mark is None or (ours is not None and not ours.cordoned))
    return ours, (mark if ours is None else None), foreign_cordon


def _quiet(observed: Observed, member: Member, mark: Mark | None, provider: DrainProvider, record: NodeRecord) -> bool:
    if provider is DrainProvider.NONE:
        return True
    if mark is not None and passing(mark.adjusted):
        return False  # a drain was cut off before it had lowered what it had raised
    if provider is DrainProvider.COMMAND:
        return is_drained(record, mark)
    return not member.work(observed.host, observed.member.at)


def _gate(
    builder: ConditionBuilder, desired: Desired, observed: Observed, record: NodeRecord, context: Context
) -> tuple[Mapping[str, tuple[str, ...]], frozenset[str]]:
    """Judge the certificate, and return what is not judged here: tests that the spec has changed, on a node in service.

    They are a change of the spec, which drift tells, and which a rollout may hold back. A node that is out of service
    is tested by what the spec says now. Return also the names of all tests that a gate would run now.
    """
    acceptance = desired.profile.acceptance
    if acceptance is None:
        builder.because[GATE] = ("the persona declares no acceptance profile: nothing can prove this node",)
        return {}, frozenset()
    by_hand = desired.asked
    if by_hand is not None and by_hand.other is not None:
        name = by_hand.other.name
        builder.set(GATE, was_tested(record, name, by_hand.since), f"{by_hand.by} asks for the tests of {name}")
        return {}, frozenset()
    binding = _binding(desired, observed, context)
    if isinstance(binding, str):
        if record.certificate is None:
            builder.because[GATE] = ("no certificate",)
        else:
            builder.set(GATE, None, binding)
        return {}, frozenset()
    full = judge(record.certificate, acceptance, binding, context.now)
    table = table_of(desired.profile)
    done = both(voided_since_certificate(record, acceptance, binding, table), asked_again(desired, record))
    if IN_SERVICE not in builder.true and HEALTHY in builder.true:  # treated, it is tested for that
        done = both(done, owed_since_isolation(record, acceptance, table))
    due = due_tests(record.certificate, acceptance, context.now)
    idle = idle_tests(record.certificate, record.idle_since, acceptance, context.now)
    run = frozenset().union(full.by_test, done, due, idle)
    # Another name of a leaf or rack drains nobody, as nothing may have been moved: it is tested when it is free.
    binding = replace(binding, fabric={}) if IN_SERVICE in builder.true else binding
    judgement = full if full.valid else judge(record.certificate, acceptance, binding, context.now)
    if record.certificate is not None and record.certificate.adopted:
        run, full = every_test(acceptance), judgement
    of_one_that_serves = record.certificate if not judgement.valid and not done and IN_SERVICE in builder.true else None
    if of_one_that_serves and (why := ahead_of_clock(of_one_that_serves, acceptance, binding, context.now)):
        # A clock that was set back drains no fleet: who serves goes on serving, and nobody is admitted by it.
        builder.set(GATE, None, why)
        return {}, frozenset()
    if judgement.valid and not done:
        due = renewals(desired, observed, due, both(full.by_test, idle), quiesced=QUIESCED in builder.true)
        builder.set(GATE, not due, *sentences(due, acceptance))
        return {}, run
    asked, found = context.of_profile(desired.profile).asked, judgement.by_test
    moved = moved_tests(asked, record, found) if IN_SERVICE in builder.true else ()
    whole = whole_reasons(found, acceptance)
    void = {
        test.name: (
            *[why for why in found.get(test.name, ()) if test.name not in moved or why in whole],
            *done.get(test.name, ()),
        )
        for test in acceptance.tests
    }
    void = {name: reasons for name, reasons in void.items() if reasons}
    builder.set(GATE, not void, *sentences(void, acceptance))
    held_back = {name: tuple([why for why in found[name] if why not in whole]) for name in moved}
    return {name: reasons for name, reasons in held_back.items() if reasons}, run


def _failed_gate(
    builder: ConditionBuilder, desired: Desired, observed: Observed, record: NodeRecord, context: Context
) -> str:
    if GATE not in builder.because or not record.attempts or desired.other_tests is not None:
        return ""
    return gate_failure(record, _binding(desired, observed, context), desired.profile.acceptance)


def _binding(desired: Desired, observed: Observed, context: Context) -> Binding | str:
    """Return what a certificate must bind, or a sentence that says why this is not known."""
    acceptance = desired.profile.acceptance
    if acceptance is None:
        return "no acceptance profile"
    return binding_of(desired, observed, context.of_profile(desired.profile).tests)


def _identity(
    builder: ConditionBuilder, desired: Desired, observed: Observed, facts: HostFacts | None, record: NodeRecord
) -> None:
    """Compare the BMC's serial number and UUID with those of the spec, the host or the ledger (pitfall A14)."""
    if isinstance(observed.hot, Silent):
        builder.unknown[IDENTITY] = f"BMC {observed.hot.why}"
        return
    verdict, why = identity(desired, observed.hot.value, facts, record)
    if verdict:
        builder.true.add(IDENTITY)
    elif verdict is None:
        builder.unknown[IDENTITY] = why
    else:
        builder.because[IDENTITY] = (why,)
