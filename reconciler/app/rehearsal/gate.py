"""The gate of a rehearsal: facts are judged as they are, and measurements are assumed to pass."""

from __future__ import annotations

from collections.abc import Callable, Collection

from reconciler.converge.gate import CERTIFICATE_FORMAT, AcceptanceGate
from reconciler.converge.ports import Partners, SoakRun
from reconciler.gate.certificate import TestDigests, binding_of, tests_digest
from reconciler.gate.evidence import GPU_COUNT, required_metrics
from reconciler.gate.tools import TOOLS
from reconciler.lab.durations import Durations
from reconciler.lab.failure_rates import FailureRates
from reconciler.model.desired import Acceptance, Desired, GateTest
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import BootProof, Certificate, ComponentsProof, GateJudgement, TestResult, Verdict
from reconciler.model.observed import Observed, Silent
from reconciler.model.ports import Bmc, Clock, Host
from reconciler.model.soak import NAME as SOAK
from reconciler.planner.node.gate_time import share, soak_s

FAILED = "fails in this rehearsal"
_ATTEST_S = 10.0
_MEASURE_S = 5.0  # for one component


class RehearsalGate:
    """A GateRunner whose tests pass, but for simulated failures. The real gate judges certificates and images."""

    def __init__(self, real: AcceptanceGate, failures: FailureRates, durations: Durations) -> None:
        self._real = real
        self._failures = failures
        self._durations = durations
        self._digests: dict[int, TestDigests] = {}

    async def run(
        self,
        desired: Desired,
        host: Host,
        observed: Observed,
        clock: Clock,
        left_out: Collection[str] = (),
        soak: SoakRun | None = None,
        partners: Partners | None = None,  # noqa: ARG002 - the port's signature
    ) -> Certificate:
        acceptance = desired.profile.acceptance
        assert acceptance is not None, "the catalogue has no run_gate without an acceptance profile"
        tests = [test for test in acceptance.tests if test.name not in left_out and (test.tool != SOAK or soak)]
        names = {test.name for test in tests}
        await clock.sleep(self._durations.gate_s(desired.node) * share(acceptance, names))
        wanted = desired.profile.host
        reading = await host.facts(tuple(wanted.sysctls), tuple(wanted.services))
        if isinstance(reading, Silent):
            raise DriverError(Failure.UNREACHABLE, f"the host went silent at the gate: {reading.reason}")
        seen = Observed(observed.node, observed.hot, observed.inventory, reading, observed.member)
        binding = binding_of(desired, seen, self._digest(acceptance))
        if isinstance(binding, str):
            raise DriverError(Failure.MALFORMED, f"nothing to bind a certificate to: {binding}")
        fails = self._failures.fails(desired.node, "run_gate")
        await clock.sleep(soak_s(acceptance, names))
        results = tuple(_result(test, desired, seen, fails=fails and test is tests[-1]) for test in tests)
        return Certificate(CERTIFICATE_FORMAT, desired.node, clock.now(), binding, results)

    def _digest(self, acceptance: Acceptance) -> TestDigests:
        return self._digests.setdefault(id(acceptance), tests_digest(acceptance))

    def judge(self, certificate: Certificate, desired: Desired, observed: Observed, clock: Clock) -> GateJudgement:
        return self._real.judge(certificate, desired, observed, clock)

    async def attest(self, desired: Desired, host: Host, observed: Observed, clock: Clock) -> BootProof:  # noqa: ARG002 - the port's signature
        """Assume that the node boots what the spec declares, as measurements are assumed to pass."""
        if self._failures.fails(desired.node, "check_trust"):
            return BootProof(GateJudgement(False, Verdict.FAIL, (FAILED,)))
        await clock.sleep(_ATTEST_S)
        return BootProof(GateJudgement(True, Verdict.PASS), phase="rehearsed")

    async def measure(
        self,
        desired: Desired,
        bmc: Bmc,  # noqa: ARG002 - the port's signature
        observed: Observed,  # noqa: ARG002 - the port's signature
        clock: Clock,
        step: Callable[[str], None],  # noqa: ARG002 - the port's signature
    ) -> ComponentsProof:
        """Assume that the components run what the spec declares, which failures of `attest` stand for, too."""
        platform = desired.profile.measurements
        count = sum(len(group.ids) for group in platform.components) if platform is not None else 0
        await clock.sleep(_MEASURE_S * count)
        return ComponentsProof(GateJudgement(True, Verdict.PASS))

    def trust(self, desired: Desired, observed: Observed) -> GateJudgement:
        if self._failures.fails(desired.node, "check_trust"):
            return GateJudgement(False, Verdict.FAIL, (FAILED,))
        return self._real.trust(desired, observed)


def _result(test: GateTest, desired: Desired, seen: Observed, *, fails: bool) -> TestResult:
    if fails:
        return TestResult(test.name, test.tool, Verdict.FAIL, (FAILED,), {})
    if test.tool != SOAK and TOOLS[test.tool].commands(test, desired, seen) == ():
        return TOOLS[test.tool].judge(test, desired, seen, ())
    gpus = () if isinstance(seen.host, Silent) else seen.host.value.gpus or ()
    metrics = {name: float(len(gpus)) if name.endswith(GPU_COUNT) else 1.0 for name in required_metrics(test)}
    metrics |= {bar.metric: bar.min if bar.min is not None else bar.max or 0.0 for bar in test.thresholds}
    return TestResult(test.name, test.tool, Verdict.PASS, (), metrics)
