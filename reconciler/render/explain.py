"""One node in full: what is wanted and who said so, what was found, what holds it back, and each action with why."""

from __future__ import annotations

import json

from reconciler.model.desired import Desired
from reconciler.render.explain_actions import HEAD as ACTIONS
from reconciler.render.explain_actions import action_documents, action_rows, human_actions
from reconciler.render.explain_values import HEAD as VALUES
from reconciler.render.explain_values import human_values, value_documents, value_rows
from reconciler.render.explain_waiting import headline, human_waiting, limit_words, waiting_document
from reconciler.render.explanation import Explanation
from reconciler.render.finding import finding_document, finding_lines
from reconciler.render.redact import Redaction, names_of
from reconciler.render.reliability import lemon_sentence
from reconciler.render.tables import markdown_table
from reconciler.render.text import clock, incidents, markdown, page, position, source, warnings
from reconciler.render.waiting import may_go, since


def human(made: Explanation) -> str:
    desired = made.desired
    head = headline(made)
    lines = [
        f"{desired.node} [{desired.pool}]" + (f": {head}" if head else ""),
        f"  spec {source(made.fleet.source)}; named at {position(desired.provenance.get('node'))}",
        f"  {', '.join(_facts(desired))}",
        *(f"  {line}" for line in warnings(made.fleet.settings.insecure, made.time_scale)),
        *(f"  {line}" for line in (*finding_lines(made), *_more_of_health(made))),
        "",
        *human_values(made),
        *human_waiting(made),
    ]
    actions = human_actions(made)
    if actions:
        lines += ["", *actions]
    return page(lines).rstrip("\n") + "\n"


def redacted(made: Explanation, text: str) -> str:
    """Return one of these texts without serials, host names and addresses, as JSON and Markdown write them too."""
    if made.observation is None:
        return text
    records = {} if made.record is None else {made.node: made.record}
    names = names_of(made.fleet, made.observation, records)
    forms = {
        node: tuple(dict.fromkeys(form for name in own for form in (name, markdown(name), json.dumps(name)[1:-1])))
        for node, own in names.items()
    }
    return Redaction(forms).of(made.node).text(text)


def _more_of_health(made: Explanation) -> list[str]:
    """Return the incidents that the node belongs to, and what it has cost."""
    found = () if made.plan is None or made.path else made.plan.incidents
    lines = incidents(one for one in found if made.node in one.nodes)
    if made.lemon is not None and not made.path:
        lines.append(f"lemon score: {lemon_sentence(made.lemon)}; nothing acts on it")
    return lines


def _facts(desired: Desired) -> list[str]:
    ends = desired.endpoints
    domains = [f"{label} {name}" for label, name in sorted(desired.domains.items())]
    return [f"state {desired.state}", f"BMC {ends.bmc or '-'}", f"host {ends.host or '-'}", *domains]


def as_markdown(made: Explanation) -> str:
    lines = [f"## {markdown(made.node)}", ""]
    plan = made.node_plan
    if plan is not None:
        lines += [f"**{markdown(headline(made), 400)}**", "", markdown(plan.situation, 400), ""]
        if plan.blocked is not None:
            lines += [f"- {markdown(f'held back ({plan.blocked.code.value}): {plan.blocked.detail}', 1000)}"]
        began = since(made)
        if began is not None:
            lines += [f"- since {clock(began.at)}, when {markdown(began.what)}"]
        lines += [f"- may go {markdown(said, 400)}" for said in may_go(made)]
        lines += [f"- limit of {markdown(said, 1000)}" for said in limit_words(made)]
        lines += [""] if lines[-1] else []
    for line in warnings(made.fleet.settings.insecure, made.time_scale):
        lines += [f"> {markdown(line, 400)}", ""]
    said = [*finding_lines(made), *_more_of_health(made)]
    lines += [*(f"- {markdown(line.strip(), 1000)}" for line in said), ""] if said else []
    lines += _table(VALUES, value_rows(made))
    rows = action_rows(made)
    if rows:
        lines += ["", *_table(ACTIONS, rows)]
    return page(lines)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return markdown_table(head, [tuple(markdown(cell, 400) for cell in row) for row in rows])


def as_json(made: Explanation) -> str:
    from pydantic_core import to_jsonable_python

    plan = made.node_plan
    document = {
        "node": made.node,
        "pool": made.desired.pool,
        "path": made.path,
        "source": to_jsonable_python(made.fleet.source),
        "values": value_documents(made),
        "plan": None if plan is None else to_jsonable_python(plan),
        "finding": finding_document(made),
        "lemon": None if made.lemon is None else to_jsonable_python(made.lemon),
        "waiting": waiting_document(made),
        "actions": action_documents(made),
    }
    return json.dumps(document, indent=1, sort_keys=True, default=str) + "\n"
