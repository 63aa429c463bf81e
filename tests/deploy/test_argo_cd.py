"""The health of the fleet as Argo CD shows it: the leader's words, the chart's object, the script in a real Lua 5.1."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.app.fleet_health import ANEW_S, HealthWord, fleet_health, kept_health
from reconciler.app.kept_object import KeptObject
from reconciler.converge.events import LoopTold
from reconciler.drivers.kube import HealthMap
from reconciler.model.status import FleetStatus, LoopStatus, NodeReport, NodeStatus, Role
from tests.conftest import ROOT
from tests.deploy.test_chart import only, rendered
from tests.deploy.test_two_pods import SPACE, ApiServer, serving
from tests.docs.pages import first_words

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SCRIPT = ROOT / "deploy" / "argo-cd" / "argocd-cm.yaml"
HEALTH = '{"health": true}'
# Of its libraries Argo CD opens package, base and table, and of `os` the times (argo-cd, util/lua/lua.go).
SANDBOX = "math, string, io, debug, coroutine = nil; os = {time = os.time, date = os.date}\n"


def fleet(**statuses: NodeStatus) -> FleetStatus:
    return FleetStatus(NOW, NOW, {name: NodeReport("train", status, NOW) for name, status in statuses.items()})


LEADS = LoopStatus(Role.LEADER, spec_commit="c0ffee", last_pass=NOW)
GOOD = fleet(a=NodeStatus.CONVERGED, b=NodeStatus.HELD, c=NodeStatus.UNKNOWN)
STUCK = fleet(**{f"n{at}": NodeStatus.BLOCKED for at in range(7)})


@pytest.mark.parametrize(
    ("loop", "seen", "word", "message"),
    [
        (LEADS, None, "Progressing", "the first pass has not ended"),
        (LEADS, GOOD, "Healthy", "nodes: 1 converged, 1 held, 1 unknown"),
        (LEADS, fleet(a=NodeStatus.WAITING, b=NodeStatus.CONVERGED), "Progressing", "nodes: 1 converged, 1 waiting"),
        (replace(LEADS, stopped="by ops"), STUCK, "Suspended", "the fleet is stopped: by ops"),
        (LEADS, STUCK, "Degraded", "a person must look at n0, n1, n2, n3, n4 and 2 more: reconciler explain NODE"),
        (replace(LEADS, stopped="5 of 9"), replace(GOOD, braked="5 of 9"), "Degraded", "the storm brake is on: 5 of 9"),
        (
            replace(LEADS, last_pass=NOW - timedelta(seconds=901)), GOOD,
            "Degraded", "the last pass ended 901 s ago, 900 s are allowed",
        ),
        (replace(LEADS, last_pass=None), GOOD, "Progressing", "the first pass has not ended"),
        (LEADS, replace(GOOD, halted=("train",)), "Degraded", "rollouts are halted: train"),
        (replace(LEADS, spec_trouble="unsigned"), GOOD, "Degraded", "the newest commit is not in force: unsigned"),
        (
            LoopStatus(Role.LEADER, spec_trouble="invalid"), STUCK,
            "Degraded", "no spec is in force: the newest commit is invalid",
        ),
    ],
)  # fmt: skip
def test_the_leader_says_how_the_fleet_is(loop: LoopStatus, seen: FleetStatus | None, word: str, message: str) -> None:
    found = fleet_health(loop, seen, NOW)
    assert (found.word, found.message) == (HealthWord(word), message)


def test_a_long_message_is_cut() -> None:
    assert len(fleet_health(LEADS, replace(GOOD, braked="x" * 1000), NOW).message) == 500


def lua(value: Any) -> str:
    """Write a JSON value as one of Lua."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {lua(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


def shown(item: dict[str, Any]) -> tuple[str, str]:
    """What Argo CD shows of an object: status and message."""
    program = shutil.which("lua5.1")
    if program is None:
        pytest.skip("there is no lua5.1 program")
    script = YAML(typ="safe").load(SCRIPT)["data"]["resource.customizations.health.ConfigMap"]
    asked = f"{SANDBOX}obj = {lua(item)}\nlocal found = (function()\n{script}\nend)()\n"
    told = f"{asked}print_(found.status)\nprint_(found.message)\n"
    done = subprocess.run([program, "-"], input=f"local print_ = print\n{told}", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, _, message = done.stdout.partition("\n")
    return status, message.rstrip("\n")


@pytest.mark.tool
def test_argo_cd_shows_what_was_said_and_when_nobody_says_anything_any_more() -> None:
    item: dict[str, Any] = {"metadata": {"name": "reconciler-fleet", "labels": {"reconciler.dev/health": "fleet"}}}
    assert shown(item) == ("Progressing", "no reconciler has said how the fleet is yet")
    said = {"health": "Suspended", "message": 'the fleet is stopped: by ops: "cables"', "at": str(int(time.time()))}
    assert shown(item | {"data": said}) == ("Suspended", said["message"])
    old = said | {"at": str(int(time.time() - 3 * ANEW_S - 65))}
    word, why = shown(item | {"data": old})
    assert word == "Degraded"
    assert why.startswith("nobody has led the fleet for 16 minutes")
    for other in ({"name": "x"}, {"name": "x", "labels": {"app": "y"}}):
        assert shown({"metadata": other, "data": {"health": "Degraded"}}) == ("Healthy", "")


@pytest.mark.tool
@pytest.mark.wire
def test_argo_cd_gets_the_script_as_the_page_says(tmp_path: Path) -> None:
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", "namespace": "argocd"},
              "data": {"url": "https://cd.example"}}  # fmt: skip
    with serving(ApiServer({}, [theirs]), tmp_path) as kubeconfig:
        env = os.environ | {"KUBECONFIG": os.fspath(kubeconfig)}
        done = subprocess.run(first_words("how-to/kubectl"), env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert theirs["data"] == {"url": "https://cd.example", **YAML(typ="safe").load(SCRIPT)["data"]}


@pytest.mark.tool
def test_the_chart_has_the_object_only_where_it_is_asked_for() -> None:
    assert not [one for one in rendered() if one["metadata"]["name"] == "reconciler-fleet"]
    documents = rendered(f"argocd={HEALTH}")
    found = {one["kind"]: one for one in documents if one["metadata"]["name"] == "reconciler-fleet"}
    assert found.keys() == {"ConfigMap", "Role", "RoleBinding"}
    assert "data" not in found["ConfigMap"], "Argo CD would set it back"
    (rule,) = found["Role"]["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["configmaps"], ["reconciler-fleet"])
    (container,) = only("Deployment", documents)["spec"]["template"]["spec"]["containers"]
    assert "--health-map=$(POD_NAMESPACE)/reconciler-fleet" in container["args"]


async def comes(there: Callable[[], bool]) -> None:
    for _ in range(600):
        if there():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


@pytest.mark.tool
@pytest.mark.wire
def test_the_leader_writes_it_through_kubectl_and_a_standby_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = rendered(f"argocd={HEALTH}")
    (item,) = (one for one in documents if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "reconciler-fleet")
    api = ApiServer({}, [item])
    loop, told = replace(LEADS, role=Role.STANDBY), list[Any]()

    async def work() -> None:
        nonlocal loop
        target = HealthMap(f"{SPACE}/reconciler-fleet")
        often = replace(kept_health(target, lambda: loop, lambda: GOOD, lambda: NOW), look_s=0.1)
        kept = KeptObject(often, told.append)
        await asyncio.sleep(1.0)
        assert "data" not in item, "a standby wrote"
        loop = LEADS
        await comes(lambda: "data" in item)
        await kept.close()
        api.refuses = True
        kept = KeptObject(often, told.append)
        await comes(lambda: bool(told))
        await kept.close()

    with serving(api, tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", os.fspath(kubeconfig))
        asyncio.run(work())
    assert item["data"]["commit"] == "c0ffee"
    assert shown(item) == ("Healthy", "nodes: 1 converged, 1 held, 1 unknown")
    (problem,) = told
    assert isinstance(problem, LoopTold)
    assert problem.problem
    assert f"configmap {SPACE}/reconciler-fleet does not say how the fleet is" in problem.message
