"""Write the reference from the code: `<!-- generated: NAME -->` in a page is replaced by PAGES[NAME]().

Each function returns Markdown. Nothing here is committed as text, so that the reference can't lag behind the code.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from reconciler.cli.exit_codes import MEANING
from reconciler.cli.main import COMMANDS, cli
from reconciler.converge.actions import FUNCTIONS
from reconciler.drivers.extensions.conformance import ALL as EXTENSION_CHECKS
from reconciler.drivers.installer.conformance import ALL as INSTALLER_CHECKS
from reconciler.drivers.kube.conformance import ALL as KUBERNETES_CHECKS
from reconciler.drivers.notifier_conformance import ALL as NOTIFIER_CHECKS
from reconciler.drivers.redfish.conformance import all_checks
from reconciler.drivers.redfish.quirks import packaged
from reconciler.drivers.status.metrics import PrometheusMetrics
from reconciler.drivers.tickets.conformance import ALL as TICKET_CHECKS
from reconciler.gate.starting_bars import packaged as packaged_bars
from reconciler.health.table import health_table
from reconciler.model.backup import DesiredBackup
from reconciler.model.conformance import Check
from reconciler.model.desired import Outlet
from reconciler.model.gate_tools import TOOLS as GATE_TOOLS
from reconciler.model.k3s import Artifact, DesiredK3s, K3sRole
from reconciler.model.notices import ChannelStatus
from reconciler.model.repairs import RepairPhase
from reconciler.model.serving import DesiredServing
from reconciler.model.serving_sync import DesiredSync
from reconciler.model.status import FleetStatus
from reconciler.model.vocab import NewsSource
from reconciler.planner.node.actions import NodeTraits
from reconciler.planner.node.catalogue import catalogue
from reconciler.planner.node.decommission import Leaving
from reconciler.spec import check_spec
from reconciler.spec.kinds.signals import SignalRow

ROOT = Path(__file__).resolve().parents[1]
_MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def fill(text: str) -> str:
    """Return the page with each mark replaced by what it names."""
    return _MARK.sub(lambda mark: PAGES[mark[1]](), text)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()) or "-"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# --- the command line ------------------------------------------------------------------------------------------------


def commands() -> str:
    root = click.Context(cli, info_name="reconciler", terminal_width=100)
    return "\n".join(part for name in COMMANDS for part in _command(root, name, cli))


def _command(parent: click.Context, name: str, group: click.Group) -> Iterator[str]:
    command = group.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100)
    level = "##" if parent.parent is None else "###"
    yield f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            yield from _command(context, sub, command)


def exit_codes() -> str:
    return table(("exit code", "meaning"), ((str(int(code)), meaning) for code, meaning in MEANING.items()))


# --- the spec --------------------------------------------------------------------------------------------------------


def kinds() -> str:
    """Every kind of the spec: each field with its type, its default and what it says."""
    schemas = [json.loads(path.read_text()) for path in sorted((ROOT / "schemas").glob("*.json"))]
    return "\n".join(_kind(schema) for schema in schemas if "kind" in schema.get("properties", {}))


def _kind(schema: dict[str, Any]) -> str:
    kind = schema["properties"]["kind"]["const"]
    definitions = schema["$defs"]
    first = schema["properties"]["spec"]["$ref"].rsplit("/", 1)[1]
    order = [first]
    for name in order:  # grows while it is read: breadth first
        order += [found for found in dict.fromkeys(_references(definitions[name])) if found not in order]
    parts = [f"({kind.lower()})=\n## {kind}\n"]
    for name in order:
        definition = definitions[name]
        if "properties" not in definition:
            continue
        if name != first:
            parts.append(f"({kind.lower()}-{name.lower()})=\n### {kind}: {name}\n")
        parts.append(f"{_prose(definition)}\n")
        needed = definition.get("required", ())
        parts.append(
            table(
                ("field", "type", "default", "says"),
                (
                    (
                        f"`{field}`",
                        _type(part, definitions, kind.lower()),
                        "required" if field in needed else _default(part),
                        _prose(part) or _prose(definitions[next(_references(part), first)]).partition("\n")[0],
                    )
                    for field, part in definition["properties"].items()
                ),
            )
        )
    return "\n".join(parts)


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rsplit("/", 1)[1]
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from _references(item)


def _prose(part: dict[str, Any]) -> str:
    text = part.get("description", "")
    if not part.get("x-enforced", True):
        text += " Not enforced by this version."
    return re.sub(r"([<>*_])", r"\\\1", text) if "`" not in text else text


def _type(part: dict[str, Any], definitions: dict[str, Any], kind: str) -> str:
    if "$ref" in part:
        name = part["$ref"].rsplit("/", 1)[1]
        found = definitions[name]
        return f"[{name}](#{kind}-{name.lower()})" if "properties" in found else _type(found, definitions, kind)
    if "const" in part:
        return f"`{json.dumps(part['const'])}`"
    if "enum" in part:
        return " or ".join(f"`{value}`" for value in part["enum"])
    if "anyOf" in part or "oneOf" in part:
        options = [_type(option, definitions, kind) for option in part.get("anyOf") or part["oneOf"]]
        return " or ".join(dict.fromkeys(option for option in options if option != "null"))
    kinds_of = part.get("type", "any value")
    if isinstance(kinds_of, list):
        return " or ".join(kinds_of)
    if kinds_of == "array":
        return f"list of {_type(part.get('items', {}), definitions, kind)}"
    if kinds_of == "object" and "patternProperties" in part:
        values = {_type(value, definitions, kind) for value in part["patternProperties"].values()}
        return f"map to {' or '.join(sorted(values))}"
    return str(kinds_of)


def _default(part: dict[str, Any]) -> str:
    value = part.get("default")
    return (
        f"`{json.dumps(value)}`"
        if "default" in part and value not in (None, {}, []) and not isinstance(value, dict)
        else ""
    )


# --- what the planner and health know --------------------------------------------------------------------------------


def actions() -> str:
    """Every action for a node of the worked example: with an outlet, as a K3s server with a backup, with operators,
    in a serving group, reimaged by a person, and with the password of its BMC due.
    """
    fleet, problems = check_spec(ROOT / "fleet-spec", directory="fleet-spec")
    assert fleet is not None, problems
    by_id: dict[str, Any] = {}
    for node in fleet.nodes.values():
        fed = replace(node, outlets=(Outlet("https://pdu", "A1"),))
        plain = NodeTraits(fed, clustered=True, registered=True, busy=False, cordoned=False)
        phases = [replace(plain, repair=phase) for phase in (RepairPhase.OUT, RepairPhase.RETURNING)]
        k3s = DesiredK3s(K3sRole.SERVER, "", "", Artifact("", ""), None)
        saved = DesiredBackup(("/srv/models",), "", {})
        server = replace(plain, desired=replace(fed, profile=replace(fed.profile, k3s=k3s, backup=saved)))
        assert fed.profile.membership is not None
        validated = replace(fed.profile, membership=replace(fed.profile.membership, validated=True))
        waiting = replace(plain, desired=replace(fed, profile=validated))
        copied = DesiredSync(("/srv/models",), "ib0", "10.30.0.1")
        serving = DesiredServing((node.node,), (), (), 0, "", 0, copied)
        grouped = replace(plain, desired=replace(fed, serving=serving))
        by_hand = replace(plain, desired=replace(fed, by_person=True))
        due = replace(plain, rotates=True)
        leaving = replace(plain, leaving=Leaving(("SERIAL",)))
        for traits in (plain, *phases, leaving, server, waiting, grouped, by_hand, due):
            for row in catalogue(traits).rows:
                by_id.setdefault(row.id, row)
    text = table(
        ("action", "disruption", "requires", "achieves", "undoes"),
        (
            (f"`{row.id}`", row.disruption.label, _code(row.requires), _code(row.achieves), _code(row.breaks))
            for row in by_id.values()
        ),
    )
    said = (f"- `{name}`: {_first_paragraph(act)}" for name, act in FUNCTIONS.items() if act.__doc__)
    return text + "\n" + "\n".join(said) + "\n"


def _first_paragraph(item: object) -> str:
    return " ".join((inspect.getdoc(item) or "").split("\n\n")[0].split())


def signals() -> str:
    return table(
        ("signal", "of", "class", "effect", "reads", "remedy", "healed by", "domains", "why", "source"),
        (
            (
                f"`{name}TYPE`" if name.endswith("_") else f"`{name}`",
                rule.row.scope.value,
                rule.row.cause.value,
                rule.effect.value,
                "one" if rule.latched else "two",
                rule.remedy.value if rule.effect.value != "reports" else "",
                " and ".join(proof.value.replace("_", " ") for proof in rule.row.healed_by),
                " ".join(f"`{label}`" for label in rule.domains),
                rule.row.because + _rise(rule.row),
                rule.row.source,
            )
            for name, rule in health_table().rules.items()
        ),
    )


def _rise(row: SignalRow) -> str:
    """Return from which rise of which counters on a signal is raised; "" for one that is not of counters."""
    if row.counters is None or row.threshold is None:
        return ""
    return f" ({' + '.join(f'`{name}`' for name in row.counters)}: {row.threshold:g} in {row.window})"


_COLUMNS = ("restart_service", "gpu_reset", "soft_restart", "power_cycle", "ac_cycle", "reimage", "person")


def signal_matrix() -> str:
    """What heals each signal, how long that takes and who is told: written by tests/faults/test_signal_matrix.py."""
    played = json.loads((ROOT / "docs/reference/signal-matrix.json").read_text())
    rows = []
    for name, cells in played.items():
        first = next(iter(cells.values()))
        ends = {rung: f"{cell['back_s'] / 60:.0f} min" for rung, cell in cells.items() if cell["back_s"] is not None}
        told = sorted({one for cell in cells.values() for one in cell["told"]}) or ["nobody; it is shown"]
        waited = f"{first['out_s']:.0f} s" if first["out_s"] < 180 else f"{first['out_s'] / 60:.0f} min"
        rows.append((f"`{name}`", waited, *(ends.get(rung, "") for rung in _COLUMNS), "; ".join(told)))
    return table(("signal", "out or shown after", *(f"`{name}`" for name in _COLUMNS[:-1]), "a person", "told"), rows)


def detection() -> str:
    """How often each signal is told, rightly and wrongly: written by tests/health/test_detection_page.py."""
    page = json.loads((ROOT / "docs/reference/detection.json").read_text())
    rows = []
    for name, rule in health_table().rules.items():
        real, lab = page["recordings"]["rows"].get(name), page["lab"].get(name)
        evidence = [path.rpartition("/")[2] for path in real["recordings"]] if real else []
        precision, recall = _share(real, "told", "wrong"), _share(real, "told", "missed")
        machines = f"{lab['told']} of {lab['due']}, {lab['wrong']} wrong" if lab else "see the matrix, or the ledger"
        named = ", ".join(evidence[:2]) + (f" and {len(evidence) - 2} more" if len(evidence) > 2 else "")
        rows.append((f"`{name}`", rule.effect.value, precision, recall, machines, named or f"none; {rule.row.source}"))
    heads = ("signal", "effect", "precision", "recall", "machines of the lab", "recordings that show it")
    return f"{page['recordings']['count']} recordings.\n\n" + table(heads, rows)


def _share(row: dict[str, Any] | None, told: str, other: str) -> str:
    return "unmeasured" if row is None or not row[told] + row[other] else f"{row[told] / (row[told] + row[other]):.2f}"


def gate_tools() -> str:
    """Return the table of the gate's tools, and one of their arguments."""
    tools = table(
        ("tool", "what it proves", "metrics", "counts", "result"),
        (
            (
                f"`{row.name}`",
                row.about,
                row.metrics,
                row.counts and f"`inventory.{row.counts}`",
                f"experimental, never a pass: {row.experimental}" if row.experimental else "judged",
            )
            for row in GATE_TOOLS.values()
        ),
    )
    arguments = table(
        ("tool", "argument", "what it says"),
        (
            (f"`{row.name}`", f"`{name}`", argument.about + (" Needed." if argument.needed else ""))
            for row in GATE_TOOLS.values()
            for name, argument in row.arguments.items()
        ),
    )
    return f"{tools}\n## Arguments\n\n{arguments}"


def quirks() -> str:
    return table(
        ("make", "behaviour", "pitfall", "source", "because"),
        (
            (entry.name, f"`{name}`", told.pitfall, told.source, told.because)
            for entry in packaged().entries
            for name, told in entry.behaviours.given().items()
        ),
    )


def starting_bars() -> str:
    """Every published figure, tool by tool, and why it is no bar where it is none."""
    figures = packaged_bars().figures
    parts = []
    for tool in dict.fromkeys(one.tool for one in figures):
        rows = [
            (
                one.model,
                one.metric,
                f"{one.value:.15g} {one.unit}",
                one.scope,
                one.size,
                one.because or "a bar",
                one.source,
            )
            for one in figures
            if one.tool == tool
        ]
        heads = ("model", "metric", "figure", "scope", "message size", "bar, or why not", "source")
        parts.append(f"### {tool}\n\n{table(heads, rows)}")
    return "\n".join(parts)


def checks_of(checks: Iterable[Check]) -> str:
    """Return the table of the checks of a suite of conformance."""
    return table(
        ("check", "clause or property", "pitfalls", "writes", "without it"),
        ((f"`{check.name}`", check.clause, ", ".join(check.pitfalls), check.writes, check.without) for check in checks),
    )


# --- the service -----------------------------------------------------------------------------------------------------


_SUFFIX = {"counter": "_total", "info": "_info"}


def metrics() -> str:
    found = PrometheusMetrics()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found.passed(FleetStatus(started_at=at, ended_at=at))
    for source in NewsSource:
        found.deaf(source, at)
    found.channels({"oncall": ChannelStatus()})
    found.ledger_bytes = 0
    return table(
        ("metric", "type", "says"),
        (
            (f"`{metric.name}{_SUFFIX.get(metric.type, '')}`", metric.type, metric.documentation)
            for metric in found.registry.collect()
            if metric.name.startswith("reconciler_")
        ),
    )


PAGES: dict[str, Callable[[], str]] = {
    one.__name__: one
    for one in (
        commands, exit_codes, kinds, actions, signals, signal_matrix, detection, gate_tools, quirks, starting_bars,
        metrics,
    )
} | {
    "conformance": lambda: checks_of(all_checks()),  # of a BMC
    "conformance_extension": lambda: checks_of(EXTENSION_CHECKS),
    "conformance_installer": lambda: checks_of(INSTALLER_CHECKS),
    "conformance_kubernetes": lambda: checks_of(KUBERNETES_CHECKS),
    "conformance_notifier": lambda: checks_of(NOTIFIER_CHECKS),
    "conformance_tickets": lambda: checks_of(TICKET_CHECKS),
}  # fmt: skip
