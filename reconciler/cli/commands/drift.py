"""reconciler drift"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.crashes import CRASHES
from reconciler.app.publish import publish_option, write_published
from reconciler.app.recorder import Place, keep, pools_of, ready_recorder, record_option
from reconciler.app.redact import redact_option, redacted
from reconciler.cli.exit_codes import ExitCode, strongest
from reconciler.cli.options import Common, detailed_exitcode, fleet_options
from reconciler.cli.terminal import say, show


@click.command()
@fleet_options(rev=True)
@click.option(
    "--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Judge this observation instead of reading the nodes.",
)  # fmt: skip
@publish_option
@record_option
@redact_option
@detailed_exitcode
def drift(
    common: Common, observation: Path | None, publish: Path | None, record: Place | None, redact: bool,
    detailed_exitcode: bool,
) -> int:  # fmt: skip
    """Say how the nodes differ from the spec, and since when. Nothing is changed."""
    from reconciler.app.session import Session, drift_report
    from reconciler.model.documents import dump
    from reconciler.planner.fleet.observer_outage import observer_outage
    from reconciler.render.apart import shown_apart
    from reconciler.render.comment import as_markdown
    from reconciler.render.drift import human
    from reconciler.render.record import of_drift

    session = Session(common)
    session.check_selection()
    recorder = ready_recorder(record, session)
    seen = session.observe() if observation is None else session.observation_from(observation)
    blind = observer_outage(session.watched, seen)
    with session.ledger() as ledger:
        plan = session.look_into(seen, ledger, "drift", now=observation is None)
        report = drift_report(plan, seen)
        if redact:
            report = redacted(report, session, seen, ledger)
        code = strongest(
            [
                ExitCode.INCOMPLETE if not report.tolerated else ExitCode.DONE,
                ExitCode.CHANGES if detailed_exitcode and (report.changes or report.incomplete) else ExitCode.DONE,
                CRASHES.code,
            ]
        )
        ledger.end_run(plan.id, int(code), f"{len(report.items)} differences", session.clock.now())
    if common.output == "json":
        show(dump(report), common.output)
    else:
        show(shown_apart(report, human if common.output == "human" else as_markdown), common.output)
    if publish is not None:
        write_published(session, seen, publish)
    if recorder is not None and blind:
        say(f"not recorded: {blind}", err=True)
    elif recorder is not None:
        keep(recorder, of_drift(report, pools_of(session.fleet, plan.nodes)))
    return code
