"""Search the fabric in groups: where a test of many nodes falls below its limits, they are halved until it is clear.

Groups of a round run at the same time where the budget has room for their nodes, and good nodes of one are partners for
the suspects of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from reconciler.converge.group_run import error, run_group, side_of
from reconciler.converge.group_test import PASSED
from reconciler.converge.held_batches import in_batches
from reconciler.converge.partner_pool import GatePartners
from reconciler.converge.ports import TakenPartner
from reconciler.converge.run import Run
from reconciler.gate.certificate import judge_test
from reconciler.gate.fabric.bisect import Bisection, GroupRun, Passed, bisect_groups
from reconciler.gate.fabric.group_steps import groups_of, leaf_of, most_rounds
from reconciler.gate.fabric.rows import of_groups
from reconciler.gate.fabric.topology import PartKind
from reconciler.gate.printed import printed
from reconciler.model.desired import GateTest
from reconciler.model.errors import DriverError
from reconciler.model.fabric_report import FABRIC_FORMAT, BlamedPart, FabricReport
from reconciler.model.gate import CommandResult, TestResult

SHOWN: Final = 20  # reasons of tests that could not run
_UNTESTED: Final = "its group could not be tested, or it is alone there"


@dataclass(slots=True)
class GroupSearch:
    """A search over nodes with these failure domains, by a test of a group."""

    test: GateTest
    domains: Mapping[str, Mapping[str, str]]
    run: Run
    holder: GatePartners
    _runs: list[GroupRun] = field(default_factory=list)
    _results: list[tuple[frozenset[str], TestResult]] = field(default_factory=list)
    _unrun: dict[str, None] = field(default_factory=dict)
    _rounds: int = 0

    async def report(self, run: str, left_out: Mapping[str, str], started_at: datetime) -> FabricReport:
        """Test until nothing is left to ask, and report what is at fault. `run`: what the report is shown again by."""
        groups = groups_of(self.test, self.domains)
        leaves = {name: leaf_of(of_node) for name, of_node in self.domains.items()}
        most = most_rounds(max((len(group) for group in groups), default=2))
        while True:
            found = bisect_groups(groups, self._runs, leaves)
            if not found.next or self._rounds >= most or self.run.stop() is not None:
                return replace(self._report(found, leaves, left_out, started_at), run=run)
            sizes = sorted({len(group) for group in found.next})
            told = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
            self.holder.tell(f"round {self._rounds + 1}: {len(found.next)} groups of {told} nodes")
            order = {name: at for at, name in enumerate(name for group in groups for name in group)}
            asked = [(group, sorted(group, key=lambda name: order[name])) for group in found.next]
            await in_batches(self.holder, asked, self._test, self._lost)
            self._rounds += 1

    @property
    def results(self) -> Mapping[str, TestResult]:
        """Return what each node measured together with others."""
        return of_groups(self.test, self._results)

    async def _test(self, group: frozenset[str], held: list[TakenPartner]) -> None:
        outputs: list[CommandResult] = []
        try:
            result = await run_group(self.test, [side_of(one) for one in held], self.run.clock, outputs)
        except DriverError as lost:
            result = error(self.test, f"{held[0].name} was lost: {lost}")
        self._keep(group, replace(result, printed=printed(outputs)))

    def _lost(self, group: frozenset[str], why: str) -> None:
        self._keep(group, error(self.test, why))

    def _keep(self, group: frozenset[str], result: TestResult) -> None:
        verdict, why = judge_test(self.test, result)
        passed = PASSED.get(verdict, Passed.ERROR)
        self._runs.append(GroupRun(group, passed))
        self._results.append((group, result))
        if passed is Passed.ERROR:
            self._unrun[f"{', '.join(sorted(group)[:3])}: {why[0] if why else 'no verdict'}"] = None

    def _report(
        self, found: Bisection, leaves: Mapping[str, str], left_out: Mapping[str, str], started_at: datetime
    ) -> FabricReport:
        incidents = [*self._between(found), *self._shared(found, leaves)]
        every = {name: self._account(name) for name in sorted(self.domains)}
        undecided = {
            name: "it fails with others, and none behind its leaf tells whose fault that is" if one.lows else _UNTESTED
            for name, one in every.items()
            if name not in found.convicted | found.good
        }
        accounts = [one for one in every.values() if one.lows]
        return FabricReport(
            format_version=FABRIC_FORMAT,
            run="",
            fleet=self.run.fleet.settings.fleet,
            test=self.test.name,
            nodes=tuple(self.domains),
            left_out=left_out,
            at_fault=tuple(every[name] for name in sorted(found.convicted)),
            incidents=tuple(incidents),
            good=tuple(sorted(found.good)),
            undecided=undecided,
            accounts=tuple(sorted(accounts, key=lambda one: (-one.lows / one.runs, one.name))),
            unrun=tuple(self._unrun)[:SHOWN],
            rounds=self._rounds,
            started_at=started_at,
            ended_at=self.run.clock.now(),
        )

    def _account(self, name: str) -> BlamedPart:
        """Return the account of a node: of the groups that it was in, how many failed, and alone with whom."""
        mine = [run for run in self._runs if name in run.nodes and run.passed is not Passed.ERROR]
        low = [run for run in mine if run.passed is Passed.NO]
        pairs = {other for run in low if len(run.nodes) == 2 for other in run.nodes if other != name}
        return BlamedPart(PartKind.NODE.value, name, "", len(low), len(mine), tuple(sorted(pairs)))

    def _between(self, found: Bisection) -> list[BlamedPart]:
        parts = []
        for group in found.between:
            lows = [run.passed is Passed.NO for run in self._runs if run.nodes == group]
            names = ", ".join(sorted(group))
            detail = f"{names} pass in halves and not together"
            parts.append(BlamedPart(PartKind.BETWEEN.value, "", "", sum(lows), len(lows), (), detail))
        return parts

    def _shared(self, found: Bisection, leaves: Mapping[str, str]) -> list[BlamedPart]:
        """Return the leaves behind which no node is good though all have failed, as one cause; or the whole fabric."""
        failed = {name for run in self._runs if run.passed is Passed.NO for name in run.nodes}
        behind: dict[str, set[str]] = {}
        for name in self.domains:
            behind.setdefault(leaves[name], set()).add(name)
        bad = [leaf for leaf, nodes in behind.items() if len(nodes) > 1 and nodes <= failed & found.suspects]
        if len(bad) > 1 and not found.good:
            return [self._cause(PartKind.EVERYTHING, "", failed, "no group passes: congestion, the test or its limits")]
        return [self._cause(PartKind.LEAF, leaf, behind[leaf], "no node behind it passes") for leaf in bad]

    def _cause(self, kind: PartKind, name: str, nodes: set[str], detail: str) -> BlamedPart:
        mine = [run.passed is Passed.NO for run in self._runs if run.nodes & nodes and run.passed is not Passed.ERROR]
        return BlamedPart(kind.value, name, "", sum(mine), len(mine), (), detail)
