"""A server of the install contract and of images, on loopback with TLS: real HTTP that can go wrong on request.

Every document that comes in is read by the models of the contract.
"""

from __future__ import annotations

import hashlib
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from reconciler.lab.pki import TlsAuthority
from reconciler.model.install import (
    AnyDocument,
    AttestationBegin,
    AttestationChallenge,
    AttestationFinish,
    InstallPhase,
    InstallStatus,
    dump_contract,
    load_contract,
)

TOKEN = "t0ken"


@dataclass
class Troubles:
    """What goes wrong. Each is about the image, but for `answers`."""

    cut_after: list[int] = field(default_factory=list)  # bytes of a connection, one entry per connection
    status: int = 0  # instead of the image
    ranges: bool = True
    etag: Callable[[], str] = lambda: '"one"'
    corrupt: Callable[[bytes], bytes] = lambda data: data
    pause: float = 0.0  # seconds before each 64 KiB
    length: int | None = None  # stated instead of the true one
    answers: dict[str, list[int]] = field(default_factory=dict)  # path -> statuses before the true answer
    on_sent: Callable[[float], None] = lambda _: None  # the share of the image that was sent


class ContractServer:
    """Serves one attempt. What it was told is kept in lists."""

    def __init__(self, folder: Path, authority: TlsAuthority) -> None:
        self.folder, self.authority = folder, authority
        self.document: AnyDocument | None = None
        self.image = b""
        self.troubles = Troubles()
        self.statuses: list[InstallStatus] = []
        self.host_keys: list[str] = []
        self.begins: list[AttestationBegin] = []
        self.finishes: list[AttestationFinish] = []
        self.challenge: Callable[[AttestationBegin], AttestationChallenge] | None = None
        self.requests: Counter[str] = Counter()
        self.ranges: list[str] = []
        self.ca_key = folder / "host-ca"
        subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.ca_key)), check=True)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"contract": self}))
        self._http.daemon_threads = True
        self._http.socket = authority.server_context(folder / "tls.pem").wrap_socket(
            self._http.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> ContractServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def origin(self) -> str:
        return f"https://127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.origin}/{TOKEN}"

    @property
    def image_url(self) -> str:
        return f"{self.origin}/images/image.raw.zst"

    def phases(self) -> list[InstallPhase]:
        """Return the phases in their order, each once."""
        return list(dict.fromkeys(status.phase for status in self.statuses))

    def certify(self, line: str) -> bytes:
        """Sign a host key as a host CA does."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            public = Path(scratch) / "key.pub"
            public.write_text(line)
            node = self.document.node if self.document else "none"
            command = ("ssh-keygen", "-q", "-s", str(self.ca_key), "-h", "-I", node, "-n", node, str(public))
            subprocess.run(command, check=True)
            return (Path(scratch) / "key-cert.pub").read_bytes()


class Handler(BaseHTTPRequestHandler):
    """Answers one connection after another for the server that it is bound to."""

    contract: ContractServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
        pass

    def handle(self) -> None:
        with suppress(OSError):  # a client that went away, or did not trust us
            super().handle()

    def do_GET(self) -> None:
        if self._trouble():
            return
        server = self.contract
        if self.path == f"/{TOKEN}/install.json" and server.document is not None:
            self.answer(200, dump_contract(server.document).encode())
        elif self.path == "/images/image.raw.zst":
            _send_image(server, self)
        elif self.path.startswith("/v2/"):
            _send_blob(server, self)
        elif self.path == "/token?service=here&scope=repository%3Aimages%2Fgpu%3Apull":
            self.answer(200, b'{"token":"for-strangers"}')
        else:
            self.answer(404, b"nothing is here")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._trouble():
            self.answer(*_posted(self.contract, self.path.removeprefix(f"/{TOKEN}/"), body))

    def _trouble(self) -> bool:
        name = self.path.removeprefix(f"/{TOKEN}/")
        self.contract.requests[name] += 1
        waiting = self.contract.troubles.answers.get(name)
        if not waiting:
            return False
        self.answer(waiting.pop(0), b"not now")
        return True

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _posted(server: ContractServer, name: str, body: bytes) -> tuple[int, bytes]:
    if name == "status":
        status = load_contract(InstallStatus, body)
        server.statuses.append(status)
        return 204, b""
    if name == "hostkey":
        assert InstallPhase.WRITTEN in server.phases(), "a host key is signed after `written` alone"
        server.host_keys.append(body.decode())
        return 200, server.certify(body.decode())
    if name == "attest/begin" and server.challenge is not None:
        server.begins.append(load_contract(AttestationBegin, body))
        return 200, dump_contract(server.challenge(server.begins[-1])).encode()
    if name == "attest/finish":
        server.finishes.append(load_contract(AttestationFinish, body))
        return 204, b""
    return 404, b"nothing is here"


def _send_blob(server: ContractServer, request: BaseHTTPRequestHandler) -> None:
    """Answer as a registry does (OCI Distribution Specification): a token first, then the blob of a digest."""
    if request.path != f"/v2/images/gpu/blobs/sha256:{hashlib.sha256(server.image).hexdigest()}":
        request.send_error(404)
    elif request.headers.get("Authorization") == "Bearer for-strangers":
        _send_image(server, request)
    else:
        asked = f'Bearer realm="{server.origin}/token",service="here",scope="repository:images/gpu:pull"'
        request.send_response(401)
        request.send_header("WWW-Authenticate", asked)
        request.send_header("Content-Length", "0")
        request.end_headers()


def _send_image(server: ContractServer, request: BaseHTTPRequestHandler) -> None:
    troubles, data = server.troubles, server.troubles.corrupt(server.image)
    if troubles.status:
        request.send_response(troubles.status)
        request.send_header("Content-Length", "0")
        request.end_headers()
        return
    start, wanted = 0, request.headers.get("Range", "")
    server.ranges.append(wanted)
    if wanted and troubles.ranges:
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    else:
        request.send_response(200)
    request.send_header("Content-Length", str((troubles.length or len(data)) - start))
    request.send_header("ETag", troubles.etag())
    request.end_headers()
    ends = len(data)
    if troubles.cut_after:
        ends = min(ends, start + troubles.cut_after.pop(0))
    for at in range(start, ends, 1 << 16):
        time.sleep(troubles.pause)
        troubles.on_sent(at / len(data))
        request.wfile.write(data[at : min(at + (1 << 16), ends)])
    if ends < len(data):
        request.close_connection = True
        with suppress(OSError):
            request.connection.shutdown(socket.SHUT_RDWR)
