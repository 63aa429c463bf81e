"""Documents as JSON and back: nothing is lost, equal values are equal texts, other formats are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.desired import SpecSource
from reconciler.model.documents import DocumentError, dump, load
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.errors import UsageError
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.observed import Answered, Member, Observation, Observed, RedfishInventory, Silent, Taint
from reconciler.model.period_report import (
    ActionTally,
    ConcernTally,
    Day,
    Hours,
    NodeTally,
    PeriodReport,
    Quarantine,
    Recovery,
)
from reconciler.model.plan import (
    BlockCode,
    Blocked,
    BudgetLine,
    Goal,
    NodePlan,
    Plan,
    PlannedAction,
    Scope,
    Totals,
)
from reconciler.model.reliability import Times
from reconciler.model.report import ActionEnd, ApplyOutcome, DriftReport, NodeEnd
from reconciler.model.vocab import Certainty, Concern, Disruption, Source, UnknownReason

NOW = datetime(2026, 11, 21, 12, 30, 15, 250_000, UTC)

ITEM = DriftItem(
    "gpu-a001", Concern.BIOS, "bios.X", DriftClass.DRIFTED, "Enabled", [1, None, {"a": True}], source=Source.REDFISH
)
ACTION = PlannedAction(
    "set_bios",
    "",
    Concern.BIOS,
    ("bios.X",),
    Disruption.REBOOT,
    300.0,
    Certainty.PREDICTED,
    ("quiesced",),
    ("bios_ok",),
)
NODE = NodePlan(
    "gpu-a001", "train", Goal.IN_SERVICE, "in service", True, NOW, (), (ITEM,), (ACTION,),
    Blocked(BlockCode.BUDGET, "rack r1 is at its limit"), 1, "f1",
)  # fmt: skip
PLAN = Plan(
    "1.0", "0.1.0", "p1", NOW, NOW, "demo", SpecSource("fleet-spec", "abc"), Scope((), (), 1, 1), (), False,
    {"gpu-a001": NODE}, (BudgetLine("fleet", 1, 12, (), "1"),), Totals(1, 1, 1, 0, 0.5, 600.0), "f",
)  # fmt: skip
REPORT = DriftReport(
    "1.0", "0.1.0", "demo", SpecSource("fleet-spec"), NOW, NOW, NOW, Scope((), (), 1, 1), ("gpu-a002",), True, True,
    (ITEM,), {"drifted": 1},
)  # fmt: skip
CERTIFICATE = Certificate(
    "1.0", "gpu-a001", NOW, Binding("S1", ("G1",), "ab", {"bmc": "1"}, "cd", "ef"),
    (TestResult("nccl", "nccl-tests", Verdict.PASS, (), {"busbw_peak": 480.25}),),
)  # fmt: skip
SILENT = Silent(NOW, UnknownReason.TIMEOUT, "after 30 s")
INVENTORY = Answered(
    NOW, RedfishInventory({"A": True, "B": 1, "C": "1"}, None, ("Hdd",), {}, 1, 1, 1, (), (), (), (), None)
)
OBSERVATION = Observation(
    "1.0", "demo", "abc", NOW, NOW,
    {
        "gpu-a001": Observed(
            "gpu-a001",
            SILENT,
            INVENTORY,
            SILENT,
            Answered(NOW, None),
        ),
        "gpu-a002": Observed(
            "gpu-a002",
            SILENT,
            SILENT,
            SILENT,
            Answered(NOW, Member("n", "u", "1", None, {}, False, {}, {}, (Taint("a", "", "NoExecute"),), "v1.31", ())),
        ),
    },
)  # fmt: skip
OUTCOME = ApplyOutcome(
    "1.0", "0.1.0", "run-1", "plan-1", "demo", SpecSource("fleet-spec"), Scope((), (), 1, 1), NOW, NOW, False,
    {"gpu-a001": NodeEnd("done", "")}, (ActionEnd("gpu-a001", "drain", "done", "", NOW, 1.5),), (), (), True, False,
)  # fmt: skip
CHRONICLE = PeriodReport(
    "1.0", "0.1.0", "demo", NOW, NOW, NOW, None, 1, 1, 0, 1, 3600.0, (Day(NOW, 1, 0, 1),), Times(),
    (ConcernTally("bios", 1, 0, 1, 1),), (NodeTally("gpu-a001", 1, 1, (Concern.BIOS,)),), Hours(1.5), 1.0, 0.25,
    Times(1, 1.5, 1.5, 1.5), (Recovery("gpu-a001", "drain", NOW, None, 1.5),),
    (Quarantine("gpu-a001", "quarantined", "by hand", NOW, NOW),), (ActionTally("drain", "done", 1, 1),),
)  # fmt: skip
DOCUMENTS = [OBSERVATION, PLAN, REPORT, OUTCOME, CERTIFICATE, CHRONICLE]

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    datetime: st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds
    Any: JSON_VALUES,
}


def values_of(kind: Any, bound: Mapping[Any, Any] | None = None) -> st.SearchStrategy[Any]:
    """Any value of a type that our documents are made of."""
    kind = (bound or {}).get(kind, kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if origin in {Union, UnionType}:
        return st.one_of([values_of(argument, bound) for argument in arguments])
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*(values_of(argument, bound) for argument in arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0], bound), max_size=2).map(tuple)
    if origin in {dict, Mapping}:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1], bound), max_size=2)
    if kind not in DRAWN:  # one strategy of a type for all fields that have it, or Hypothesis compares each with each
        DRAWN[kind] = _fields_of(kind, origin, arguments, bound)
    return DRAWN[kind]


DRAWN: dict[Any, st.SearchStrategy[Any]] = {}


def _fields_of(
    kind: Any, origin: Any, arguments: tuple[Any, ...], bound: Mapping[Any, Any] | None
) -> st.SearchStrategy[Any]:
    assert is_dataclass(origin or kind), kind
    made: Any = origin or kind
    inner = dict(zip(made.__parameters__, arguments, strict=True)) if origin else bound
    hints = get_type_hints(made)
    return st.deferred(lambda: st.builds(made, **{f.name: values_of(hints[f.name], inner) for f in fields(made)}))


D = TypeVar("D", Observation, Plan, DriftReport, Certificate)


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("kind", [Observation, Plan, DriftReport, Certificate])
def test_a_document_reads_back_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    document = replace(data.draw(values_of(kind)), format_version="1.0")
    if isinstance(document, Plan):
        document = replace(document, recipe="")  # or its fingerprints would have to be true
    text = dump(document)
    assert load(kind, text) == document
    assert dump(load(kind, text)) == text


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_documents_are_canonical(document: Any) -> None:
    text = dump(document)
    assert load(type(document), text.encode()) == document
    data = json.loads(text)
    assert text == json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def test_words_and_not_numbers_stand_for_disruption() -> None:
    data = json.loads(dump(PLAN))
    node = data["nodes"]["gpu-a001"]
    assert node["actions"][0]["disruption"] == "reboot"
    assert (node["changes"], node["disruption"], data["changes"]) == (True, "reboot", True)
    assert data["created_at"] == "2026-11-21T12:30:15.250000Z"


def test_types_survive_that_json_could_confuse() -> None:
    inventory = load(Observation, dump(OBSERVATION)).nodes["gpu-a001"].inventory
    assert isinstance(inventory, Answered)
    assert [type(value) for value in inventory.value.bios.values()] == [bool, int, str]  # type: ignore[union-attr] # given above


def test_keys_of_a_later_minor_version_are_ignored() -> None:
    data = json.loads(dump(PLAN))
    data["format_version"] = "1.7"
    data["weather"] = data["nodes"]["gpu-a001"]["mood"] = "fine"
    assert load(Plan, json.dumps(data)) == replace(PLAN, format_version="1.7")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"format_version": "2.0"},
            "plan.json: plan: format_version 2.0 is not readable by this version, which reads 1.x",
        ),
        ({"format_version": None}, "plan.json: plan: no format_version, so this is not one of our documents"),
        ({"nodes": []}, "plan.json: this is no plan: nodes: Input should be an object"),
        ({"tolerated": "yes"}, "plan.json: this is no plan: tolerated: Input should be a valid boolean"),
    ],
)
def test_what_is_not_a_plan_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load(Plan, json.dumps(json.loads(dump(PLAN)) | change), name="plan.json")
    assert str(caught.value) == problem
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", '"x"', "\ufffd"])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        load(Plan, text)


def test_a_document_of_another_kind_is_refused() -> None:
    with pytest.raises(DocumentError, match="this is no plan: tool_version: Field required"):
        load(Plan, dump(OBSERVATION))


def test_a_lone_surrogate_from_a_bmc_does_not_spoil_the_file() -> None:
    silent = replace(SILENT, detail="bad \ud800 text")
    node = replace(OBSERVATION.nodes["gpu-a002"], hot=silent)
    text = dump(replace(OBSERVATION, nodes={"gpu-a002": node}))
    assert "bad ? text" in text.encode().decode()


def test_a_number_that_json_lacks_is_our_own_error() -> None:
    result = replace(CERTIFICATE.results[0], metrics={"x": math.inf})
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump(replace(CERTIFICATE, results=(result,)))
