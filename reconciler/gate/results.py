"""Turn a gate's results into rows for the ledger, which keeps what the tools printed apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.gate.certificate import digest_of, finite, judge_test
from reconciler.model.desired import Desired
from reconciler.model.gate import Certificate, TestResult
from reconciler.model.gate_arguments import GROUP
from reconciler.model.gate_tools import measured
from reconciler.model.reference import hardware_of
from reconciler.model.results import COUNTS, NODES, Measurement, TestRun


@dataclass(frozen=True, slots=True)
class Recorded:
    """A certificate without what tools printed, its rows, and the texts by digest."""

    certificate: Certificate
    runs: tuple[TestRun, ...]
    outputs: Mapping[str, str]


def recorded(certificate: Certificate, desired: Desired, attempt: int) -> Recorded:
    """Take apart what a gate measured."""
    texts = {result.test: result.printed for result in certificate.results if result.printed}
    digests = {test: hashlib.sha256(text.encode()).hexdigest() for test, text in texts.items()}
    results = tuple(
        replace(result, printed="", output=digests[result.test]) if result.test in digests else result
        for result in certificate.results
    )
    rows = tuple(_run(certificate.node, result, certificate.issued_at, desired, attempt) for result in results)
    return Recorded(replace(certificate, results=results), rows, {digests[test]: text for test, text in texts.items()})


def _run(node: str, result: TestResult, at: datetime, desired: Desired, attempt: int) -> TestRun:
    """Return the row of a result. `at`: when it ended, if it does not say so itself."""
    acceptance, other = desired.tests, desired.other_tests
    tests = () if acceptance is None else acceptance.tests
    test = next((test for test in tests if test.name == result.test), None)
    verdict, reasons = (result.verdict, result.reasons) if test is None else judge_test(test, result)
    return TestRun(
        node=node,
        attempt=attempt,
        profile="" if other is None else other.name,
        test=result.test,
        tool=result.tool,
        tool_version=result.tool_version,
        verdict=verdict,
        reasons=reasons,
        key=key_of(desired, result, {} if test is None else test.args),
        started_at=result.started_at or at,
        ended_at=result.ended_at or at,
        output=result.output,
        measurements=measurements(result),
    )


def with_searched(certificate: Certificate, desired: Desired, runs: Iterable[TestRun]) -> Certificate:
    """Return the certificate with what searches measured of its node by tests of the profile that no gate has run.

    A search counts whose node had the image and the arguments of today; of its figures, those of the node as a whole.
    """
    acceptance, known = desired.profile.acceptance, {result.test for result in certificate.results}
    tests = () if acceptance is None else acceptance.tests
    args = {test.name: test.args for test in tests if test.name not in known}
    found = []
    for run in runs:
        metrics = {one.metric: one.value for one in run.measurements if not one.part and one.metric not in COUNTS}
        result = TestResult(run.test, run.tool, run.verdict, (), metrics, run.tool_version)
        if metrics and run.test in args and run.key == key_of(desired, result, args[run.test]):
            found.append(result)
    return replace(certificate, results=(*certificate.results, *found))


def measurements(result: TestResult) -> tuple[Measurement, ...]:
    """Return the finite metrics of a result, by metric and part."""
    found = []
    for name, cell in result.metrics.items():
        value = finite(cell)
        metric, part, unit = measured(result.tool, name, result.metrics)
        if value is not None:
            found.append(Measurement(metric, part, value, result.units.get(metric, unit)))
    return tuple(sorted(found, key=lambda row: (row.metric, row.part)))


def peers_key(hardware: str, image: str, test: str, tool: str, tool_version: str, args: Mapping[str, object]) -> str:
    """Return the digest of what peers in a test have in common: the name of their reference has its first digits.

    `image`: SHA-256, with its driver; "" where it is not managed. `args`: scope, size and environment of the test.
    """
    return digest_of((hardware, image, test, tool, tool_version, dict(args)))


def key_of(desired: Desired, result: TestResult, args: Mapping[str, object]) -> str:
    """Return the key of a result. `args`: of its test; {} of what is no test of the profile.

    What half a group measured has the key of a test that asks for so many nodes.
    """
    if GROUP in args and NODES in result.metrics:
        args = {**args, GROUP: int(result.metrics[NODES])}
    image = desired.profile.image
    sha256 = "" if image is None else image.sha256
    hardware = hardware_of(desired.profile.inventory)
    return peers_key(hardware, sha256, result.test, result.tool, result.tool_version, args)
