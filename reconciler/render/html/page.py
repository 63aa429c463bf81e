"""The page: the template with its style and scripts as one text, and what it leaves out.

The page is passed on, so machines are nameless in it: it leaves out what `--redact` leaves out of documents, and values
that no two nodes share, wanted ones too (pitfall M5).
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from dataclasses import replace
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reconciler.model.observed import HostFacts, RedfishInventory
from reconciler.model.records import JournalEntry, NodeRecord
from reconciler.render import drift, plan
from reconciler.render.disclosure import Policy
from reconciler.render.headline import Verdict
from reconciler.render.html import charts, measured, past, summary
from reconciler.render.html.material import Material
from reconciler.render.html.nodes import Nodes
from reconciler.render.period_report import notes, period, verdict
from reconciler.render.redact import REDACTED, Redaction, names_of
from reconciler.render.text import clock

_RECOVERIES: Final = 12
# What ends a script element, opens a comment, or ends a line of JavaScript, in JSON is only ever part of a text.
_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def _entry(entry: JournalEntry, redaction: Redaction) -> JournalEntry:
    shown = REDACTED.show(entry, redaction)
    if not drift.is_own(str(shown.evidence.get("path"))) or "observed" not in shown.evidence:
        return shown
    return replace(shown, evidence={**shown.evidence, "desired": "its own", "observed": "another"})


def _record(record: NodeRecord, redaction: Redaction) -> NodeRecord:
    """Leave out all but the certificate."""
    return NodeRecord(record.node, certificate=REDACTED.show(record.certificate, redaction))


PAGE: Final = Policy[Redaction](
    marks=REDACTED.marks,
    classes={JournalEntry: _entry, NodeRecord: _record},
    omitted={  # the longest lists: the page shows of them what the plan says
        HostFacts: ("gpus", "links", "nvme", "disks", "dimm_errors", "xids", "kernel_events"),
        RedfishInventory: ("firmware", "nics", "drives", "sensors", "events", "parts", "boot_options"),
    },
    scopes=REDACTED.scopes,
)


def redacted(material: Material) -> Material:
    """Return what the page may show. Text about a node that has left the spec is hidden: nobody knows its names."""
    names = names_of(material.fleet, material.observation, material.records)
    made = replace(material.plan, insecure=material.fleet.settings.insecure)  # as `redact` does
    return PAGE.show(replace(material, plan=made), Redaction(names, strict=True))


def page(material: Material) -> str:
    """Return the HTML page, with a newline at its end."""
    return _environment().get_template("page.html").render(**_context(redacted(material))) + "\n"


@cache
def _environment() -> Environment:
    loader = PackageLoader("reconciler.render.html", "assets")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _context(material: Material) -> dict[str, Any]:
    style, script = _asset(".css"), _asset(".js")
    report = material.report
    headline = drift.headline(material.drift)
    distributions, left_out = measured.distributions(material)
    return {
        "fleet": material.plan.fleet,
        "made": clock(material.now),
        "good": headline.verdict is Verdict.GOOD and not material.drift.changes,
        "verdict": summary.sentence(drift.verdict(material.drift)),
        "plan_verdict": summary.sentence(plan.verdict(material.plan)),
        "alerts": list(summary.alerts(material)),
        "facts": summary.facts(material),
        "tiles": summary.tiles(material),
        "differences": summary.differences(material),
        "dangerous": summary.dangerous(material),
        "held_back": summary.held_back(material),
        "budgets": summary.budgets(material),
        "rollouts": list(zip(summary.rollout_words(material), charts.waves(material), strict=True)),
        "schedule": charts.schedule(material),
        "at_work": charts.at_work(material),
        "distributions": distributions,
        "distributions_left": left_out,
        "report": report,
        "past": [] if report is None else [period(report), *notes(report)],
        "past_tables": [] if report is None else summary.past(report),
        "past_verdict": "" if report is None else summary.sentence(verdict(report)),
        "figures": [] if report is None else list(past.figures(report)),
        "panels": [] if report is None else charts.over_time(report),
        "recoveries": [] if report is None else charts.recoveries(report, _RECOVERIES),
        "style": Markup(style),  # noqa: S704 - our own file
        "script": Markup(script),  # noqa: S704 - our own files
        "data": Markup(_json(Nodes(material).document())),  # noqa: S704 - nothing in it can end its element
        "policy": _policy(style, script),
    }


def _json(document: Any) -> str:
    """Return JSON for inside a script element, in ASCII: no file could hold a lone surrogate of a BMC's text."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


@cache
def _asset(suffix: str) -> str:
    """Return all assets of one kind as one text, in the order of their names."""
    made = _environment()
    assert made.loader is not None
    names = [name for name in made.loader.list_templates() if name.endswith(suffix)]
    return "\n".join(made.loader.get_source(made, name)[0] for name in sorted(names))


def _policy(style: str, script: str) -> str:
    """Return the policy of the page: no request, no style and no script but these."""
    ours = f"style-src {_digest(style)}; script-src {_digest(script)}"
    return f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    """Return the digest of a style or script that browsers compare: of the element's text."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
