"""reconciler plan"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.redact import redact_option, redacted
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.options import Common, OutFile, detailed_exitcode, fleet_options, same_place, write_file
from reconciler.cli.terminal import say, show


@click.command()
@fleet_options(rev=True)
@click.option(
    "--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Plan from this observation, or from a published one, instead of reading the nodes.",
)  # fmt: skip
@click.option(
    "--base", metavar="REV", help="Tell what a change causes beyond this revision; contact only what that names."
)
@click.option("--head", metavar="REV", help="The revision that the change leads to; the work tree if left out.")
@click.option("--out", type=OutFile(), metavar="FILE", help="Write the plan here.")
@redact_option
@detailed_exitcode
def plan(
    common: Common, observation: Path | None, base: str | None, head: str | None, out: Path | None, redact: bool,
    detailed_exitcode: bool,
) -> int:  # fmt: skip
    """Say what would be done to each node, in which order and why. Nothing is changed, no lease is taken."""
    from reconciler.app.offline import session_for
    from reconciler.app.session import new_id
    from reconciler.model.documents import dump
    from reconciler.render.apart import shown_apart
    from reconciler.render.comment import as_markdown
    from reconciler.render.plan import human

    session = session_for(common, base, head, observation)
    session.check_selection()
    seen = session.observe() if observation is None else session.observation_from(observation)
    if observation is None:
        with session.ledger() as ledger:
            session.learn(seen, ledger)
    with session.memory() as memory:
        made = session.make_plan(seen, memory, new_id("plan", session.clock.now()))
        if redact:
            made = redacted(made, session, seen, memory)
    text = dump(made)
    if out is not None:
        write_file(out, text)
    if common.output == "json":
        show(text, common.output)
    else:
        show(shown_apart(made, human if common.output == "human" else as_markdown), common.output)
        if out is not None and common.output == "human":
            following = ""
            if made.changes and not made.refused and made.offline is None:
                when = "next" if made.change is None else "once it is merged"
                following = f"; {when}: reconciler apply {common.spec} --plan {out} --yes{same_place()}"
            say("", f"written to {out}{following}", err=True)
    waits = any(node.blocked is not None and node.blocked.code.passes for node in made.nodes.values())
    refused = made.refused or made.stopped or made.braked or any(rollout.halted for rollout in made.rollouts)
    differs = made.change is not None and not made.change.empty
    return strongest(
        [
            ExitCode.REFUSED if refused else ExitCode.DONE,
            ExitCode.INCOMPLETE if not made.tolerated else ExitCode.DONE,
            ExitCode.CHANGES
            if detailed_exitcode and (made.changes or waits or made.incomplete or differs)
            else ExitCode.DONE,
        ]
    )
