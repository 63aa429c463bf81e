"""reconciler doctor"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from reconciler.app.doctor import examine
from reconciler.app.ports import FleetRequest
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import fleet_options
from reconciler.cli.terminal import say, show
from reconciler.render.text import markdown, plain


@click.command()
@fleet_options(rev=True, engine=True)
@click.option("--offline", is_flag=True, help="Contact no node.")
def doctor(request: FleetRequest, offline: bool, output: str) -> int:
    """Check programs, spec, secrets, ledger, reachability and what BMCs can write. Each problem has its remedy."""
    checks = []
    for finding in examine(workspace_for(request), offline=offline):
        checks.append(finding)
        if output == "human":
            say(f"{'ok  ' if finding.ok else 'FAIL'} {finding.check}: {plain(finding.detail, 2000)}")
            if finding.remedy:
                say(f"     -> {finding.remedy}")
    if output == "json":
        show(json.dumps([asdict(finding) for finding in checks], indent=1) + "\n", output)
    elif output == "markdown":
        for f in checks:
            remedy = f" - {markdown(f.remedy, 400)}" if f.remedy else ""
            say(f"- {'✅' if f.ok else '🔴'} **{f.check}**: {markdown(f.detail, 400)}{remedy}")
    bad = [finding for finding in checks if not finding.ok]
    if not bad:
        return ExitCode.DONE
    if any(finding.check == "spec" for finding in bad):
        return ExitCode.SPEC_INVALID
    return ExitCode.INCOMPLETE if all(f.check.startswith("reach") for f in bad) else ExitCode.USAGE
