"""An engine as a site has it: scheduler and workers are processes on loopback, with certificates of their own CA."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START_S = 180.0  # on a machine that others keep busy


def make_certificates(directory: Path, lasts: timedelta = timedelta(days=60)) -> Path:
    """Write ca.pem, cert.pem and key.pem, as openssl makes them by docs/how-to/engine.md."""
    directory.mkdir(parents=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine CA")])
    member = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
    now = datetime.now(UTC)

    def signed(subject: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(ca_key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    (directory / "ca.pem").write_bytes(signed(authority, ca_key.public_key(), ca=True))
    (directory / "cert.pem").write_bytes(signed(member, key.public_key(), ca=False))
    private = directory / "key.pem"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return directory


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass
class Engine:
    """A scheduler with its workers. `processes`: by the name that the test gave them."""

    tls: Path
    folder: Path
    endpoints: Path
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def options(self) -> list[str]:
        return ["--engine", self.url, "--engine-tls", str(self.tls)]

    def start_scheduler(self) -> None:
        tls = [f"--tls-{name}={self.tls / file}" for name, file in _TLS.items()]
        self.start(
            "scheduler", "Scheduler at",
            sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", self.url, "--no-dashboard",
            "--dashboard-address", "127.0.0.1:0", *tls,
        )  # fmt: skip

    def start_worker(self, name: str, site: str, *, cwd: Path | None = None, endpoints: Path | None = None) -> None:
        words = ["worker", "--site", site, "--scheduler", self.url, "--engine-tls", str(self.tls)]
        words += ["--endpoints", str(endpoints or self.endpoints)]
        self.start(name, "listens on", sys.executable, "-m", "reconciler", *words, cwd=cwd)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        self.processes[name].send_signal(number)
        if number is signal.SIGKILL:
            self.processes[name].wait()

    def until_reads(self, name: str, leader: subprocess.Popen[str], before: int = 0) -> None:
        """Wait until a worker reads for this leader, however long that takes to start on a busy machine."""
        while self.log(name).count("reads ") <= before:
            assert leader.poll() is None, self.log(name)
            time.sleep(0.05)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start(self, name: str, ready: str, *words: str, cwd: Path | None = None) -> None:
        with (self.folder / f"{name}.log").open("wb") as out:
            self.processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=cwd
            )  # fmt: skip
        give_up = time.monotonic() + START_S
        while ready not in self.log(name):
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < give_up, self.log(name)
            time.sleep(0.05)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()  # a stopped one ends too
            process.wait()


_TLS = {"ca-file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}


@contextmanager
def running_engine(folder: Path, tls: Path, endpoints: Path, **sites: str) -> Iterator[Engine]:
    """Start a scheduler, and a worker for each name of `sites`."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = Engine(tls, folder, endpoints)
    with ExitStack() as closing:
        closing.callback(engine.close)
        engine.start_scheduler()
        for name, site in sites.items():
            engine.start_worker(name, site)
        yield engine
