"""reconciler gate"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import click

from reconciler.app.apply import ApplyJob, require_signed_spec, require_startable
from reconciler.app.apply import apply as apply_job
from reconciler.app.gate_fabric import WantedSearch, choose_test, estimate_s, search_fabric
from reconciler.app.gate_results import (
    check_parquet,
    gate_history,
    gate_output,
    last_gate,
    saved_search,
    write_parquet,
)
from reconciler.app.gate_run import ask_gate, note_gate, other_verdicts, plan_gate
from reconciler.app.ports import AllowedSigners, FleetRequest
from reconciler.cli.apply_dialogue import confirm, print_outcome
from reconciler.cli.commands.apply import exit_code
from reconciler.cli.completion import node_names
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.listing import print_listing
from reconciler.cli.options import Duration, Since, output_option, signer_options, spec_options
from reconciler.cli.terminal import say, show
from reconciler.model.documents import dump
from reconciler.model.errors import UsageError
from reconciler.model.fabric_report import FabricReport
from reconciler.model.gate import Verdict
from reconciler.model.gate_arguments import GROUP
from reconciler.model.results import ResultRow
from reconciler.model.units import format_duration
from reconciler.render.fabric import fabric_markdown, fabric_text
from reconciler.render.gate import (
    HISTORY_HEAD,
    SHOW_HEAD,
    ShownMetric,
    as_csv,
    as_json,
    history_cells,
    show_cells,
)
from reconciler.render.starting_bars import FIGURES_HEAD, as_phases, figure_cells, published


@click.group(cls=Group)
def gate() -> None:
    """Run gates by hand, search the fabric, and show what gates measured."""


@gate.command(name="show")
@click.argument("node", metavar="NODE|RUN", shell_complete=node_names)
@spec_options()
@click.option(
    "--output", "-o", type=click.Choice(["human", "json", "markdown", "csv", "parquet"]), default="human",
    show_default=True, help="Format of the document on stdout. Parquet needs PyArrow.",
)  # fmt: skip
def show_gate(request: FleetRequest, node: str, output: str) -> None:
    """Show the last gate of a node: each test, part, metric and value, beside the bar of today and the verdict.

    What the last search of the fabric measured of it comes after. The id of a RUN of `gate fabric` shows the report of
    that search again.
    """
    workspace = workspace_for(request)
    if (report := saved_search(workspace, node)) is not None:
        if output in ("csv", "parquet"):
            raise UsageError(f"a report is no table: gate history NODE... -o {output} has the figures of its nodes")
        _show_report(report, output)
        return
    if output == "parquet":
        _ready_for_parquet()
    found = last_gate(workspace, node)
    if found.note:
        say(found.note, err=True)
    match output:
        case "parquet":
            _parquet(ShownMetric, found.rows)
        case "json":
            _stream(as_json(found.rows))
        case "csv":
            _stream(as_csv(ShownMetric, found.rows))
        case _ if found.rows:
            print_listing(SHOW_HEAD, [show_cells(row) for row in found.rows], output, empty="")


@gate.command()
@click.argument("nodes", nargs=-1, required=True, shell_complete=node_names)
@click.option("--test", default="", metavar="NAME", help="Only this test.")
@click.option("--metric", default="", metavar="NAME", help="Only this metric, of the node and of its parts.")
@click.option(
    "--since", type=Since(), metavar="TIME", help="Begin: 2h or 3d ago, 2026-11-21 or 2026-11-21T03:00 (UTC)."
)
@click.option("--last", type=click.IntRange(1, 100_000), default=100, show_default=True, metavar="N",
              help="Rows of the table for people, the last. Other formats have all.")  # fmt: skip
@spec_options()
@click.option(
    "--output", "-o", type=click.Choice(["human", "json", "csv", "parquet"]), default="human", show_default=True,
    help="Format of the document on stdout. Parquet needs PyArrow.",
)  # fmt: skip
def history(
    request: FleetRequest, nodes: tuple[str, ...], test: str, metric: str, since: timedelta | datetime | None,
    last: int, output: str,
) -> None:  # fmt: skip
    """Show what gates measured on NODES over time: names, gpu-a*, gpu-a[001-008], pool=P or rack=R.

    A row for each attempt, test, part and metric, with its unit, and the key that its peers have too.
    """
    if output == "parquet":
        _ready_for_parquet()
    with gate_history(workspace_for(request), nodes, test, metric, since) as rows:
        match output:
            case "json":
                _stream(as_json(rows))
            case "csv":
                _stream(as_csv(ResultRow, rows))
            case "parquet":
                _parquet(ResultRow, rows)
            case _:
                shown = deque(map(history_cells, rows), maxlen=last)
                print_listing(HISTORY_HEAD, list(shown), output, empty="no gate has measured that")


@gate.command()
@click.argument("model", default="")
@click.option("--output", "-o", type=click.Choice(["human", "json", "markdown"]), default="human", show_default=True,
              help="Format of the document on stdout. For people, that of a MODEL is YAML.")  # fmt: skip
def bars(model: str, output: str) -> None:
    """Print published figures per GPU model, with their sources, as bars to begin with.

    With a MODEL, such as H100-SXM or the product name that nvidia-smi prints, the tests and bars to paste into an
    AcceptanceProfile. What was published of another scope or message size than a test measures is a comment, and no
    bar.
    """
    chosen, figures = published(model)
    if chosen and output == "human":
        show("".join(f"{line}\n" for line in as_phases(chosen, figures)))
    else:
        print_listing(FIGURES_HEAD, [figure_cells(one) for one in figures], output, empty="")


@gate.command(name="output")
@click.argument("digest")
@spec_options()
def show_output(request: FleetRequest, digest: str) -> None:
    """Print what the tool of a test printed, by the DIGEST of its row or the first digits of that.

    Evidence that was kept before a repair is printed the same way; `history` has its digest.
    """
    show(gate_output(workspace_for(request), digest))


@gate.command(name="run")
@click.argument("nodes", nargs=-1, required=True, shell_complete=node_names)
@click.option("--profile", default="", metavar="NAME",
              help="AcceptanceProfile whose tests run. Another than the node's own certifies nothing.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--wait", "wait_s", type=Duration(), default="30m", show_default=True, metavar="DURATION",
              help="Time limit for waiting for budget and windows.")  # fmt: skip
@spec_options()
@signer_options
@output_option
def run_gate(
    request: FleetRequest, signers: AllowedSigners, nodes: tuple[str, ...], profile: str, yes: bool, wait_s: float,
    output: str,
) -> int:  # fmt: skip
    """Run the gate of NODES by hand, whatever certificates they have: names, gpu-a*, pool=P or rack=R.

    A node in service is drained first, and comes back when its own tests have passed. With the tests of another profile
    it stays out of service until the next apply. Lease, budget, windows and holds are those of apply; a node that needs
    more than its gate is refused.
    """
    if not sys.stdin.isatty() and not yes:
        raise UsageError("off a terminal, gate run needs --yes")
    workspace = workspace_for(replace(request, limit=nodes))
    workspace.check_selection()
    ask_gate(workspace, profile)
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        plan = plan_gate(workspace, ledger)
        if yes:
            require_startable(plan)
        else:
            confirm(plan)
        note_gate(workspace, ledger, list(plan.nodes))
        job = ApplyJob(plan, wait_s, redact=False, command="gate run")
        result = apply_job(workspace, ledger, job, partial(exit_code, detailed=False))
        verdicts = other_verdicts(workspace, ledger)
    print_outcome(result.outcome, output)
    for node, verdict in verdicts.items():
        say(f"{node}: {verdict} with the tests of {profile}; `reconciler gate show {node}` has the figures", err=True)
    failed = [ExitCode.PARTLY_FAILED] if any(verdict is not Verdict.PASS for verdict in verdicts.values()) else []
    return strongest([result.code, *failed])


@gate.command(name="fabric")
@click.argument("nodes", nargs=-1, shell_complete=node_names)
@click.option("--profile", default="", metavar="NAME", help="AcceptanceProfile with the test, if not the nodes' own.")
@click.option("--test", default="", metavar="NAME", help="The test with partners, where there are several.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@spec_options()
@signer_options
@output_option
def search_the_fabric(
    request: FleetRequest, signers: AllowedSigners, nodes: tuple[str, ...], profile: str, test: str, yes: bool,
    output: str,
) -> int:  # fmt: skip
    """Find what is at fault in the fabric: a node, NIC, cable, leaf port or leaf, by tests in pairs or groups.

    Nodes that are out of service, or certified and without work, test with one another, round after round: NODES of
    them, or the whole fleet. One that serves is marked while it tests, within the disruption budget. A cause that nodes
    share is an incident, and no node's fault. What is found is reported and journaled; it takes no node out. The exit
    code is 7 when something is at fault.
    """
    if not sys.stdin.isatty() and not yes:
        raise UsageError("off a terminal, gate fabric needs --yes")
    workspace = workspace_for(replace(request, limit=nodes))
    workspace.check_selection()
    chosen = choose_test(workspace, WantedSearch(profile, test))
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        took = format_duration(estimate_s(chosen))
        how = f"in groups with {chosen.name}, a round in at most {took}"
        if GROUP not in chosen.args:
            how = f"in pairs with {chosen.name}, a round in {took} or more"
        asked = f"Test {len(workspace.selection[0])} nodes {how}?"
        if not yes and not click.confirm(asked, err=True):
            raise click.Abort
        report = search_fabric(workspace, ledger, chosen)
    _show_report(report, output)
    return ExitCode.PARTLY_FAILED if report.at_fault or report.incidents else ExitCode.DONE


def _show_report(report: FabricReport, output: str) -> None:
    match output:
        case "json":
            show(dump(report), output)
        case "markdown":
            show(fabric_markdown(report), output)
        case _:
            show(fabric_text(report), output)


def _parquet(kind: type[ResultRow | ShownMetric], rows: Iterable[ResultRow | ShownMetric]) -> None:
    sys.stdout.flush()
    write_parquet(kind._fields, rows, sys.stdout.buffer)


def _stream(parts: Iterable[str]) -> None:
    for part in parts:
        show(part, "text")


def _ready_for_parquet() -> None:
    check_parquet()
    if sys.stdout.isatty():
        raise UsageError("Parquet is no text: send it to a file with >")
