"""The API that reads: what it tells is what the pass and the ledger say, in the form that its own OpenAPI describes."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from reconciler.converge.events import ActionFinished, ignore
from reconciler.converge.status import fleet_status
from reconciler.model.drift import ACTIONABLE
from reconciler.model.outcome import Done
from reconciler.model.plan import BlockCode, Blocked, WaveState
from reconciler.model.status import Role
from reconciler.model.vocab import Concern, DriftMode
from reconciler.render.spreads import spreads
from tests.docs.pages import first_words
from tests.web.conftest import COMMIT, Get, Live
from tests.web.past import DAYS, UNSEEN, remember, under_way

pytestmark = pytest.mark.wire

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


# --- the document -----------------------------------------------------------------------------------------------------


def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/v1/openapi.json").json()
    return found


def problems(document: dict[str, Any], path: str, method: str, answer: httpx.Response) -> list[str]:
    """What an answer has that the document does not describe."""
    described = document["paths"][path][method]["responses"][str(answer.status_code)]["content"]
    (schema,) = (content["schema"] for media, content in described.items() if "json" in media)
    whole = {**schema, "components": document["components"]}
    return [error.message[:300] for error in Draft202012Validator(whole).iter_errors(answer.json())]


def test_every_answer_is_as_its_own_document_says(live: Live, client: httpx.Client) -> None:
    node = live.begin()
    live.ledger.hold(node, "ticket 12", "ann", None, NOW)
    told = document(client)
    assert told["openapi"].startswith("3.1")
    reading = [path for path, methods in told["paths"].items() if "get" in methods]
    assert len(reading) == 16
    for path in reading:
        answer = client.get(path.replace("{name}", node))
        assert answer.status_code == 200, answer.text
        assert problems(told, path, "get", answer) == [], path


def test_a_document_that_lies_is_found(client: httpx.Client) -> None:
    told = document(client)
    told["components"]["schemas"]["CurrentRun"]["properties"]["run"] = {"type": "integer"}
    assert problems(told, "/api/v1/run", "get", client.get("/api/v1/run"))


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_command_of_the_guide_is_answered(url: str) -> None:
    words = first_words("how-to/api", {"http://127.0.0.1:8090": url})
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["fleet"]


def test_errors_are_problem_documents(live: Live, client: httpx.Client) -> None:
    told = document(client)
    answer = client.get("/api/v1/nodes/gpu-nowhere")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["detail"] == f"fleet {live.material.plan.fleet} has no node 'gpu-nowhere'"
    answer = client.get("/api/v1/nodes/gpu-000000/history?last=0")
    assert answer.status_code == 422
    assert problems(told, "/api/v1/nodes/{name}/history", "get", answer) == []
    assert "query.last" in answer.json()["detail"]
    assert client.get("/api/v1/nothing").status_code == 404
    assert client.post("/api/v1/run").status_code in (404, 405)


# --- what it tells ----------------------------------------------------------------------------------------------------


def test_the_current_run(live: Live, get: Get) -> None:
    live.view.run = "run-20261101-120000-abcdef"
    assert get("run")["at_work"] == []
    name = live.begin(steps=3)
    plan = live.material.plan.nodes[name]
    run = get("run")
    (work,) = run["at_work"]
    assert (work["node"], work["action"], work["percent"]) == (name, plan.actions[0].id, 42)
    assert work["step"] == "installer: writing 42 %, 812 MB/s"
    assert work["next_actions"] == [action.id for action in plan.actions[1:]]
    assert (run["run"], run["role"], run["why_not_ready"]) == (live.view.run, "leader", "")
    assert run["spec_url"] == f"https://github.com/ops/fleet/commit/{COMMIT}"
    assert run["waiting"] == sum(one.changes for one in live.material.plan.nodes.values()) - 1


def test_every_node_has_a_line_and_the_status_that_the_metrics_have(live: Live, get: Get) -> None:
    lines = {line["name"]: line for line in get("nodes")}
    assert lines.keys() == live.material.plan.nodes.keys()
    assert live.metrics.fleet is not None
    statuses = {name: node.status.value for name, node in live.metrics.fleet.nodes.items()}
    assert {name: line["status"] for name, line in lines.items()} == statuses
    name = live.begin()
    (acting,) = get("nodes?status=acting")
    assert acting["name"] == name
    pool = acting["pool"]
    assert {line["pool"] for line in get(f"nodes?pool={pool}")} == {pool}


def test_the_fleet_is_the_document_of_status(live: Live, get: Get) -> None:
    found = get("fleet")
    assert found["counts"]["nodes"] == len(live.material.plan.nodes)
    assert {one["node"] for one in found["trouble"]} <= live.material.plan.nodes.keys()


def test_pools_have_a_matrix_of_versions_that_counts_each_node_once(get: Get) -> None:
    for pool in get("pools"):
        image = [line for line in pool["versions"] if line["what"] == "image"]
        assert sum(line["nodes"] for line in image) == pool["nodes"]
        assert any(line["wanted"] for line in image)


def test_a_node_that_differs_shows_the_difference_as_yaml(live: Live, get: Get) -> None:
    everything = (item for plan in live.material.plan.nodes.values() for item in plan.drift)
    known = (item for item in everything if item.kind in ACTIONABLE and isinstance(item.observed, str))
    item = next(item for item in known if item.concern in (Concern.BOOT, Concern.BIOS, Concern.HOST, Concern.FIRMWARE))
    name, path = item.node, item.path
    last = path.rpartition(".")[2]
    found = get(f"nodes/{name}")
    lines = found["difference"].splitlines()
    assert any(line.startswith("-") and last in line and str(item.desired) in line for line in lines)
    assert any(line.startswith("+") and last in line and str(item.observed) in line for line in lines)
    values = {value["path"]: value for value in found["values"]}
    assert values[path]["place"].count(":") == 2
    assert [action["name"] for action in found["actions"]] == [
        action.name for action in live.material.plan.nodes[name].actions
    ]


def test_a_node_as_specified_differs_in_nothing(live: Live, get: Get) -> None:
    name = next(name for name, plan in live.material.plan.nodes.items() if not plan.drift)
    assert get(f"nodes/{name}")["difference"] == ""


def test_holds_and_events_are_those_of_the_ledger(live: Live, get: Get) -> None:
    name = next(iter(live.material.plan.nodes))
    assert get("holds") == []
    live.ledger.hold(name, "ticket 12", "ann", None, NOW)
    assert [(one["subject"], one["owner"], one["reason"]) for one in get("holds")] == [(name, "ann", "ticket 12")]
    (event,) = get("events")
    assert (event["node"], event["event"], event["detail"]) == (name, "hold", "ann: ticket 12")
    live.ledger.release(name, "bob", NOW)
    (after,) = get(f"events?after={event['id']}")
    assert (after["event"], after["detail"]) == ("release", "bob")
    assert [one["event"] for one in get(f"nodes/{name}/history")] == ["hold", "release"]
    assert get("holds") == []


def test_nobody_waits_for_approval_where_the_loop_corrects(live: Live, get: Get) -> None:
    approvals = get("approvals")
    changing = [name for name, plan in live.material.plan.nodes.items() if plan.changes]
    waiting = [] if approvals["drift_mode"] == "correct" else changing
    assert [one["node"] for one in approvals["nodes"]] == waiting
    assert approvals["fingerprint"] == live.material.plan.fingerprint


def test_a_process_that_does_not_lead_says_who_does_and_still_has_the_journal(
    live: Live, client: httpx.Client, get: Get
) -> None:
    live.ledger.note("gpu-x", "note", "seen by everybody", NOW)
    live.lead(Role.STANDBY)
    answer = client.get("/api/v1/nodes")
    assert answer.status_code == 503
    assert "does not lead" in answer.json()["detail"]
    assert get("run")["role"] == "standby"
    assert [one["detail"] for one in get("events")] == ["seen by everybody"]


def test_what_must_not_be_kept_is_not(client: httpx.Client) -> None:
    answer = client.get("/api/v1/run")
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


# --- what has changed -------------------------------------------------------------------------------------------------


def held_back(live: Live, name: str, why: str) -> None:
    """End a pass after which one node waits for something else."""
    plan = live.material.plan
    nodes = {**plan.nodes, name: replace(plan.nodes[name], blocked=Blocked(BlockCode.GATE, why))}
    live.material = replace(live.material, plan=replace(plan, nodes=nodes))
    live.pass_again()


def test_who_asks_again_is_sent_what_has_changed_and_no_more(live: Live, get: Get) -> None:
    first = get("changes")
    assert first["whole"]
    assert {one["name"] for one in first["nodes"]} == set(live.material.plan.nodes)
    again = get(f"changes?since={first['version']}")
    assert (again["version"], again["whole"], again["nodes"], again["gone"]) == (first["version"], False, [], [])
    assert again["planned"] == first["planned"]
    name = min(live.material.plan.nodes)
    held_back(live, name, "its gate failed just now")
    then = get(f"changes?since={first['version']}")
    assert [one["name"] for one in then["nodes"]] == [name]
    assert "its gate failed just now" in then["nodes"][0]["why"]
    assert then["planned"] != first["planned"]
    acting = live.begin()
    later = get(f"changes?since={then['version']}")
    assert [(one["name"], one["status"]) for one in later["nodes"]] == [(acting, "acting")]
    assert [one["node"] for one in later["run"]["at_work"]] == [acting]
    missed = get(f"changes?since={first['version']}")
    assert {one["name"] for one in missed["nodes"]} == {name, acting}, "who was away gets all of it"


def test_a_line_is_kept_while_all_that_it_is_made_of_is_the_same(live: Live) -> None:
    """Thousands of lines are made in each pass, and few of them are others than before."""
    before = {one.name: one for one in live.view.nodes()}
    name = min(before)
    held_back(live, name, "its gate failed just now")
    after = {one.name: one for one in live.view.nodes()}
    assert [node for node in after if after[node] is not before[node]] == [name]
    plan = live.material.plan
    live.material = replace(live.material, plan=replace(plan, refused=("half of the fleet would reboot",)))
    live.pass_again()
    going = {one.node for one in plan.nodes.values() if one.actions and one.blocked is None}
    assert going
    assert {one.name for one in live.view.nodes() if one.why.endswith("its plan is refused")} >= going


def test_a_version_of_another_process_is_no_version(live: Live, get: Get) -> None:
    own, _, number = get("changes")["version"].partition("-")
    for other in (f"{'0' * len(own)}-{number}", f"{own}-{int(number) + 1}", f"{own}-x", "-", "nonsense"):
        found = get(f"changes?since={other}")
        assert found["whole"], other
        assert len(found["nodes"]) == len(live.material.plan.nodes)


def test_a_node_that_has_left_the_spec_is_gone(live: Live, get: Get) -> None:
    version, name = get("changes")["version"], max(live.material.plan.nodes)
    plan = live.material.plan
    fewer = {node: one for node, one in plan.nodes.items() if node != name}
    live.view.saw(live.material.fleet, replace(plan, nodes=fewer), live.material.observation)
    found = get(f"changes?since={version}")
    assert (found["whole"], found["gone"]) == (False, [name])
    assert name not in {one["name"] for one in found["nodes"]}
    live.pass_again()
    back = get(f"changes?since={found['version']}")
    assert back["gone"] == []
    assert name in {one["name"] for one in back["nodes"]}


def test_a_standby_has_no_nodes_and_says_who_it_is(live: Live, get: Get) -> None:
    version = get("changes")["version"]
    live.lead(Role.STANDBY)
    found = get(f"changes?since={version}")
    assert (found["run"]["role"], found["planned"], found["nodes"]) == ("standby", "", [])


def test_work_that_begins_between_two_passes_tells_since_when(live: Live, get: Get) -> None:
    """Where the loop proposes, what was approved begins when a person says so, and not with a pass."""
    settings = replace(live.material.fleet.settings, drift_mode=DriftMode.PROPOSE)
    live.material = replace(live.material, fleet=replace(live.material.fleet, settings=settings))
    live.pass_again()
    name = next(name for name, plan in live.material.plan.nodes.items() if len(plan.actions) > 1)
    plan = live.material.plan.nodes[name]
    live.view.approved.grant(live.material.plan, {name: plan.fingerprint}, "eve", live.workspace.clock.now())
    before = live.workspace.clock.now()
    assert live.begin() == name
    (work,) = get("run")["at_work"]
    assert get("run")["drift_mode"] == "propose"
    (line,) = get("nodes?status=acting")
    for since in (work["since"], line["since"]):
        assert since is not None
        assert before <= datetime.fromisoformat(since) <= live.workspace.clock.now()
    assert line["why"].endswith(f"{plan.actions[0].id} is under way"), "and not what it waited for"
    ended = live.workspace.clock.now()
    live.view.follow(ignore)(ActionFinished(name, plan.actions[0], Done(), 1.0))
    (line,) = [one for one in get("nodes") if one["name"] == name]
    known = live.metrics.fleet
    assert known is not None
    since = datetime.fromisoformat(line["since"])
    assert since == known.nodes[name].since or since >= ended
    live.metrics.passed(fleet_status(live.material.plan, live.material.observation, acting={name}))
    (line,) = [one for one in get("nodes") if one["name"] == name]
    assert datetime.fromisoformat(line["since"]) >= ended, "the pass saw it at work, which is over"


def test_what_a_pass_has_seen_is_forgotten(live: Live, get: Get) -> None:
    name = live.begin()
    assert get("nodes?status=acting")[0]["name"] == name
    live.pass_again()  # while it is at work
    live.view.follow(ignore)(ActionFinished(name, live.material.plan.nodes[name].actions[0], Done(), 1.0))
    assert live.view._activity.turned().keys() == {name}
    later = replace(live.material.observation, finished_at=live.workspace.clock.now())
    live.metrics.passed(fleet_status(live.material.plan, later))
    live.pass_again()
    assert live.view._activity.turned() == {}, "its line is made anew for nobody any more"
    (line,) = [one for one in get("nodes") if one["name"] == name]
    assert "under way" not in line["why"]


def test_the_past_of_waves_that_are_cut_anew_is_read_anew(live: Live, get: Get) -> None:
    live.material = under_way(live.material, live.workspace.clock.now())
    live.pass_again()
    (rollout,) = live.material.plan.rollouts
    assert len(get("rollouts/past")[0]["waves"]) == len(rollout.waves) > 1
    joined = replace(rollout, waves=rollout.waves[:-1])
    live.material = replace(live.material, plan=replace(live.material.plan, rollouts=(joined,)))
    live.pass_again()
    assert len(get("rollouts/past")[0]["waves"]) == len(joined.waves), "its digest is the same"


# --- the past ---------------------------------------------------------------------------------------------------------


def test_the_spread_of_results_is_that_of_the_report(live: Live, get: Get) -> None:
    remember(live)
    found = get("measured")
    expected = spreads(live.material.fleet, list(live.material.plan.nodes), live.material.records)
    assert [one["title"] for one in found["figures"]] == [one.title for one in expected.figures]
    assert found["left_out"] == expected.left_out
    refused = next(one for one in found["figures"] if one["outliers"])
    assert sum(one["refused"] for one in refused["bins"]) == len(refused["outliers"]) + refused["left_out"]
    assert all(one["node"] in live.material.plan.nodes for one in refused["outliers"])
    assert refused["bars"][0]["words"] == ">= 440 GB/s"


def test_availability_is_of_hours_that_were_seen(live: Live, get: Get) -> None:
    remember(live)
    days = get("availability?days=30")
    assert len(days) == 30
    hours = [one["hours"] for one in days]
    seen = [one for one in days if one["availability"] is not None]
    assert DAYS - len(UNSEEN) - 2 <= len(seen) <= DAYS
    assert all(0.9 < one["availability"] < 1 for one in seen), "one node in fifty is out at any time"
    assert sum(one["unobserved"] for one in hours) > 24 * len(live.material.plan.nodes)
    with pytest.raises(AssertionError, match="less than or equal to 90"):
        get("availability?days=91")


def test_a_rollout_knows_when_its_nodes_were_converged(live: Live, get: Get) -> None:
    live.material = under_way(live.material, live.workspace.clock.now())
    live.pass_again()
    remember(live)
    (rollout,) = live.material.plan.rollouts
    (past,) = get("rollouts/past")
    assert (past["pool"], past["digest"]) == (rollout.pool, rollout.digest)
    assert [one["nodes"] for one in past["waves"]] == [len(wave.nodes) for wave in rollout.waves]
    over = [wave.state is WaveState.DONE for wave in rollout.waves]
    assert [one["converged"] == one["nodes"] for one in past["waves"]] == over
    assert [one["first"] is not None for one in past["waves"]] == over
    second = past["waves"][1]
    assert second["first"] < second["last"] < live.workspace.clock.now().isoformat()
