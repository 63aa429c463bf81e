"""Failures of KubectlCluster: the kind says what a caller may conclude, the detail has the evidence."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.kube import KubectlCluster
from reconciler.lab.fleet import add_default_pods
from reconciler.model.errors import Failure
from reconciler.model.observed import Answered, Member, Pod, Silent
from reconciler.model.vocab import UnknownReason
from tests.drivers.kube.bench import NOW, TOKEN, Bench, Pki, make_pki, running
from tests.drivers.kube.test_cluster import MARK, failure, run

pytestmark = [pytest.mark.wire, pytest.mark.tool]


def config(bench: Bench, path: Path, **changes: str) -> Path:
    """Another kubeconfig: `server`, `token` or `ca` differ."""
    text = bench.kubeconfig.read_text()
    document = json.loads(text)
    if "server" in changes:
        document["clusters"][0]["cluster"]["server"] = changes["server"]
    if "ca" in changes:
        document["clusters"][0]["cluster"]["certificate-authority-data"] = changes["ca"]
    if "token" in changes:
        document["users"][0]["user"]["token"] = changes["token"]
    path.write_text(json.dumps(document))
    return path


def silence(driver: KubectlCluster) -> Silent:
    reading = run(driver.state())
    assert isinstance(reading, Silent), reading
    assert reading.at == NOW
    return reading


def some_pod(bench: Bench) -> Pod:
    made = bench.on_loop(lambda: bench.truth.add_pod("default", "victim", "gpu-001", ("", "")))
    return Pod("default", "victim", made.uid, "Running", "", True)


def some_member(bench: Bench) -> Member:
    found = run(bench.driver().member("gpu-001"))
    assert found is not None
    return found


# --- reads: Silent, with the reason -----------------------------------------------------------------------------------


def test_a_wrong_token_is_auth(bench: Bench, tmp_path: Path) -> None:
    driver = bench.driver(kubeconfig=config(bench, tmp_path / "wrong", token="not-the-token"))
    reading = silence(driver)
    assert reading.reason is UnknownReason.AUTH
    assert "Unauthorized" in reading.detail
    assert failure(driver.member("gpu-001")).kind is Failure.AUTH


def test_a_server_that_our_ca_did_not_sign_is_auth(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = json.loads(bench.front.kubeconfig("https://x", make_pki(tmp_path / "other").ca_pem, TOKEN))
    ca = other["clusters"][0]["cluster"]["certificate-authority-data"]
    reading = silence(bench.driver(kubeconfig=config(bench, tmp_path / "wrong", ca=ca)))
    assert reading.reason is UnknownReason.AUTH
    assert "x509" in reading.detail


def test_a_context_that_does_not_exist_is_auth(bench: Bench) -> None:
    reading = silence(bench.driver(context="production"))
    assert reading.reason is UnknownReason.AUTH
    assert "production" in reading.detail


def test_nobody_at_the_address_is_unreachable(bench: Bench, tmp_path: Path) -> None:
    driver = bench.driver(kubeconfig=config(bench, tmp_path / "wrong", server="https://127.0.0.1:1"))
    assert silence(driver).reason is UnknownReason.UNREACHABLE


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang", UnknownReason.TIMEOUT),
        ("reset", UnknownReason.UNREACHABLE),
        ("unavailable", UnknownReason.UNREACHABLE),
        ("garbage", UnknownReason.MALFORMED),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_a_server_that_fails(bench: Bench, fault: Any, reason: UnknownReason, warm: bool) -> None:
    driver = bench.driver(timeout_s=1)
    if warm:  # the version is known by then, and the lists are what fails
        assert isinstance(run(driver.state()), Answered)
    bench.front.fault = fault
    began = time.monotonic()
    reading = silence(driver)
    assert reading.reason is reason, reading.detail
    assert reading.detail
    assert time.monotonic() - began < 4


def test_a_cluster_that_is_down_comes_back(bench: Bench) -> None:
    driver = bench.driver(timeout_s=2)
    bench.truth.down = True
    assert silence(driver).reason is UnknownReason.UNREACHABLE
    bench.truth.down = False
    assert isinstance(run(driver.state()), Answered)


def test_no_kubectl_says_how_to_get_one(bench: Bench) -> None:
    driver = bench.driver(kubectl="kubectl-that-is-not-there")
    reading = silence(driver)
    assert reading.reason is UnknownReason.UNSUPPORTED
    assert "kubernetes-client" in reading.detail
    assert failure(driver.evict(some_pod(bench), grace_s=None)).kind is Failure.UNSUPPORTED


def fake_kubectl(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_a_kubectl_that_is_too_old_says_so(bench: Bench, tmp_path: Path) -> None:
    versions = '{"clientVersion":{"gitVersion":"v1.18.3"}}'
    reading = silence(bench.driver(kubectl=fake_kubectl(tmp_path / "old", f"echo '{versions}'")))
    assert reading.reason is UnknownReason.UNSUPPORTED
    assert "v1.18.3" in reading.detail


def test_an_unparsable_kubeconfig_does_not_reach_the_report(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text('{"users": [{"name": "u", "user": {"token": 7, "password": "s3cret"}}]}')
    reading = silence(bench.driver(kubeconfig=tmp_path / "broken"))
    assert reading.reason is UnknownReason.AUTH
    assert "s3cret" not in reading.detail


def test_the_ambient_kubeconfig_is_used_only_when_told(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(bench.kubeconfig))
    elsewhere = config(bench, tmp_path / "elsewhere", server="https://127.0.0.1:1")
    assert silence(bench.driver(kubeconfig=elsewhere)).reason is UnknownReason.UNREACHABLE
    ambient = KubectlCluster(kubeconfig=None, context=None, kubectl=bench.program, timeout_s=10, now=lambda: NOW)
    assert isinstance(run(ambient.state()), Answered)


# --- writes: ambiguous unless somebody said no ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["hang", "lost_answer"])
def test_a_write_without_an_answer_is_ambiguous(bench: Bench, fault: Any) -> None:
    pod, driver = some_pod(bench), bench.driver(timeout_s=1)
    run(driver.state())
    bench.front.fault = fault
    assert failure(driver.evict(pod, grace_s=0)).kind is Failure.AMBIGUOUS
    left = bench.on_loop(lambda: [pod.name for pod in bench.truth.pods()])
    assert ("victim" in left) is (fault == "hang"), "ambiguous is the truth: it may have happened"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("hang", Failure.AMBIGUOUS),
        ("lost_answer", Failure.AMBIGUOUS),
        ("reset", Failure.AMBIGUOUS),
        ("unavailable", Failure.BUSY),
        ("garbage", Failure.AMBIGUOUS),
    ],
)
def test_a_mark_on_a_server_that_fails(bench: Bench, fault: Any, kind: Failure) -> None:
    member, driver = some_member(bench), bench.driver(timeout_s=1)
    run(driver.mark(member, MARK))  # kubectl has seen the discovery documents by now
    run(driver.unmark(some_member(bench), uncordon=True))
    member = some_member(bench)
    bench.front.fault = fault
    error = failure(driver.mark(member, MARK))
    assert error.kind is kind, error.detail
    bench.front.fault = ""
    assert some_member(bench).unschedulable is (fault == "lost_answer")


def test_a_write_to_nobody_did_not_happen(bench: Bench, tmp_path: Path) -> None:
    driver = bench.driver(kubeconfig=config(bench, tmp_path / "wrong", server="https://127.0.0.1:1"))
    assert failure(driver.mark(some_member(bench), MARK)).kind is Failure.UNREACHABLE
    assert failure(driver.delete(some_pod(bench), grace_s=None)).kind is Failure.UNREACHABLE


def test_a_webhook_that_forbids_an_eviction_is_quoted(bench: Bench, tmp_path: Path) -> None:
    """It may answer with 400, as a server does that has another version of the eviction API only."""
    denied = 'admission webhook "pods.example.com" denied the request: it saves a checkpoint'
    for name, message in (("first", denied), ("second", 'Eviction in version "v1beta1" cannot be handled')):
        answer = {"kind": "Status", "status": "Failure", "message": message, "reason": "BadRequest", "code": 400}
        text = f"I1121 12:00:00.0 1 helpers.go:246] server response object: [{json.dumps(answer, indent=2)}]\n"
        (tmp_path / name).write_text(f"{text}Error from server (BadRequest): {message}\n")
    body = f"""case "$*" in *eviction*) cat {tmp_path}/first >&2; mv {tmp_path}/second {tmp_path}/first; exit 1;; esac
exec {bench.program} "$@\""""
    driver = bench.driver(kubectl=fake_kubectl(tmp_path / "kubectl", body))
    error = failure(driver.evict(some_pod(bench), grace_s=None))
    assert error.kind is Failure.REJECTED
    assert denied in error.detail


def test_a_write_that_is_not_allowed_is_auth(bench: Bench, tmp_path: Path) -> None:
    driver = bench.driver(kubeconfig=config(bench, tmp_path / "wrong", token="not-the-token"))
    assert failure(driver.evict(some_pod(bench), grace_s=None)).kind is Failure.AUTH
    assert failure(driver.mark(some_member(bench), MARK)).kind is Failure.AUTH


def test_a_budget_that_never_yields_stays_busy(bench: Bench) -> None:
    pod, driver = some_pod(bench), bench.driver()
    bench.on_loop(lambda: bench.truth.machines["gpu-001"].inject("pdb_never_yields"))
    for _ in range(3):
        error = failure(driver.evict(pod, grace_s=0))
        assert error.kind is Failure.BUSY
        assert "never-gpu-001" in error.detail


# --- the child --------------------------------------------------------------------------------------------------------


def _alive(pid_file: Path) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
        return (Path("/proc") / pid_file.read_text().strip() / "stat").read_text().split()[2] != "Z"
    return False


@pytest.mark.parametrize("output", ["", "head -c 3000000 /dev/zero;"])
def test_cancelling_kills_the_child_and_what_it_started(bench: Bench, tmp_path: Path, output: str) -> None:
    """Also while its pipes are full of what nobody reads any more."""
    script = f"{output} sleep 60 & echo $! > {tmp_path}/grandchild; echo $$ > {tmp_path}/child; wait"
    driver = bench.driver(kubectl=fake_kubectl(tmp_path / "slow", script), timeout_s=30)

    async def cancelled() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.7):
                await driver.state()

    began = time.monotonic()
    asyncio.run(cancelled())
    assert time.monotonic() - began < 3
    assert not _alive(tmp_path / "child")
    assert not _alive(tmp_path / "grandchild")


def test_a_kubectl_that_hangs_is_killed(bench: Bench, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/child; exec sleep 60"
    driver = bench.driver(kubectl=fake_kubectl(tmp_path / "slow", script), timeout_s=0.5)
    assert silence(driver).reason is UnknownReason.TIMEOUT
    assert not _alive(tmp_path / "child")


# --- other servers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1.20.2", "v1.24.0", "v1.33.1"])
@pytest.mark.parametrize("known", [True, False])
def test_every_servers_eviction_api_is_spoken(pki: Pki, tmp_path: Path, version: str, known: bool) -> None:
    with running(pki, tmp_path, version=version) as bench:
        pod = some_pod(bench)
        driver = bench.driver()
        if not known:  # the answer to the eviction must do: a version that nobody can read
            driver._versions = ("v1.32.0", "unreadable")
        run(driver.evict(pod, grace_s=0))
        assert bench.on_loop(lambda: [pod.name for pod in bench.truth.pods()]) == []


def test_long_lists_come_in_pages(pki: Pki, tmp_path: Path) -> None:
    with running(pki, tmp_path, nodes=1) as bench:
        bench.on_loop(lambda: [bench.truth.add_pod("default", f"pod-{n:04}", "gpu-001", ("", "")) for n in range(2500)])
        reading = run(bench.driver().state())
        assert isinstance(reading, Answered)
        assert len({pod.uid for pod in reading.value.members["gpu-001"].pods}) == 2500


@pytest.mark.parametrize("times", [1, 2])
def test_a_list_whose_pages_expire_is_read_again_once(
    bench: Bench, tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake that answers 410 to the second page, `times` times. Both versions take one kubectl, after the lists.

    Each of them collects garbage late, unless our own environment says when.
    """
    monkeypatch.setenv("GOGC", "50") if times == 2 else monkeypatch.delenv("GOGC", raising=False)
    gone = '{"status":"Failure","message":"too old","reason":"Expired","code":410}'
    script = f"""echo "$GOGC $*" >> {tmp_path}/asked
    case "$*" in
    *version*) echo '{{"serverVersion":{{"gitVersion":"v1.31.4"}},"clientVersion":{{"gitVersion":"v1.32.0"}}}}';;
    *pods*) echo '{{"kind":"PodList","metadata":{{}},"items":[]}}';;
    *apis*) echo '{{"kind":"APIGroupList","groups":[]}}';;
    *continue=tok*)
        if [ "$(wc -l < {tmp_path}/gone)" -lt {times} ]; then
            echo >> {tmp_path}/gone
            echo 'I1121 09:20:21.5 1 helpers.go:1] server response object: [{gone}]' >&2
            echo 'Error from server (Expired): too old' >&2
            exit 1
        fi
        echo '{{"kind":"NodeList","metadata":{{}},"items":[]}}';;
    *) echo '{{"kind":"NodeList","metadata":{{"continue":"tok"}},"items":[]}}';;
    esac"""
    (tmp_path / "gone").touch()
    reading = run(bench.driver(kubectl=fake_kubectl(tmp_path / "paged", script)).state())
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [at for at, words in enumerate(asked) if "version" in words] == [len(asked) - 1]
    assert {words.split()[0] for words in asked} == {"400" if times == 1 else "50"}
    if times == 1:
        assert isinstance(reading, Answered), reading
        assert (reading.value.client_version, reading.value.server_version) == ("v1.32.0", "v1.31.4")
    else:
        assert isinstance(reading, Silent)
        assert reading.reason is UnknownReason.UNREACHABLE


def test_a_usual_gpu_node_has_two_pods_to_evict(bench: Bench) -> None:
    """DaemonSets, a mirror pod and a finished job are none of them."""
    bench.on_loop(lambda: add_default_pods(bench.truth, "gpu-001", gpus=0, busy=True))
    pods = some_member(bench).pods
    assert {pod.name for pod in pods if pod.evictable} == {"trainer-gpu-001-0", "router-gpu-001"}
    assert {pod.owner_kind for pod in pods if not pod.evictable} == {"DaemonSet", "Node"}


def test_no_token_in_anything_that_is_told(bench: Bench, tmp_path: Path) -> None:
    told = []
    for change in ({"token": "s3cret-token"}, {"server": "https://127.0.0.1:1"}):
        driver = bench.driver(kubeconfig=config(bench, tmp_path / "wrong", **{"token": "s3cret-token"} | change))
        told += [silence(driver).detail, failure(driver.mark(some_member(bench), MARK)).detail]
    assert all(told)
    assert not [text for text in told if "s3cret-token" in text]
