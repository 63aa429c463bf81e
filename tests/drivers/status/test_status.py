"""The status server, asked the way that probes and Prometheus ask."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

from reconciler.drivers.status import PrometheusMetrics
from reconciler.drivers.web.access import Access, WebOptions
from reconciler.drivers.web.application import Served
from reconciler.drivers.web.server import WebServer
from reconciler.model.drift import DriftClass
from reconciler.model.errors import UsageError
from reconciler.model.plan import BudgetLine
from reconciler.model.ports import Metrics
from reconciler.model.status import FleetStatus, LoopStatus, NodeReport, NodeStatus, PersonaStatus, Role
from reconciler.model.vocab import Concern, NewsSource, Reason, Source, UnknownReason

pytestmark = pytest.mark.wire

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5"  # as Prometheus asks
LEADER = LoopStatus(Role.LEADER, "c0ffee", "c0ffee", last_pass=NOW - timedelta(seconds=30))
FLEET = FleetStatus(
    started_at=NOW - timedelta(seconds=42),
    ended_at=NOW - timedelta(seconds=30),
    nodes={
        "gpu-1": NodeReport("train", NodeStatus.CONVERGED, NOW - timedelta(days=2)),
        "gpu-2": NodeReport("train", NodeStatus.BLOCKED, NOW - timedelta(hours=3), NOW - timedelta(hours=4)),
        'odd"\\': NodeReport("infer", NodeStatus.WAITING, NOW),
    },
    drift={(Concern.BIOS, DriftClass.DRIFTED): 7},
    budget=(
        BudgetLine("fleet", 5, 20, ("gpu-2",), "25% of 20 = 5"),
        BudgetLine("fleet", 2, 20, ("gpu-2",), "2"),
        BudgetLine("rack r1", 1, 8, ("gpu-2",), "1 per 1h", (Reason.DRIFT, Reason.CHANGE), 3600.0, active=False),
    ),
    observed={Source.REDFISH: NOW - timedelta(minutes=5)},
    silent={(Source.SSH, UnknownReason.TIMEOUT): 1},
    halted=("train",),
)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def metrics(status: LoopStatus = LEADER) -> PrometheusMetrics:
    found = PrometheusMetrics()
    found.loop_status(status)
    return found


def get(url: str, **headers: str) -> tuple[int, str, str]:
    """Status, media type and text, by a client that has nothing to do with the server's library."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
            if answer.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            return answer.status, answer.headers["Content-Type"], body.decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def serving(metrics: PrometheusMetrics, ask: Callable[[str], Any], listen: str = "127.0.0.1:0") -> Any:
    """Return the result of `ask` for the server's URL, called from a thread."""

    async def run() -> Any:
        nothing: Any = None  # probes and metrics ask nothing of a fleet
        server = WebServer(Served(metrics, lambda: NOW, nothing, nothing), Access(WebOptions(listen)))
        url = await server.start()
        try:
            return await asyncio.to_thread(ask, url)
        finally:
            await server.close()

    return asyncio.run(run())


def scrape(metrics: PrometheusMetrics) -> Samples:
    _, _, text = serving(metrics, lambda url: get(f"{url}/metrics"))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def names(samples: Samples, name: str) -> list[dict[str, str]]:
    return [dict(labels) for found, labels in samples if found == name]


# --- probes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "why"),
    [
        (LEADER, 200, ""),
        (replace(LEADER, stopped="by ops: fire"), 200, ""),
        (replace(LEADER, spec_head="badc0de", spec_trouble="invalid"), 200, ""),
        (LoopStatus(), 503, "no spec is in force"),
        (LoopStatus(Role.LEADER, spec_trouble="unsigned"), 503, "no spec is in force: the newest commit is unsigned"),
        (LoopStatus(spec_commit="c0ffee"), 503, "starting"),
        (LoopStatus(Role.STANDBY, "c0ffee"), 200, ""),
        (LoopStatus(Role.LEADER, "c0ffee"), 503, "the first pass has not ended"),
        (
            replace(LEADER, last_pass=NOW - timedelta(seconds=901)), 503,
            "the last pass ended 901 s ago, 900 s are allowed",
        ),
    ],
)  # fmt: skip
def test_readiness(status: LoopStatus, code: int, why: str) -> None:
    found, media, text = serving(metrics(status), lambda url: get(f"{url}/readyz"))
    assert (found, media) == (code, "application/json; charset=utf-8")
    document = json.loads(text)
    assert (document["ready"], document["why"], document["role"]) == (not why, why, status.role.value)
    assert document["spec"]["commit"] == status.spec_commit
    assert document["stopped"] == status.stopped


def test_what_is_being_done_is_told_with_its_latest_step_until_it_ends() -> None:
    found = metrics(LEADER)

    def acting(url: str) -> object:
        return json.loads(get(f"{url}/readyz")[2])["acting"]

    def ask(url: str) -> list[object]:
        seen = [acting(url)]
        found.acting("a1", "reimage", "")
        found.acting("a1", "reimage", "installer: writing 47 %, 812 MB/s")
        found.acting("a2", "drain", "")
        seen.append(acting(url))
        found.acting("a2", "", "")
        seen.append(acting(url))
        found.loop_status(replace(LEADER, role=Role.STANDBY))
        return [*seen, acting(url)]

    installing = {"action": "reimage", "step": "installer: writing 47 %, 812 MB/s"}
    assert serving(found, ask) == [
        {}, {"a1": installing, "a2": {"action": "drain", "step": ""}}, {"a1": installing}, {},
    ]  # fmt: skip


def test_a_process_that_leads_no_more_tells_nothing_of_the_fleet() -> None:
    """Else alerts fire on what it saw last, and sums over the services count its nodes twice."""
    found = metrics()
    found.passed(FLEET)

    def ask(url: str) -> list[bool]:
        seen = ["reconciler_nodes{" in get(f"{url}/metrics")[2]]
        found.loop_status(replace(LEADER, role=Role.STANDBY))
        return [*seen, "reconciler_nodes{" in get(f"{url}/metrics")[2]]

    assert serving(found, ask) == [True, False]


def test_readiness_follows_the_loop() -> None:
    found = metrics(LoopStatus())

    def ask(url: str) -> list[int]:
        codes = [get(f"{url}/readyz")[0]]
        found.loop_status(LEADER)
        return [*codes, get(f"{url}/readyz")[0]]

    assert serving(found, ask) == [503, 200]


def test_a_process_that_is_not_ready_lives_all_the_same() -> None:
    assert serving(metrics(LoopStatus()), lambda url: get(f"{url}/healthz")) == (
        200, "text/plain; charset=utf-8", "ok\n",
    )  # fmt: skip


def test_whatever_else_is_asked_for_is_not_there() -> None:
    assert serving(metrics(), lambda url: get(f"{url}/../etc/passwd"))[0] == 404


# --- addresses --------------------------------------------------------------------------------------------------------


def test_an_address_that_is_taken_is_a_clear_error() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"can't serve the status on {listen}: .*in use"):
            serving(metrics(), lambda url: url, listen)


@pytest.mark.parametrize("listen", ["8090", "localhost", "localhost:http", "127.0.0.1:99999"])
def test_what_is_no_address(listen: str) -> None:
    with pytest.raises(UsageError, match="is no address to listen on"):
        serving(metrics(), lambda url: url, listen)


def test_it_ends_with_a_client_that_stays_connected() -> None:
    def ask(url: str) -> float:
        host, _, port = url.removeprefix("http://").rpartition(":")
        lingering.append(socket.create_connection((host, int(port))))
        lingering[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert lingering[0].recv(100).startswith(b"HTTP/1.1 200")
        return time.monotonic()

    lingering: list[socket.socket] = []
    asked = serving(metrics(), ask)
    lingering[0].close()
    assert time.monotonic() - asked < 5


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_the_state_of_the_loop() -> None:
    samples = scrape(metrics(replace(LEADER, spec_head="badc0de", spec_trouble="invalid", stopped="by ops")))
    assert value(samples, "reconciler_leader") == 1
    assert value(samples, "reconciler_stopped") == 1
    assert value(samples, "reconciler_spec_in_force") == 1
    assert value(samples, "reconciler_time_scale_ratio") == 1
    assert value(samples, "reconciler_spec_trouble") == 1
    assert value(samples, "reconciler_spec_info", commit="c0ffee", head="badc0de", trouble="invalid") == 1
    assert value(samples, "reconciler_last_pass_timestamp_seconds") == NOW.timestamp() - 30
    samples = scrape(metrics(LoopStatus(Role.STANDBY, "c0ffee")))
    assert value(samples, "reconciler_leader") == 0
    assert value(samples, "reconciler_spec_trouble") == 0
    assert names(samples, "reconciler_last_pass_timestamp_seconds") == []


def test_what_a_pass_found() -> None:
    found = metrics()
    assert names(scrape(found), "reconciler_nodes") == []
    found.passed(FLEET)
    samples = scrape(found)
    since = "reconciler_node_status_since_timestamp_seconds"
    assert value(samples, since, node="gpu-2", pool="train", status="blocked") == NOW.timestamp() - 3 * 3600
    assert value(samples, since, node='odd"\\', pool="infer", status="waiting") == NOW.timestamp()
    out = "reconciler_node_out_of_service_since_timestamp_seconds"
    assert names(samples, out) == [{"node": "gpu-2", "pool": "train"}]
    assert value(samples, out, node="gpu-2", pool="train") == NOW.timestamp() - 4 * 3600
    assert value(samples, "reconciler_nodes", pool="train", status="converged") == 1
    assert value(samples, "reconciler_nodes", pool="train", status="held") == 0
    assert value(samples, "reconciler_drift_items", **{"concern": "bios", "class": "drifted"}) == 7
    assert value(samples, "reconciler_drift_items", **{"concern": "image", "class": "pending"}) == 0
    fleet = {"scope": "fleet", "reasons": "", "per": "", "during": ""}
    assert value(samples, "reconciler_budget_limit_nodes", **fleet) == 2, "the stricter of two"
    assert value(samples, "reconciler_budget_out_nodes", **fleet) == 1
    rack = {"scope": "rack r1", "reasons": "drift change", "per": "1h00m", "during": ""}
    assert value(samples, "reconciler_budget_active", **rack) == 0
    oldest = "reconciler_observation_oldest_timestamp_seconds"
    assert value(samples, oldest, source="redfish") == NOW.timestamp() - 300
    assert value(samples, "reconciler_observation_silent_nodes", source="ssh", reason="timeout") == 1
    assert value(samples, "reconciler_rollout_halted", pool="train") == 1
    assert value(samples, "reconciler_pass_duration_seconds_count") == 1
    assert value(samples, "reconciler_pass_duration_seconds_sum") == 12


def test_plans_that_were_kept_wrongly_can_be_alerted_on() -> None:
    found, wrong = metrics(), "reconciler_kept_plans_wrong_total"
    assert value(scrape(found), wrong) == 0
    found.planned(3, 97, 0)
    found.planned(1, 99, 2)
    samples = scrape(found)
    assert value(samples, wrong) == 2
    assert value(samples, "reconciler_node_plans_total", how="made") == 4
    assert value(samples, "reconciler_node_plans_total", how="kept") == 196


def test_a_watch_that_fails_says_since_when() -> None:
    found, since = metrics(), "reconciler_watch_deaf_since_timestamp_seconds"
    assert names(scrape(found), since) == []
    found.deaf(NewsSource.CLUSTER, NOW)
    assert value(scrape(found), since) == NOW.timestamp()
    found.deaf(NewsSource.CLUSTER, None)
    assert names(scrape(found), since) == [], "it works"


def test_what_is_gone_leaves_no_series() -> None:
    found = metrics()
    found.passed(FLEET)
    moved = replace(FLEET, nodes={"gpu-1": replace(FLEET.nodes["gpu-1"], status=NodeStatus.HELD)}, budget=(), halted=())
    found.passed(moved)
    samples = scrape(found)
    since = names(samples, "reconciler_node_status_since_timestamp_seconds")
    assert since == [{"node": "gpu-1", "pool": "train", "status": "held"}]
    assert names(samples, "reconciler_budget_limit_nodes") == []
    assert names(samples, "reconciler_rollout_halted") == []


def test_actions_are_counted_by_outcome() -> None:
    port: Metrics = (found := metrics())
    port.acted("update_firmware", "done", 700.0)
    port.acted("update_firmware", "done", 100.0)
    port.acted("update_firmware", "transient", 5.0)
    samples = scrape(found)
    assert value(samples, "reconciler_actions_total", action="update_firmware", outcome="done") == 2
    assert value(samples, "reconciler_actions_total", action="update_firmware", outcome="transient") == 1
    assert value(samples, "reconciler_action_duration_seconds_count", action="update_firmware") == 3
    assert value(samples, "reconciler_action_duration_seconds_sum", action="update_firmware") == 805
    assert value(samples, "reconciler_action_duration_seconds_bucket", action="update_firmware", le="120.0") == 2


def everything() -> PrometheusMetrics:
    found = metrics()
    found.passed(FLEET)
    found.acted("drain", "done", 60.0)
    return found


def test_prometheus_gets_what_it_asks_for() -> None:
    code, media, text = serving(
        everything(), lambda url: get(f"{url}/metrics", Accept=OPEN_METRICS, **{"Accept-Encoding": "gzip"})
    )
    assert code == 200
    assert media.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert {"reconciler_actions", "reconciler_spec"} <= {family.name for family in parse_open(text)}


def test_names_follow_the_conventions() -> None:
    """https://prometheus.io/docs/practices/naming/, and promtool where it is installed."""
    _, _, text = serving(everything(), lambda url: get(f"{url}/metrics"))
    ours = [family for family in parse_text(text) if family.name.startswith("reconciler_")]
    assert len(ours) > 15
    for family in ours:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", family.name)
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")) or family.type == "counter"
        assert (family.type == "counter") == any(sample.name.endswith("_total") for sample in family.samples)
        if re.search("duration|timestamp", family.name):
            assert family.name.endswith("_seconds")
        assert len({(s.name, frozenset(s.labels.items())) for s in family.samples}) == len(family.samples)
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_ten_thousand_nodes_are_one_scrape() -> None:
    """Each node has one series, and one more while it is out; nothing else grows with the nodes."""
    few, many = everything(), everything()
    since = NOW - timedelta(hours=1)
    nodes = {
        f"gpu-{number:05}": NodeReport("train", NodeStatus.CONVERGED, since, since if number < 100 else None)
        for number in range(10_000)
    }
    many.passed(replace(FLEET, nodes=nodes))
    before, started = len(scrape(few)), time.monotonic()
    samples = scrape(many)
    assert time.monotonic() - started < 15
    assert len(samples) - before <= 10_000 + 100
    assert len(samples) < 10_500


def test_the_error_budget_of_a_persona_burns_by_what_is_out_now() -> None:
    found = metrics()
    personas = {"training": PersonaStatus(98, 2, 0.99), "infer": PersonaStatus(3, 1), "new": PersonaStatus(0, 0, 0.9)}
    found.passed(replace(FLEET, personas=personas, incidents={("fabric", "rack r1"): 4}))
    samples = scrape(found)
    assert value(samples, "reconciler_availability_ratio", persona="training") == pytest.approx(0.98)
    assert value(samples, "reconciler_availability_objective_ratio", persona="training") == pytest.approx(0.99)
    assert value(samples, "reconciler_error_budget_burn_ratio", persona="training") == pytest.approx(2.0)
    assert value(samples, "reconciler_availability_ratio", persona="infer") == pytest.approx(0.75)
    assert names(samples, "reconciler_error_budget_burn_ratio") == [{"persona": "training"}], "unknown is no number"
    assert value(samples, "reconciler_incident_nodes", signal="fabric", scope="rack r1") == 4
