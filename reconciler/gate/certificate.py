"""Certificates: what they bind, and whether one is valid today.

A certificate keeps raw metrics. `judge` compares them with today's thresholds, so a changed threshold needs no new run.
Each test is bound by its digest, so a changed or added test needs one, and a test that is taken away needs none.

A certificate is composed: each test's newest result, with what the gate bound that measured it. Which tests depend on
what is told by the profile's `after` table when the certificate is read, so all of the binding is kept with each.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from reconciler.diff import normalise
from reconciler.gate.after import Reasons, sentences, tests_after_idle
from reconciler.gate.cohort import against_peers, is_whole
from reconciler.gate.differences import differences
from reconciler.gate.evidence import GPU_COUNT, experimental, required_metrics
from reconciler.gate.exchanged import fabric_of, gpu_serials, parts_of, software_of
from reconciler.model.after import IDLE_S
from reconciler.model.desired import Acceptance, Desired, GateTest
from reconciler.model.gate import Binding, Certificate, GateJudgement, Proof, TestResult, Verdict
from reconciler.model.observed import Observed, Silent
from reconciler.model.units import format_duration

# Runners that share a ledger read each other's certificates. Their clocks may differ by the error of NTP, and by more
# before NTP has set a clock. A certificate from further ahead would stay valid for too long by that much.
CLOCK_SKEW = timedelta(minutes=5)
TEST_CHANGED: Final = "the test has changed since"
_PASS = Verdict.PASS  # looking up a member of an enumeration takes noticeable time for 100,000 nodes (Python 3.11)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))  # built once: json.dumps builds one in each call


def digest_of(value: object) -> str:
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TestDigests:
    """The digest of all tests, as the first certificates bound them, and that of each test by its name."""

    __test__ = False  # not a pytest class

    whole: str
    each: Mapping[str, str]


def tests_digest(acceptance: Acceptance) -> TestDigests:
    """Return the digests of the tests that are run. They leave out thresholds and timeouts."""
    tests = [
        (phase.name, [(t.name, t.tool, sorted(t.args.items()), t.allow_skip) for t in phase.tests])
        for phase in acceptance.phases
    ]
    return TestDigests(digest_of(tests), {test[0]: digest_of(test) for _, phase in tests for test in phase})


def binding_of(desired: Desired, observed: Observed, tests: TestDigests) -> Binding | str:
    """Return what a certificate for this node, as observed, must bind; a sentence when a part of it is not known.

    `tests` is the `tests_digest` of the acceptance profile, which equal nodes share.
    """
    if isinstance(observed.inventory, Silent) and not desired.by_person:
        return f"BMC {observed.inventory.reason.value}"
    if isinstance(observed.hot, Silent) and not desired.by_person:
        return f"BMC {observed.hot.reason.value}"
    if isinstance(observed.host, Silent):
        return f"host unknown ({observed.host.reason.value})"
    inventory = None if isinstance(observed.inventory, Silent) else observed.inventory.value
    facts, profile = observed.host.value, desired.profile
    firmware, bios = (None, None) if inventory is None else (inventory.firmware, inventory.bios)
    unread = (firmware is None and profile.firmware) or (bios is None and profile.bios)
    gpus = gpu_serials(facts)
    if gpus is None or facts.image is None or unread:
        return "GPUs, their serial numbers, image, firmware or BIOS not reported"
    firmware, bios = firmware or {}, bios or {}  # not known, where the spec manages none of it
    return Binding(
        serial=(None if isinstance(observed.hot, Silent) else observed.hot.value.serial) or facts.serial or "",
        gpu_serials=gpus,
        image_sha256=facts.image.sha256 or "",
        firmware={
            item.component: firmware[item.inventory_id].version
            for item in profile.firmware
            if item.inventory_id in firmware
        },
        bios_digest=_bios_digest(
            tuple([(name, normalise.attribute(bios[name])) for name in profile.bios if name in bios])
        ),
        tests_digest=tests.whole,
        tests=tests.each,
        parts=parts_of(inventory, facts),
        software=software_of(facts),
        fabric=fabric_of(desired.domains),
    )


@lru_cache(maxsize=1024)
def _bios_digest(settings: tuple[tuple[str, str], ...]) -> str:
    """Return the digest of BIOS settings. It is cached, as equal nodes have equal settings."""
    return digest_of(dict(settings))


def judge(certificate: Certificate | None, acceptance: Acceptance, binding: Binding, now: datetime) -> GateJudgement:
    """Judge whether each test has a result that admits this hardware today, with every reason why not."""
    if certificate is None:
        return _judgement(Verdict.UNJUDGED, {test.name: ["no certificate"] for test in acceptance.tests}, acceptance)
    void: dict[str, list[str]] = {}
    for proof in proofs_of(certificate, acceptance):
        for why, names in _flaws(proof, acceptance, binding, now, certificate.node):
            for name in names:
                void.setdefault(name, []).append(why)
    changed = tests_changed(certificate, acceptance, _digests_in(binding))
    for name in changed:
        void.setdefault(name, []).append(f"{name}: {TEST_CHANGED}")
    if certificate.adopted:
        return _judgement(Verdict.UNJUDGED, void, acceptance)
    results = by_test(certificate.results)
    worst = Verdict.UNJUDGED if changed else _PASS
    for test in acceptance.tests:
        if test.name in changed or experimental(test.tool):
            continue  # what it was called earlier was another test; or it reports, and admits nobody
        verdict, reasons = judge_test(test, results.get(test.name))
        if verdict is _PASS and (reasons := _missing_metrics(test, results[test.name], len(binding.gpu_serials))):
            verdict = Verdict.UNJUDGED
        if verdict is not _PASS:
            void.setdefault(test.name, []).extend(reasons)
            worst = worse(worst, verdict)
    return _judgement(worst, void, acceptance)


def ahead_of_clock(certificate: Certificate, acceptance: Acceptance, binding: Binding, now: datetime) -> str:
    """Return why a certificate can't be judged: it was issued after `now`, and nothing else speaks against it; else "".

    The clock here was set back, or its runner's was ahead. One from further ahead than results are valid is void.
    """
    newest = max(proof.issued_at for proof in proofs_of(certificate, acceptance))
    ahead = newest - now
    if ahead <= CLOCK_SKEW or (acceptance.validity_s is not None and ahead.total_seconds() > acceptance.validity_s):
        return ""
    if not judge(certificate, acceptance, binding, newest).valid:
        return ""
    return _clocks_differ(certificate.node, newest, ahead)


def _clocks_differ(node: str, issued_at: datetime, ahead: timedelta) -> str:
    return (
        f"issued for {node} {format_duration(ahead.total_seconds())} from now, at {issued_at:%Y-%m-%d %H:%M:%SZ}: its "
        "runner's clock was ahead, or this one's is behind; set the clock"
    )


def _judgement(verdict: Verdict, void: Mapping[str, list[str]], acceptance: Acceptance) -> GateJudgement:
    if not void:
        return GateJudgement(True, verdict)
    by_name = {test.name: tuple(void[test.name]) for test in acceptance.tests if test.name in void}
    return GateJudgement(False, verdict, sentences(by_name, acceptance), by_name)


def proofs_of(certificate: Certificate, acceptance: Acceptance) -> Iterator[Proof]:
    """Yield what each test of the profile is proved by. A test without any result is in the latest gate's proof."""
    if not certificate.earlier:
        yield Proof(certificate.issued_at, certificate.binding, tuple([test.name for test in acceptance.tests]))
        return
    kept = {name: proof for proof in certificate.earlier for name in proof.tests}
    names = tuple([test.name for test in acceptance.tests if test.name not in kept])
    yield Proof(certificate.issued_at, certificate.binding, names)
    for proof in certificate.earlier:
        yield replace(proof, tests=tuple([test.name for test in acceptance.tests if kept.get(test.name) is proof]))


def _flaws(
    proof: Proof, acceptance: Acceptance, binding: Binding, now: datetime, node: str
) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield what voids results of one gate, with the tests that it voids."""
    mine = frozenset(proof.tests)
    if proof.binding != binding:
        for why, names in differences(proof.binding, binding, acceptance):
            yield why, mine & names
    if now < proof.issued_at - CLOCK_SKEW:
        yield f"{_clocks_differ(node, proof.issued_at, proof.issued_at - now)}, and the gate runs again", mine
    for test in acceptance.tests:
        until = _expiry(proof, test, acceptance)
        if until is not None and now > until and test.name in mine:
            age_s = (now - proof.issued_at).total_seconds()
            yield f"expired: issued {format_duration(age_s)} ago", (test.name,)


def _expiry(proof: Proof, test: GateTest, acceptance: Acceptance) -> datetime | None:
    validity = acceptance.validity_s if test.validity_s is None else test.validity_s
    return None if validity is None else proof.issued_at + timedelta(seconds=validity)


def _expiries(certificate: Certificate, acceptance: Acceptance) -> Iterator[tuple[str, datetime]]:
    """Yield when the result of each test ends that ends at all."""
    for proof in proofs_of(certificate, acceptance):
        for test in acceptance.tests:
            if test.name in proof.tests and (until := _expiry(proof, test, acceptance)) is not None:
                yield test.name, until


def valid_until(certificate: Certificate, acceptance: Acceptance | None) -> datetime | None:
    """Return when the first of its results ends; None if none ever does."""
    ends = () if acceptance is None else _expiries(certificate, acceptance)
    return min((until for _, until in ends), default=None)


def due_tests(certificate: Certificate | None, acceptance: Acceptance, now: datetime) -> Reasons:
    """Return the tests whose results are to be renewed before they expire, each with the reason."""
    wish = acceptance.revalidate
    if wish is None or certificate is None:
        return {}
    early = timedelta(seconds=wish.before_s)
    ends = _expiries(certificate, acceptance)
    return {name: (f"expires on {until:%Y-%m-%d}",) for name, until in ends if until - early <= now}


def idle_tests(
    certificate: Certificate | None, idle_since: datetime | None, acceptance: Acceptance, now: datetime
) -> Reasons:
    """Return the tests of a node that no work and no gate has touched for long, each with the reason.

    `idle_since`: when it was first seen without work, as it still is; None: it has work, or nobody knows. Of an adopted
    node nothing was measured that could be renewed. Nodes that are idle since the same day are not due on the same one.
    """
    if certificate is None or certificate.adopted or idle_since is None:
        return {}
    since = max([idle_since, *(proof.issued_at for proof in proofs_of(certificate, acceptance))])
    if now < since + timedelta(seconds=IDLE_S + _spread_s(certificate.node)):
        return {}
    return dict.fromkeys(tests_after_idle(acceptance), (f"no work and no gate since {since:%Y-%m-%d}",))


@lru_cache(maxsize=65536)
def _spread_s(node: str) -> float:
    """Return up to three days, by a node's name: spares that came together are not all tested together."""
    return int.from_bytes(hashlib.sha256(node.encode()).digest()[:4]) / 2**32 * IDLE_S / 10


def compose(made: Certificate, known: Certificate | None, left_out: Collection[str]) -> Certificate:
    """Return the certificate of a gate with those results of the known one that are `left_out`, each with its proof.

    A result of this gate takes the place of any earlier one of its test, whatever its verdict.
    """
    names = frozenset(left_out).difference(result.test for result in made.results)
    if known is None or known.adopted or not names:
        return made
    before = {name: proof for proof in known.earlier for name in proof.tests}
    kept = tuple([result for result in known.results if result.test in names])
    own = Proof(known.issued_at, known.binding, tuple([r.test for r in kept if r.test not in before]))
    proofs = (own, *(replace(one, tests=tuple([n for n in one.tests if n in names])) for one in known.earlier))
    return replace(made, results=(*made.results, *kept), earlier=tuple([one for one in proofs if one.tests]))


def tests_changed(certificate: Certificate, acceptance: Acceptance, wanted: TestDigests) -> tuple[str, ...]:
    """Return the names of the tests that the spec has added or changed since each of them was proved."""
    if not certificate.earlier:
        return changed_tests(certificate.binding, wanted)
    found = {
        name
        for proof in proofs_of(certificate, acceptance)
        for name in frozenset(proof.tests).intersection(changed_tests(proof.binding, wanted))
    }
    return tuple([name for name in wanted.each if name in found])


def as_certified(acceptance: Acceptance, certificate: Certificate) -> Acceptance:
    """Return the profile without the tests that were added or changed since; whole where that leaves none to judge."""
    changed = frozenset(tests_changed(certificate, acceptance, tests_digest(acceptance)))
    phases = tuple(
        replace(phase, tests=tuple(test for test in phase.tests if test.name not in changed))
        for phase in acceptance.phases
    )
    return replace(acceptance, phases=phases) if any(phase.tests for phase in phases) else acceptance


def changed_tests(bound: Binding, wanted: TestDigests) -> tuple[str, ...]:
    """Return the names of the tests that the spec has added or changed since a certificate with `bound` was issued."""
    if not bound.tests:  # issued before certificates bound each test
        return () if bound.tests_digest == wanted.whole else tuple(wanted.each)
    return tuple([name for name, digest in wanted.each.items() if bound.tests.get(name) != digest])


def certificate_without_tests(desired: Desired, observed: Observed, now: datetime) -> Certificate | str:
    """Return a certificate without tests, for a node that served before the reconciler came (DESIGN 7.4).

    It binds the machine as observed, like any other, and says that nothing was measured. A sentence instead when a
    part of the machine is not known. The caller decides whether the node's tests may be waived.
    """
    acceptance = desired.profile.acceptance
    if acceptance is None:
        return "its persona names no acceptance profile"
    binding = binding_of(desired, observed, tests_digest(acceptance))
    return binding if isinstance(binding, str) else Certificate("1.0", desired.node, now, binding, (), adopted=True)


def by_test(results: Iterable[TestResult]) -> Mapping[str, TestResult]:
    """Return the result of each test by name; of two results for one test, the worse."""
    found: dict[str, TestResult] = {}
    for result in results:
        known = found.setdefault(result.test, result)
        if known is not result and worse(known.verdict, result.verdict) is not known.verdict:
            found[result.test] = result
    return found


def judge_test(test: GateTest, result: TestResult | None) -> tuple[Verdict, tuple[str, ...]]:
    """Judge one test by today's thresholds. A metric that was not measured can't pass, nor a tool that only reports."""
    if result is None:
        return Verdict.UNJUDGED, (f"{test.name}: not run",)
    if result.tool != test.tool:
        return Verdict.UNJUDGED, (f"{test.name}: measured by {result.tool}, {test.tool} is asked for",)
    if why := experimental(test.tool):
        return Verdict.UNJUDGED, (f"{test.name}: {test.tool} is experimental: {why}",)
    if result.verdict is not _PASS:
        return result.verdict, tuple(f"{test.name}: {reason}" for reason in result.reasons) or (
            f"{test.name}: {result.verdict}",
        )
    verdict, reasons = _PASS, list[str]()
    whole = is_whole(test.args, result.metrics)
    for threshold in test.thresholds:
        name, value = f"{test.name}: {threshold.metric}", finite(result.metrics.get(threshold.metric))
        if value is None:  # NaN and infinity are no evidence either
            verdict = worse(verdict, Verdict.UNJUDGED)
            reasons.append(f"{name} was not measured")
        elif threshold.min is not None and value < threshold.min:
            verdict = Verdict.FAIL
            reasons.append(f"{name} {value:g} < {threshold.min:g}{_part(result, threshold.metric)}")
        elif threshold.max is not None and value > threshold.max:
            verdict = Verdict.FAIL
            reasons.append(f"{name} {value:g} > {threshold.max:g}{_part(result, threshold.metric)}")
        elif whole and (why := against_peers(threshold.cohort, result.tool_version, value)):
            verdict = Verdict.FAIL
            reasons.append(f"{name} {why}{_part(result, threshold.metric)}")
    return verdict, tuple(reasons)


def _part(result: TestResult, metric: str) -> str:
    """Return which part's metric is that of the worst part, in brackets; "" where it is no one part's.

    `gbps.mlx5_1.back` is a part of `gbps.mlx5_1`.
    """
    value = result.metrics.get(metric)
    same = [name for name, each in result.metrics.items() if name.startswith(f"{metric}.") and each == value]
    least = max(same, key=len, default="")
    return f" ({least})" if same and all(f"{least}.".startswith(f"{name}.") for name in same) else ""


def _missing_metrics(test: GateTest, result: TestResult, gpus: int) -> tuple[str, ...]:
    """Return a sentence for each metric that a pass of this tool must have, and this result has not."""
    lacking = []
    for name in required_metrics(test):
        value = finite(result.metrics.get(name))
        if value is None:
            lacking.append(f"{test.name}: {name} is not in the certificate")
        elif value != gpus and name.endswith(GPU_COUNT):
            lacking.append(f"{test.name}: {name} is {value:g}, the node has {gpus} GPUs")
    return tuple(lacking)


def finite(value: object) -> float | None:
    """Return a finite number as a float; None for text, NaN, infinity, and integers that no float can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def same_machine(certificate: Certificate, binding: Binding, acceptance: Acceptance) -> bool:
    """Return whether its gate ran on exactly this hardware, firmware, BIOS, image and tests."""
    bound = certificate.binding
    return not any(differences(bound, binding, acceptance)) and not changed_tests(bound, _digests_in(binding))


def _digests_in(binding: Binding) -> TestDigests:
    return TestDigests(binding.tests_digest, binding.tests)


_ORDER = (Verdict.PASS, Verdict.UNJUDGED, Verdict.ERROR, Verdict.FAIL)


def worse(one: Verdict, other: Verdict) -> Verdict:
    """Return the worse of two verdicts. A failure is worse than a result that could not be judged."""
    return max(one, other, key=_ORDER.index)
