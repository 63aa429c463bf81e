"""reconciler get"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import click

from reconciler.app.get import NodeRow, PoolRow, node_rows, pool_rows
from reconciler.app.ports import FleetRequest
from reconciler.cli.completion import node_names
from reconciler.cli.frontend import workspace_for
from reconciler.cli.listing import print_listing
from reconciler.cli.options import spec_options
from reconciler.cli.terminal import show
from reconciler.model.status import NodeStatus
from reconciler.render.text import clock
from reconciler.strict_yaml.write import as_yaml


class _Kind(click.Choice[str]):
    """A kind, also in the singular, as kubectl takes it."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(f"{value}s" if f"{value}s" in self.choices else value, param, ctx)


FORMATS: Final = ("human", "wide", "json", "yaml", "name", "markdown")


@click.command()
@click.argument("kind", type=_Kind(["nodes", "pools"]))
@click.argument("expressions", metavar="[EXPR]...", nargs=-1, shell_complete=node_names)
@click.option("--status", "statuses", multiple=True, type=click.Choice([status.value for status in NodeStatus]),
              help="Only nodes that the last pass found so. May be repeated.")  # fmt: skip
@spec_options()
@click.option("-o", "--output", type=click.Choice(FORMATS), default="human", show_default=True,
              help="wide: more columns. name: one name a line, for scripts.")  # fmt: skip
def get(request: FleetRequest, kind: str, expressions: tuple[str, ...], statuses: tuple[str, ...], output: str) -> None:
    """List nodes or pools: what the spec declares, and what the ledger knows of them. Nothing is contacted.

    EXPR selects nodes: a name, gpu-a*, gpu-a[001-008], pool=P or rack=R. Their status is that of the last pass of
    `run`, `apply` or `drift` that read them; `status` reads the nodes anew.
    """
    workspace = workspace_for(request)
    rows = node_rows(workspace, expressions, [NodeStatus(status) for status in statuses])
    if kind == "nodes":
        _print(rows, _node_cells, output, workspace.time_scale)
    else:
        _print(pool_rows(rows), _pool_cells, output, workspace.time_scale)


def _print(
    rows: Sequence[Any], cells: Callable[[Any, bool], dict[str, str | int]], output: str, time_scale: float
) -> None:
    match output:
        case "name":
            show("".join(f"{row.name}\n" for row in rows), output)
        case "json":
            show(_json(rows) + "\n", output)
        case "yaml":
            show(as_yaml(json.loads(_json(rows))), output)
        case _:
            told = [cells(row, output == "wide") for row in rows]
            head = tuple(told[0]) if told else ()
            table = [tuple(row.values()) for row in told]
            print_listing(head, table, output, empty="no node is so", time_scale=time_scale)


def _json(rows: Sequence[Any]) -> str:
    return json.dumps([asdict(row) for row in rows], default=datetime.isoformat, indent=1)


def _node_cells(row: NodeRow, wide: bool) -> dict[str, str | int]:
    service = "unknown" if row.in_service is None else "in" if row.in_service else "out"
    said = row.under_way or (f"held by {row.held}" if row.held else row.why)
    found: dict[str, str | int] = {
        "name": row.name, "pool": row.pool, "persona": row.persona, "status": row.status, "service": service,
        "since": clock(row.since) if row.since else "",
    }  # fmt: skip
    if wide:
        found |= {
            "state": row.state, "image": row.image, "bmc": row.bmc, "host": row.host, "serial": row.serial,
            "domains": ", ".join(f"{label}={value}" for label, value in row.domains.items()),
            "seen": clock(row.seen) if row.seen else "",
        }  # fmt: skip
    return {**found, "why": said}


def _pool_cells(row: PoolRow, wide: bool) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "name": row.name, "nodes": row.nodes, "in service": row.in_service, "out": row.out, "unknown": row.unknown,
    }  # fmt: skip
    if wide:
        found["held"] = row.held
    return {**found, "statuses": ", ".join(f"{many} {status}" for status, many in row.statuses.items())}
