"""A real Kubernetes control plane on loopback: what `build.sh` built, with RBAC, TLS and an audit log."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from reconciler.lab.wire.kube import KubeServer
from tests.drivers.kube.bench import kubectl, make_pki
from tests.kubernetes.kubelets import Kubelets

Json = dict[str, Any]

ADMIN = "token-of-the-administrator"
GRACE_S = 20  # until a node whose kubelet is silent is NotReady; 40 by default
_STARTS_S = 90.0
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ControlPlane:
    """etcd, the API server, the controllers and the scheduler. `programs`: the folder that build.sh printed."""

    def __init__(self, programs: Path, home: Path) -> None:
        self.home = home
        self._programs = programs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        pki = make_pki(home)
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (home / "accounts.key").write_bytes(key)
        (home / "tokens.csv").write_text(f"{ADMIN},admin,1,system:masters\n")
        (home / "audit.json").write_text(json.dumps(_AUDIT))
        ports = free_ports(3)
        self._etcd, self._etcd_peer = (f"http://127.0.0.1:{port}" for port in ports[:2])
        self._port = ports[2]
        self.server = f"https://127.0.0.1:{self._port}"
        self._ca_pem = pki.ca_pem
        self.kubeconfig = self.write_kubeconfig("admin", ADMIN)
        trusted = ssl.create_default_context(cadata=pki.ca_pem)
        self.api = httpx.Client(
            base_url=self.server, verify=trusted, timeout=30, headers={"Authorization": f"Bearer {ADMIN}"}
        )
        self.kubelets = Kubelets(self.api)

    def write_kubeconfig(self, name: str, token: str) -> Path:
        path = self.home / f"{name}.kubeconfig"
        path.write_text(KubeServer.kubeconfig(self.server, self._ca_pem, token))
        return path

    # --- processes -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._start(
            "etcd",
            f"--data-dir={self.home / 'etcd'}",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={self._etcd_peer}",
            f"--initial-advertise-peer-urls={self._etcd_peer}",
            f"--initial-cluster=default={self._etcd_peer}",
        )
        self._wait("etcd", lambda: httpx.get(f"{self._etcd}/health").json()["health"] == "true")
        self.launch_api_server()
        self.wait_for_api_server()
        common = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0", "--secure-port=0"]
        self._start(
            "kube-controller-manager",
            *common,
            f"--service-account-private-key-file={self.home / 'accounts.key'}",
            f"--root-ca-file={self.home / 'ca.pem'}",
            f"--node-monitor-grace-period={GRACE_S}s",
            "--node-monitor-period=2s",
        )
        self._start("kube-scheduler", *common)
        self.kubelets.start()

    def launch_api_server(self) -> None:
        """Start it, in the main thread: it ends with the thread that started it."""
        self._start(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self.home / 'server.pem'}",
            f"--tls-private-key-file={self.home / 'server.key'}",
            f"--cert-dir={self.home}",
            f"--token-auth-file={self.home / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.home / 'accounts.key'}",
            f"--service-account-signing-key-file={self.home / 'accounts.key'}",
            "--disable-admission-plugins=ServiceAccount",  # pods here run nowhere, and need no token
            "--endpoint-reconciler-type=none",  # which refuses an address on loopback
            f"--audit-policy-file={self.home / 'audit.json'}",
            f"--audit-log-path={self.home / 'audit.log'}",
        )

    def wait_for_api_server(self) -> None:
        """Wait until it is ready."""
        self._wait("kube-apiserver", lambda: self.api.get("/readyz").text == "ok")

    def kill_api_server(self) -> None:
        child = self._running.pop("kube-apiserver")
        child.kill()
        child.wait()

    def stop(self) -> None:
        self.kubelets.stop()
        for child in reversed(self._running.values()):
            child.kill()
            child.wait()
        self._running.clear()
        self.api.close()

    def _start(self, program: str, *arguments: str) -> None:
        """Start a program, which ends with this process however that ends."""
        command = ["setpriv", "--pdeathsig", "KILL", str(self._programs / program), *arguments]
        with (self.home / f"{program}.log").open("ab") as log:
            self._running[program] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home
            )

    def _wait(self, program: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _STARTS_S
        while time.monotonic() < deadline and self._running[program].poll() is None:
            try:
                if ready():
                    return
            except (httpx.HTTPError, ValueError):
                pass  # it does not listen yet
            time.sleep(0.1)
        tail = (self.home / f"{program}.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{program} does not start:\n{tail}")

    # --- the administrator ---------------------------------------------------------------------------------------

    def get(self, path: str) -> Json:
        return _success(self.api.get(path))

    def create(self, path: str, document: Json) -> Json:
        return _success(self.api.post(path, json=document))

    def patch(self, path: str, document: Json) -> Json:
        return _success(
            self.api.patch(path, content=json.dumps(document), headers={"Content-Type": "application/merge-patch+json"})
        )

    def apply(self, path: str, document: Json, *, manager: str) -> Json:
        """Apply by the server, as tools do that keep a cluster as git has it."""
        media = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": manager, "force": "true"}
        return _success(self.api.patch(path, content=json.dumps(document), headers=media, params=query))

    def delete(self, path: str, **options: Any) -> None:
        """Delete an object, or all of a collection. One that is gone is success."""
        answer = self.api.request("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", **options})
        if answer.status_code != 404:
            _success(answer)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as a person would; it must succeed."""
        command = [kubectl(), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # --- what can be measured ------------------------------------------------------------------------------------

    def cpu_s(self) -> float:
        """Return the CPU time that the API server has used."""
        fields = Path(f"/proc/{self._running['kube-apiserver'].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def audited(self, since: int = 0) -> tuple[list[Json], int]:
        """Return the requests that the API server wrote down after a position of its log, and the next position."""
        with (self.home / "audit.log").open("rb") as log:
            log.seek(since)
            whole, _, _ = log.read().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()], since + len(whole) + (1 if whole else 0)

    def compact(self) -> None:
        """Make etcd forget all but the present, as the API server asks it to every five minutes."""
        found = httpx.post(f"{self._etcd}/v3/kv/range", json={"key": "AA=="}).json()
        revision = found["header"]["revision"]
        _success(httpx.post(f"{self._etcd}/v3/kv/compaction", json={"revision": revision, "physical": True}))


def _success(answer: httpx.Response) -> Json:
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    found: Json = answer.json()
    return found


def free_ports(number: int) -> Sequence[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
