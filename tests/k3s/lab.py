"""The lab of the twelve nodes: it plays their BMCs, GPUs and K3s, and their hosts run all else for real.

What a host is told over SSH is decided here, command by command: those that put K3s on it, read it and take it away run
in the node's own shell, with its own curl, sha256sum, openssl and mounts. The programs k3s, systemctl and journalctl
ask the lab (tests/k3s/ask.py), which answers as the documents that lab/hardware/k3s_site.py cites.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from aiohttp import web

from reconciler.app.k3s_access import LOCAL
from reconciler.drivers.deprecated_apis import METRIC
from reconciler.gate import lock
from reconciler.lab import up
from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.generate import Addresses
from reconciler.lab.hardware import commands
from reconciler.lab.hardware.k3s_site import K3sSite
from reconciler.lab.hardware.timings import Timings
from reconciler.lab.pki import write_private
from reconciler.lab.scenario import Scenario
from reconciler.lab.wire import facts
from reconciler.lab.wire.kube import KubeServer
from reconciler.lab.wire.ssh_session import _reads_stdin
from reconciler.lab.wire.ssh_tools import fact_context, host_tools
from reconciler.model.fact_framing import build_answer, parse_program
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import BINARY, DATA, K3sRole
from reconciler.model.k3s_datastore import PROBE, SAME
from reconciler.model.k3s_removal import REMOVAL
from tests.k3s.nodes import Login, Node, gateway
from tests.k3s.root_files import SINGLE, UNITS, RootFiles, leaf, of_k3s
from tests.k3s.spec import NEW, OLD, Files, Spec

PYTHON: Final = Path(sys.executable).resolve()
_REAL: Final = frozenset({"curl", "sha256sum", "findmnt", "id", "systemctl", "k3s", "journalctl"})
_ON_FILES: Final = frozenset({"cat", "tee", "test", "mv", "rm", "mkdir", "install", "sync", "chmod"})
_PROGRAMS: Final = (REMOVAL, PROBE, SAME)
_BESIDE: Final = tuple(f"{path}." for path in SINGLE)  # files that are then moved into their place
_LONGEST_S: Final = 3.0  # that a played command takes
_QUICK: Final = Timings(kubelet_ready_s=4.0, detector_s=2.0)
_SHIM: Final = f"{DATA}/data/current/bin/containerd-shim-runc-v2"
_RUNS: Final = "pgrep -x containerd-shim"  # its name as the kernel cuts it
_PODS: Final = f"""mkdir -p {DATA}/data/current/bin /var/lib/kubelet/pods/1/volumes/token /var/lib/cni/networks
[ -e {_SHIM} ] || cp "$(command -v sleep)" {_SHIM}
: > /var/lib/cni/networks/1
mountpoint -q /var/lib/kubelet/pods/1/volumes/token || mount -t tmpfs none /var/lib/kubelet/pods/1/volumes/token
ip link show cni0 >/dev/null 2>&1 || ip link add cni0 type bridge
{_RUNS} >/dev/null || {{ {_SHIM} 86400 </dev/null >/dev/null 2>&1 & }}"""
Hook = Callable[[str, str], Awaitable[None]]


async def _nothing(_node: str, _command: str) -> None: ...


def k3s_program(version: str) -> bytes:
    """Return the program k3s of a release: it asks the lab, and tells its own version."""
    text = Path(__file__).with_name("ask.py").read_text().replace('VERSION = ""', f'VERSION = "{version}"')
    padding = random.Random(version).randbytes(150_000).hex()  # a download takes a while
    return f"#!{PYTHON} -SE\n# {version}\n{text}# {padding}\n".encode()


@dataclass
class Played:
    """Before and after each command that a host is told, but for those that only read facts."""

    before: Hook = _nothing
    after: Hook = _nothing
    commands: int = 0
    changes: int = 0  # of them: those that change something
    downloads: dict[str, int] = field(default_factory=dict)  # path -> requests
    cut: int = 0  # downloads that broke off


class NodesLab(up._LabRunner):
    """`nodes`: those that run. It is started in the process that plays the story."""

    def __init__(self, directory: Path, spec: Spec, number: int, played: Played) -> None:
        scenario = Scenario.model_validate({"nodes": {"*": {"drift": ["not_a_member"]}}})
        super().__init__(up.Options(directory, scenario, nodes=number, seed=1), directory)
        self.spec, self.played = spec, played
        self.nodes: Mapping[str, Node] = {}
        self.files = Files("", {})
        self.lab: Lab
        self._kube_port = self._port()
        self._web_port = self._port()
        self._server: asyncio.Server | None = None
        self._cut: set[str] = set()
        self._working: set[asyncio.Task[None]] = set()

    def logins(self, names: Sequence[str]) -> tuple[dict[str, Login], str]:
        keys = {name: self._ssh.host_key(name) for name in names}
        return {name: Login(key.private, key.certificate) for name, key in keys.items()}, self._ssh.user_public_key

    async def begin(self, nodes: dict[str, Node]) -> None:
        """Start all of it for these nodes."""
        self.nodes = nodes
        images = {f"{one}/images.tar.zst": random.Random(one).randbytes(2_000_000) for one in (OLD, NEW)}
        programs = {f"{one}/k3s": k3s_program(one) for one in (OLD, NEW)}
        self.files = Files(f"http://{gateway(nodes)}:{self._web_port}", {**images, **programs})
        app = web.Application()
        app.router.add_get("/{version}/{name}", self._download)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, gateway(nodes), self._web_port).start()
        with patch.object(up, "build_lab", partial(build_lab, timings=_QUICK)):
            self.lab = (await self.start(lambda: None)).lab
        certificate, text = leaf(), (self._directory / "kubeconfig").read_text()
        for name, node in nodes.items():
            disk = self.lab.machine(name).disk()
            local = text.replace(f"https://127.0.0.1:{self._kube_port}", LOCAL)
            disk.files = RootFiles(node, disk.files, local, certificate)  # type: ignore[assignment]  # as a dict is used
        self._server = await asyncio.start_unix_server(self._asked, self._directory / "lab.socket", limit=2**22)
        document = json.loads((self._directory / "secrets.yaml").read_text())
        for source in document["secrets"].values():
            source["allow"] = ["127.0.0.0/8", "10.88.0.0/16"]
        write_private(self._directory / "secrets.yaml", json.dumps(document))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await super().stop()

    @property
    def site(self) -> K3sSite:
        assert self.lab.cluster is not None
        assert self.lab.cluster.k3s is not None
        return self.lab.cluster.k3s

    # --- parts of the lab that are otherwise here ---

    def _generate(self, addresses: Addresses) -> Path:
        endpoint = f"https://127.0.0.1:{self._kube_port}"
        self.spec.write(addresses, self.files, endpoint, tls_ca=self._tls.pem, ssh_ca=self._ssh.public_key,
                        key=self._image_key)  # fmt: skip
        return self.spec.directory

    async def _start_ssh(self, *_: object) -> int:
        return 22  # it runs already

    async def _serve_cluster(self, lab: Lab, context: Any) -> dict[str, Any]:
        assert lab.cluster is not None
        lab.cluster.helm.gpu_operator = True
        token = secrets.token_urlsafe(24)
        server = KubeServer(lab.cluster, token=token, epoch=self._epoch)
        self._stack.push_async_callback(server.stop)
        await server.start(context, port=self._kube_port)
        kubeconfig = server.kubeconfig(f"https://127.0.0.1:{self._kube_port}", self._tls.pem, token)
        write_private(self._directory / "kubeconfig", kubeconfig)
        return {"main": {"kubeconfig": "kubeconfig"}}

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """Serve a file, from where a host asks for it. The first download of images of each third node breaks off."""
        path = f"{request.match_info['version']}/{request.match_info['name']}"
        whole = self.files.contents.get(path)
        if whole is None:
            return web.Response(status=404)
        peer = str(request.remote)
        self.played.downloads[path] = self.played.downloads.get(path, 0) + 1
        start = request.http_range.start or 0
        if start >= len(whole):
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(whole)}"})
        body = whole[start:]
        headers = {"Content-Range": f"bytes {start}-{len(whole) - 1}/{len(whole)}"} if start else {}
        answer = web.StreamResponse(status=206 if start else 200, headers=headers | {"Content-Length": str(len(body))})
        await answer.prepare(request)
        breaks = int(peer.rpartition(".")[2]) % 3 == 0 and path.endswith("zst") and (peer + path) not in self._cut
        await answer.write(body[: len(body) // 2] if breaks else body)
        if breaks:
            self._cut.add(peer + path)
            self.played.cut += 1
            assert request.transport is not None
            request.transport.close()
            return answer
        await answer.write_eof()
        return answer

    # --- what nodes ask ---

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            name, command, argv = json.loads(await reader.readline())

            async def stdin() -> str:
                writer.write(b'"stdin"\n')
                return str(json.loads(await reader.readline()))

            answer: CommandResult | None
            if argv:
                answer = await self._tool(name, argv)
            elif (words := _without_timeout(command)) == ["sh", "-s"]:
                answer = await self._facts(name, await stdin())
            else:
                answer = await self._command(name, command, words, stdin, reader, writer)
            if answer is not None:
                writer.write(json.dumps([answer.exit_status, answer.stdout, answer.stderr]).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, json.JSONDecodeError):
            pass  # the program that asked is gone, as is the connection that it ran for
        finally:
            writer.close()

    async def _command(
        self, name: str, command: str, words: list[str], stdin: Callable[[], Awaitable[str]],
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
    ) -> CommandResult | None:  # fmt: skip
        """Play a command, or let the node run it; then return None when it and all that it started have ended."""
        self.played.commands += 1
        self.played.changes += _changes(words)
        await self.played.before(name, command)
        if not _runs_for_real(words):
            given = await stdin() if _reads_stdin(words) else ""
            answer = await self._play(name, words, given)
            await self.played.after(name, command)
            return answer
        if REMOVAL in words and name in self.site.members:
            self.site.members.remove(name)  # a teardown ends etcd on purpose
        writer.write(b'"run"\n')
        await writer.drain()
        await reader.read()
        if REMOVAL in words:
            self._sync_units(name)
            if not self.site.members:
                self.site.passwords, self.site.tokens = {}, {}
        await self.played.after(name, command)
        return None

    async def _play(self, name: str, words: Sequence[str], stdin: str) -> CommandResult:
        ran = commands.run(self.lab.machine(name), words, stdin, host_tools(self._epoch))
        await asyncio.sleep(min(ran.seconds, _LONGEST_S))
        return ran.printed()

    async def _facts(self, name: str, program: str) -> CommandResult:
        """Answer a program of facts; that of K3s is run on the node."""
        nonce, requests = parse_program(program)
        machine, found = self.lab.machine(name), {}
        for request in requests:
            if request.name == "k3s":
                found[request.name] = await self._inside(name, request.command)
            else:
                found[request.name] = facts.answer(request.name, fact_context(machine, self._epoch, request.command))
        return CommandResult(0, build_answer(nonce, found).decode(), "")

    async def _inside(self, name: str, program: str) -> CommandResult:
        argv = self.nodes[name].inside("sh", "-c", program)
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        out, err = await child.communicate()
        return CommandResult(child.returncode or 0, out.decode(), err.decode())

    async def _tool(self, name: str, argv: list[str]) -> CommandResult:
        """Play systemctl, journalctl or k3s on a node."""
        machine = self.lab.machine(name)
        self._sync_units(name)
        if "MainPID" in argv:
            return CommandResult(0, "0\n", "")  # no process of the node has an environment of its own
        if argv == ["k3s", "kubectl", "get", "--raw", "/metrics"]:
            asked = self.site.deprecated(name) if self.site.serves(name) else None
            return CommandResult(1, "", "refused\n") if asked is None else CommandResult(0, f"# HELP {METRIC}\n", "")
        before = {role.unit: machine.system().services_active.get(role.unit, False) for role in K3sRole}
        answer = await self._play(name, argv, "")
        if argv[0] == "systemctl":
            after = {unit: machine.system().services_active.get(unit, False) for unit in before}
            if any(after[unit] and not before[unit] for unit in after):
                await self._inside(name, _PODS)
        return answer

    def _sync_units(self, name: str) -> None:
        """Let the lab's systemd know the units whose files the node has."""
        machine, node = self.lab.machine(name), self.nodes[name]
        services = machine.disk().services
        for path, role in zip(UNITS, K3sRole, strict=True):
            if node.root(path).exists():
                services.setdefault(role.unit, False)
            elif role.unit in services:
                machine.service_set(role.unit, active=False)
                del services[role.unit]

    # --- what happens to nodes ---

    async def lose(self, name: str) -> None:
        """The disk of K3s is gone, and a person has put the image on a new one. Other partitions are as they were."""
        units = [role.unit for role in K3sRole if role.unit in self.lab.machine(name).disk().services]
        for unit in units:
            self.lab.machine(name).service_set(unit, active=False)
        ended = await self._inside(name, _LOSE)
        assert not ended.exit_status, ended
        self._sync_units(name)

    async def has_containers(self, name: str) -> bool:
        found = await self._inside(name, f"{_RUNS} || grep /var/lib/kubelet /proc/mounts || ip link show cni0")
        return bool(found.stdout.strip())


_LOSE: Final = f"""pkill -9 -x containerd-shim
umount /var/lib/kubelet/pods/1/volumes/token; ip link delete cni0
rm -rf --one-file-system /etc/rancher /var/lib/rancher /var/lib/kubelet /var/lib/cni {BINARY} {" ".join(UNITS)}; sync"""


def _without_timeout(command: str) -> list[str]:
    """Return the words of a command, without timeout(1) around it."""
    words = shlex.split(command)
    return words[4:] if words[:2] == ["timeout", "-k"] else words


def _changes(words: Sequence[str]) -> bool:
    name, *arguments = lock.bare(words)
    reads = {("systemctl", "is-active"), ("systemctl", "is-enabled"), ("k3s", "kubectl"), ("sh", "-c")}
    if (name.rpartition("/")[2], *arguments[:1]) in reads:
        return REMOVAL in arguments or "delete" in arguments
    return name not in ("id", "cat", "test", "findmnt", "sha256sum", "nvidia-smi")


def _runs_for_real(words: Sequence[str]) -> bool:
    name, *arguments = lock.bare(words)
    name = name.rpartition("/")[2]
    if name in _REAL or (name == "sh" and arguments[:1] == ["-c"] and arguments[1] in _PROGRAMS):
        return True
    return name in _ON_FILES and any(of_k3s(word) or word.startswith(_BESIDE) for word in arguments)
