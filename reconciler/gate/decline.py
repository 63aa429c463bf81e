"""Gray decline: a node against what it measured itself when it first passed. No bar tells of that, and it fails nobody.

Each certificate keeps what earlier gates measured first, since rows of results may be gone by then. Results are
compared while image, test, tool, its version and the number of nodes of its group stay the same: with another of them a
node begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from reconciler.gate.bars import unit_of
from reconciler.gate.certificate import by_test, digest_of, finite, judge_test
from reconciler.model.desired import Acceptance, GateTest
from reconciler.model.gate import Binding, Certificate, Decline, FirstResult, TestResult, Verdict
from reconciler.model.results import NODES

GRAY_DECLINE: Final = "gray_decline_"  # before test and metric: the name of the signal
DECLINE: Final = 0.02  # of the first value; less is noise


def first_results(made: Certificate, known: Certificate | None, acceptance: Acceptance) -> tuple[FirstResult, ...]:
    """Return what the certificate `made` keeps of first results: those of the one before it, or its own results.

    A test that `made` has no result of keeps its first one, as it comes back after a repair. What failed a bar of today
    is nothing to compare with.
    """
    if known is None or known.adopted:
        return ()
    kept = {one.test: one for one in known.first}
    before, after = _passed(known, acceptance), _keys(made)
    found = []
    for test in acceptance.tests:
        at, key = after.get(test.name, (None, ""))
        for one in (kept.get(test.name), before.get(test.name)):
            if one is not None and (at is None or (one.key == key and one.at != at)):
                found.append(one)
                break
    return tuple(found)


def declines(certificate: Certificate | None, acceptance: Acceptance | None) -> Iterator[Decline]:
    """Yield each metric with a lower limit that has declined since the node first passed its test."""
    if certificate is None or acceptance is None or not certificate.first:
        return
    first = {one.test: one for one in certificate.first}
    keys, results = _keys(certificate), by_test(certificate.results)
    for test in acceptance.tests:
        was, has = first.get(test.name), results.get(test.name)
        if was is not None and has is not None and was.key == keys[test.name][1]:
            yield from _declined(certificate.node, test, was, has)


def sentence(one: Decline) -> str:
    """Return what declined by how much, and since when."""
    was = f"{one.test}: {one.metric} was {one.first:g} on {one.at:%Y-%m-%d}"
    return f"{was} and is {one.now:g}, {one.share:.1%} less"


def _declined(node: str, test: GateTest, was: FirstResult, has: TestResult) -> Iterator[Decline]:
    for metric in dict.fromkeys([bar.metric for bar in test.thresholds if bar.min is not None or bar.cohort]):
        before, now = finite(was.metrics.get(metric)), finite(has.metrics.get(metric))
        if before is not None and now is not None and before > 0 and now < before * (1 - DECLINE):
            yield Decline(node, test.name, metric, unit_of(test.tool, metric), before, was.at, now)


def _passed(certificate: Certificate, acceptance: Acceptance) -> Mapping[str, FirstResult]:
    keys, declared = _keys(certificate), {test.name: test for test in acceptance.tests}
    return {
        name: FirstResult(name, keys[name][1], keys[name][0], result.metrics)
        for name, result in by_test(certificate.results).items()
        if name in declared and judge_test(declared[name], result)[0] is Verdict.PASS
    }


def _keys(certificate: Certificate) -> Mapping[str, tuple[datetime, str]]:
    """Return, by test, when its result was certified, and what later ones must have in common with it."""
    proofs = {name: (proof.issued_at, proof.binding) for proof in certificate.earlier for name in proof.tests}
    own = certificate.issued_at, certificate.binding
    found = {}
    for result in certificate.results:
        at, binding = proofs.get(result.test, own)
        found[result.test] = at, _key(binding, result)
    return found


def _key(binding: Binding, result: TestResult) -> str:
    test = binding.tests.get(result.test, binding.tests_digest)
    known = (binding.image_sha256, test, result.tool, result.tool_version)
    return digest_of((*known, result.metrics[NODES]) if NODES in result.metrics else known)
