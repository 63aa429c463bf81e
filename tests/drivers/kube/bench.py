"""A ClusterTruth behind a KubeServer on loopback, and the kubectl that talks to it.

The front runs on a thread of its own, so that tests may start kubectl and wait for it. Everything that touches the
truth goes through `Bench.on_loop`, as the front's requests do.

KUBECTL names another kubectl than the one on PATH: Debian 12's 1.20.2, say.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import random
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconciler.drivers.kube import KubectlCluster
from reconciler.lab.hardware.control_plane import ClusterTruth
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import DiskImage, MachineState, OsState
from reconciler.lab.wire.kube import KubeServer

T = TypeVar("T")

USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip

TOKEN = "t0ken-of-the-reconciler"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def kubectl() -> str:
    """The program under test; the test skips where there is none.

    gcloud's kubectl asks the server for its version, for up to 5 s, and then starts the one beside it that fits. Tests
    of servers that fail can't wait for that, so they take the newest of those.
    """
    wanted = os.environ.get("KUBECTL", "kubectl")
    found = shutil.which(wanted)
    if found is None:
        pytest.skip(f"no {wanted}: install kubectl 1.20 or newer, or name one in KUBECTL")
    dispatched = sorted(Path(found).resolve().parent.glob("kubectl.1.*"))
    return str(dispatched[-1]) if dispatched and "KUBECTL" not in os.environ else found


@dataclass(frozen=True, slots=True)
class Pki:
    ca_pem: str
    server: ssl.SSLContext  # asks for a client certificate, but takes clients without
    client_certificate: Path
    client_key: Path


def make_pki(directory: Path) -> Pki:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("lab cluster CA", ca_key.public_key(), "lab cluster CA", ca_key, ca=True)
    (directory / "ca.pem").write_bytes(ca)
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        (directory / f"{name}.pem").write_bytes(_certificate(name, key.public_key(), "lab cluster CA", ca_key))
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (directory / f"{name}.key").write_bytes(pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.pem"))
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    return Pki(ca.decode(), context, directory / "client.pem", directory / "client.key")


def _certificate(
    subject: str,
    public: ec.EllipticCurvePublicKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    *,
    ca: bool = False,
) -> bytes:
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    usage = dict.fromkeys(USAGES, False) | {"key_cert_sign" if ca else "digital_signature": True}
    signed = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def machine(name: str, clock: Callable[[], float]) -> Machine:
    """The machine is on, its system runs, and its kubelet is ready."""
    image = DiskImage("ubuntu-gpu", "2026.11.1", "ab" * 32, "S1", None, "6.8.0-48-generic", "570.124.06", name)
    image.services = {"kubelet": True}
    system = OsState(f"boot-{name}", 0.0, name, services_active={"kubelet": True}, service_since={"kubelet": -1000.0})
    state = MachineState(name, f"serial-{name}", f"uuid-{name}", "Supermicro", "SYS-821GE-TNHR", {"rack": "r1"})
    state.disks, state.os, state.booted_disk = {"S1": image}, system, "S1"
    return Machine(state, clock)


class Bench:
    def __init__(self, pki: Pki, directory: Path, nodes: int, version: str) -> None:
        self.seconds = 1000.0  # of the lab's clock; tests move it
        self.pki = pki
        self.program = kubectl()
        self.kubeconfig = directory / "kubeconfig"
        self.home = directory
        machines = {name: machine(name, lambda: self.seconds) for name in (f"gpu-{n:03}" for n in range(1, nodes + 1))}
        self.truth = ClusterTruth(machines, lambda: self.seconds, random.Random(7))
        self.front = KubeServer(self.truth, token=TOKEN, version=version)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.truth.nodes()
        port = self._wait(self.front.start(self.pki.server))
        self.server = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(KubeServer.kubeconfig(self.server, self.pki.ca_pem, TOKEN))

    def stop(self) -> None:
        self._wait(self.front.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._wait(run())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def kubectl(self, *arguments: str, stdin: str = "", timeout: float = 30) -> subprocess.CompletedProcess[str]:
        """Run kubectl as a person would."""
        return subprocess.run(
            [self.program, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
        )

    def ok(self, *arguments: str, stdin: str = "") -> str:
        done = self.kubectl(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def driver(self, *, timeout_s: float = 10, kubeconfig: Path | None = None, **more: Any) -> KubectlCluster:
        return KubectlCluster(
            **{"kubectl": self.program, "context": None, "now": lambda: NOW}
            | more
            | {"timeout_s": timeout_s, "kubeconfig": kubeconfig or self.kubeconfig}
        )


@contextmanager
def running(pki: Pki, directory: Path, *, nodes: int = 3, version: str = "v1.31.4") -> Iterator[Bench]:
    bench = Bench(pki, directory, nodes, version)
    bench.start()
    try:
        yield bench
    finally:
        bench.stop()
