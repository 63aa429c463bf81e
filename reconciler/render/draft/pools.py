"""The file of a pool: its nodes in ranges where they are in a row, in a CSV file where many are not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from reconciler.render.draft.kinds import Draft, Pool
from reconciler.render.draft.lines import comment, resource
from reconciler.render.text import count, plain
from reconciler.spec.ranges import contract
from reconciler.strict_yaml.edit import inline

_MANY: Final = 12  # nodes that are no ranges: more of them stand in a CSV file


def pool_text(pool: Pool, draft: Draft) -> tuple[list[str], str]:
    """The document, and the CSV file beside it; "" for none."""
    lines = resource("NodePool", pool.name)
    lines += _image(pool)
    lines += [f"  hardware: {pool.hardware}", f"  persona: {pool.persona}"]
    lines.append("  # rollout: {waves: [1, 10%, 50%, 100%], bake: 10m} # how a change spreads; these are the defaults")
    runs = _runs(pool, draft)
    singles = [run for run in runs if len(run) == 1 and not _settings(draft, run[0])]
    table = ""
    if len(singles) > _MANY:
        table = _table([run[0] for run in singles], draft)
        runs = [run for run in runs if run not in singles]
        lines.append(f"  inventory: pools/{pool.name}.csv")
    if runs:
        lines.append("  nodes:")
    if any(_settings(draft, run[0]) and run[0] not in draft.parked for run in runs):
        lines += comment(
            "Some have settings of their own: what others do not have. Take such a line out, and plans put it right.", 4
        )
    for run in runs:
        lines += _entry(run, draft)
    return lines, table


def _image(pool: Pool) -> Iterator[str]:
    if pool.images:
        yield "  # The image is not managed. These nodes run:"
        for image, nodes in pool.images.items():
            yield plain(f"  #   {image}, on {count(nodes, 'node')}", 200)
        what = "To pin one"
    else:
        yield "  # The image is not managed, and no /etc/reconciler/image.json says what these nodes run."
        what = "To install one"
    yield from comment(
        f"{what}, declare it as a GoldenImage with url, sha256 and signature, and name it here: "
        "image: {name: ..., version: ...}",
        2,
    )


def _settings(draft: Draft, node: str) -> dict[str, Any]:
    parked = {"state": "quarantined"} if node in draft.parked else {}
    return {**parked, **({} if parked else draft.own.get(node, {}))}


def _runs(pool: Pool, draft: Draft) -> list[list[str]]:
    """Nodes that one entry can name: in a row, alike, and with addresses in a row."""
    runs: list[list[str]] = []
    for node in sorted(pool.nodes, key=_natural):
        last = runs[-1] if runs else None
        # Of a long run its ends tell nearly all, and the whole of it is tried once.
        if last and _fits(draft, [last[0], *last[1:][-1:], node]):
            last.append(node)
        else:
            runs.append([node])
    return [part for run in runs for part in ([run] if _fits(draft, run) else [[node] for node in run])]


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]


def _fits(draft: Draft, nodes: Sequence[str]) -> bool:
    """Return whether one entry of a range can name the nodes: their numbers follow each other."""
    if len(nodes) == 1:
        return True
    first = draft.rows[nodes[0]].domains, _settings(draft, nodes[0])
    if any((draft.rows[node].domains, _settings(draft, node)) != first or node in draft.parked for node in nodes):
        return False
    columns = _columns(draft, nodes).values()
    return all(values == [None] * len(nodes) or _in_a_row(values) for values in columns)


def _columns(draft: Draft, nodes: Sequence[str]) -> dict[str, list[str | None]]:
    rows = [draft.rows[node] for node in nodes]
    return {
        "name": list(nodes),
        "bmc": [row.bmc for row in rows],
        "host": [row.host for row in rows],
        "serial": [draft.serials.get(node) for node in nodes],
    }


def _in_a_row(values: Sequence[str | None]) -> bool:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or len(set(known)) < len(known):
        return False
    try:
        contract(known)
        return "," not in contract(known[-2:])
    except ValueError:
        return False


def _entry(run: Sequence[str], draft: Draft) -> Iterator[str]:
    why = draft.parked.get(run[0])
    if why is not None:
        yield from comment(f"left alone: {why.rstrip('.?')}. Put it right, then take `state` out", 4)
    given = {key: [v for v in values if v is not None] for key, values in _columns(draft, run).items()}
    values: dict[str, Any] = {key: contract(texts) for key, texts in given.items() if texts}
    if draft.rows[run[0]].domains:
        values["domains"] = dict(draft.rows[run[0]].domains)
    values |= _settings(draft, run[0])
    if len(run) == 1 and len(line := f"    - {inline(values)}") <= 118:
        yield line
        return
    for at, (key, value) in enumerate(values.items()):
        yield f"    {'-' if at == 0 else ' '} {key}: {inline(value)}"


def _table(nodes: Sequence[str], draft: Draft) -> str:
    labels = sorted({label for node in nodes for label in draft.rows[node].domains})
    lines = [",".join(("name", "bmc", "host", "serial", *(f"domains.{label}" for label in labels)))]
    for node in nodes:
        row = draft.rows[node]
        cells = [node, row.bmc, row.host, draft.serials.get(node), *(row.domains.get(label) for label in labels)]
        lines.append(",".join(_cell(cell or "") for cell in cells))
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search('[",]', text) else text
