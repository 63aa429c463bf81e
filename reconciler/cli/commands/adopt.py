"""reconciler adopt"""

from __future__ import annotations

import json
from pathlib import Path

import click

from reconciler.app.adopt import Adoption
from reconciler.app.adopt import adopt as adopt_drift
from reconciler.app.ports import FleetRequest
from reconciler.cli.completion import node_names
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import fleet_options, location_options, observation_option
from reconciler.cli.terminal import say, show
from reconciler.render.text import fold, value


@click.command()
@click.argument("what", metavar="NODE[.path]", shell_complete=node_names)
@fleet_options()
@observation_option("Take the values from this observation, and read no node.")
@click.option(
    "--at", type=click.Choice(("auto", "node", "pool", "origin")), default="auto", show_default=True,
    help="Where to edit the spec: the node, its pool, or the line that sets the value now. auto: the fewest lines that "
    "change no other node.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the diff and write nothing.")
def adopt(request: FleetRequest, what: str, observation: Path | None, at: str, dry_run: bool, output: str) -> int:
    """Accept drift: edit the spec so that it wants what NODE has. NODE may be gpu-a*, gpu-a[001-008] or pool=P.

    Comments, quotes and order are kept. Nothing is written unless a check proves that the edited spec removes this
    drift and changes nothing else. stdout is a unified diff.
    """
    adoption = adopt_drift(workspace_for(request), what, observation, at, dry_run=dry_run)
    _print(adoption, request.spec, output, dry_run=dry_run)
    return ExitCode.REFUSED if adoption.left and not adoption.written else ExitCode.DONE


def _print(made: Adoption, spec: Path, output: str, *, dry_run: bool) -> None:
    outside = spec.is_absolute() or ".." in spec.parts
    prefix = "" if spec == Path() else f"{spec.name if outside else spec.as_posix()}/"
    diff = "".join(made.files.diff(prefix))
    if output == "json":
        document = {
            "written": bool(made.written) and not dry_run,
            "adopted": [
                {"node": i.node, "path": i.path, "was": i.desired, "now": i.observed} for i in made.items
            ],
            "edits": [
                {"path": one.path, "nodes": one.nodes, "where": one.where, "why": one.why} for one in made.written
            ],
            "left": made.left,
            "notes": made.notes,
            "diff": diff,
        }  # fmt: skip
        show(json.dumps(document, indent=1, sort_keys=True, default=str) + "\n", output)
        return
    if diff:
        show(f"```diff\n{diff}```\n" if output == "markdown" else diff, "markdown")
    for one in made.written:
        values = {value(i.observed) for i in made.items if i.node in one.nodes and _about(i.path, one.path)}
        say(f"{one.path} of {fold(list(one.nodes))}: {', '.join(sorted(values))} ({one.where}: {one.why})", err=True)
    for sentence in made.left:
        say(f"not adopted: {sentence}", err=True)
    for sentence in made.notes:
        say(f"note: {sentence}", err=True)
    if not made.written and not made.left:
        say("nothing to adopt: every known value is as specified", err=True)
    elif made.written and dry_run:
        say("nothing is written (--dry-run)", err=True)
    elif made.written:
        say(f"written; see: git diff, reconciler drift {spec}{location_options()}", err=True)


def _about(path: str, adopted: str) -> bool:
    return path == adopted or (adopted == "image" and path in ("image.name", "image.version"))
