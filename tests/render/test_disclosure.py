"""A field says in its type who may read it: one that does not is refused, and a private value is found nowhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, make_dataclass, replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from reconciler.app.drift_report import drift_report
from reconciler.model.desired import Endpoints
from reconciler.model.documents import dump
from reconciler.model.observed import Observed
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import Plan
from reconciler.model.privacy import FreeText, Identifier, Privacy, PublicText, Unpublished
from reconciler.model.records import Hold, JournalEntry, NodeRecord, Rollout
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.render.disclosure import Policy, UnmarkedFieldError, keep
from reconciler.render.html import Material, page
from reconciler.render.html.page import PAGE
from reconciler.render.publish import PUBLISHED, Mentioned, Screen, publish, sealing
from reconciler.render.redact import COLLECTED, REDACTED, Redaction, names_of, redact
from tests.builders import NOW
from tests.html import world
from tests.render.test_publish import KEY, Known

POLICIES: dict[str, tuple[Policy[Any], tuple[type, ...]]] = {
    "published": (PUBLISHED, (Observed, NodeRecord, Hold, Rollout)),
    "collected": (COLLECTED, (Observed, NodeRecord, Endpoints)),
    "redacted": (REDACTED, (Plan, DriftReport, ApplyOutcome, JournalEntry, PeriodReport)),
    "page": (PAGE, (Material,)),
}
TEXTS = (str, str | None, tuple[str, ...], Mapping[str, int], Mapping[PublicText, str], Any)


@pytest.mark.parametrize("name", POLICIES)
def test_every_field_of_a_published_type_says_who_may_read_it(name: str) -> None:
    policy, kinds = POLICIES[name]
    for kind in kinds:
        policy.compiled(kind)


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@pytest.mark.parametrize("name", POLICIES)
def test_a_field_without_a_mark_is_refused(name: str, kind: Any) -> None:
    grown = make_dataclass("Grown", [("note", kind)], frozen=True, slots=True)
    with pytest.raises(UnmarkedFieldError, match=r"^Grown\.note: "):
        POLICIES[name][0].compiled(grown)


@dataclass(frozen=True)
class Part:
    serial: Identifier
    message: FreeText
    model: Unpublished[PublicText | None] = None


@dataclass(frozen=True)
class Whole:
    name: PublicText
    parts: tuple[Part, ...] = ()
    remark: Annotated[FreeText, Privacy.UNPUBLISHED] = ""


def test_the_outermost_mark_counts() -> None:
    screen = Screen(sealing(KEY), Mentioned.by([]))
    shown = PUBLISHED.show(Whole("a", (Part("S-1234", "S-1234 failed", "X"),), "secret"), screen)
    assert shown == Whole("a", (Part(screen.name("S-1234"), "(not published)"),))


def test_what_is_all_public_stays_the_same_object() -> None:
    part = JournalEntry(NOW, "run-1", "a", "intent", "drain", "as asked")
    assert REDACTED.show(part, Redaction({"a": ("S-1234",)})) == part
    everything: Policy[None] = Policy(dict.fromkeys(Privacy, keep))
    full = Whole("a", (Part("S", "m"),))
    assert everything.show(full, None) is full


# --- a private value in every field -------------------------------------------------------------------------------

PRIVATE = "PRIVATE-4711"
SHOWN = {Privacy.PUBLIC, Privacy.NODE, Privacy.PATH, Privacy.SPEC_VALUE, Privacy.ORDINAL, Privacy.TAINTS}


def mutants(value: Any, kind: Any, wanted: Collection[Privacy], marks: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Values of a type that differ from this one in one text, at any depth, that has one of the wanted marks."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        yield from mutants(value, arguments[0], wanted, (*marks, *kind.__metadata__))
    elif origin in (Union, UnionType):
        for option in arguments:
            base = get_args(option)[0] if get_origin(option) is Annotated else get_origin(option) or option
            if base is str or (isinstance(base, type) and isinstance(value, base)) or (base is Mapping and value):
                yield from mutants(value, option, wanted, marks)
    elif origin is str and not set(wanted).isdisjoint(marks):
        yield PRIVATE
    elif origin is tuple and value:
        yield from ((part, *value[1:]) for part in mutants(value[0], arguments[0], wanted, marks))
    elif origin is Mapping:
        value = value or {}  # of a mapping of mappings: none is there yet
        key = next((key for key in value if is_dataclass(value[key])), "unmentioned")
        yield from ({**value, key: part} for part in mutants(value.get(key), arguments[1], wanted, marks))
    elif is_dataclass(origin) and value is not None:
        hints = get_type_hints(origin, include_extras=True)
        bound = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
        for each in fields(origin):
            hint = bound.get(hints[each.name], hints[each.name])
            for part in mutants(getattr(value, each.name), hint, wanted, marks):
                yield replace(value, **{each.name: part})


@pytest.fixture(scope="module")
def material() -> Material:
    return world.make(30)


def test_a_private_text_is_in_no_output_whatever_field_holds_it(material: Material) -> None:
    """With the value in one field after another of all that is known of a node."""
    name = next(name for name, node in material.plan.nodes.items() if node.drift)
    private = set(Privacy) - SHOWN
    found = [
        *mutants(material.observation.nodes[name], Observed, private),
        *mutants(material.records[name], NodeRecord, private),
    ]
    assert len(found) > 40
    for mutant in found:
        observation, records = material.observation, material.records
        if isinstance(mutant, Observed):
            observation = replace(observation, nodes={**observation.nodes, name: mutant})
        else:
            records = {**records, name: mutant}
        assert PRIVATE not in page(replace(material, observation=observation, records=records)), mutant
        small = replace(observation, nodes={name: observation.nodes[name]})
        assert PRIVATE not in dump(publish(material.fleet, small, Known(records), KEY, {})), mutant


def test_an_identifier_is_found_in_no_sentence(material: Material) -> None:
    """Whatever field it was read from: sentences about the node, and those about others that mention the node."""
    name, other = [name for name, node in material.plan.nodes.items() if node.drift][:2]
    sentence = f"{name}: the part {PRIVATE} failed"
    found = list(mutants(material.observation.nodes[name], Observed, {Privacy.IDENTIFIER}))
    assert len(found) > 10
    for mutant in found:
        seen = replace(material.observation, nodes={**material.observation.nodes, name: mutant})
        names = names_of(material.fleet, seen, material.records)
        assert PRIVATE in names[name], mutant
    plan = material.plan
    nodes = {
        name: replace(plan.nodes[name], situation=sentence, incomplete=(sentence,)),
        other: replace(plan.nodes[other], situation=sentence),
    }
    rollouts = tuple(replace(rollout, halted=sentence) for rollout in plan.rollouts)
    assert rollouts
    plan = replace(plan, nodes={**plan.nodes, **nodes}, rollouts=rollouts, notes=(sentence,), stopped=sentence)
    assert dump(plan).count(PRIVATE) > 5
    assert PRIVATE not in dump(redact(plan, names, material.fleet))
    drift = drift_report(plan, seen)
    assert PRIVATE not in dump(redact(drift, names, material.fleet))
    assert PRIVATE not in page(replace(material, observation=seen, plan=plan, drift=drift))
