"""Documents that leave the process: observation, plan, drift report, outcome, certificate, as canonical JSON and back.

Keys are sorted and instants are ISO 8601, so that equal values are equal texts. Reading is strict about types and
lenient about growth: a minor version may add keys, which are ignored; another major version is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, core_schema, from_json, to_json

from reconciler.model.errors import UsageError
from reconciler.model.fabric_report import FabricReport
from reconciler.model.fleet_overview import FleetOverview
from reconciler.model.gate import Certificate
from reconciler.model.inputs import RECIPE, tampered
from reconciler.model.observed import Observation, Observed
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.printable import json_lines
from reconciler.model.published import Published, PublishedNode
from reconciler.model.reference import Reference
from reconciler.model.report import ApplyOutcome, DriftReport

Document = (
    Observation
    | Plan
    | DriftReport
    | ApplyOutcome
    | Certificate
    | Published
    | PeriodReport
    | Reference
    | FleetOverview
    | FabricReport
)
D = TypeVar(
    "D",
    Observation,
    Plan,
    DriftReport,
    ApplyOutcome,
    Certificate,
    Published,
    PeriodReport,
    Reference,
    FleetOverview,
    FabricReport,
)

MAJOR: Final = 1
NAMES: Final[Mapping[type[Document], str]] = {
    Observation: "observation",
    Plan: "plan",
    DriftReport: "drift report",
    ApplyOutcome: "outcome",
    Certificate: "certificate",
    PeriodReport: "report",
    Published: "published observation",
    Reference: "reference",
    FleetOverview: "status",
    FabricReport: "fabric report",
}


class DocumentError(UsageError):
    """A file is not the document that it was said to be."""


_adapters: dict[type[Any], TypeAdapter[Any]] = {}
_readers: dict[type[Any], SchemaValidator] = {}


def _finite(schema: Any) -> Any:
    """Return the schema with finite numbers only, as `dump` writes them: pydantic itself takes NaN and 1e999."""
    if isinstance(schema, dict):
        if schema.get("type") == "any":
            return core_schema.no_info_after_validator_function(_check_finite, core_schema.any_schema())
        finite = {"allow_inf_nan": False} if schema.get("type") == "float" else {}
        return {key: _finite(part) for key, part in schema.items()} | finite
    if isinstance(schema, list | tuple):
        return type(schema)(map(_finite, schema))
    return schema


def _check_finite(value: Any) -> Any:
    """Raise ValueError for a number within a JSON value that is not finite."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_finite(part)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("should be a finite number")
    return value


def adapter(kind: type[Document | Observed | NodePlan | PublishedNode]) -> TypeAdapter[Any]:
    """Return the pydantic adapter of a kind, built on first use: an observation's takes 30 ms."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def dump(document: Document) -> str:
    """Return canonical JSON with a newline at its end. Raise ValueError for NaN and infinity, which JSON lacks."""
    if not isinstance(document, Observation | Plan | Published):
        return _text(adapter(type(document)).dump_python(document, mode="json")) + "\n"
    # Node by node: as one tree, ten thousand nodes would take a gigabyte.
    whole: Any = document  # `replace` does not take a union
    head = adapter(type(document)).dump_python(replace(whole, nodes={}), mode="json")
    if isinstance(document, Plan):
        head["changes"] = document.changes
    rows = [_row(name, document.nodes[name]) for name in sorted(document.nodes)]
    before, empty, after = _text(head).partition('\n "nodes": {}')
    nodes = ['\n "nodes": {\n', ",\n".join(rows), "\n }"] if rows else [empty]
    return "".join([before, *nodes, after, "\n"])


def _row(name: str, node: Observed | NodePlan | PublishedNode) -> str:
    values = adapter(type(node)).dump_python(node, mode="json")
    if isinstance(node, NodePlan):
        # What scripts ask a plan for first, though it follows from the rest. Ignored when the plan is read.
        values |= {"changes": node.changes, "disruption": node.disruption.label}
    return f"  {_text(name)}: " + _text(values).replace("\n", "\n  ")


def _text(values: Any) -> str:
    ordered = json.dumps(values, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # "replace": a BMC may send a lone surrogate, which no UTF-8 file can hold. pydantic_core indents, since
    # json.dumps falls back to Python code when it does: minutes for ten thousand nodes.
    return json_lines(to_json(from_json(ordered.encode(errors="replace")), indent=1).decode())


def document_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of what `dump` writes and `load` reads."""
    schema = adapter(kind).json_schema()
    if kind is Plan:
        definitions = schema["$defs"]
        schema["properties"]["changes"] = {"type": "boolean"}
        definitions["NodePlan"]["properties"] |= {
            "changes": {"type": "boolean"},
            "disruption": definitions["PlannedAction"]["properties"]["disruption"],
        }
    return schema


def load(kind: type[D], text: str | bytes, *, name: str = "") -> D:
    """Read a document of `kind`. Raise DocumentError, which says what is wrong with the file `name`.

    The fingerprints of a plan are computed again, and a plan with others is refused. Fingerprints of another recipe
    can't be computed: the caller that applies a plan must refuse these.
    """
    where = f"{name}: " if name else ""
    what = where + NAMES[kind]
    try:
        value: D = _reader(kind).validate_json(text, strict=True)
    except ValidationError as error:
        _check_version(_version_of(text, what), what)  # says more, if that is why
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join(map(str, first["loc"])) or "the document"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise DocumentError(f"{where}this is no {NAMES[kind]}: {path}: {first['msg']}{more}") from None
    _check_version(value.format_version, what)
    if isinstance(value, Plan) and value.recipe == RECIPE and (why := tampered(value)):
        raise DocumentError(f"{what}: it was changed after it was made: {why}; make a new one")
    return value


def _reader(kind: type[Document]) -> SchemaValidator:
    if kind not in _readers:
        _readers[kind] = SchemaValidator(_finite(adapter(kind).core_schema))
    return _readers[kind]


def _version_of(text: str | bytes, what: str) -> object:
    """Return the version of a document that could not be read, without parsing it a second time."""
    try:
        head = from_json(text)
    except ValueError as error:
        raise DocumentError(f"{what}: not JSON: {error}") from None
    return head.get("format_version") if isinstance(head, dict) else None


def _check_version(version: object, what: str) -> None:
    major = version.partition(".")[0] if isinstance(version, str) else ""
    if not major.isdecimal():
        raise DocumentError(f"{what}: no format_version, so this is not one of our documents")
    if int(major) != MAJOR:
        raise DocumentError(f"{what}: format_version {version} is not readable by this version, which reads {MAJOR}.x")
