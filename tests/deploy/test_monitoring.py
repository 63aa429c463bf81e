"""Alert rules and dashboard: real promtool takes them, and they ask for metrics that `run` serves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.status import PrometheusMetrics
from reconciler.model.notices import ChannelStatus
from reconciler.model.status import FleetStatus, LoopStatus
from reconciler.model.vocab import NewsSource
from tests.conftest import ROOT

RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
CASES = RULES.with_name("rules_test.yaml")
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.json"
NAMED = re.compile(r"\breconciler_\w+\b")

promtool = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool (Debian: prometheus)"),
]


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text())


def rules() -> list[dict[str, Any]]:
    (group,) = load(RULES)["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def ask(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True)


def served() -> set[str]:
    """Every metric that `run` serves, by the names of its series."""
    found, at = PrometheusMetrics(), datetime(2026, 1, 1, tzinfo=UTC)
    found.loop_status(LoopStatus(last_pass=at))
    found.passed(FleetStatus(started_at=at, ended_at=at))
    found.channels({"oncall": ChannelStatus()})
    found.ledger_bytes = 0
    for source in NewsSource:
        found.deaf(source, at)
    suffixes = {"counter": ("_total",), "info": ("_info",), "histogram": ("_bucket", "_count", "_sum")}
    return {name.name + end for name in found.registry.collect() for end in suffixes.get(name.type, ("",))}


def expressions() -> dict[str, str]:
    """Each PromQL of the dashboard, by panel, with its variables filled in."""
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        f"{one['title']} {target['refId']}": target["expr"] for one in dashboard["panels"] for target in one["targets"]
    }
    asked |= {one["name"]: one["expr"] for one in dashboard["annotations"]["list"]}
    return {name: text.replace("$__rate_interval", "5m") for name, text in asked.items()}


# --- alerts -----------------------------------------------------------------------------------------------------------


def test_each_alert_says_what_to_do_and_names_a_page() -> None:
    for rule in rules():
        said = rule["annotations"]
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert len(said["summary"].split()) > 8, rule["alert"]
        page, _, anchor = said["docs"].partition("#")
        heads = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^\w\- ]", "", head).lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("asked", [*(one["expr"] for one in rules()), *expressions().values()])
def test_what_is_asked_for_is_served(asked: str) -> None:
    assert set(NAMED.findall(asked)) <= served()


def test_alerts_are_tried_on_what_is_served() -> None:
    """Of each alert, a case in which it fires and one in which it does not; of some, more than one."""
    tried = {
        (case["alertname"], bool(case.get("exp_alerts")))
        for one in load(CASES)["tests"]
        for case in one["alert_rule_test"]
    }
    assert tried == {(rule["alert"], fires) for rule in rules() for fires in (True, False)}
    series = {
        name for one in load(CASES)["tests"] for row in one["input_series"] for name in NAMED.findall(row["series"])
    }
    assert series - served() == {"reconciler_other"}, "which stands for a Prometheus that scrapes something else"


def _promtool(test: Any) -> Any:
    for mark in promtool:
        test = mark(test)
    return test


@_promtool
def test_prometheus_takes_the_rules_and_they_fire_when_they_should() -> None:
    checked = ask("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stderr
    tried = ask("test", "rules", CASES)
    assert tried.returncode == 0, tried.stdout + tried.stderr


@_promtool
@pytest.mark.parametrize("changed", ["never", "always"])
def test_the_cases_notice_alerts_that_never_or_always_fire(tmp_path: Path, changed: str) -> None:
    shutil.copy(CASES, tmp_path)
    broken = {"expr": "vector(0) > 1" if changed == "never" else "vector(1)", "for": "0s"}
    found = {"groups": [{"name": "reconciler", "rules": [rule | broken for rule in rules()]}]}
    (tmp_path / RULES.name).write_text(json.dumps(found))
    said = ask("test", "rules", tmp_path / CASES.name)
    assert said.returncode != 0
    wanted = "fires" if changed == "never" else "does not"
    assert {rule["alert"] for rule in rules()} <= set(re.findall(rf"name: (\w+) {wanted}", said.stdout + said.stderr))


# --- dashboard --------------------------------------------------------------------------------------------------------


@_promtool
def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    rows = [{"record": f"panel_{number}", "expr": asked} for number, asked in enumerate(expressions().values())]
    file = tmp_path / "dashboard.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rows}]}))
    checked = ask("check", "rules", file)
    assert checked.returncode == 0, checked.stderr
    file.write_text(file.read_text().replace("topk(50, ", "topk("))
    assert ask("check", "rules", file).returncode != 0


def test_panels_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    dashboard = json.loads(DASHBOARD.read_text())
    for one in dashboard["panels"]:
        at = one["gridPos"]
        cells = {(at["x"] + right, at["y"] + down) for right in range(at["w"]) for down in range(at["h"])}
        assert not cells & taken, one["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({one["id"] for one in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_dashboard_has_its_data_from_what_is_chosen() -> None:
    """No name of anybody's data source, and no variable that nobody declares."""
    dashboard = json.loads(DASHBOARD.read_text())
    declared = {one["name"] for one in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__rate_interval", "__all"} == declared
    for one in dashboard["panels"]:
        assert {target["datasource"]["uid"] for target in one["targets"]} == {"${datasource}"}
