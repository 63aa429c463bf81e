"""Writes: what they do to the ledger, for whom, and that the journal says who."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.web.access import WebOptions
from reconciler.model.records import FLEET
from reconciler.model.vocab import DriftMode
from tests.web.conftest import TOKENS, Live, serving, token
from tests.web.test_reads import document, problems

pytestmark = pytest.mark.wire


@pytest.fixture
def writer(live: Live, store: SecretStore) -> Iterator[httpx.Client]:
    with (
        serving(live, WebOptions("127.0.0.1:0", tokens=TOKENS), store=store) as url,
        httpx.Client(base_url=url, timeout=20, headers=token("bob")) as found,
    ):
        yield found


def journal(live: Live) -> list[tuple[str, str, str]]:
    return [(entry.node, entry.event, entry.detail) for _, entry in live.ledger.journal(None, 50)]


def test_a_hold_and_its_release_are_those_of_the_commands_and_say_who(live: Live, writer: httpx.Client) -> None:
    name = next(iter(live.material.plan.nodes))
    for subject in (name, f"pool/{live.material.plan.nodes[name].pool}"):
        answer = writer.post("/api/v1/holds", json={"subject": subject, "reason": "ticket 12", "for_s": 3600})
        assert (answer.status_code, answer.json()["message"][: len(subject) + 8]) == (200, f"{subject} is held")
        (hold,) = live.ledger.holds()
        assert (hold.subject, hold.owner, hold.reason) == (subject, "bob", "ticket 12")
        assert hold.until is not None
        answer = writer.delete(f"/api/v1/holds/{subject}")
        assert (answer.status_code, answer.json()) == (200, {"message": f"{subject} is released"})
        assert live.ledger.holds() == ()
        assert journal(live)[-2:] == [(subject, "hold", "bob: ticket 12"), (subject, "release", "bob")]


def test_a_stop_is_lifted_by_an_admin_alone(live: Live, writer: httpx.Client) -> None:
    assert writer.post("/api/v1/stop", json={"reason": "smoke in hall 3"}).status_code == 200
    assert [(one.subject, one.owner) for one in live.ledger.holds()] == [(FLEET, "bob")]
    answer = writer.delete("/api/v1/stop")
    assert (answer.status_code, answer.json()["detail"]) == (403, "bob is operator; this takes admin")
    assert len(live.ledger.holds()) == 1
    assert writer.delete("/api/v1/stop", headers=token("eve")).status_code == 200
    assert live.ledger.holds() == ()
    assert journal(live)[-1] == (FLEET, "release", "eve")


@pytest.mark.parametrize(
    ("method", "path", "body", "why"),
    [
        ("POST", "holds", {"subject": "gpu-nowhere", "reason": "x"}, "has no 'gpu-nowhere'"),
        ("POST", "holds", {"subject": "gpu-000000", "reason": "  "}, "give a reason"),
        ("POST", "holds", {"subject": "gpu-000000", "reason": "x" * 501}, "longer than 500"),
        ("POST", "holds", {"subject": "gpu-000000", "reason": "x", "for_s": -1}, "between 0 and"),
        ("POST", "holds", {"subject": "gpu-000000"}, "body.reason"),
        ("POST", "stop", {"reason": ""}, "give a reason"),
        ("DELETE", "holds/gpu-000000", None, "is not held"),
    ],
)
def test_what_makes_no_sense_is_refused_and_writes_nothing(
    live: Live, writer: httpx.Client, method: str, path: str, body: Any, why: str
) -> None:
    answer = writer.request(method, f"/api/v1/{path}", json=body)
    assert answer.status_code == 422
    assert why in answer.json()["detail"]
    assert problems(document(writer), "/api/v1/holds", "post", answer) == []
    assert journal(live) == []


def approvable(live: Live) -> tuple[str, str]:
    """Let the loop only look. Return a node that waits, with the fingerprint of its plan."""
    fleet = replace(live.material.fleet, settings=replace(live.material.fleet.settings, drift_mode=DriftMode.OBSERVE))
    live.material = replace(live.material, fleet=fleet)
    live.pass_again()
    one = next(one for one in live.view.approvals().nodes if live.material.plan.nodes[one.node].actions)
    return one.node, one.fingerprint


def test_an_approval_binds_the_plan_that_was_shown_and_says_who(live: Live, writer: httpx.Client) -> None:
    node, shown = approvable(live)
    body = {"nodes": {node: shown}, "reason": "ticket 12"}
    refused = writer.post("/api/v1/approvals", json=body)
    assert (refused.status_code, refused.json()["detail"]) == (403, "bob is operator; this takes admin")
    other = next(one for one in live.material.plan.nodes if one != node)
    for nodes in ({node: "0" * 64}, {node: shown, other: "0" * 64}, {node: shown, "gpu-nowhere": shown}):
        stale = writer.post("/api/v1/approvals", json=body | {"nodes": nodes}, headers=token("eve"))
        assert (stale.status_code, "is another one now than was shown" in stale.json()["detail"]) == (409, True)
        assert problems(document(writer), "/api/v1/approvals", "post", stale) == []
    assert (journal(live), live.view.approved.nodes) == ([], ())
    done = writer.post("/api/v1/approvals", json=body, headers=token("eve"))
    assert (done.status_code, done.json()) == (200, {"message": "1 plan approved: ticket 12"})
    assert journal(live) == [(node, "approve", f"eve: {shown[:12]}: ticket 12")]
    told = {one["node"]: one["approved_by"] for one in writer.get("/api/v1/approvals").json()["nodes"]}
    assert (told.pop(node), set(told.values())) == ("eve", {""})


def test_where_the_loop_corrects_there_is_nothing_to_approve(live: Live, writer: httpx.Client) -> None:
    node, shown = approvable(live)
    fleet = live.material.fleet
    live.material = replace(
        live.material, fleet=replace(fleet, settings=replace(fleet.settings, drift_mode=DriftMode.CORRECT))
    )
    live.pass_again()
    answer = writer.post("/api/v1/approvals", json={"nodes": {node: shown}, "reason": "x"}, headers=token("eve"))
    assert (answer.status_code, "nothing waits for an approval" in answer.json()["detail"]) == (422, True)
    empty = writer.post("/api/v1/approvals", json={"nodes": {}, "reason": "x"}, headers=token("eve"))
    assert empty.status_code == 422
    assert journal(live) == []


WRITES = [
    ("POST", "approvals", {"nodes": {"gpu-000000": "0"}, "reason": "x"}, "admin"),
    ("POST", "holds", {"subject": "gpu-000000", "reason": "x"}, "operator"),
    ("DELETE", "holds/gpu-000000", None, "operator"),
    ("DELETE", "holds/fleet/%2A", None, "admin"),
    ("DELETE", "holds/fleet/storm", None, "admin"),
    ("DELETE", "holds/isolation/xid_79", None, "admin"),
    ("DELETE", "holds/decommissioned/S1", None, "admin"),
    ("POST", "stop", {"reason": "x"}, "operator"),
    ("DELETE", "stop", None, "admin"),
]


@pytest.mark.parametrize(("method", "path", "body", "role"), WRITES)
def test_each_write_takes_its_role_and_an_origin_of_ours(
    live: Live, writer: httpx.Client, method: str, path: str, body: Any, role: str
) -> None:
    def ask(**headers: str) -> int:
        return writer.request(method, f"/api/v1/{path}", json=body, headers=headers).status_code

    writer.headers.pop("authorization")
    assert ask() == 401
    assert ask(**token("ann")) == 403
    assert ask(**token("bob")) == (403 if role == "admin" else 422 if method == "DELETE" else 200)
    assert ask(**token("eve"), origin="https://evil.example.com") == 403
    before = journal(live)
    assert ask(**token("eve"), **{"sec-fetch-site": "cross-site"}) == 403
    assert journal(live) == before


def test_no_write_is_left_out_of_that_table(writer: httpx.Client) -> None:
    told = document(writer)["paths"]
    methods = {(method.upper(), path) for path, found in told.items() for method in found if method != "get"}
    tabled = {(m, "/api/v1/" + re.sub(r"^holds/.+", "holds/{subject}", p)) for m, p, _, _ in WRITES}
    assert methods == tabled
