"""The `init` use case: read the nodes of a CSV file or an inventory, and write a spec whose plan is empty."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.app.init_access import NewSecrets
from reconciler.app.inventory.fields import COLUMNS, InventoryRow, check_column
from reconciler.app.runtime import new_id
from reconciler.app.waive import deviation, save, waive
from reconciler.app.workspace import Workspace
from reconciler.model.desired import Fleet, SpecSource
from reconciler.model.errors import Blind, ReconcilerError, SpecError, UsageError
from reconciler.model.gate import Certificate
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render.draft.kinds import Draft, Hardware, Pool, Role, Row, draft, lacking
from reconciler.render.draft.survey import SERVICES, SYSCTLS, Asked, Found, found, unread
from reconciler.render.draft.text import Access, files
from reconciler.spec import check_spec
from reconciler.spec.node_source import NORMALISERS
from reconciler.spec.ranges import expand
from reconciler.spec.schema import write_schemas

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

_ROUNDS: Final = 4  # leaving nodes alone may reveal others to leave; each round has fewer


@dataclass(frozen=True, slots=True)
class SpecDraft:
    """A spec whose plan is empty, with the observation and the plan that prove it. `texts`: file -> text."""

    texts: Mapping[str, str]
    draft: Draft
    fleet: Fleet
    observation: Observation
    plan: Plan
    certificates: tuple[Certificate, ...]


@dataclass(frozen=True, slots=True)
class Initialized:
    """The result of `init`. `paths`: what was written. `waived`: the number of certificates without a test."""

    spec: SpecDraft
    paths: Sequence[Path]
    waived: int


# --- the CSV file --------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> dict[str, Row]:
    """Return the nodes by name, in the order of the file. Raise UsageError with the line of a problem."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    lines = csv.reader(text.splitlines())
    header = [cell.strip() for cell in next(lines, [])]
    for column in header:
        check_column(column, f"{path}:1")
    if "name" not in header:
        raise UsageError(f"{path}:1: column 'name' is missing; the first line is like name,bmc,host,rack")
    rows = []
    for cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path}:{lines.line_num}"
        if len(cells) != len(header):
            raise UsageError(f"{where}: {len(cells)} cells, and {len(header)} columns")
        named = {key: cell.strip() for key, cell in zip(header, cells, strict=True) if cell.strip()}
        rows.append(InventoryRow(named, where))
    return nodes_of(rows, str(path))


def nodes_of(found: Iterable[InventoryRow], where: str) -> dict[str, Row]:
    """Return the nodes of rows by name, whatever the rows were read from. Raise UsageError for a row that is none."""
    rows: dict[str, Row] = {}
    for one in found:
        row = _row(one.cells, one.where)
        if row.name in rows:
            raise UsageError(f"{one.where}: node {row.name!r} is listed twice")
        rows[row.name] = row
    if not rows:
        raise UsageError(f"{where} names no node")
    return rows


def in_range(text: str, column: str = "", wanted: int | None = None) -> Sequence[str]:
    """Return what a range names. Raise UsageError when that is no value of the column, or not `wanted` many."""
    try:
        found = expand(text)
        for one in found if column else ():
            NORMALISERS[column](one)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if wanted is not None and len(found) != wanted:
        raise UsageError(f"{text} is {len(found)}, and {wanted} are wanted: one for each node")
    return found


def rows_in_ranges(names: str, bmcs: str, hosts: str) -> dict[str, Row]:
    """Return the nodes of three ranges of equal length, such as gpu-a[001-008]."""
    columns = [in_range(text) for text in (names, bmcs, hosts)]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(
            f"{len(column)} {what}" for column, what in zip(columns, ("names", "BMCs", "hosts"), strict=True)
        )
        raise UsageError(f"the ranges must have the same length, and these are {lengths}")
    cells = (dict(zip(("name", "bmc", "host"), node, strict=True)) for node in zip(*columns, strict=True))
    rows = [_row(node, node["name"]) for node in cells]
    return {row.name: row for row in rows}


def _row(cells: Mapping[str, str], where: str) -> Row:
    values = {}
    for column in ("name", "bmc", "host"):
        if column in cells:
            try:
                NORMALISERS[column](cells[column])
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from None
            values[column] = cells[column]
    if len(values) < len(("name", "bmc", "host")):
        missing = ", ".join(column for column in ("name", "bmc", "host") if column not in values)
        raise UsageError(
            f"{where}: {missing} is missing: a node is identified when its BMC and its host report the same serial"
        )
    domains = {key.removeprefix("domains."): cells[key] for key in cells if key not in COLUMNS or key == "rack"}
    return Row(values["name"], values.get("bmc"), values.get("host"), cells.get("pool", ""), domains)


# --- from nodes to a spec ------------------------------------------------------------------------------------------


def first_look(fleet: str, rows: Mapping[str, Row], access: Access, asked: Asked, directory: str) -> Fleet:
    """Return a fleet that wants nothing, and only says where its nodes are and what to read of them."""
    role = Role(
        "nodes", {}, (), None,
        dict.fromkeys((*SYSCTLS, *asked.sysctls), "0"), dict.fromkeys((*SERVICES, *asked.services), "running"),
    )  # fmt: skip
    made = Draft(fleet, {name: replace(row, pool="nodes") for name, row in rows.items()})
    made.hardware, made.roles = [Hardware("nodes", {}, {}, {}, {}, None, None, [])], [role]
    made.pools = [Pool("nodes", "nodes", "nodes", list(rows), {})]
    return _load(files(made, access), directory)


def _load(texts: Mapping[str, str], directory: str) -> Fleet:
    """Load the files of a spec. Raise SpecError when an input is invalid, such as a CA that is none."""
    contents = {name: text.encode() for name, text in texts.items()}
    fleet, problems = check_spec(contents, directory=directory, origin=SpecSource(directory))
    if fleet is None:
        raise SpecError(problems)
    return fleet


def draft_spec(
    workspace: Workspace, ledger: SqlLedger, rows: Mapping[str, Row], access: Access, asked: Asked, seen: Observation
) -> SpecDraft:
    """Draft a spec whose plan is empty. Nodes that would be acted upon are set to be left alone, with the reason."""
    first, directory, now = workspace.fleet, str(workspace.request.spec), workspace.clock.now()
    missing = {name: why for name, node in first.nodes.items() if (why := unread(node, seen.nodes[name]))}
    nodes = [found(seen.nodes[name], asked) for name in rows if name not in missing]
    if not nodes:
        raise Blind(f"no node could be read, so nothing is written:\n{_first(missing)}")
    if problems := "\n".join(_unknown_names(asked, nodes)):
        raise UsageError(problems)
    records = ledger.nodes(list(rows))
    parked = lacking(nodes)
    for _ in range(_ROUNDS):
        made = draft(first.settings.fleet, rows, nodes, missing, parked)
        texts = files(made, access)
        fleet = _load(texts, directory)
        waived = waive(fleet, seen, records, now, anew=True)
        request = PlanRequest(new_id("init", now), workspace.verified(fleet))
        plan = plan_fleet(fleet, seen, LedgerSnapshot(ledger.id, waived.known), now, request)
        deviating = {name: why for name, node in plan.nodes.items() if (why := deviation(fleet, node))}
        if not deviating:
            return SpecDraft(texts, made, fleet, seen, plan, waived.certificates)
        parked |= deviating
        if len(parked) == len(nodes):
            raise ReconcilerError(f"no node is in service as it should be, so nothing is written:\n{_first(parked)}")
    raise ReconcilerError(f"these nodes would still be acted upon, so nothing is written: {', '.join(deviating)}")


def _first(reasons: Mapping[str, str]) -> str:
    """Return a line for each of the first nodes and its reason."""
    return "\n".join(f"  {name}: {why}" for name, why in list(reasons.items())[:20])


def _unknown_names(asked: Asked, nodes: Sequence[Found]) -> Iterator[str]:
    """Yield a sentence for each requested name that no node has: a typing error that nobody would notice later."""
    running = {name for one in nodes for name, state in one.services.items() if state == "running"}
    for what, flag, names, known in (
        ("BIOS attribute", "--bios", asked.bios, {name for one in nodes for name in one.bios}),
        ("kernel parameter", "--sysctl", asked.sysctls, {name for one in nodes for name in one.sysctls}),
        ("running service", "--service", asked.services, running),
    ):  # fmt: skip
        for name in names:
            if name not in known:
                yield f"{flag} {name}: no node reports such a {what}; nothing is written"


# --- to files and ledger -------------------------------------------------------------------------------------------


def check_free(directory: Path) -> None:
    """Raise UsageError when the directory has files, which could be overwritten or read as part of the spec."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is there already, and init overwrites nothing; name another directory")


def write_spec(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write the files of the spec. Raise FileExistsError when one exists."""
    paths = []
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        paths.append(path)
    return paths


def record_spec(workspace: Workspace, ledger: SqlLedger, made: SpecDraft) -> int:
    """Record the observation, the plan and the certificates. Return the number of certificates."""

    def learn(run: str) -> None:
        workspace.learn(made.observation, ledger)
        workspace.remember(made.plan, ledger, run, made.observation, now=True)

    workspace.fleet = made.fleet
    workspace.selection = list(made.fleet.nodes), made.plan.scope
    late = save(workspace, ledger, "init", made.certificates, "it served when its spec was written", learn, anew=True)
    return len(made.certificates) - len(late)


def initialize(
    workspace: Workspace, rows: Mapping[str, Row], access: Access, asked: Asked, secrets: NewSecrets | None
) -> Initialized:
    """Read the nodes, and write a spec that plans nothing for them, its schemas and `secrets`.

    `workspace.fleet` is that of `first_look`.
    """
    directory = workspace.request.spec
    if secrets is not None:
        workspace.secrets = secrets.store()
    seen = workspace.observe()
    with workspace.ledger() as ledger:
        made = draft_spec(workspace, ledger, rows, access, asked, seen)
        if secrets is not None:  # only now that they proved right, since a next try changes no existing file
            for path in secrets.write():
                workspace.frontend.say(f"written: {path} (mode 600)")
        waived = record_spec(workspace, ledger, made)
        paths = write_spec(directory, made.texts)
    schemas = directory.parent / "schemas"
    if not schemas.exists():
        write_schemas(schemas)
        paths.append(schemas)
    return Initialized(made, paths, waived)
