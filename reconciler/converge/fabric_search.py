"""Search what is at fault in a fabric: test nodes in pairs or groups, round after round, until nothing is left to ask.

Which pairs, and what follows from them, is decided by gate/fabric, without any I/O. Nodes take part that are out of
service, or that serve without work, have a valid certificate, and find room in the disruption budget; each only while
it tests. Where there is room for some pairs alone, a round takes several batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

from reconciler.converge.apply import ApplyRequest, begin_run
from reconciler.converge.clock_steps import ClockSteps
from reconciler.converge.events import LoopTold, Progress, ignore
from reconciler.converge.gate_command import run_alone
from reconciler.converge.group_run import error, side_of
from reconciler.converge.group_search import SHOWN, GroupSearch
from reconciler.converge.held_batches import in_batches
from reconciler.converge.lease import held_lease
from reconciler.converge.observe import io_seconds
from reconciler.converge.pair_run import run_pair
from reconciler.converge.partner_pool import GatePartners
from reconciler.converge.ports import GateRunner, TakenPartner
from reconciler.converge.run import Run, RunPorts
from reconciler.gate.fabric.blame import Blame
from reconciler.gate.fabric.diagnose import Conviction, Diagnosis, judge
from reconciler.gate.fabric.evidence import Evidence
from reconciler.gate.fabric.measured import (
    alone,
    blame_matrix,
    by_itself,
    confirming,
    legs,
    rails_in,
    rails_of,
    without_routes,
)
from reconciler.gate.fabric.results import UNKNOWN, Bar, LoopbackRun, PairRun, Spines, read
from reconciler.gate.fabric.rounds import Match, Round
from reconciler.gate.fabric.routes import Ends, ends_of, spines_of, trace_command
from reconciler.gate.fabric.rows import Searched, of_pairs, rows_of
from reconciler.gate.fabric.still_open import still_open
from reconciler.gate.fabric.topology import Fabric
from reconciler.gate.lock import unlocked
from reconciler.gate.printed import printed
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import Fleet, GateTest
from reconciler.model.errors import DriverError, UsageError
from reconciler.model.fabric_report import FABRIC_FORMAT, BlamedPart, FabricReport
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import GROUP
from reconciler.model.ports import Clock, Ledger
from reconciler.model.ports import Fabric as FabricPort

_TRACE_S: Final = 60.0  # for the routes of all rails of a pair


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """`apply`: the nodes, and how a run of them is called. `test`: with partners, or of a group.

    `bar`: what a healthy rail keeps. A group's test is judged by its own limits.
    """

    apply: ApplyRequest
    test: GateTest
    bar: Bar


async def search(
    request: SearchRequest, *, fabric: FabricPort, ledger: Ledger, clock: Clock, gate: GateRunner,
    progress: Progress = ignore,
) -> FabricReport:  # fmt: skip
    """Test the selected nodes that may take part, and report what is at fault.

    Report and figures are saved, and what was found is journaled for the node that it is of. Raises LeaseHeld,
    Refused, Blind and LedgerError as in model.errors, and UsageError where fewer than three nodes may take part. Every
    node is given back.
    """
    asked = request.apply
    async with held_lease(ledger, asked.fleet.settings.fleet, asked.holder, clock) as lease:
        reads = asyncio.Semaphore(asked.fleet.settings.concurrency)
        begun = await begin_run(asked, RunPorts(fabric, ledger, clock, gate, lease, progress, reads, ClockSteps(clock)))
        dispatcher = begun.dispatcher
        pool = dispatcher.limits.partners
        holder = GatePartners(pool, "", asked.run, lambda _: None, lambda text: progress(LoopTold("fabric", text)))
        left_out = {name: why for name in asked.names if (why := _why_not(dispatcher.run, holder, name))}
        nodes = [name for name in asked.names if name not in left_out]
        if len(nodes) < 3:
            why = "; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:5])
            raise UsageError(f"{len(nodes)} nodes may take part, and a fault shows with three or more: {why}")
        domains = {name: asked.fleet.nodes[name].domains for name in nodes}
        if GROUP in request.test.args:
            grouped = GroupSearch(request.test, domains, dispatcher.run, holder)
            report = await grouped.report(asked.run, left_out, begun.started_at)
            measured = grouped.results
        else:
            work = _Search(request, Fabric.of_domains(domains, rails_in(request.test)), dispatcher.run, holder)
            report = work.report(await work.to_the_end(), left_out, begun.started_at)
            measured = of_pairs(work.searched, report)
        last = ledger.last_search()
        report = replace(report, open=still_open(last.open if last else (), report))
        _save(ledger, report, asked.fleet, _Measured(request.test, measured))
        return report


def _why_not(run: Run, holder: GatePartners, name: str) -> str:
    """Return why a node can't take part at all; "" when it can."""
    desired = run.fleet.nodes[name]
    if not desired.domains.keys() & {"leaf", "rack"}:
        return "it has no leaf and no rack in the spec"
    if name in run.attempts.interrupted:
        return "an earlier run died in the middle of work on it: apply continues that first"
    return holder.pool.why_unfit(name, holder.pool.candidate(name))


@dataclass(slots=True)
class _Search:
    request: SearchRequest
    fabric: Fabric
    run: Run
    holder: GatePartners
    _evidence: Evidence = field(init=False)
    _loopbacks: list[LoopbackRun] = field(default_factory=list)
    _unrun: dict[str, None] = field(default_factory=dict)  # why tests could not run
    _versions: dict[str, str] = field(default_factory=dict)  # of the tool, by node
    _printed: dict[str, list[str]] = field(default_factory=dict)  # by node
    _rounds: int = 0

    def __post_init__(self) -> None:
        self._evidence = Evidence(self.fabric)

    async def to_the_end(self) -> Diagnosis:
        while True:
            found = judge(self._evidence, self._loopbacks, self.request.bar)
            asked = found.next or confirming(self.fabric, found, self._evidence.readings)
            if asked is None or self.run.stop() is not None:
                return without_routes(self.fabric, found, self._evidence.readings)
            await self._round(asked)
            self._rounds += 1

    async def _round(self, asked: Round) -> None:
        pairs, singles = len(asked.matches), len(asked.loopbacks)
        alone_too = f", and {singles} nodes with themselves" if singles else ""
        self.holder.tell(f"round {self._rounds + 1}: {pairs} pairs{alone_too}")
        tests: list[Match | tuple[str, int]] = [*asked.matches, *asked.loopbacks]
        await in_batches(self.holder, [(one, _nodes_of(one)) for one in tests], self._test, self._keep_nothing)

    async def _test(self, asked: Match | tuple[str, int], held: Sequence[TakenPartner]) -> None:
        if isinstance(asked, Match):
            ends: Sequence[Ends] = ()
            spines, kept = UNKNOWN, ""
            for _ in range(asked.runs):
                outputs: list[CommandResult] = []
                result = await self._pair(held[0], held[1], outputs)
                if not ends and self._crosses(asked):
                    ends = ends_of(self.request.test, outputs)
                    spines = await self._spines(held[0], ends)
                is_low = self._keep(asked, result, spines)
                kept = printed(outputs) if is_low or not kept else kept
                self._keep_version(asked.one, result)
            for node, partner in ((asked.one, asked.other), (asked.other, asked.one)):
                self._printed.setdefault(node, []).append(f"=== round {self._rounds + 1}, with {partner}\n{kept}")
            return
        node, runs = asked
        for _ in range(runs):
            self._loopbacks.append(LoopbackRun(self._rounds, node, await self._with_itself(held[0])))

    def _crosses(self, asked: Match) -> bool:
        return self.fabric.groups[asked.one] != self.fabric.groups[asked.other]

    async def _spines(self, one: TakenPartner, ends: Sequence[Ends]) -> Spines:
        """Ask the subnet which spines the flows of a pair take; of a node that can't ask, nothing is known."""
        if not ends:
            return UNKNOWN
        try:
            printed = await one.host.run(trace_command(ends), timeout=io_seconds(self.run.clock, _TRACE_S))
        except DriverError:
            return UNKNOWN
        return spines_of(self.request.test, ends, printed.stdout)

    async def _pair(self, one: TakenPartner, other: TakenPartner, outputs: list[CommandResult]) -> TestResult:
        try:
            return await run_pair(self.request.test, side_of(one), side_of(other), self.run.clock, outputs)
        except DriverError as lost:
            return error(self.request.test, f"{one.name} was lost: {lost}")

    def _keep(self, asked: Match, result: TestResult, spines: Spines = UNKNOWN) -> bool:
        """Keep what a run measured, and return whether a rail was low."""
        there, back = legs(self.request.test, result, spines)
        run = PairRun(self._rounds, asked.one, asked.other, there, back, asked.control)
        self._evidence.add(reading := read(run, self.request.bar))
        if result.reasons:
            self._unrun[f"{asked.one} with {asked.other}: {result.reasons[0]}"] = None
        return bool(reading.there or reading.back)

    def _keep_nothing(self, asked: Match | tuple[str, int], why: str) -> None:
        """Note a test that could not run, so that the next round asks for others."""
        if isinstance(asked, Match):
            self._keep(asked, error(self.request.test, why))
        else:
            nothing = (None,) * self.fabric.rails
            self._loopbacks += [LoopbackRun(self._rounds, asked[0], nothing)] * asked[1]

    async def _with_itself(self, node: TakenPartner) -> tuple[float | None, ...]:
        test, nothing = alone(self.request.test), (None,) * self.fabric.rails
        if test is None:
            return nothing
        commands = TOOLS[test.tool].commands(test, node.desired, node.observed)
        assert not isinstance(commands, str)
        outputs: list[CommandResult] = []
        try:
            for argv in commands:
                timeout = io_seconds(self.run.clock, test.timeout_s)
                output = unlocked(await run_alone(argv, node.host, timeout))
                if isinstance(output, str):
                    return nothing
                outputs.append(output)
        except DriverError:
            return nothing
        result = TOOLS[test.tool].judge(test, node.desired, node.observed, outputs)
        self._keep_version(node.name, result)
        return by_itself(test, result)

    def _keep_version(self, node: str, result: TestResult) -> None:
        if result.tool_version:
            self._versions[node] = result.tool_version

    @property
    def searched(self) -> Searched:
        return Searched(self.request.test, self._evidence.readings, self._loopbacks, self._versions, self._printed)

    def report(self, found: Diagnosis, left_out: dict[str, str], started_at: datetime) -> FabricReport:
        parts = [(one, self._part(one)) for one in found.convicted]
        void = [BlamedPart(one.part.kind.value, one.part.name, "", 0, 0, (), one.detail) for one in found.incidents]
        return FabricReport(
            format_version=FABRIC_FORMAT,
            run=self.request.apply.run,
            fleet=self.run.fleet.settings.fleet,
            test=self.request.test.name,
            nodes=tuple(self.fabric.groups),
            left_out=left_out,
            at_fault=tuple([part for one, part in parts if one.part.blames_node]),
            incidents=(*(part for one, part in parts if not one.part.blames_node), *void),
            good=tuple(sorted(found.acquitted)),
            undecided=dict(sorted(found.undecided.items())),
            accounts=tuple(map(self._part, blame_matrix(self.fabric, self._evidence.readings))),
            unrun=tuple(self._unrun)[:SHOWN],
            rounds=self._rounds,
            started_at=started_at,
            ended_at=self.run.clock.now(),
        )

    def _part(self, one: Conviction | Blame) -> BlamedPart:
        rails, rail = rails_of(self.request.test), one.part.rail
        name = "" if rail is None else rails[rail] if rail < len(rails) else str(rail)
        detail = one.detail if isinstance(one, Conviction) else ""
        return BlamedPart(one.part.kind.value, one.part.name, name, one.lows, one.runs, one.partners, detail)


def _nodes_of(asked: Match | tuple[str, int]) -> tuple[str, ...]:
    return (asked.one, asked.other) if isinstance(asked, Match) else asked[:1]


class _Measured(NamedTuple):
    test: GateTest
    results: Mapping[str, TestResult]  # by node


def _save(ledger: Ledger, report: FabricReport, fleet: Fleet, measured: _Measured) -> None:
    """Save the report and what was measured, and journal what was found in the history of the nodes that it is of."""
    now, found = report.ended_at, [*report.at_fault, *report.incidents]
    with ledger.batch():
        attempt = ledger.save_search(report, f"{report.test}: {', '.join(map(str, found)) or 'nothing is at fault'}")
        ledger.save_results(*rows_of(measured.results, measured.test, report, fleet.nodes, attempt))
        for part in report.at_fault:
            told = f"{part} is at fault: {part.lows} of {part.runs} runs of {report.test} are low"
            ledger.note(part.name, "fabric", f"{told}; {part.detail}" if part.detail else told, now)
        for node, why in report.undecided.items():
            ledger.note(node, "fabric", f"neither good nor bad by {report.test}: {why}", now)
