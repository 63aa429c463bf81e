"""One node in full: desired with where the spec says so, observed with its age, drift, actions and what holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.diff.facts import Missing, managed
from reconciler.model.desired import Desired, SpecSource
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.errors import UsageError
from reconciler.model.observed import Answered, Observed, Silent
from reconciler.model.plan import NodePlan
from reconciler.model.units import format_duration
from reconciler.model.vocab import Certainty, Source
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import clock, disruption, markdown, plain, position, source, value, warnings


@dataclass(frozen=True, slots=True)
class Explanation:
    """`observed` and `plan` are None when only the spec is explained. `path` "" = everything."""

    desired: Desired
    source: SpecSource
    observed: Observed | None
    plan: NodePlan | None
    path: str
    now: datetime
    insecure: tuple[str, ...] = ()
    time_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class _Value:
    path: str
    wanted: Any
    set_by: str
    found: Any
    item: DriftItem | None
    read: str

    @property
    def verdict(self) -> str:
        if self.item is None:
            return "as specified"
        since = f" since {self.item.first_seen:%Y-%m-%d %H:%M}" if self.item.first_seen else ""
        return self.item.kind.value + since + (f" ({plain(self.item.detail)})" if self.item.detail else "")


def _values(made: Explanation) -> list[_Value]:
    drift = {item.path: item for item in made.plan.drift} if made.plan else {}
    found = [value for value in _all(made, drift) if _within(value.path, made.path)]
    if made.path and not found:
        known = sorted({value.path for value in _all(made, drift)})
        raise UsageError(f"{made.desired.node} has no managed value {made.path!r}; it has {', '.join(known)}")
    return found


def _within(path: str, asked: str) -> bool:
    return not asked or path == asked or path.startswith(asked + ".")


def _all(made: Explanation, drift: dict[str, DriftItem]) -> Iterator[_Value]:
    desired = made.desired
    own = {"identity.serial": desired.serial, "identity.uuid": desired.uuid, "host.hostname": desired.hostname}
    for path, wanted in own.items():
        if wanted is not None:
            item = drift.get(path)
            yield _Value(path, wanted, _origin(made, path), item.observed if item else wanted, item, "")
    for row in managed(desired.profile):
        item = drift.get(row.path)
        seen = row.read(made.observed) if made.observed is not None else None
        found = None if isinstance(seen, Missing) else (item.observed if item else row.shown)
        yield _Value(row.path, row.shown, _origin(made, row.path), found, item, _age(made, row.source))
    for path, item in drift.items():
        if path.startswith(("gate.", "health.", "trust.", "image.nonce")):
            yield _Value(path, item.desired, "-", item.observed, item, "")


def _origin(made: Explanation, path: str) -> str:
    """The most exact place that is known: of the value, or of what holds it."""
    for table_ in (made.desired.provenance, made.desired.profile.provenance):
        key = path
        while key:
            if key in table_:
                return position(table_[key])
            key = key.rpartition(".")[0]
    return position(made.desired.provenance.get("node"))


def _age(made: Explanation, source: Source) -> str:
    if made.observed is None:
        return ""
    reading: Answered[Any] | Silent = {
        Source.REDFISH: made.observed.inventory,
        Source.SSH: made.observed.host,
        Source.KUBERNETES: made.observed.member,
        Source.LEDGER: made.observed.hot,
    }[source]
    if isinstance(reading, Silent):
        return f"{source}: {reading.reason}"
    return f"{source}, {format_duration(max(0.0, (made.now - reading.at).total_seconds()))} ago"


_HEAD = ("value", "wanted", "set by", "found", "verdict", "read")


def _rows(made: Explanation) -> list[tuple[str, ...]]:
    observed = made.observed is not None
    return [
        (v.path, value(v.wanted), v.set_by, value(v.found) if observed else "", v.verdict if observed else "", v.read)
        for v in _values(made)
    ]


def human(made: Explanation) -> str:
    desired, plan = made.desired, made.plan
    lines = [
        f"{desired.node} [{desired.pool}], spec {source(made.source)}",
        f"  named at {position(desired.provenance.get('node'))}; " + ", ".join(_facts(desired)),
        *(f"  {line}" for line in warnings(made.insecure, made.time_scale)),
        "",
    ]
    if made.path or plan is None:
        lines += table(_HEAD, _rows(made))
    else:
        lines += [*_by_verdict(_values(made)), *_standing(plan)]
    if plan is not None and plan.actions:
        lines += ["", "what is done, the fewest actions that lead there:"]
        lines += table(_ACTIONS, _actions(made, plan))
    elif plan is not None and not made.path:
        lines += ["", "nothing to do"]
    return "\n".join(lines) + "\n"


def _by_verdict(values: list[_Value]) -> list[str]:
    """What needs no attention first: who reads a terminal reads its end."""
    well, unknown, differs = [], [], []
    for v in values:
        if v.item is None:
            well.append((v.path, value(v.wanted), v.set_by, v.read))
        elif v.item.kind is DriftClass.UNKNOWN:
            unknown.append((v.path, value(v.wanted), v.set_by, v.verdict))
        else:
            differs.append((v.path, value(v.wanted), value(v.found), v.set_by, v.verdict, v.read))
    lines: list[str] = []
    for title, head, rows in (
        ("as specified", ("value", "wanted and found", "set by", "read"), well),
        ("not known", ("value", "wanted", "set by", "verdict"), unknown),
        ("not as specified", ("value", "wanted", "found", "set by", "verdict", "read"), differs),
    ):
        if rows:
            lines += [f"{title} ({len(rows)})", *table(head, rows), ""]
    return lines


def _standing(plan: NodePlan) -> list[str]:
    """Where the node is, where it is to be, and what keeps it."""
    service = {True: "in service", False: "out of service", None: "service state unknown"}[plan.in_service]
    goal = plan.goal.value.replace("_", " ")
    lines = [
        f"now {service}; goal: " + (plan.situation if plan.situation.startswith(goal) else f"{goal}, {plan.situation}")
    ]
    lines += [f"  not read: {line}" for line in plan.incomplete]
    if plan.blocked is not None:
        until = f", until {clock(plan.blocked.until)}" if plan.blocked.until else ""
        why = "" if plan.blocked.detail in plan.situation else f": {plan.blocked.detail}"
        lines.append(f"  held back ({plan.blocked.code.value}{until}){why}")
    return [plain(line, 1000) for line in lines]


def _facts(desired: Desired) -> list[str]:
    ends = desired.endpoints
    domains = [f"{label} {name}" for label, name in sorted(desired.domains.items())]
    return [f"state {desired.state}", f"BMC {ends.bmc or '-'}", f"host {ends.host or '-'}", *domains]


_ACTIONS = ("", "action", "disruption", "estimate", "certainty", "because")


def _actions(made: Explanation, plan: NodePlan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for at, action in enumerate(plan.actions, 1):
        if made.path and not any(_within(why, made.path) for why in action.because):
            continue
        hurts = disruption(action.disruption) if action.disruption else "-"
        sure = "if needed" if action.certainty is Certainty.PREDICTED else ""
        rows.append((f"{at}.", action.id, hurts, format_duration(action.estimate_s), sure, "; ".join(action.because)))
    return rows


def as_markdown(made: Explanation) -> str:
    lines = [f"## {markdown(made.desired.node)}", ""]
    if made.plan is not None:
        lines += [markdown(made.plan.situation, 400), ""]
    for line in warnings(made.insecure, made.time_scale):
        lines += [f"> {markdown(line, 400)}", ""]
    lines += markdown_table(_HEAD, [tuple(markdown(cell, 300) for cell in row) for row in _rows(made)])
    if made.plan is not None and made.plan.actions:
        rows = [tuple(markdown(cell, 300) for cell in row) for row in _actions(made, made.plan)]
        lines += ["", *markdown_table(_ACTIONS, rows)]
    return "\n".join(lines) + "\n"


def as_json(made: Explanation) -> str:
    from pydantic_core import to_jsonable_python

    plan = made.plan
    document = {
        "node": made.desired.node,
        "pool": made.desired.pool,
        "source": to_jsonable_python(made.source),
        "values": [
            {
                "path": v.path,
                "wanted": v.wanted,
                "set_by": v.set_by,
                "found": v.found,
                "verdict": v.verdict,
                "read": v.read,
            }
            for v in _values(made)
        ],
        "plan": None if plan is None else to_jsonable_python(plan),
    }
    return json.dumps(document, indent=1, sort_keys=True, default=str) + "\n"
