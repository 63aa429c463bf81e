"""reconciler explain"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.commands.hold import check_subject
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import Common, fleet_options
from reconciler.cli.terminal import show


@click.command()
@click.argument("what", metavar="NODE[.path]")
@fleet_options(rev=True)
@click.option(
    "--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Explain from this observation instead of reading the node.",
)  # fmt: skip
@click.option("--offline", is_flag=True, help="Explain the spec alone; contact nothing.")
def explain(common: Common, what: str, observation: Path | None, offline: bool) -> int:
    """Tell all about NODE, or about one value of it: what the spec wants and where it says so, what was found, and
    what would be done and why."""
    from dataclasses import replace

    from reconciler.cli.session import Session, new_id
    from reconciler.render.explain import Explanation, as_json, as_markdown, human

    node, path = split(what, Session(common).fleet.nodes)
    session = Session(replace(common, limit=(node,), exclude=()))
    check_subject(session.fleet, node)
    plan = seen = None
    if not offline:
        seen = session.observe() if observation is None else session.observation_from(observation)
        with session.ledger() as ledger:
            if observation is None:
                session.learn(seen, ledger)
            plan = session.make_plan(seen, ledger, new_id("explain", session.clock.now()))
            plan = session.remember(plan, ledger, plan.id)
    desired = session.fleet.nodes[node]
    made = Explanation(
        desired=desired,
        source=session.fleet.source,
        observed=None if seen is None else seen.nodes[node],
        plan=None if plan is None else plan.nodes[node],
        path=path,
        now=session.clock.now(),
        insecure=session.fleet.settings.insecure,
        time_scale=session.time_scale,
    )
    show({"human": human, "json": as_json, "markdown": as_markdown}[common.output](made), common.output)
    return ExitCode.DONE


def split(what: str, nodes: object) -> tuple[str, str]:
    """("gpu-a001", "firmware.bmc") of gpu-a001.firmware.bmc. Node names may hold dots themselves."""
    names = sorted(getattr(nodes, "keys", list)(), key=len, reverse=True)
    for name in names:
        if what == name or what.startswith(f"{name}."):
            return name, what[len(name) + 1 :]
    return what, ""
