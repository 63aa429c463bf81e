"""A lab on loopback: its files, its servers, its control socket, and an install over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import shutil
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconciler.drivers.endpoints import load_endpoints
from reconciler.gate.trust import verify_image
from reconciler.lab import control
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.lab.install_network import BOOT_MEDIUM
from reconciler.lab.scenario import load_scenario
from reconciler.lab.up import Options, Running, running_lab
from reconciler.model.errors import UsageError
from reconciler.model.install import (
    AttemptCredential,
    InstallStatus,
    dump_contract,
    empty_credential,
    fill_credential,
    load_contract,
)
from tests.lab.machines import CONTENTS, IMAGE, ROOT, document

pytestmark = pytest.mark.wire


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def options(directory: Path, scenario: str = "clean", **more: Any) -> Options:
    return Options(directory, load_scenario(scenario), **more)


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  a machine moves when it is looked at; there is no event
            await asyncio.sleep(0.02)


@in_loop
async def test_everything_is_in_its_directory_and_ready_comes_last(tmp_path: Path) -> None:
    async with running_lab(options(tmp_path, nodes=3)) as running:
        overlay = load_endpoints(tmp_path / "endpoints.json")
        assert (tmp_path / "ready").exists()
        for desired in running.lab.fleet.nodes.values():
            assert desired.endpoints.bmc is not None
            assert desired.endpoints.host is not None
            assert overlay.bmc(desired.endpoints.bmc).url == desired.endpoints.bmc  # a generated spec needs no overlay
            target = overlay.ssh(desired.endpoints.host)
            assert f"{target.host}:{target.port}" == desired.endpoints.host
        for path in ("secrets/bmc.json", "secrets/ssh_ed25519", "kubeconfig", "secrets.yaml"):
            assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o600
        image = next(iter(running.lab.fleet.nodes.values())).profile.image
        assert image is not None
        assert verify_image(image, (tmp_path / "secrets/release.pub").read_text()) is True
        document = json.loads((tmp_path / "endpoints.json").read_text())
        assert document == dict(running.endpoints)
    assert not (tmp_path / "ready").exists()
    assert not control.is_running(tmp_path)


@in_loop
async def test_a_given_spec_is_played_with_targets_on_loopback(tmp_path: Path) -> None:
    async with running_lab(options(tmp_path, "demo", spec=ROOT / "fleet-spec", time_scale=60.0)) as running:
        overlay = load_endpoints(tmp_path / "endpoints.json")
        assert overlay.time_scale == 60
        assert overlay.bmc("https://10.20.0.11").url.startswith("https://127.0.0.1:")
        host = running.lab.fleet.nodes["gpu-a001"].endpoints.host
        assert host is not None
        assert overlay.ssh(host).host == "127.0.0.1"
        assert overlay.kubeconfig("main").exists()
        image = running.lab.fleet.nodes["gpu-a001"].profile.image
        assert image is not None
        assert verify_image(image, (tmp_path / "secrets/release.pub").read_text()) is True


@in_loop
async def test_faults_state_and_down_over_the_control_socket(tmp_path: Path) -> None:
    ended = asyncio.Event()
    async with running_lab(options(tmp_path, nodes=2), ended.set):
        await asyncio.to_thread(control.inject_fault, tmp_path, "gpu-0001", "xid_79", {"gpu": "2"})
        state = await asyncio.to_thread(control.read_state, tmp_path)
        assert state["nodes"]["gpu-0001"]["gpus"][2]["lost"] is True
        assert state["nodes"]["gpu-0001"]["expect"] == "converged"
        assert state["nodes"]["gpu-0001"]["counters"]["power_cycles"] == 0
        assert state["cluster"]["nodes"]["gpu-0001"]["ready"] == "True"
        await asyncio.to_thread(control.clear_fault, tmp_path, "gpu-0001")
        state = await asyncio.to_thread(control.read_state, tmp_path)
        assert state["nodes"]["gpu-0001"]["faults"] == {}
        for node, kind, words in (("gpu-0009", "xid_79", "no node 'gpu-0009'"), ("gpu-0001", "xid79", "did you mean")):
            with pytest.raises(UsageError, match=words):
                await asyncio.to_thread(control.inject_fault, tmp_path, node, kind, {})
        await asyncio.to_thread(control.shut_down, tmp_path)
        async with asyncio.timeout(5):
            await ended.wait()
    with pytest.raises(control.NoLab, match="no lab runs in"):
        control.read_state(tmp_path)


@in_loop
async def test_a_directory_has_one_lab(tmp_path: Path) -> None:
    async with running_lab(options(tmp_path, nodes=1)):
        with pytest.raises(UsageError, match="is running in"):
            async with running_lab(options(tmp_path, nodes=1)):
                pass
        assert (tmp_path / "ready").exists()
    (tmp_path / "control.sock").touch()  # left by a killed lab
    async with running_lab(options(tmp_path, nodes=1)):
        assert await asyncio.to_thread(control.is_running, tmp_path)


@pytest.mark.parametrize("steps", range(6))
@in_loop
async def test_a_caller_is_let_go_at_whatever_moment_the_lab_ends(tmp_path: Path, steps: int) -> None:
    async with running_lab(options(tmp_path, nodes=1)):
        caller = socket.socket(socket.AF_UNIX)
        caller.settimeout(5)
        caller.connect(str(control.socket_path(tmp_path)))
        for _ in range(steps):
            await asyncio.sleep(0)
    with caller, contextlib.suppress(ConnectionResetError):
        assert await asyncio.to_thread(caller.recv, 1) == b""


@in_loop
async def test_a_directory_with_a_long_name_has_a_socket_too(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    async with running_lab(options(directory, nodes=1)):
        state = await asyncio.to_thread(control.read_state, directory)
        assert list(state["nodes"]) == ["gpu-0001"]


@pytest.mark.parametrize("given", [{}, {"nodes": 2, "spec": ROOT / "fleet-spec"}])
@in_loop
async def test_options_that_make_no_sense(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a spec or a number of nodes"):
        async with running_lab(options(tmp_path, **given)):
            pass


def boot_from(running: Running, port: int) -> Machine:
    """Boot a machine from a medium at this port."""
    machine = next(iter(running.lab.machines.values()))
    machine.insert_media(f"http://127.0.0.1:{port}/tok/boot.iso")
    machine.set_boot_override("Cd", "Once")
    machine.power("force_restart")
    return machine


@in_loop
async def test_installers_speak_the_contract_over_http(tmp_path: Path) -> None:
    """The URL of all calls is the one in the medium, and the host key is the one that SSH shows."""
    asked: list[tuple[str, str]] = []
    async with running_lab(options(tmp_path, nodes=1, time_scale=1000.0)) as running:
        machine = running.lab.machines["gpu-0001"]
        running.lab.images[IMAGE] = CONTENTS

        async def serve(request: web.Request) -> web.Response:
            asked.append((request.path, await request.text()))
            if request.path.endswith("boot.iso"):
                filled = fill_credential(AttemptCredential(url=f"http://{request.host}/other"))
                return web.Response(body=BOOT_MEDIUM.replace(empty_credential(), filled))
            if request.path.endswith("install.json"):
                return web.Response(text=dump_contract(document(machine)), content_type="application/json")
            return web.Response(status=204)

        async with served(serve) as port:
            boot_from(running, port)
            await until(lambda: machine.state.counters.installs == 1 and machine.state.power == "off")
        paths = [path for path, _ in asked]
        assert paths == [
            "/tok/boot.iso", "/other/install.json", *["/other/status"] * 12, "/other/hostkey", "/other/status",
        ]  # fmt: skip
        reports = [load_contract(InstallStatus, body) for path, body in asked if path.endswith("status")]
        assert [report.phase for report in reports] == ["started", *["writing"] * 10, "written", "installed"]
        assert asked[-2][1] == machine.host_public_key
        machine.eject_media()
        machine.power("on")
        await until(lambda: machine.ssh_up)
        assert machine.disk().version == "2027.01.0"


@in_loop
async def test_an_installer_that_nobody_answers_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.lab.install_network.TICK_S", 0.01)
    async with running_lab(options(tmp_path, nodes=1, time_scale=20 * TYPICAL.post_s)) as running:

        async def refuse(request: web.Request) -> web.Response:
            raise web.HTTPNotFound

        async with served(refuse) as port:
            machine = boot_from(running, port)
            await until(lambda: machine.state.power == "off")
        assert "Installer: got no document" in str(machine.state.events)


@contextlib.asynccontextmanager
async def served(handler: Callable[[web.Request], Any]) -> AsyncIterator[int]:
    """Run an HTTP server that answers all requests like this; yield its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@pytest.mark.tool
@in_loop
async def test_kubectl_talks_to_the_lab(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    async with running_lab(options(tmp_path, nodes=2)):
        argv = ["kubectl", f"--kubeconfig={tmp_path / 'kubeconfig'}", "get", "nodes", "-o", "name"]
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert out.decode().split() == ["node/control-1", "node/gpu-0001", "node/gpu-0002"]
