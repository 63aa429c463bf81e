"""reconciler completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from reconciler.cli.terminal import show
from reconciler.model.errors import UsageError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that lets SHELL complete commands, options, and names of nodes and pools in the spec.

    \b
    bash:  source <(reconciler completion bash)
    zsh:   source <(reconciler completion zsh)
    fish:  reconciler completion fish | source
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if kind is None:
        raise UsageError(f"this version of click has no completion for {shell}")
    show(kind(root, {}, "reconciler", "_RECONCILER_COMPLETE").source(), "script")  # not folded
