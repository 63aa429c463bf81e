"""Complete names of nodes and pools of the spec in a shell, beside the commands and options that click completes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from reconciler.model.errors import ReconcilerError

if TYPE_CHECKING:
    from reconciler.model.desired import Fleet

MOST: Final = 500  # a shell asks before it lists more than a screen; nobody reads thousands


def node_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the nodes of the spec whose names begin so."""
    given = ctx.params.get(param.name or "")
    taken = set(given) if isinstance(given, tuple) else set()
    return _beginning(incomplete, [name for name in _names(ctx) if "/" not in name and name not in taken])


def node_or_pool_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the nodes and pools of the spec whose names begin so, pools as pool/NAME."""
    return _beginning(incomplete, _names(ctx))


def expressions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the expressions of --limit that begin so: names of nodes, pool=NAME and each failure domain of a node."""
    fleet = _fleet(ctx)
    if fleet is None:
        return []
    domains = {f"{label}={value}" for node in fleet.nodes.values() for label, value in node.domains.items()}
    pools = {f"pool={node.pool}" for node in fleet.nodes.values()}
    return _beginning(incomplete, [*sorted(pools), *sorted(domains), *fleet.nodes])


def _beginning(incomplete: str, names: list[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:MOST]


def _names(ctx: click.Context) -> list[str]:
    fleet = _fleet(ctx)
    return [] if fleet is None else [*fleet.nodes, *sorted({f"pool/{node.pool}" for node in fleet.nodes.values()})]


def _fleet(ctx: click.Context) -> Fleet | None:
    """Return the spec. One that can't be read completes nothing: the command itself will say why."""
    from reconciler.app.validate import validate_spec

    try:
        return validate_spec(Path(ctx.params.get("spec") or "fleet-spec"), None)[0]
    except ReconcilerError:
        return None
