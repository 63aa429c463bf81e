"""reconciler adopt"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import Common, fleet_options, same_place
from reconciler.cli.terminal import say, show

if TYPE_CHECKING:
    from reconciler.app.adopt import Adoption


@click.command()
@click.argument("what", metavar="NODE[.path]")
@fleet_options()
@click.option(
    "--observation", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Take the values from this observation instead of reading the nodes.",
)  # fmt: skip
@click.option(
    "--at", type=click.Choice(("auto", "node", "pool", "origin")), default="auto", show_default=True,
    help="Where to write: the node, its pool, or the line that says it now. auto: where it changes no other node, in "
    "the fewest lines.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the diff; write nothing.")
def adopt(common: Common, what: str, observation: Path | None, at: str, dry_run: bool) -> int:
    """Accept what NODE has: edit the spec so that it asks for just that. NODE may be gpu-a*, gpu-a[001-008], pool=P.

    Comments, quotes and order are kept. Nothing is written unless the edited spec is proved to remove that drift and to
    want everything else as before. stdout is a unified diff.
    """
    from reconciler.app.adopt import adopt as make
    from reconciler.app.adopt import doubts, read_tree, target, write_files
    from reconciler.app.scope import select
    from reconciler.app.session import Session
    from reconciler.diff.ignore import IgnoreRules
    from reconciler.model.errors import ReconcilerError
    from reconciler.render.text import clock
    from reconciler.spec.edit.accept import WriteLevel
    from reconciler.spec.edit.files import SpecFiles

    session = Session(common)
    files = SpecFiles(read_tree(common.spec), str(common.spec))
    nodes, path = target(what, session.fleet)
    if read_tree(common.spec) != files.original:  # positions in the fleet would be those of other lines
        raise ReconcilerError(f"{common.spec} was changed meanwhile; nothing is written")
    named = set(select(session.fleet, (nodes,), ())[0])
    selected, scope = session.selection
    session.selection = [name for name in selected if name in named], scope
    if not session.selection[0]:
        raise click.UsageError(f"{nodes} and --limit or --exclude have no node in common")
    seen = session.observe() if observation is None else session.observation_from(observation)
    if observation is not None:
        say(f"values of {clock(seen.finished_at)}, from {observation}", err=True)
    names = session.selection[0]
    with session.ledger() as book:
        records, acting = book.nodes(names), {node for _, node, *_ in book.unfinished()}
    doubted = doubts(session.fleet, names, path, seen.nodes, records, acting)
    rules = IgnoreRules(session.fleet.settings.ignore, session.clock.now())
    made = make(session.fleet, files, names, path, seen.nodes, WriteLevel(at), rules, doubted)
    if made.written and not dry_run:
        write_files(common.spec, made.files)
    _tell(made, common, dry_run=dry_run)
    return ExitCode.REFUSED if made.left and not made.written else ExitCode.DONE


def _tell(made: Adoption, common: Common, *, dry_run: bool) -> None:
    from reconciler.render.text import fold, value

    outside = common.spec.is_absolute() or ".." in common.spec.parts
    prefix = "" if common.spec == Path() else f"{common.spec.name if outside else common.spec.as_posix()}/"
    diff = "".join(made.files.diff(prefix))
    if common.output == "json":
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
        show(json.dumps(document, indent=1, sort_keys=True, default=str) + "\n", common.output)
        return
    if diff:
        show(f"```diff\n{diff}```\n" if common.output == "markdown" else diff, "markdown")
    for one in made.written:
        values = {value(i.observed) for i in made.items if i.node in one.nodes and _about(i.path, one.path)}
        told = ", ".join(sorted(values))
        say(f"{one.path} of {fold(list(one.nodes))}: {told} ({one.where}: {one.why})", err=True)
    for sentence in made.left:
        say(f"not adopted: {sentence}", err=True)
    for sentence in made.notes:
        say(f"note: {sentence}", err=True)
    if not made.written and not made.left:
        say("nothing to adopt: what is known of it is as specified", err=True)
    elif made.written and dry_run:
        say("nothing is written (--dry-run)", err=True)
    elif made.written:
        say(f"written; see: git diff, reconciler drift {common.spec}{same_place()}", err=True)


def _about(path: str, adopted: str) -> bool:
    return path == adopted or (adopted == "image" and path in ("image.name", "image.version"))
