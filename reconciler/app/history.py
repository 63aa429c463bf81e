"""The `history` and `report` use cases: the history of one node, and of the fleet over a period, from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.app.holds import check_subject
from reconciler.app.html_report import observe_for_report, write_page
from reconciler.app.runtime import paused_garbage_collection
from reconciler.app.under_way import under_way
from reconciler.app.workspace import Workspace
from reconciler.gate.certificate import by_test
from reconciler.gate.cohort import notes, without_peers
from reconciler.gate.decline import declines, first_results, sentence
from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import UsageError
from reconciler.model.gate import Certificate, Decline, Peerless
from reconciler.model.period_report import PeriodReport
from reconciler.planner.fleet import lemons
from reconciler.planner.fleet import period_report as reports
from reconciler.planner.fleet.reliability import Period, reliability
from reconciler.render.history import NodeHistory, OpenDrift

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger


def node_history(workspace: Workspace, node: str, last: int, since: timedelta | datetime | None) -> NodeHistory:
    """Return the newest `last` entries of a node. Raise UsageError when the fleet has no such node and no entries."""
    now = workspace.clock.now()
    begin = now - since if isinstance(since, timedelta) else since
    pool = workspace.fleet.nodes[node].pool if node in workspace.fleet.nodes else ""
    with workspace.present_ledger() as ledger:
        workspace.tell_missing(ledger)
        entries = ledger.history(node, last + 1, since=begin, pool=pool)
        limited, entries = len(entries) > last, entries[-last:]
        record = ledger.node(node)
        found = NodeHistory(
            node, record, [OpenDrift(*item) for item in ledger.open_drift(node)], entries,
            ledger.runs({entry.run for entry in entries if entry.run}), now, workspace.time_scale, limited,
            tuple(_remarks(workspace.fleet.nodes.get(node), record.certificate, ledger)),
        )  # fmt: skip
    if not entries:
        check_subject(workspace.fleet, node)
    return found


def _remarks(desired: Desired | None, latest: Certificate | None, ledger: SqlLedger) -> Iterator[str]:
    """Yield what its verdict does not tell of a node's certificate: bars that don't count, and gray decline."""
    acceptance = desired.profile.acceptance if desired is not None else None
    if acceptance is None or latest is None or latest.adopted:
        return
    results = by_test(latest.results)
    for test in (test for phase in acceptance.phases for test in phase.tests):
        yield from notes(test, results.get(test.name))
    if not latest.first:  # issued before certificates kept first results
        first = ledger.first_certificate(latest.node, latest.binding.image_sha256)
        latest = replace(latest, first=first_results(latest, first, acceptance))
    yield from map(sentence, declines(latest, acceptance))


def _measured(fleet: Fleet, ledger: SqlLedger) -> tuple[tuple[Decline, ...], tuple[Peerless, ...]]:
    """Return the gray decline of all nodes, and the bars by peers that don't count, by their certificates of today."""
    records = ledger.nodes(list(fleet.nodes))
    certified = [(node, records[name].certificate) for name, node in fleet.nodes.items()]
    declined = [one for node, found in certified for one in declines(found, node.profile.acceptance)]
    return tuple(declined), without_peers(certified)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """`since`: the begin, or how long before now. `html`: a directory to write a page to, with the nodes as they are
    now or as in the file `observation`. `lead_time`: of spares, in seconds; None = as long as failures kept nodes out.
    """

    since: timedelta | datetime
    html: Path | None = None
    observation: Path | None = None
    lead_time: float | None = None


def period_report(workspace: Workspace, request: ReportRequest) -> PeriodReport:
    """Return what happened in the period, and write the page that was asked for."""
    since, html, observation = request.since, request.html, request.observation
    if observation is not None and html is None:
        raise UsageError("--observation needs --html: only the page shows the nodes as observed")
    fleet, now = workspace.fleet, workspace.clock.now()
    begin = now - since if isinstance(since, timedelta) else since
    if begin >= now:
        raise UsageError(f"--since {begin:%Y-%m-%d %H:%M} UTC is not in the past")
    with workspace.present_ledger(reading=html is None) as ledger, paused_garbage_collection():
        workspace.tell_missing(ledger)
        found = None if html is None else observe_for_report(workspace, ledger, observation)
        now = workspace.clock.now()
        past, name = ledger.past(begin, now), fleet.settings.fleet
        month = past if begin == now - lemons.DAYS else ledger.illness(now - lemons.DAYS, now)
        declined, peerless = _measured(fleet, ledger)
        report = reports.period_report(past, name, fleet.nodes, begin, now, workspace.time_scale, declined)
        acting = {node: far for node, far in under_way(ledger, now).items() if far and node in fleet.nodes}
        found_out = reliability(Period(fleet, past, begin, now, month, request.lead_time))
        report = replace(report, under_way=acting, reliability=found_out, peerless=peerless)
        if html is not None and found is not None:
            workspace.frontend.say(f"written to {write_page(workspace, ledger, found, report, html)}")
    return report
