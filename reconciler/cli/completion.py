"""Complete names of nodes and pools of the spec in a shell, beside the commands and options that click completes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from reconciler.model.errors import ReconcilerError

MOST: Final = 500  # a shell asks before it lists more than a screen; nobody reads thousands


def node_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the nodes of the spec whose names begin so."""
    given = ctx.params.get(param.name or "")
    taken = set(given) if isinstance(given, tuple) else set()
    return _beginning(incomplete, [name for name in _names(ctx) if "/" not in name and name not in taken])


def node_or_pool_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the nodes and pools of the spec whose names begin so, pools as pool/NAME."""
    return _beginning(incomplete, _names(ctx))


def _beginning(incomplete: str, names: list[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:MOST]


def _names(ctx: click.Context) -> list[str]:
    """Return what the spec names. A spec that can't be read completes nothing: the command itself will say why."""
    from reconciler.app.validate import validate_spec

    try:
        fleet, _ = validate_spec(Path(ctx.params.get("spec") or "fleet-spec"), None)
    except ReconcilerError:
        return []
    if fleet is None:
        return []
    return [*fleet.nodes, *sorted({f"pool/{node.pool}" for node in fleet.nodes.values()})]
