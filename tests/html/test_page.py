"""The page as text: what must be in it, and what must not."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from reconciler.model.observed import Answered, Silent
from reconciler.model.period_report import Quarantine, Recovery
from reconciler.render.html import page
from tests.builders import NOW
from tests.html import hostile, world


class Reader(HTMLParser):
    """Elements, and the text of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, given = self.elements[-1] if self.elements else ("", {})
        if tag in ("style", "script") and data.strip():
            self.raw.append((tag, given, data))

    @property
    def data(self) -> Any:
        return next(json.loads(text) for _, given, text in self.raw if given.get("id") == "data")


@pytest.fixture(scope="module")
def material() -> Any:
    return world.make(60)


def test_it_needs_nothing_but_itself(material: Any) -> None:
    text = page(material)
    for tag, given in Reader(text).elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "video", "audio")
        assert "src" not in given
        assert (given.get("href") or "#").startswith("#")
        assert not [name for name in given if name.startswith("on") or name == "style"], "its policy forbids these"
    assert "url(" not in text
    assert "@import" not in text


def test_its_policy_allows_its_own_style_and_script_and_nothing_else(material: Any) -> None:
    read = Reader(page(material))
    policy = next(given["content"] or "" for tag, given in read.elements if given.get("http-equiv"))
    told = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    digests = {
        tag: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for tag, given, text in read.raw
        if given.get("type") is None
    }
    assert told["default-src"] == "'none'"
    assert (told["style-src"], told["script-src"]) == (digests["style"], digests["script"])


def test_nothing_that_a_machine_says_ends_an_element(material: Any) -> None:
    text = page(hostile.spoilt(material))
    clean, spoilt = Reader(page(material)), Reader(text)
    assert [tag for tag, _ in spoilt.elements].count("script") == [tag for tag, _ in clean.elements].count("script")
    assert "img" not in {tag for tag, _ in spoilt.elements}
    assert any(hostile.SHOWN in told for told in spoilt.data["texts"]), "it is shown, all the same"
    text.encode()  # no lone surrogate
    assert not re.search("[\u202e\x00\x1b]", text)
    assert "\u2028" not in "".join(data for tag, _, data in spoilt.raw if tag == "script"), "it ends a line of a script"


def own_of(material: Any, node: str) -> list[str]:
    """Also what it was certified with, and has no more."""
    desired, record = material.fleet.nodes[node], material.records[node]
    certified = record.certificate.binding.serial if record.certificate is not None else desired.serial
    return [desired.serial, certified, desired.endpoints.bmc]


def test_machines_are_nameless(material: Any) -> None:
    """As in documents that are redacted (pitfall M5), whoever says it and wherever: the page is passed on."""
    name, drifted = next((n, node) for n, node in material.plan.nodes.items() if node.drift)
    serial = replace(drifted.drift[0], path="identity.serial", desired="S-WANTED-1", observed="S-FOUND-1")
    plan = replace(material.plan, nodes={**material.plan.nodes, name: replace(drifted, drift=(serial,))})
    plan = replace(plan, insecure=("1 of 3 BMCs take VENDORS-LOGIN",))
    secret = {"S-WANTED-1", "S-FOUND-1", "RAW-OUTPUT", "S-BEFORE-1", "VENDORS-LOGIN"}
    records, seen, histories = dict(material.records), dict(material.observation.nodes), dict(material.histories)
    bound = next(record.certificate for record in records.values() if record.certificate is not None)
    records[name] = replace(
        records[name], certificate=replace(bound, node=name, binding=replace(bound.binding, serial="S-BEFORE-1"))
    )
    material = replace(material, records=records)
    for node, desired in material.fleet.nodes.items():
        own = {desired.serial, desired.uuid, desired.endpoints.bmc, desired.endpoints.host}
        if isinstance(reading := seen[node].host, Answered):
            own |= {gpu.serial for gpu in reading.value.gpus or ()} | {reading.value.image.booted_disk}
        secret |= own
        sentence = f"RAW {own}"
        record, history = records[node], histories[node]
        if record.certificate is not None:
            results = tuple(replace(result, evidence="RAW-OUTPUT") for result in record.certificate.results)
            records[node] = replace(record, certificate=replace(record.certificate, results=results))
        histories[node] = replace(history, entries=[replace(entry, detail=sentence) for entry in history.entries])
        if isinstance(seen[node].host, Silent):
            seen[node] = replace(seen[node], host=replace(seen[node].host, detail=sentence))
    observation = replace(material.observation, nodes=seen)
    report = replace(
        material.report,
        recoveries=(Recovery(name, f"RAW 1 {own_of(material, name)}", NOW, None, 60.0),
                    Recovery("gone-1", "RAW-OUTPUT", NOW, None, 60.0)),
        quarantined=(Quarantine(name, "attempts", f"RAW 2 {own_of(material, name)}", NOW, None),),
    )  # fmt: skip
    made = replace(material, plan=plan, records=records, observation=observation, histories=histories, report=report)
    text = page(made)
    assert not [word for word in secret - {"", None} if word in text]
    assert all(said in text for said in ("RAW {", "RAW 1", "RAW 2")), "the sentences are there"
    assert "identity.serial" in Reader(text).data["texts"]


def test_equal_nodes_share_what_they_say(material: Any) -> None:
    """A node more costs a line, not its forty values."""
    data = Reader(page(material)).data
    assert len(data["nodes"]["name"]) == 60
    assert len(data["shared"]) == len({(node.profile.digest, node.pool) for node in material.fleet.nodes.values()})
    assert all(len(own) <= 6 for own in data["nodes"]["own"])


def test_every_verdict_is_the_one_of_the_other_renders(material: Any) -> None:
    from reconciler.render import drift, period_report, plan

    text = page(material)
    for sentence in (
        drift.verdict(material.drift),
        plan.verdict(material.plan),
        period_report.verdict(material.report),
    ):
        assert sentence[1:] in text


def test_without_history_it_says_so(material: Any) -> None:
    assert "There is no history" in page(replace(material, report=None, histories={}))


def test_a_fleet_as_specified_is_told_in_a_word(material: Any) -> None:
    nodes = {
        name: replace(node, drift=(), actions=(), blocked=None, start=None, end=None, incomplete=())
        for name, node in material.plan.nodes.items()
    }
    plan = replace(material.plan, nodes=nodes, incomplete=(), rollouts=())
    drift = replace(material.drift, items=(), incomplete=(), changes=False)
    text = page(replace(material, plan=plan, drift=drift))
    assert "No node differs from the spec; 60 of 60 as specified." in text
    for said in ("Nothing differs from the spec.", "Nothing reboots, and nothing is held back.", "Nothing is to come."):
        assert said in text


def test_an_install_says_how_far_it_is(material: Any) -> None:
    name = sorted(material.plan.nodes)[3]
    data = Reader(page(replace(material, under_way={name: "installing: writing 47 %, 812 MB/s"}))).data
    shown = dict(zip(data["nodes"]["name"], data["nodes"]["headline"], strict=True))
    assert data["texts"][shown[name]] == "installing: writing 47 %, 812 MB/s"
    assert [at for at in shown.values() if "installing" in data["texts"][at]] == [shown[name]]
