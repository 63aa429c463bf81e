"""Run one test of the gate with a group: the node and others at once, halved until it is clear whose fault it is.

Who is in the next groups, and what follows, is decided by gate/fabric/bisect.py, without any I/O. All of the group are
held until the verdict, since its halves are what is tested next.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.converge.group_run import Side, error, run_group, side_of, with_partners
from reconciler.converge.ports import Partners, TakenPartner
from reconciler.gate.certificate import judge_test
from reconciler.gate.fabric.bisect import GroupRun, Passed, bisect_groups
from reconciler.gate.fabric.group_steps import leaf_of, most_rounds, scope_of, size_of, verdict_on
from reconciler.gate.fabric.pair_steps import Ended
from reconciler.gate.printed import printed
from reconciler.model.desired import GateTest
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.ports import Clock
from reconciler.model.results import NODES

PASSED: Final = {Verdict.PASS: Passed.YES, Verdict.FAIL: Passed.NO}


@dataclass(slots=True)
class GroupTest:
    """One test of a node in a group. A DriverError is raised where the node itself was lost."""

    test: GateTest
    node: Side
    clock: Clock
    partners: Partners | None
    _held: dict[str, TakenPartner] = field(default_factory=dict)
    _runs: list[GroupRun] = field(default_factory=list)
    _results: list[tuple[frozenset[str], TestResult]] = field(default_factory=list)
    _reasons: list[str] = field(default_factory=list)
    _outputs: list[CommandResult] = field(default_factory=list)

    async def result(self) -> TestResult:
        """Return the verdict and what was measured. No other node is held any more then."""
        began = self.clock.now()
        ended = await with_partners(self.partners, self._held, self._tested)
        found = self._composed(ended)
        return replace(found, started_at=began, ended_at=self.clock.now(), printed=printed(self._outputs))

    async def _tested(self, partners: Partners) -> Ended:
        return await self._gather(partners) or await self._to_the_end(partners)

    async def _gather(self, partners: Partners) -> Ended | None:
        """Hold the rest of the group, from both sides of the leaf in turn where the scope allows it."""
        scope, wanted = scope_of(self.test), size_of(self.test) - 1
        sides = [True] if scope == "leaf" else [True, False]
        while len(self._held) < wanted and sides:
            near = sides[len(self._held) % len(sides)]
            within = "rack" if scope == "rack" else ""
            taken = await partners.take(near=near, avoid=set(self._held), within=within)
            if isinstance(taken, TakenPartner):
                self._held[taken.name] = taken
                continue
            self._reasons.append(taken.reason)
            sides = [] if taken.wait else [side for side in sides if side is not near]
        if len(self._held) < wanted:
            return Ended(Verdict.UNJUDGED, f"needs partners: {wanted} are wanted, {len(self._held)} could be held")
        return None

    async def _to_the_end(self, partners: Partners) -> Ended:
        sides = {self.node.desired.node: self.node, **{name: side_of(one) for name, one in self._held.items()}}
        leaves = {name: leaf_of(side.desired.domains) for name, side in sides.items()}
        nodes = sorted(sides, key=lambda name: (leaves[name], name))
        for _ in range(most_rounds(len(nodes))):
            found = bisect_groups([nodes], self._runs, leaves)
            ended = verdict_on(self.node.desired.node, found, self._runs)
            if ended is not None:
                return ended
            partners.tell(f"{self.test.name}: {', '.join(f'{len(group)} nodes' for group in found.next)} together")
            async with asyncio.TaskGroup() as tasks:
                for group in found.next:
                    tasks.create_task(self._run([sides[name] for name in nodes if name in group]))
        return Ended(Verdict.UNJUDGED, "no end of it after as many rounds as it may take")

    async def _run(self, sides: list[Side]) -> None:
        names = frozenset(side.desired.node for side in sides)
        try:
            result = await run_group(self.test, sides, self.clock, self._outputs)
        except DriverError as lost:
            result = error(self.test, f"{sides[0].desired.node} was lost: {lost}")
        verdict, why = judge_test(self.test, result)
        passed = PASSED.get(verdict, Passed.ERROR)
        if passed is not Passed.YES:
            who = ", ".join(sorted(names)) if len(names) <= size_of(self.test) // 2 else f"{len(names)} nodes"
            self._reasons.extend(f"{who}: {reason.removeprefix(f'{self.test.name}: ')}" for reason in why)
        self._runs.append(GroupRun(names, passed))
        self._results.append((names, result))

    def _composed(self, ended: Ended) -> TestResult:
        """Return the result of the node, with the figures of the run that decided: of the last one that it was in.

        They say with how many nodes they were measured, the evidence with which: half a group is faster than the whole.
        """
        name, test = self.node.desired.node, self.test
        wanted = {Verdict.PASS: Verdict.PASS, Verdict.FAIL: Verdict.FAIL}.get(ended.verdict)
        mine = [(names, one) for names, one in self._results if name in names and _verdict(test, one) is wanted]
        told = (ended.why, *self._reasons) if ended.verdict is not Verdict.PASS or ended.why else ()
        if not mine:
            return TestResult(test.name, test.tool, ended.verdict, told[:20], {})
        names, last = mine[-1]
        metrics = {**last.metrics, NODES: float(len(names))}
        shown = f"{', '.join(sorted(names))} together\n{last.evidence}"
        return replace(last, verdict=ended.verdict, reasons=told[:20], metrics=metrics, evidence=shown[:4000])


def _verdict(test: GateTest, result: TestResult) -> Verdict:
    return judge_test(test, result)[0]
