"""Run the acceptance tests over SSH and keep what was measured. reconciler/gate judges it, without any I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from reconciler.converge.attestation import attest
from reconciler.converge.components import measure_components
from reconciler.converge.gate_command import run_alone
from reconciler.converge.group_run import Side
from reconciler.converge.group_test import GroupTest
from reconciler.converge.observe import io_seconds
from reconciler.converge.pair_test import PairTest
from reconciler.converge.ports import Partners, SoakRun
from reconciler.converge.soak import Follower
from reconciler.gate.certificate import binding_of, judge, judge_test, tests_digest, worse
from reconciler.gate.cohort import with_driver
from reconciler.gate.evidence import experimental
from reconciler.gate.lock import unlocked
from reconciler.gate.printed import printed
from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.common import Tool
from reconciler.gate.trust import check_trust, verify_image
from reconciler.model.desired import Acceptance, Desired, DesiredImage, GateTest
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import (
    Binding,
    BootProof,
    Certificate,
    CommandResult,
    ComponentsProof,
    GateJudgement,
    TestResult,
    Verdict,
)
from reconciler.model.gate_arguments import GROUP, between_nodes
from reconciler.model.gate_tools import EXTENSION
from reconciler.model.observed import Observed, Silent
from reconciler.model.ports import Bmc, Clock, Host
from reconciler.model.soak import NAME as SOAK

CERTIFICATE_FORMAT = "1.0"
_RETRIED = (Verdict.UNJUDGED, Verdict.ERROR)  # once; they never count against the hardware


class AcceptanceGate:
    """Implements GateRunner. `public_key` returns a key by name, from outside the spec; None = unknown.

    `extended` returns what runs the gate tools of extensions; None = there are none.
    """

    def __init__(self, public_key: Callable[[str], str | None], extended: Callable[[], Tool] | None = None) -> None:
        self._public_key = public_key
        self._extended = extended

    def verified(self, image: DesiredImage) -> bool | None:
        """Return whether the image is signed as the spec says; None where its key is not known here."""
        return verify_image(image, self._public_key(image.key) if image.key is not None else None)

    def trust(self, desired: Desired, observed: Observed) -> GateJudgement:
        image = desired.profile.image
        return check_trust(desired, observed, None if image is None else self.verified(image))

    async def attest(self, desired: Desired, host: Host, observed: Observed, clock: Clock) -> BootProof:
        return await attest(desired, host, observed, clock)

    async def measure(
        self, desired: Desired, bmc: Bmc, observed: Observed, clock: Clock, step: Callable[[str], None]
    ) -> ComponentsProof:
        return await measure_components(desired, bmc, observed, clock, step)

    def judge(self, certificate: Certificate, desired: Desired, observed: Observed, clock: Clock) -> GateJudgement:
        acceptance = _acceptance(desired)
        binding = binding_of(desired, observed, tests_digest(acceptance))
        if isinstance(binding, str):
            return GateJudgement(False, Verdict.ERROR, (binding,))
        return judge(certificate, acceptance, binding, clock.now())

    async def run(
        self,
        desired: Desired,
        host: Host,
        observed: Observed,
        clock: Clock,
        left_out: Collection[str] = (),
        soak: SoakRun | None = None,
        partners: Partners | None = None,
    ) -> Certificate:
        """Run the test phases in order, without the tests that are left_out, and certify what was measured.

        A phase that does not pass ends the run; tests after it are missing from the certificate. Passive health is
        read before and after: what a burn-in brings to light counts against the node. DriverError: the host was lost.
        """
        acceptance = _acceptance(desired)
        observed = await _read_again(desired, host, observed)
        results: dict[str, TestResult] = {}
        for phase in acceptance.phases:
            verdict = Verdict.PASS
            for test in (test for test in phase.tests if test.name not in left_out):
                if test.tool == SOAK:
                    if soak is not None:
                        results[test.name] = await _soak(test, desired, host, observed, clock, soak)
                        verdict = worse(verdict, judge_test(test, results[test.name])[0])
                    continue
                if between_nodes(test.args):
                    kind = GroupTest if GROUP in test.args else PairTest
                    work = kind(test, Side(desired, observed, host), clock, partners)
                    result = await work.result()
                else:
                    result = await _run_with_retry(self._tool(test), test, desired, host, observed, clock)
                results[test.name] = with_driver(result, desired, observed)
                if not experimental(test.tool):
                    verdict = worse(verdict, judge_test(test, results[test.name])[0])
            if verdict is not Verdict.PASS:
                break
        observed = await _read_again(desired, host, observed)
        for test in acceptance.tests:
            if test.name in results and _is_passive(test, desired, observed):
                after = TOOLS[test.tool].judge(test, desired, observed, ())
                if worse(results[test.name].verdict, after.verdict) is not results[test.name].verdict:
                    began = results[test.name].started_at
                    results[test.name] = replace(after, started_at=began, ended_at=clock.now())
        return Certificate(
            format_version=CERTIFICATE_FORMAT,
            node=desired.node,
            issued_at=clock.now(),
            binding=_binding(desired, observed, acceptance),
            results=tuple(results.values()),
        )

    def _tool(self, test: GateTest) -> Tool:
        if test.tool == EXTENSION and self._extended is not None:
            return self._extended()
        return TOOLS[test.tool]


def _is_passive(test: GateTest, desired: Desired, observed: Observed) -> bool:
    """Return whether a test is judged from the observation alone."""
    return test.tool != SOAK and TOOLS[test.tool].commands(test, desired, observed) == ()


async def _soak(
    test: GateTest, desired: Desired, host: Host, observed: Observed, clock: Clock, soak: SoakRun
) -> TestResult:
    began = clock.now()
    result = await Follower(test, desired, observed, host, clock, soak).result()
    return replace(result, started_at=began, ended_at=clock.now())


def _acceptance(desired: Desired) -> Acceptance:
    acceptance = desired.tests
    assert acceptance is not None, "the catalogue has no run_gate without an acceptance profile"
    return acceptance


def _binding(desired: Desired, observed: Observed, acceptance: Acceptance) -> Binding:
    binding = binding_of(desired, observed, tests_digest(acceptance))
    if isinstance(binding, str):
        raise DriverError(Failure.MALFORMED, f"nothing to bind a certificate to: {binding}")
    return binding


async def _read_again(desired: Desired, host: Host, observed: Observed) -> Observed:
    wanted = desired.profile.host
    reading = await host.facts(tuple(wanted.sysctls), tuple(wanted.services))
    if isinstance(reading, Silent):
        raise DriverError(
            Failure.UNREACHABLE, f"the host went silent at the gate: {reading.reason} {reading.detail}".strip()
        )
    return replace(observed, host=reading)


async def _run_with_retry(
    tool: Tool, test: GateTest, desired: Desired, host: Host, observed: Observed, clock: Clock
) -> TestResult:
    result = await _run(tool, test, desired, host, observed, clock)
    if judge_test(test, result)[0] in _RETRIED and not experimental(test.tool):
        result = await _run(tool, test, desired, host, observed, clock)
    return result


async def _run(
    tool: Tool, test: GateTest, desired: Desired, host: Host, observed: Observed, clock: Clock
) -> TestResult:
    """Run one test, and keep when it ran and what was printed."""
    outputs: list[CommandResult] = []
    began = clock.now()
    result = await _run_commands(tool, test, desired, host, observed, clock, outputs)
    return replace(result, started_at=began, ended_at=clock.now(), printed=printed(outputs))


async def _run_commands(
    tool: Tool,
    test: GateTest,
    desired: Desired,
    host: Host,
    observed: Observed,
    clock: Clock,
    outputs: list[CommandResult],
) -> TestResult:
    commands = tool.commands(test, desired, observed)
    if isinstance(commands, str):
        return TestResult(test.name, test.tool, Verdict.UNJUDGED, (commands,), {})
    timeout = io_seconds(clock, test.timeout_s)
    for argv in commands:
        output = unlocked(await run_alone(argv, host, timeout))
        if isinstance(output, str):
            return TestResult(test.name, test.tool, Verdict.ERROR, (output,), {})
        outputs.append(output)
    return tool.judge(test, desired, observed, outputs)
