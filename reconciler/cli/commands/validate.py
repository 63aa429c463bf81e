"""reconciler validate"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import OUTPUTS
from reconciler.cli.terminal import annotate, say, show
from reconciler.model.printable import visible
from reconciler.render.text import code, count, markdown, source


@click.command()
@click.argument("spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"))
@click.option("--rev", metavar="REV", help="Read the spec at this git revision.")
@click.option(
    "--output", "-o", type=click.Choice([*OUTPUTS, "github", "gitlab"]), default="human", show_default=True,
    help="Format of the document on stdout: github writes annotations, gitlab a code quality report.",
)  # fmt: skip
def validate(spec: Path, rev: str | None, output: str) -> int:
    """Check a spec, and print every problem with its line. Nothing is contacted, and no secret is resolved.

    In a job of GitHub Actions, each problem is also an annotation of its line.
    """
    from reconciler.app.validate import validate_spec
    from reconciler.render import annotations

    fleet, found = validate_spec(spec, rev)
    if output == "json":
        document = {"valid": fleet is not None, "diagnostics": [asdict(diagnostic) for diagnostic in found]}
        show(json.dumps(document, indent=1, sort_keys=True) + "\n", output)
    elif output == "markdown":
        lines = [
            f"- {code(str(d.at))} {markdown(str(d).removeprefix(visible(str(d.at))).lstrip(': '), 400)}" for d in found
        ]
        say(f"## {'✅ The spec is valid' if fleet else '🔴 The spec is invalid'}", "", *lines)
    elif output == "github":
        annotate(annotations.github(found), err=False)
    elif output == "gitlab":
        show(annotations.gitlab(found) + "\n", "json")
    else:
        if os.environ.get("GITHUB_ACTIONS") == "true":
            annotate(annotations.github(found))
        for diagnostic in found:
            say(f"{diagnostic.severity}: {diagnostic}")
        if fleet is not None:
            pools = len({node.pool for node in fleet.nodes.values()})
            say(
                f"{source(fleet.source)} is valid: fleet {fleet.settings.fleet}, "
                f"{count(pools, 'pool')}, {count(len(fleet.nodes), 'node')}"
            )
        else:
            errors = sum(d.severity == "error" for d in found)
            say(f"{spec}: {count(errors, 'problem')}; nothing was contacted", err=True)
    return ExitCode.DONE if fleet is not None else ExitCode.SPEC_INVALID
