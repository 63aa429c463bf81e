"""reconciler explain"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.commands.hold import check_subject
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import Common, fleet_options
from reconciler.cli.terminal import show

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.render.explanation import Explanation


@click.command()
@click.argument("what", metavar="NODE[.path]")
@fleet_options(rev=True)
@click.option(
    "--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Explain from this observation instead of reading the node.",
)  # fmt: skip
@click.option("--offline", is_flag=True, help="Explain the spec alone; contact nothing.")
def explain(common: Common, what: str, observation: Path | None, offline: bool) -> int:
    """Tell all about NODE, or about one value of it: what the spec wants, where it says so and which commit set that,
    what was found, what would be done and why nothing less does, what holds it back and when it may go."""
    from reconciler.app.session import Session
    from reconciler.drivers.git import origins
    from reconciler.render.explain import as_json, as_markdown, human
    from reconciler.render.explanation import Explanation, values

    whole = Session(common)
    node, path = split(what, whole.fleet.nodes)
    session = Session(replace(common, limit=(node,), exclude=()))
    session.fleet = whole.fleet
    check_subject(session.fleet, node)
    made = Explanation(session.fleet, node, path, session.clock.now(), time_scale=session.time_scale)
    if not offline:
        made = _looked_at(session, made, observation)
    places = [value.place for value in values(made) if value.place is not None]
    made = replace(made, origins=origins(session.fleet.source, places))
    show({"human": human, "json": as_json, "markdown": as_markdown}[common.output](made), common.output)
    return ExitCode.DONE


def _looked_at(session: Session, made: Explanation, file: Path | None) -> Explanation:
    """With what was observed, planned and recorded.

    From a file that has all nodes, all are planned, so that it is known who goes first. A look at one node leaves the
    others in peace, and tells of them only what cluster and ledger know.
    """
    from reconciler.app.session import new_id
    from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
    from reconciler.planner.fleet.planner import node_planner
    from reconciler.planner.node.why import alternatives

    fleet, node = session.fleet, made.node
    seen = session.observe() if file is None else session.observation_from(file)
    with session.ledger() as ledger:
        if file is None:
            session.learn(seen, ledger)
        elif fleet.nodes.keys() <= seen.nodes.keys():
            session.selection = list(fleet.nodes), session.selection[1]
        plan = session.make_plan(seen, ledger, new_id("explain", session.clock.now()))
        alone = replace(plan, nodes={node: plan.nodes[node]})
        own = session.remember(alone, ledger, plan.id, seen, now=file is None).nodes[node]
        holds, record = tuple(ledger.holds()), ledger.node(node)
        request = PlanRequest(plan.id, session.signatures)
        planner = node_planner(fleet, seen, LedgerSnapshot(ledger.id, holds=holds), plan.created_at, request)
        question = planner.question(fleet.nodes[node], seen.nodes[node], record, postponed=own.postponed)
        return replace(
            made, now=session.clock.now(), observation=seen, plan=replace(plan, nodes={**plan.nodes, node: own}),
            record=record, holds=holds, estimates=session.estimates(ledger),
            alternatives={} if question is None else alternatives(question),
        )  # fmt: skip


def split(what: str, nodes: object) -> tuple[str, str]:
    """("gpu-a001", "firmware.bmc") of gpu-a001.firmware.bmc. Node names may hold dots themselves."""
    names = sorted(getattr(nodes, "keys", list)(), key=len, reverse=True)
    for name in names:
        if what == name or what.startswith(f"{name}."):
            return name, what[len(name) + 1 :]
    return what, ""
