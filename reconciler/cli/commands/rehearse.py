"""reconciler rehearse"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.options import Common, fleet_options
from reconciler.cli.terminal import say, show

if TYPE_CHECKING:
    from reconciler.app.rehearsal import Script
    from reconciler.app.session import Session
    from reconciler.model.observed import Observation
    from reconciler.model.ports import Ledger
    from reconciler.model.rehearsal import Rehearsal

NODES_IN_ALL = 5_000  # that are changed in all runs together, unless --runs says more: about a minute
MOST_RUNS = 20


class FailureRate(click.ParamType[tuple[str, float]]):
    """0.02, 2%, reimage=5%: an action, or "*" for all, and a share."""

    name = "failure-rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        from reconciler.lab.failure_rates import EVERY
        from reconciler.planner.node.actions import ACTIONS

        if isinstance(value, tuple):
            return value
        action, named, share = value.rpartition("=")
        if named and action not in ACTIONS:
            self.fail(f"there is no action {action!r}; there are {', '.join(ACTIONS)}", param, ctx)
        try:
            rate = float(share.removesuffix("%")) / (100.0 if share.endswith("%") else 1.0)
        except ValueError:
            rate = -1.0
        if not 0.0 <= rate <= 1.0:
            self.fail(f"{share!r} is no share; write 0.02 or 2%", param, ctx)
        return action or EVERY, rate


@click.command()
@fleet_options(rev=True)
@click.option(
    "--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Rehearse from this observation instead of reading the nodes.",
)  # fmt: skip
@click.option("--base", metavar="REV", help="Rehearse a change beyond this revision; contact only what that names.")
@click.option("--head", metavar="REV", help="The revision that the change leads to; the work tree if left out.")
@click.option(
    "--failure-rate", "failure_rates", type=FailureRate(), multiple=True, metavar="[ACTION=]SHARE",
    help="On this share of the nodes the action (or each one) fails whenever it is tried: 2%, reimage=5%.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="What chance draws from; +1 per run.")
@click.option("--runs", type=click.IntRange(1, 1000), metavar="N", help="Default: 20; fewer where many nodes change.")
def rehearse(
    common: Common, observation: Path | None, base: str | None, head: str | None,
    failure_rates: tuple[tuple[str, float], ...], seed: int, runs: int | None,
) -> int:  # fmt: skip
    """Play the whole rollout on simulated nodes, in virtual time: how long it takes, who is out, what fails and halts.

    The same planner, scheduler and executor as in apply; no node is changed, and the ledger is a copy in memory. Exit
    codes: 7 when an invariant was broken (a bug, with the evidence), 8 when a guard refuses the plan, a rollout halts,
    or nothing may start.
    """
    from reconciler.app.change_session import session_for
    from reconciler.app.rehearsal import rehearse as play
    from reconciler.app.session import on_terminal

    session = session_for(common, base, head)
    session.check_selection()
    seen = session.observe() if observation is None else session.observation_from(observation)
    with session.ledger() as ledger:
        script = _script(session, ledger, seen, "" if observation is None else str(observation), dict(failure_rates))
    changes = script.plan.totals.nodes_with_changes
    number = runs or min(MOST_RUNS, max(1, NODES_IN_ALL // max(changes, 1)))

    def told(at: int) -> None:
        if at == 1 or on_terminal():
            say(f"rehearsing {changes} nodes, run {at} of {number}", err=True)

    found = play(script, range(seed, seed + number), told)
    _print(found, common.output)
    return exit_code(found)


def _script(
    session: Session, ledger: Ledger, seen: Observation, seen_in: str, rates: Mapping[str, float]
) -> Script:  # fmt: skip
    from reconciler.app.change_session import ChangeSession
    from reconciler.app.rehearsal import Script
    from reconciler.app.session import new_id
    from reconciler.model.desired import DesiredInventory

    starts_at = session.clock.now()
    names, scope = session.selection
    # Nobody knows anything about a node that was never looked at: it is left to a later rehearsal.
    fleet = replace(session.fleet, nodes={n: node for n, node in session.fleet.nodes.items() if n in seen.nodes})
    durations, estimates = ledger.durations(), session.estimates(ledger)
    told = {action for _, action, target, _ in durations if estimates.of(DesiredInventory(), action, target)}
    return Script(
        fleet=fleet,
        observation=seen,
        seen_in=seen_in,
        plan=session.make_plan(seen, ledger, new_id("rehearsal", starts_at)),
        base=session.base.source if isinstance(session, ChangeSession) else None,
        selected=None if len(names) == len(fleet.nodes) else names,
        scope=scope,
        ledger_id=ledger.id,
        records=ledger.nodes([*fleet.nodes, *(name for name in ledger.known() if name not in fleet.nodes)]),
        holds=tuple(ledger.holds()),
        rollouts=ledger.rollouts(),
        estimates=estimates,
        history=sorted(told),
        signatures=session.signatures,
        gate=session.gate,
        starts_at=starts_at,
        rates=rates,
    )


def exit_code(found: Rehearsal) -> ExitCode:
    wanted = bool(found.nodes_with_changes or found.left)
    nothing = wanted and not any(run.actions for run in found.runs)
    return strongest(
        [
            ExitCode.PARTLY_FAILED if found.broken else ExitCode.DONE,
            ExitCode.REFUSED if found.refused or found.halted or nothing else ExitCode.DONE,
        ]
    )


def _print(found: Rehearsal, output: str) -> None:
    from pydantic import TypeAdapter

    from reconciler.model.rehearsal import Rehearsal as Document
    from reconciler.render.rehearsal import as_markdown, human

    if output == "json":
        show(TypeAdapter(Document).dump_json(found, indent=1).decode() + "\n", output)
    else:
        show((human if output == "human" else as_markdown)(found), output)
