"""The `gate fabric` use case: which part of the fabric is at fault, by tests of its nodes in pairs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.workspace import Workspace
from reconciler.converge.apply import ApplyRequest
from reconciler.converge.fabric_search import SearchRequest, search
from reconciler.drivers.ledger import SqlLedger
from reconciler.gate.fabric.measured import bar_of, rails_of
from reconciler.gate.fabric.results import Bar
from reconciler.gate.fabric.rounds import SCREENING_RUNS
from reconciler.model.desired import GateTest
from reconciler.model.errors import LedgerError, ReconcilerError, UsageError
from reconciler.model.fabric_report import FabricReport
from reconciler.model.gate_arguments import GROUP, PARTNERS, between_nodes


@dataclass(frozen=True, slots=True)
class WantedSearch:
    """`profile`: whose test it is; "" is each node's own. `name`: of the test; "" is the only one with partners."""

    profile: str = ""
    name: str = ""


def choose_test(workspace: Workspace, wanted: WantedSearch) -> GateTest:
    """Return the test that the search runs, in pairs or in groups. Raise UsageError where there is none, or several."""
    names = workspace.selection[0]
    fleet = workspace.fleet
    if wanted.profile:
        fleet = workspace.fleet_at(workspace.request.rev, acceptance=wanted.profile)
    found = {
        test.name: test
        for name in names
        if (acceptance := fleet.nodes[name].profile.acceptance) is not None
        for test in acceptance.tests
        if between_nodes(test.args) and wanted.name in ("", test.name)
    }
    if len(found) != 1:
        which = f"several: {', '.join(sorted(found))}: say which with --test" if found else "none"
        raise UsageError(
            f"a search needs a test with args.{PARTNERS} or args.{GROUP}, and the selected nodes have {which}"
        )
    (test,) = found.values()
    if GROUP in test.args:
        if not any(bar.min is not None for bar in test.thresholds):
            raise UsageError(f"{test.name} has no threshold with `min`, so nothing says what is low")
        return test
    if bar_of(test) is None:
        raise UsageError(f"{test.name} has no threshold `metric: gbps, min: ...`, so nothing says what is low")
    return test


def estimate_s(test: GateTest) -> float:
    """Return how long one round takes at least, in seconds: its runs in a row, each over every rail.

    Of a group, that is how long it may take.
    """
    if GROUP in test.args:
        return test.timeout_s
    ways = 2 if "rails" in test.args else 1
    return float(SCREENING_RUNS * len(rails_of(test)) * ways * int(test.args.get("seconds", 10)))


def search_fabric(workspace: Workspace, ledger: SqlLedger, test: GateTest) -> FabricReport:
    """Search the fabric of the selected nodes as one run of the ledger."""
    names, scope = workspace.selection
    clock = workspace.clock
    bar = bar_of(test) or Bar(0.0)  # of a group's test, which has limits of its own
    run = new_id("run", clock.now())
    request = ApplyRequest(
        fleet=workspace.fleet, run=run, plan_id=run, holder=f"{whoami()}, {run}", signatures=workspace.signatures,
        selected=names, scope=scope, time_scale=workspace.time_scale, endpoints=workspace.endpoints_digest,
    )  # fmt: skip

    async def work() -> FabricReport:
        fabric = workspace.fabric(ledger)
        try:
            with workspace.frontend.progress("observing", workspace.clock.now, terse=False) as progress:
                return await search(
                    SearchRequest(request, test, bar), fabric=fabric, ledger=ledger, clock=clock, gate=workspace.gate,
                    progress=progress,
                )  # fmt: skip
        finally:
            await fabric.close()

    ledger.start_run(run, "gate fabric", workspace.fleet.source.commit, run, clock.now())
    try:
        report = run_async(work())
    except ReconcilerError as error:
        with suppress(LedgerError):  # the ledger may be why the run ended
            ledger.end_run(run, workspace.frontend.exit_code(error), str(error), clock.now())
        raise
    found = len(report.at_fault) + len(report.incidents)
    ledger.end_run(run, 0, f"{found} parts at fault among {len(report.nodes)} nodes", clock.now())
    return report
