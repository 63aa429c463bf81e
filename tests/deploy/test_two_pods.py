"""Two pods of the chart, as two processes of `run`: what its Service selects is the one that leads, at every time."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconciler.drivers.kube import OwnPod
from reconciler.lab.wire.kube import KubeServer
from reconciler.model.errors import UsageError
from tests.cli.shell import LabDirectory, running_lab, started, until
from tests.cli.test_run import free_port
from tests.deploy.test_chart import only, rendered
from tests.drivers.kube.bench import TOKEN, kubectl, make_pki

pytestmark = [pytest.mark.tool, pytest.mark.wire, pytest.mark.xdist_group("lab")]
SPACE, PODS = "reconciler", ("reconciler-0", "reconciler-1")


class ApiServer:
    """Pods with labels, and ConfigMaps, in an API server as kubectl asks it. `refuses`: it has taken the right away."""

    def __init__(self, labels: Mapping[str, str], maps: Sequence[dict[str, Any]] = ()) -> None:
        self.maps = {one["metadata"]["name"]: one for one in maps}
        self.pods = {
            name: {"apiVersion": "v1", "kind": "Pod",
                   "metadata": {"name": name, "namespace": SPACE, "labels": dict(labels)}}
            for name in PODS
        }  # fmt: skip
        self.refuses = False
        self.told: list[tuple[str, str]] = []  # pod and role, in turn

    def app(self) -> web.Application:
        made = web.Application()
        one = f"/api/v1/namespaces/{SPACE}/pods/{{name}}"
        made.add_routes([
            web.get("/api", self._fixed({"kind": "APIVersions", "versions": ["v1"]})),
            web.get("/apis", self._fixed({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
            web.get("/api/v1", self._fixed({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "shortNames": ["po"],
                 "verbs": ["get", "patch"]},
                {"name": "configmaps", "singularName": "configmap", "namespaced": True, "kind": "ConfigMap",
                 "shortNames": ["cm"], "verbs": ["get", "patch"]},
            ]})),
            web.get(one, self._get), web.patch(one, self._patch),
            web.get("/api/v1/namespaces/{space}/configmaps/{name}", self._get_map),
            web.patch("/api/v1/namespaces/{space}/configmaps/{name}", self._patch_map),
        ])  # fmt: skip
        return made

    @staticmethod
    def _fixed(document: Any) -> Any:
        async def answer(_request: web.Request) -> web.Response:
            return web.json_response(document)

        return answer

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self.pods[request.match_info["name"]])

    async def _get_map(self, request: web.Request) -> web.Response:
        return web.json_response(self.maps[request.match_info["name"]])

    async def _patch_map(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if (refused := self._refused(request, "configmaps", name)) is not None:
            return refused
        patch = json.loads(await request.text())
        assert patch.keys() == {"data"}
        self.maps[name].setdefault("data", {}).update(patch["data"])
        return web.json_response(self.maps[name])

    def _refused(self, request: web.Request, kind: str, name: str) -> web.Response | None:
        assert request.content_type == "application/merge-patch+json"
        if not self.refuses and request.headers.get("Authorization") == f"Bearer {TOKEN}":
            return None
        said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": f'{kind} "{name}" is forbidden', "details": {"name": name, "kind": kind}}  # fmt: skip
        return web.json_response(said, status=403)

    async def _patch(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if (refused := self._refused(request, "pods", name)) is not None:
            return refused
        patch = json.loads(await request.text())["metadata"]["labels"]
        assert patch.keys() == {"reconciler.dev/role"}
        self.pods[name]["metadata"]["labels"] |= patch  # type: ignore[index]
        self.told.append((name, patch["reconciler.dev/role"]))
        return web.json_response(self.pods[name])


@contextmanager
def serving(server: ApiServer, folder: Path) -> Iterator[Path]:
    """Up while the block runs; its kubeconfig."""
    pki, loop = make_pki(folder), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def up() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(server.app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=pki.server)
        await site.start()
        return runner, site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    runner, port = asyncio.run_coroutine_threadsafe(up(), loop).result(10)
    file = folder / "kubeconfig-of-the-pod"
    file.write_text(KubeServer.kubeconfig(f"https://127.0.0.1:{port}", pki.ca_pem, TOKEN))
    try:
        yield file
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def get(port: int, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or "{}")
    except OSError:
        return 0, {}


class Pair:
    """Both pods of one Deployment."""

    def __init__(self, lab: LabDirectory, api: ApiServer, kubeconfig: Path) -> None:
        documents = rendered()
        (service,) = (one for one in documents if one["kind"] == "Service" and one["metadata"]["name"] == "reconciler")
        self.selector = service["spec"]["selector"].items()
        (container,) = only("Deployment", documents)["spec"]["template"]["spec"]["containers"]
        (self.option,) = (one for one in container["args"] if one.startswith("--pod"))
        self.lab, self.api, self.kubeconfig = lab, api, kubeconfig
        self.ports = {name: free_port() for name in PODS}

    @contextmanager
    def running(self, name: str) -> Iterator[Any]:
        option = self.option.replace("$(POD_NAMESPACE)", SPACE).replace("$(POD_NAME)", name)
        words = self.lab.words("run", "--listen", f"127.0.0.1:{self.ports[name]}", option, "--log", "json")
        with (self.lab.path / f"{name}.log").open("a") as log:
            process = started(*words, env=os.environ | {"KUBECONFIG": str(self.kubeconfig)}, stdout=log, stderr=log)
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def chosen(self) -> list[str]:
        """Whom the Service sends to: pods with its labels that answer the probe of readiness."""
        return [
            name for name, pod in self.api.pods.items()
            if self.selector <= pod["metadata"]["labels"].items()  # type: ignore[index]
            and get(self.ports[name], "/readyz")[0] == 200
        ]  # fmt: skip


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    kubectl()  # skips where there is none
    labels = only("Deployment", rendered())["spec"]["template"]["metadata"]["labels"]
    api = ApiServer(labels)
    with running_lab(tmp_path / "lab", "--scenario", "clean", nodes=2) as lab, serving(api, tmp_path) as kubeconfig:
        yield Pair(lab, api, kubeconfig)


def test_who_asks_the_service_reaches_the_leader(pair: Pair) -> None:
    first, second = PODS
    with ExitStack() as pods:
        leader = pods.enter_context(pair.running(first))
        until(lambda: pair.chosen() == [first], 120)
        pods.enter_context(pair.running(second))
        until(lambda: get(pair.ports[second], "/readyz")[1].get("role") == "standby", 120)
        until(lambda: (second, "standby") in pair.api.told, 30)
        assert get(pair.ports[second], "/readyz")[0] == 200, "a standby is ready: drains may count on it"
        assert pair.chosen() == [first]
        until(lambda: get(pair.ports[first], "/api/v1/nodes")[0] == 200, 60)
        assert get(pair.ports[second], "/api/v1/nodes")[0] == 503, "which is why the Service must not choose it"
        leader.terminate()
        assert leader.wait(60) == 0
        until(lambda: pair.chosen() == [second], 120)
        # Its container is started again: it still has the label of a leader, and loses it before it is ready.
        assert pair.api.pods[first]["metadata"]["labels"]["reconciler.dev/role"] == "leader"  # type: ignore[index]
        pods.enter_context(pair.running(first))
        until(lambda: get(pair.ports[first], "/readyz")[0] == 200, 120)
        until(lambda: pair.api.told[-1] == (first, "standby"), 30)
        assert pair.chosen() == [second]


def test_a_label_that_cannot_be_set_is_told_once_and_stops_nothing(pair: Pair) -> None:
    pair.api.refuses = True
    name = PODS[0]
    with pair.running(name):
        until(lambda: get(pair.ports[name], "/readyz")[1].get("role") == "leader", 120)
        log = pair.lab.path / f"{name}.log"
        until(lambda: "pod_label" in log.read_text(), 60)
        told = [json.loads(line) for line in log.read_text().splitlines() if "pod_label" in line]
        assert "networkPolicy.egress" in told[0]["message"]
        pair.api.refuses = False
        until(lambda: pair.chosen() == [name], 60)


@pytest.mark.parametrize("place", ["pod", "Space/pod", "a/b/c", "a/", "a/b --all"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="NAMESPACE/NAME"):
        OwnPod(place)
