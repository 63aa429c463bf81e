"""`reconciler lab up`: run a fleet on loopback, in the foreground, until it is told to end.

DIR then holds fleet-spec/ (when it was generated), kubeconfig, secrets/, secrets.yaml, pki/, nodes.csv, endpoints.json
and, written last, `ready`. A machine's clock reads 0 at `epoch` and runs `time_scale` times as fast as real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import resource
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiohttp import web

from reconciler.lab.control import ControlServer, is_running, socket_path
from reconciler.lab.fleet import Lab, build_lab, has_gpu_operator
from reconciler.lab.generate import Addresses, generate_spec
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.slurm_commands import SlurmCommands
from reconciler.lab.install_network import BOOT_MEDIUM, InstallNetwork
from reconciler.lab.keys import known_keys
from reconciler.lab.pki import ImageKey, SshAuthority, TlsAuthority, new_password, write_private
from reconciler.lab.scenario import Scenario
from reconciler.lab.secret_writer import PROGRAM, write_program
from reconciler.lab.wire.kube import KubeServer
from reconciler.lab.wire.login_server import LoginServer
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.lab.wire.redfish_pdu import PduServer
from reconciler.lab.wire.redfish_update import substitute_for
from reconciler.lab.wire.ssh import SshServer
from reconciler.lab.wire.ssh_port import bound
from reconciler.model.addresses import normalise_host
from reconciler.model.desired import Fleet
from reconciler.model.errors import UsageError
from reconciler.spec import load_spec

USERNAME = "reconciler"
_FILES_PER_NODE = 14
_HOST_CA = "secrets/ssh-host-ca"
_BACKUP = "secrets/backup"  # for repositories of backups, which are in the model of the machines


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `lab up`. Exactly one of `spec` (a directory) and `nodes` (how many to generate) is set."""

    directory: Path
    scenario: Scenario
    spec: Path | None = None
    nodes: int | None = None
    seed: int | None = None
    time_scale: float = 1.0
    slurm: bool = False  # a generated fleet has a Slurm, and no Kubernetes


@dataclass(frozen=True, slots=True)
class Running:
    """A running lab. `endpoints`: the document in endpoints.json."""

    lab: Lab
    directory: Path
    spec: Path
    endpoints: MappingProxyType[str, Any]


async def up(options: Options, announce: Callable[[Running], None] = lambda _: None) -> None:
    """Run until SIGINT, SIGTERM or `lab down`. Call `announce` once, when all servers run."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with running_lab(options, ended.set) as running:
        announce(running)
        await ended.wait()


@contextlib.asynccontextmanager
async def running_lab(options: Options, down: Callable[[], None] = lambda: None) -> AsyncIterator[Running]:
    """Run a lab during the block. Raise UsageError for invalid options, spec or scenario."""
    directory = options.directory.resolve()
    if (options.spec is None) == (options.nodes is None):
        raise UsageError("a lab needs a spec or a number of nodes, and not both")
    if options.slurm and options.spec is not None:
        raise UsageError("the spec says what schedules its nodes; --slurm is for a generated fleet")
    if is_running(directory):
        raise UsageError(
            f"a lab is running in {directory} already; end it with `reconciler lab down --dir {directory}`"
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "ready").unlink(missing_ok=True)
    runner = _LabRunner(options, directory)
    try:
        yield await runner.start(down)
    finally:
        (directory / "ready").unlink(missing_ok=True)
        await runner.stop()


class _LabRunner:
    """Starts the parts of a lab; `stop` stops the started ones in reverse order."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._tls = TlsAuthority()
        self._ssh = SshAuthority()
        self._image_key = ImageKey()
        self._password = new_password()
        self._stack = contextlib.AsyncExitStack()
        self._epoch = datetime.now(UTC)
        self._zero = time.monotonic()

    def _clock(self) -> float:
        return (time.monotonic() - self._zero) * self._options.time_scale

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._options.time_scale)

    async def start(self, down: Callable[[], None]) -> Running:
        _allow_files(self._options.nodes or 0)
        addresses = self._reserve_addresses(self._options.nodes or 0)
        spec = self._options.spec or self._generate(addresses)
        fleet = load_spec(spec, directory=str(spec))
        _allow_files(len(fleet.nodes))
        keys = known_keys(fleet, self._image_key.public_text)
        lab = build_lab(
            fleet,
            self._options.scenario,
            self._clock,
            seed=self._options.seed,
            public_keys=keys,
            serve_documents=False,
        )
        endpoints = await self._serve(lab, generated=self._options.spec is None, iso=addresses.iso)
        self._write(lab, endpoints)
        installers = asyncio.create_task(InstallNetwork(lab, lambda: load_spec(spec, directory=str(spec))).run())
        self._stack.push_async_callback(_cancel, installers)
        control = ControlServer(lab, down, self._slurm(lab))
        await control.start(self._directory)
        self._stack.push_async_callback(control.stop)
        self._stack.callback(socket_path(self._directory).unlink, missing_ok=True)
        (self._directory / "ready").write_text(f"{self._epoch.isoformat()}\n", encoding="utf-8")
        return Running(lab, self._directory, spec, MappingProxyType(endpoints))

    async def stop(self) -> None:
        await self._stack.aclose()

    def _generate(self, addresses: Addresses) -> Path:
        spec = self._directory / "fleet-spec"
        if self._options.slurm:
            addresses = replace(addresses, slurm=self._port())
        generate_spec(spec, addresses, tls_ca=self._tls.pem, ssh_ca=self._ssh.public_key, image_key=self._image_key)
        return spec

    def _reserve_addresses(self, nodes: int) -> Addresses:
        """Reserve the ports that the spec names until the lab ends, because the servers start later."""
        ports = [self._port() for _ in range(2 * nodes + 2)]
        return Addresses(list(zip(ports[2::2], ports[3::2], strict=True)), ports[0], ports[1])

    def _port(self) -> int:
        return int(self._stack.enter_context(bound("127.0.0.1", 0)).getsockname()[1])

    # --- servers ---

    async def _serve(self, lab: Lab, *, generated: bool, iso: int) -> dict[str, Any]:
        """Start all servers and return endpoints.json's document. A generated spec already names their ports."""
        context = self._tls.server_context(self._directory / "secrets" / "server.pem")
        bmc, ssh = {}, {}
        for name, machine in lab.machines.items():
            ends = lab.fleet.nodes[name].endpoints
            if ends.bmc is not None:
                redfish = RedfishServer(machine, username=USERNAME, password=self._password, epoch=self._epoch)
                self._stack.push_async_callback(redfish.stop)
                port = await redfish.start(context, port=_port(ends.bmc) if generated else 0)
                bmc[ends.bmc] = {"target": f"https://127.0.0.1:{port}", "ca": "pki/bmc-ca.pem"}
            if ends.host is not None:
                port = await self._start_ssh(name, machine, _port(ends.host) if generated else 0)
                ssh[ends.host] = {"target": f"127.0.0.1:{port}", "authority": "pki/ssh-host-ca.pub"}
        ssh |= await self._serve_slurm(lab, generated=generated)
        return {
            "format_version": "1.0",
            "time_scale": self._options.time_scale,
            "epoch": self._epoch.isoformat(),
            "bmc": bmc,
            "pdu": await self._serve_pdus(lab, context),
            "ssh": ssh,
            "clusters": await self._serve_cluster(lab, context),
            "secrets": self._secrets(lab.fleet),
            "secret_programs": _programs(lab.fleet),
            "keys": {name: f"secrets/{name}.pub" for name in lab.public_keys},
            "installer": {"listen": "127.0.0.1:0", "iso": await self._serve_iso(iso), "host_ca": _HOST_CA},
            "firmware": await self._serve_firmware(lab),
        }

    async def _serve_pdus(self, lab: Lab, context: Any) -> dict[str, Any]:
        targets = {}
        for address in lab.mains.pdus():
            server = PduServer(lab.mains, address, username=USERNAME, password=self._password, clock=self._clock)
            self._stack.push_async_callback(server.stop)
            targets[address] = {"target": f"https://127.0.0.1:{await server.start(context)}", "ca": "pki/bmc-ca.pem"}
        return targets

    async def _start_ssh(self, name: str, machine: Machine, port: int) -> int:
        key = self._ssh.host_key(name)
        machine.host_public_key = key.public
        server = SshServer(
            machine,
            host_key=key.private,
            host_certificate=key.certificate,
            authorized_key=self._ssh.user_public_key,
            epoch=self._epoch,
            sleep=self._sleep,
        )
        self._stack.push_async_callback(server.stop)
        return await server.start(port=port)

    def _slurm(self, lab: Lab) -> SlurmCommands | None:
        return None if lab.slurm is None else SlurmCommands(lab.slurm, lambda at: self._epoch + timedelta(seconds=at))

    async def _serve_slurm(self, lab: Lab, *, generated: bool) -> dict[str, Any]:
        """Start the login host of Slurm, where the spec has one."""
        cluster, commands = lab.fleet.settings.cluster, self._slurm(lab)
        if cluster is None or cluster.slurm is None or commands is None:
            return {}
        login, user = cluster.slurm.login, cluster.slurm.user or lab.fleet.settings.ssh_user
        key, address = self._ssh.host_key(login), normalise_host(login)
        server = LoginServer(commands.run, user=user, host_key=key, authorized_key=self._ssh.user_public_key)
        self._stack.push_async_callback(server.stop)
        port = await server.start(port=_port(address) if generated else 0)
        return {address: {"target": f"127.0.0.1:{port}", "authority": "pki/ssh-host-ca.pub"}}

    async def _serve_cluster(self, lab: Lab, context: Any) -> dict[str, Any]:
        access = lab.fleet.settings.cluster
        if access is None or lab.cluster is None or not access.kubernetes:
            return {}
        lab.cluster.helm.gpu_operator = has_gpu_operator(lab.fleet)  # its API server takes no charts
        token = secrets.token_urlsafe(24)
        server = KubeServer(lab.cluster, token=token, epoch=self._epoch)
        self._stack.push_async_callback(server.stop)
        port = await server.start(context)
        kubeconfig = server.kubeconfig(f"https://127.0.0.1:{port}", self._tls.pem, token)
        write_private(self._directory / "kubeconfig", kubeconfig)
        return {access.name: {"kubeconfig": "kubeconfig"}}

    async def _serve_iso(self, port: int) -> str:
        """Serve a boot medium with a placeholder for each attempt's credential, and return its URL."""
        app = web.Application()

        async def medium(_: web.Request) -> web.Response:
            return web.Response(body=BOOT_MEDIUM, content_type="application/x-iso9660-image")

        app.router.add_get("/installer.iso", medium)
        return f"{await self._serve_app(app, port)}/installer.iso"

    async def _serve_firmware(self, lab: Lab) -> dict[str, Any]:
        """Serve a stand-in for each file that the spec flashes from; return target and digest by URL of the spec."""
        urls = sorted({url for machine in lab.machines.values() for url in machine.firmware_images})
        files = {f"{number}.bin": substitute_for(url) for number, url in enumerate(urls)}

        async def substitute(request: web.Request) -> web.Response:
            found = files.get(request.match_info["name"])
            return web.Response(status=404) if found is None else web.Response(body=found)

        app = web.Application()
        app.router.add_get("/firmware/{name}", substitute)
        base = await self._serve_app(app, 0)
        return {
            url: {"target": f"{base}/firmware/{name}", "sha256": hashlib.sha256(content).hexdigest()}
            for url, (name, content) in zip(urls, files.items(), strict=True)
        }

    async def _serve_app(self, app: web.Application, port: int) -> str:
        """Serve an application on loopback until the lab ends; return its address."""
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    # --- files ---

    def _secrets(self, fleet: Fleet) -> dict[str, str]:
        settings = fleet.settings
        files: dict[str | None, str] = {
            settings.bmc_credentials: "secrets/bmc.json",
            settings.pdu_credentials: "secrets/bmc.json",
            settings.ssh_credentials: "secrets/ssh_ed25519",
            settings.cluster.kubeconfig if settings.cluster else None: "kubeconfig",
            **dict.fromkeys(_of_backups(fleet), _BACKUP),
        }
        return {name: file for name, file in files.items() if name is not None}

    def _write(self, lab: Lab, endpoints: dict[str, Any]) -> None:
        directory = self._directory
        (directory / "pki").mkdir(exist_ok=True)
        (directory / "pki/bmc-ca.pem").write_text(self._tls.pem, encoding="utf-8")
        (directory / "pki/ssh-host-ca.pub").write_text(self._ssh.public_key, encoding="utf-8")
        credentials = {"username": USERNAME, "password": self._password}
        write_private(directory / "secrets/bmc.json", json.dumps(credentials))
        write_program(directory)
        write_private(directory / "secrets/ssh_ed25519", self._ssh.user_private_key)
        write_private(directory / _HOST_CA, self._ssh.private_key)
        write_private(directory / _BACKUP, secrets.token_urlsafe(24))
        for name, key in lab.public_keys.items():
            (directory / f"secrets/{name}.pub").write_text(f"{key}\n", encoding="utf-8")
        # For a generated spec without --endpoints: RECONCILER_SECRETS may name this file.
        sources = {
            name: {"file": str(directory / file), "allow": ["127.0.0.0/8"]}
            for name, file in endpoints["secrets"].items()
        }
        document = {"secrets": sources, "keys": dict(lab.public_keys)}
        write_private(directory / "secrets.yaml", json.dumps(document, indent=2) + "\n")
        rows = [
            (node.node, node.endpoints.bmc or "", node.endpoints.host or "", node.domains.get("rack", ""))
            for node in lab.fleet.nodes.values()
        ]
        table = "\n".join(map(",".join, [("name", "bmc", "host", "rack"), *sorted(rows)]))
        (directory / "nodes.csv").write_text(f"{table}\n", encoding="utf-8")  # input of `init`
        (directory / "endpoints.json").write_text(json.dumps(endpoints, indent=2) + "\n", encoding="utf-8")


def _programs(fleet: Fleet) -> dict[str, Any]:
    """Return the programs by which passwords of BMCs are read and replaced, where the spec has them changed."""
    name = fleet.settings.bmc_credentials
    return {} if name is None else {name: {"exec": [PROGRAM, "get"], "write": [PROGRAM, "put"]}}


def _of_backups(fleet: Fleet) -> set[str]:
    """Return the names of the secrets of all repositories of backups."""
    backups = (node.profile.backup for node in fleet.nodes.values())
    return {name for backup in backups if backup is not None for name in backup.environment.values()}


def _port(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def _allow_files(nodes: int) -> None:
    """Raise this process's limit of open files to the need of these nodes, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 256 + _FILES_PER_NODE * nodes
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
