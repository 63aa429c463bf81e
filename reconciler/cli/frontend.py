"""The command line as the frontend of a use case: lines and progress go to stderr."""

from __future__ import annotations

from typing import Final

from reconciler.app.ports import FleetRequest, Frontend
from reconciler.app.workspace import Workspace
from reconciler.cli.exit_codes import exit_code_of
from reconciler.cli.progress import make_progress
from reconciler.cli.terminal import say

TERMINAL: Final = Frontend(lambda line: say(line, err=True), make_progress, exit_code_of)


def workspace_for(request: FleetRequest) -> Workspace:
    return Workspace(request, TERMINAL)
