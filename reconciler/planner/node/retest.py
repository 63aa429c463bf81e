"""Choose the tests that a gate runs: those that what was done asks for, and those whose results end soon.

Every other result stands. Where it is not known what the node is, none does, and all tests are run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final

from reconciler.gate.after import (
    Reasons,
    every_test,
    sentences,
    tests_after,
    tests_after_bios,
    tests_after_exchange,
    tests_after_firmware,
)
from reconciler.gate.certificate import binding_of, due_tests, idle_tests, judge, tests_digest
from reconciler.gate.exchanged import exchanged
from reconciler.health.table import HealthTable, SignalRule, health_table, table_of
from reconciler.model.after import PASSIVE, Exchanged
from reconciler.model.desired import Acceptance, Desired
from reconciler.model.gate import Binding
from reconciler.model.observed import Observed, Silent
from reconciler.model.records import Attempt, NodeRecord, isolated_for
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.catalogue import Row
from reconciler.planner.node.record import is_admission, treats
from reconciler.spec.kinds.signals import Proof

ACCEPTS: Final = "accept_parts"  # ends the repair by a person


def cost_of(acceptance: Acceptance, action: str, target: str, *, treats: bool) -> frozenset[str]:
    """Return the names of the tests that an action voids. `treats`: it is done to heal the node."""
    spec = spec_of(action)
    if spec.installs or spec.decommissions:
        return every_test(acceptance)
    if spec.flashes:
        return tests_after_firmware(acceptance, target)
    return tests_after(acceptance, action, spec.retests if treats else ())


def voided_since_certificate(
    record: NodeRecord,
    acceptance: Acceptance,
    found: Binding | str | None = None,
    table: HealthTable | None = None,
) -> Reasons:
    """Return what was done to the machine since its certificate was issued, by the tests that it voids.

    The binding of a certificate shows changed hardware and firmware. It does not show that the node was treated or
    wiped, nor what a person did after it was drained for a repair, or held after it had failed its gate. `found`: what
    a certificate of today would bind: a part of the kind that was at fault is another one now, so that was the repair.
    `table`: that of the node; None is the packaged one.
    """
    if record.certificate is None or not (record.attempts or record.released_at):
        return {}
    others = exchanged(record.certificate.binding, found) if isinstance(found, Binding) else frozenset[Exchanged]()
    table = health_table() if table is None else table
    void: dict[str, dict[str, None]] = {}
    for attempt in record.since_certificate:
        if attempt.outcome != "refused":
            for why, tests in _voided(attempt, acceptance, others, table):
                for test in tests:
                    void.setdefault(test, {})[f"{why} after the certificate was issued"] = None
    if _released_since_failure(record):
        rows = [tests_after_exchange(acceptance, part) for part in others]  # what failed is run again anyway
        for test in frozenset().union(*rows) if rows else every_test(acceptance):
            void.setdefault(test, {})["its hold was released after it had failed its gate"] = None
    return {test.name: tuple(void[test.name]) for test in acceptance.tests if test.name in void}


def _voided(
    attempt: Attempt, acceptance: Acceptance, others: Collection[Exchanged], table: HealthTable
) -> Iterator[tuple[str, frozenset[str]]]:
    done = f"{attempt.action}:{attempt.target}" if attempt.target else attempt.action
    yield done, cost_of(acceptance, attempt.action, attempt.target, treats=treats(attempt))
    if attempt.action == ACCEPTS:
        rows = [tests_after_exchange(acceptance, part) for part in others]
        yield "repaired by a person", frozenset().union(*rows) if rows else every_test(acceptance)
    if attempt.action == "drain":
        for path in table.for_a_person(attempt.cause.split(", ")):
            part = table.part_at(path)
            known = part is not None and part in others
            tests = tests_after_exchange(acceptance, part) if part is not None and known else every_test(acceptance)
            yield f"drained for the repair of {path}", tests


def _released_since_failure(record: NodeRecord) -> bool:
    gates = [attempt for attempt in record.attempts if attempt.action == "run_gate" and attempt.outcome != "refused"]
    failed = gates[-1] if gates and gates[-1].outcome == "permanent" else None
    return failed is not None and record.is_seen_to(failed)


def owed_since_isolation(record: NodeRecord, acceptance: Acceptance, table: HealthTable) -> Reasons:
    """Return every test of a node that is out since it was isolated for a signal whose row asks for a gate.

    Nobody may have treated it since, and what is gone may come back under load (pitfall K2). A node that is back in
    service, as a retraction brings it, is asked for nothing.
    """
    for attempt in reversed(record.since_certificate):
        if is_admission(attempt):
            break
        if attempt.action == "mark" and attempt.outcome != "refused":
            paths = [path for path in isolated_for(attempt.cause) if _asks_for_gate(table.rule_at(path))]
            why = f"isolated for {', '.join(paths)} after the certificate was issued"
            return {test.name: (why,) for test in acceptance.tests} if paths else {}
    return {}


def _asks_for_gate(rule: SignalRule | None) -> bool:
    return rule is not None and Proof.GATE in rule.row.healed_by


def asked_again(desired: Desired, record: NodeRecord) -> Reasons:
    """Return what a person who asks for a new gate says of each test, until a certificate was issued since."""
    acceptance, by_hand, known = desired.profile.acceptance, desired.asked, record.certificate
    if acceptance is None or by_hand is None or by_hand.other is not None:
        return {}
    if known is None or known.issued_at >= by_hand.since:
        return {}
    return {test.name: (f"{by_hand.by} asks for a new gate",) for test in acceptance.tests}


def is_idle(desired: Desired, observed: Observed) -> bool | None:
    """Return whether a node does nothing for anybody; None where nobody tells, as without a cluster.

    Work that the cluster doesn't see (drain.provider none or command) may be on a node at any time. Pods of DaemonSets
    serve, too, when they are on GPUs, and a GPU that computes does so for somebody, wherever that was begun. Whether
    one of AMD's does is not read.
    """
    if not desired.profile.drain.provider.asks_cluster:
        return False
    if isinstance(observed.member, Silent):
        return None
    if not isinstance(observed.host, Silent):
        facts = observed.host.value
        amd = bool(facts.amd_gpus) or (facts.amd_gpus is None and not facts.gpus)
        if amd or any(gpu.cells.loaded for gpu in facts.gpus or ()):
            return False
    member = observed.member.value
    if member is None:
        return True
    return not member.work(observed.host, observed.member.at) and not any(pod.on_gpus for pod in member.pods)


def renewals(desired: Desired, observed: Observed, due: Reasons, free: Reasons, *, quiesced: bool) -> Reasons:
    """Return what is tested of a node whose results hold. `due`: those that end soon; `free`: only while it is idle."""
    acceptance = desired.profile.acceptance
    wish = None if acceptance is None else acceptance.revalidate
    early = wish is not None and (wish.drain or quiesced or _without_work(observed))
    return both(due if early else {}, free if is_idle(desired, observed) else {})


def _without_work(observed: Observed) -> bool:
    member = None if isinstance(observed.member, Silent) else observed.member.value
    return member is not None and not member.work(observed.host, observed.member.at)


def both(one: Reasons, other: Reasons) -> Reasons:
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in (*one, *other)}


def left_out_tests(desired: Desired, observed: Observed, record: NodeRecord, now: datetime) -> frozenset[str]:
    """Return the names of the tests that the gate need not run, as their results hold and don't end soon."""
    acceptance, known = desired.profile.acceptance, record.certificate
    if acceptance is None or known is None or known.adopted or asked_again(desired, record):
        return frozenset()
    binding = binding_of(desired, observed, tests_digest(acceptance))
    if isinstance(binding, str):
        return frozenset()
    voided = voided_since_certificate(record, acceptance, binding, table_of(desired.profile))
    asked = {*judge(known, acceptance, binding, now).by_test, *voided}
    asked.update(owed_since_isolation(record, acceptance, table_of(desired.profile)))
    asked.update(due_tests(known, acceptance, now), idle_tests(known, record.idle_since, acceptance, now))
    passive = {test.name for test in acceptance.tests if test.tool in PASSIVE}
    return frozenset(result.test for result in known.results) - asked - passive


def planned_reasons(acceptance: Acceptance, rows: Sequence[Row], because: tuple[str, ...]) -> tuple[str, ...]:
    """Return the reasons of a gate after these actions, each with its tests; `because` where all of them are run."""
    costs = {row.id: _planned_cost(acceptance, row) for row in rows}
    every = every_test(acceptance)
    void = {_words(row): costs[row.id] for row in rows if costs[row.id]}
    if not void or any(tests == every for tests in void.values()):
        return because
    known = [why for why in because if not why.startswith("gate undone by ")]
    asked = {test.name: tuple([why for why, tests in void.items() if test.name in tests]) for test in acceptance.tests}
    return (*known, *sentences({name: whys for name, whys in asked.items() if whys}, acceptance))


def planned_tests(acceptance: Acceptance, rows: Sequence[Row]) -> frozenset[str]:
    """Return the names of the tests that these actions void."""
    return frozenset[str]().union(*(_planned_cost(acceptance, row) for row in rows))


def _planned_cost(acceptance: Acceptance, row: Row) -> frozenset[str]:
    if c.BIOS_STAGED in row.achieves:
        return tests_after_bios(acceptance)
    return cost_of(acceptance, row.name, row.target, treats=c.TREATED in row.achieves)


def _words(row: Row) -> str:
    if spec_of(row.name).flashes:
        return f"firmware {row.target} changes"
    return "BIOS settings change" if c.BIOS_STAGED in row.achieves else row.id
