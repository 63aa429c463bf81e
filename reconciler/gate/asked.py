"""Tests as the spec asks for them: a value of the node like any other, so that a change of them is one of the spec.

The text of a test says all that a certificate is judged by. The ledger keeps the text that a node last satisfied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.diff.facts import managed
from reconciler.gate.certificate import TestDigests, by_test, finite, tests_changed
from reconciler.gate.cohort import is_whole
from reconciler.gate.cohort import limit as cohort_limit
from reconciler.model.desired import Acceptance, GateTest, Profile, Threshold
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.records import NodeRecord
from reconciler.model.units import format_duration

TESTS: Final = "gate.tests."  # before a test's name: its value path


def asked_tests(acceptance: Acceptance | None) -> dict[str, str]:
    """Return the text of each test by its value path."""
    if acceptance is None:
        return {}
    return {TESTS + test.name: ", ".join([text_of(test), *_rows(test, acceptance)]) for test in acceptance.tests}


def _rows(test: GateTest, acceptance: Acceptance) -> Iterator[str]:
    """Yield what the profile says of when the test is run again; nothing where its defaults hold."""
    if test.validity_s is not None:
        yield f"valid for {format_duration(test.validity_s)}"
    for done in sorted(acceptance.after):
        yield f"{'after' if test.name in acceptance.after[done] else 'not after'} {done}"


def text_of(test: GateTest) -> str:
    """Return a test and its limits in one line, like `nccl-tests size="8G", busbw_peak >= 440`."""
    words = [test.tool, *(f"{name}={json.dumps(value)}" for name, value in sorted(test.args.items()))]
    bars = [text for bar in test.thresholds for text in bar_texts(bar)]
    skips = [f"may skip {' '.join(test.allow_skip)}"] if test.allow_skip else []
    return ", ".join([" ".join(words), *bars, *skips])


def bar_texts(bar: Threshold) -> Iterator[str]:
    """Yield the limits of one bar, each with its metric, those by peers with what they come from."""
    if bar.min is not None:
        yield f"{bar.metric} >= {bar.min:.15g}"
    if bar.max is not None:
        yield f"{bar.metric} <= {bar.max:.15g}"
    if bar.cohort is not None:
        text = f"{bar.metric} within {bar.cohort.below * 100:g}% and modified z {bar.cohort.modified_z:g} of its peers"
        for peers in bar.cohort.peers:
            if (least := cohort_limit(bar.cohort, peers.tool_version)) is not None:
                text += f", >= {least:.15g} by {peers.n} with {peers.tool_version}"
        yield text


def kept_values(profile: Profile) -> dict[str, Any]:
    """Return every value that the ledger keeps of a node once it has it, by path, as the spec spells it."""
    return {row.path: row.shown for row in managed(profile)} | asked_tests(profile.acceptance)


def moved_tests(asked: Mapping[str, str], record: NodeRecord, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the tests `names` that the spec has changed since the node last satisfied them.

    `asked`: the `asked_tests`, which equal nodes share. A test that the node never satisfied, though the spec had it
    when the node was first looked at, has not changed.
    """
    return tuple([name for name in names if _moved(TESTS + name, asked, record)])


def _moved(path: str, asked: Mapping[str, str], record: NodeRecord) -> bool:
    applied = record.applied.get(path)
    if applied is not None:
        return bool(applied.value != asked[path])
    return record.paths is not None and path not in record.paths


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A stored metric that fails a limit of today's spec. `value` None: nothing that can be compared is stored.

    `place`: the value path of the limit, or of the whole test when no metric of it is stored.
    """

    test: str
    place: str
    metric: str = ""
    limit: float = 0.0
    value: float | None = None

    @property
    def share(self) -> float:
        """Return by how much of the limit the metric misses it."""
        return 0.0 if self.value is None else abs(self.value - self.limit) / (abs(self.limit) or 1.0)


def shortfalls(
    acceptance: Acceptance, asked: Mapping[str, str], digests: TestDigests, record: NodeRecord
) -> Iterator[Shortfall]:
    """Yield what the stored metrics of a node lack of the tests that the spec has changed.

    A certificate without tests (`adopted`) lacks metrics only where a test itself has changed: a bar does not void it.
    """
    if not any(_moved(path, asked, record) for path in asked):
        return
    moved = moved_tests(asked, record, [test.name for test in acceptance.tests])
    certificate = record.certificate
    results = by_test(certificate.results) if certificate is not None else {}
    other = digests.each if certificate is None else tests_changed(certificate, acceptance, digests)
    adopted = certificate is not None and certificate.adopted
    for number, phase in enumerate(acceptance.phases):
        for at, test in enumerate(phase.tests):
            if test.name not in moved or (adopted and test.name not in other):
                continue
            place, result = f"acceptance.phases.{number}.tests.{at}", results.get(test.name)
            if test.name in other or result is None or result.verdict is not Verdict.PASS:
                yield Shortfall(test.name, place)
            else:
                yield from _below(test, place, result)


def _below(test: GateTest, place: str, result: TestResult) -> Iterator[Shortfall]:
    whole = is_whole(test.args, result.metrics)
    for at, bar in enumerate(test.thresholds):
        value = finite(result.metrics.get(bar.metric))
        by_peers = cohort_limit(bar.cohort, result.tool_version) if whole else None
        for limit, sign in ((bar.min, 1), (by_peers, 1), (bar.max, -1)):
            if limit is not None and (value is None or value * sign < limit * sign):
                yield Shortfall(test.name, f"{place}.thresholds.{at}", bar.metric, limit, value)
