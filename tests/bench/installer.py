"""The boot medium as many BMCs fetch it at once: megabytes per second, and per second of the server's own CPU.

The server is a process of its own, and so are its peers, which serve the same file without an attempt's credential in
it: aiohttp's FileResponse, and Python's http.server, which knows neither TLS nor slices.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from reconciler.drivers.installer import HttpInstaller
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.secrets_file import SecretsFile, SecretSource
from reconciler.model.access import InstallerPolicy
from reconciler.model.install import CREDENTIAL_SIZE, empty_credential
from tests.bench.measure import ROOT
from tests.bench.report import Table
from tests.bench.wire import cpu_of
from tests.drivers.installer.conftest import DOCUMENT, write_secret

_MIB = 1 << 20
_SLICE = 1 << 16  # as BMCs ask
_BUFFER = 1 << 18
OURS, FILE_RESPONSE, HTTP_SERVER = "the installer's server", "aiohttp FileResponse", "http.server"


def section(mib: int, fetchers: int) -> list[Table]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = _prepare(folder, mib)
        cases = [
            ("TLS, one fetcher", True, 1, None, (FILE_RESPONSE, OURS)),
            (f"TLS, {fetchers} fetchers", True, fetchers, None, (FILE_RESPONSE, OURS)),
            (f"TLS, {fetchers} fetchers, slices of 64 KiB", True, fetchers, _SLICE, (FILE_RESPONSE, OURS)),
            (f"plain, {fetchers} fetchers", False, fetchers, None, (HTTP_SERVER, FILE_RESPONSE, OURS)),
        ]
        for what, tls, at_once, cut, servers in cases:
            per_core = dict[str, float]()
            for server in servers:
                each = size if cut is None else min(size, 64 * cut)
                total, wall, cpu, slowest = _measure(folder, server, tls, at_once, each, cut)
                per_core[server] = total / cpu / 1e6
                ratio = per_core[server] / per_core[FILE_RESPONSE] if FILE_RESPONSE in per_core else None
                rows.append((f"{what}: {server}", total / wall / 1e6, per_core[server], ratio, slowest))
    return [
        Table(
            f"A boot medium of {mib} MiB",
            ("fetched by", "MB/s", "MB/s per core", "ratio", "last one done, s"),
            rows,
            (
                "MB/s per core: by the CPU time of the server's process, whatever else runs; ratio: to FileResponse",
                f"{os.cpu_count()} cores for server and fetchers together; every fetcher has a connection of its own",
                "http.server and FileResponse send the file as it is (plain by sendfile); ours fills in the attempt",
            ),
        )
    ]


def _prepare(folder: Path, mib: int) -> int:
    half = os.urandom(_MIB) * (mib // 2)
    (folder / "boot.iso").write_bytes(half + empty_credential() + half)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"),
         "-out", str(folder / "ca.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    write_secret(folder / "tls", (folder / "ca.pem").read_text() + (folder / "key").read_text())
    return 2 * len(half) + CREDENTIAL_SIZE


def _measure(
    folder: Path, server: str, tls: bool, at_once: int, each: int, cut: int | None
) -> tuple[int, float, float, float]:
    """Return the bytes fetched, wall time, the server's CPU time and the time of the last fetcher."""
    with _running(folder, server, tls) as (pid, url):
        _fetch(folder, url, each, cut)  # reads the file, and imports what is imported late
        cpu, began = cpu_of(pid), time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            ends = list(pool.map(lambda _: _fetch(folder, url, each, cut), range(at_once)))
        wall = time.perf_counter() - began
        return each * at_once, wall, max(0.01, cpu_of(pid) - cpu), max(ends) - began


@contextmanager
def _running(folder: Path, server: str, tls: bool) -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-m", "tests.bench.installer", server, str(folder), str(int(tls))]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)


def _fetch(folder: Path, url: str, size: int, cut: int | None) -> float:
    """Fetch the first `size` bytes, whole or in slices of one connection; return when it was done."""
    parts, buffer = urlsplit(url), bytearray(_BUFFER)
    connection: socket.socket = socket.create_connection((parts.hostname or "", parts.port or 0))
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        connection = context.wrap_socket(connection, server_hostname=parts.hostname)
    with connection:
        for first in range(0, size, cut or size):
            last = min(size, first + (cut or size)) - 1
            asked = f"Range: bytes={first}-{last}\r\n" if cut else ""
            connection.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: bench\r\n{asked}\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            assert head.startswith((b"HTTP/1.1 206" if cut else b"HTTP/1.1 200", b"HTTP/1.0 200")), head
            left = last + 1 - first - len(head.partition(b"\r\n\r\n")[2])
            while left > 0:
                got = connection.recv_into(buffer)
                assert got, "the server hung up"
                left -= got
    return time.perf_counter()


# --- the servers -------------------------------------------------------------------------------------------------


async def _ours(folder: Path, tls: bool) -> None:
    policy = InstallerPolicy("127.0.0.1:0", None, str(folder / "boot.iso"), "tls" if tls else None)
    store = SecretStore(SecretsFile(secrets={"tls": SecretSource(file="tls")}), folder / "secrets.yaml")
    installer = HttpInstaller(policy, store, lambda: datetime.now(UTC))
    print(await installer.publish("5f" * 16, DOCUMENT, None), flush=True)
    await asyncio.Event().wait()


async def _file_response(folder: Path, tls: bool) -> None:
    async def answer(_: web.Request) -> web.FileResponse:
        return web.FileResponse(folder / "boot.iso", chunk_size=_BUFFER)

    app = web.Application()
    app.router.add_get("/boot.iso", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    print(f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}/boot.iso", flush=True)
    await asyncio.Event().wait()


def _http_server(folder: Path) -> None:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    print(f"http://127.0.0.1:{server.server_port}/boot.iso", flush=True)
    server.serve_forever()


def main(arguments: Sequence[str]) -> None:
    server, folder, tls = arguments[0], Path(arguments[1]), arguments[2] == "1"
    if server == HTTP_SERVER:
        _http_server(folder)
    else:
        asyncio.run((_ours if server == OURS else _file_response)(folder, tls))


if __name__ == "__main__":
    main(sys.argv[1:])
