"""Run one test of the gate with partners: a server on the partner, the client on the node.

Which partner is next, and what follows, is decided by gate/fabric/pair_steps.py, without any I/O. A partner is held
while it is tested with, and longer only where it disagrees, since two of those have to test each other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from reconciler.converge.group_run import Side, error, side_of, with_partners
from reconciler.converge.group_test import PASSED
from reconciler.converge.pair_run import run_pair
from reconciler.converge.ports import Partners, TakenPartner
from reconciler.gate.certificate import judge_test
from reconciler.gate.fabric.bisect import Passed
from reconciler.gate.fabric.pair_steps import Ask, AskControl, Control, Ended, Met, next_step
from reconciler.gate.printed import printed
from reconciler.model.desired import GateTest
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.gate_arguments import PARTNERS
from reconciler.model.ports import Clock


@dataclass(slots=True)
class PairTest:
    """One test of a node with partners. A DriverError is raised where the node itself was lost."""

    test: GateTest
    node: Side
    clock: Clock
    partners: Partners | None
    _met: list[Met] = field(default_factory=list)
    _controls: list[Control] = field(default_factory=list)
    _nobody: list[bool] = field(default_factory=list)  # sides on which there is no further partner
    _reasons: list[str] = field(default_factory=list)  # why a partner or a test with one could not be had
    _held: dict[str, TakenPartner] = field(default_factory=dict)
    _results: dict[str, TestResult] = field(default_factory=dict)  # by partner
    _outputs: list[CommandResult] = field(default_factory=list)

    async def result(self) -> TestResult:
        """Return the verdict and what was measured with each partner. No partner is held any more then."""
        began = self.clock.now()
        ended = await with_partners(self.partners, self._held, self._to_the_end)
        found = composed(self.test, ended, self._results, self._reasons)
        return replace(found, started_at=began, ended_at=self.clock.now(), printed=printed(self._outputs))

    async def _to_the_end(self, partners: Partners) -> Ended:
        wanted = int(self.test.args[PARTNERS])
        while True:
            step = next_step(self._met, self._controls, wanted, self._nobody)
            match step:
                case Ended():
                    return step
                case Ask(near):
                    if (ended := await self._meet(partners, near)) is not None:
                        return ended
                case AskControl(one, other):
                    partners.tell(f"{self.test.name}: {one} and {other} disagree with the node, and test each other")
                    await self._control(one, other)

    async def _meet(self, partners: Partners, near: bool) -> Ended | None:
        """Test with one more partner. A verdict follows at once where one has to be waited for too long."""
        taken = await partners.take(near=near, avoid={one.partner for one in self._met})
        if not isinstance(taken, TakenPartner):
            self._reasons.append(taken.reason)
            if taken.wait:
                return Ended(Verdict.UNJUDGED, f"needs partners: {len(self._results)} could be tested with")
            self._nobody.append(near)
            return None
        name = taken.name
        self._held[name] = taken
        partners.tell(f"{self.test.name}: with {name}, behind {'the same' if near else 'another'} leaf")
        result = await self._pair(self.node, side_of(taken))
        self._results[name] = result
        verdict, why = judge_test(self.test, result)
        passed = PASSED.get(verdict, Passed.ERROR)
        if passed is not Passed.YES:
            self._explain(f"with {name}", why)
        self._met.append(Met(name, near, taken.certified, passed))
        if passed is not Passed.NO:
            await partners.free(self._held.pop(name))
        return None

    async def _control(self, one: str, other: str) -> None:
        client, server = side_of(self._held[one]), side_of(self._held[other])
        try:
            result = await self._pair(client, server)
        except DriverError as lost:
            result = error(self.test, f"{one} was lost: {lost}")
        verdict, why = judge_test(self.test, result)
        self._explain(f"{one} with {other}", why)
        self._controls.append(Control(one, other, PASSED.get(verdict, Passed.ERROR)))

    async def _pair(self, client: Side, server: Side) -> TestResult:
        return await run_pair(self.test, client, server, self.clock, self._outputs)

    def _explain(self, who: str, why: Collection[str]) -> None:
        self._reasons.extend(f"{who}: {reason.removeprefix(f'{self.test.name}: ')}" for reason in why)


def composed(test: GateTest, ended: Ended, results: dict[str, TestResult], reasons: Collection[str]) -> TestResult:
    """Return the result of a node: what each partner saw, and the worst that those saw who decide its verdict."""
    metrics = {
        _of_partner(metric, name): value for name, result in results.items() for metric, value in result.metrics.items()
    }
    deciding = {Verdict.PASS: ended.agree, Verdict.FAIL: ended.disagree}.get(ended.verdict, ())
    for metric in sorted({metric for name in deciding for metric in results[name].metrics}):
        worst = max if any(bar.metric == metric and bar.min is None for bar in test.thresholds) else min
        metrics[metric] = worst(results[name].metrics[metric] for name in deciding if metric in results[name].metrics)
    versions = sorted({result.tool_version for result in results.values() if result.tool_version})
    told = (ended.why, *reasons) if ended.verdict is not Verdict.PASS or ended.why else ()
    shown = "\n".join(f"{name}: {result.evidence[:1000]}" for name, result in results.items())
    return TestResult(
        test.name, test.tool, ended.verdict, told, metrics, ", ".join(versions), shown[:4000]
    )  # fmt: skip


def _of_partner(metric: str, partner: str) -> str:
    """Return the name under which a metric is kept by partner: gbps.there -> gbps.PARTNER.there."""
    head, dot, part = metric.partition(".")
    return f"{head}.{partner}{dot}{part}"
