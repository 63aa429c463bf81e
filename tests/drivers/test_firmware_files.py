"""Firmware is flashed only from a file that has the digest of the spec (pitfall F11)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from reconciler.drivers import firmware_files
from reconciler.drivers.firmware_files import HttpFirmwareFiles
from reconciler.model.errors import DriverError, Failure

pytestmark = pytest.mark.wire
CONTENT = b"firmware" * 400_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    content: bytes = CONTENT
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    requests: list[web.Request] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if (tag := self.headers.get("ETag")) and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        return web.Response(body=self.content, status=self.status, headers=self.headers)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[HttpFirmwareFiles]:
    app = web.Application()
    app.router.add_get("/bios.bin", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/bios.bin"
    files = HttpFirmwareFiles()
    try:
        yield files
    finally:
        await files.close()
        await runner.cleanup()


def play(steps: Callable[[Server, HttpFirmwareFiles], Awaitable[None]]) -> None:
    async def run() -> None:
        server = Server()
        async with serving(server) as files:
            await asyncio.wait_for(steps(server, files), 30)

    asyncio.run(run())


async def failure(awaitable: Awaitable[object]) -> DriverError:
    with pytest.raises(DriverError) as caught:
        await awaitable
    return caught.value


def test_a_file_is_fetched_once_for_all_nodes_and_deleted_at_the_end() -> None:
    copies: list[Path] = []

    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        found = await asyncio.gather(*(files.fetch(server.url, DIGEST) for _ in range(50)))
        assert len(server.requests) == 1
        (copy,) = {one.path for one in found}
        assert copy is not None
        assert Path(copy).read_bytes() == CONTENT  # noqa: ASYNC240  of a test
        copies.append(Path(copy))

    play(steps)
    assert not copies[0].exists()


def test_a_file_with_another_digest_is_refused_with_both() -> None:
    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        server.content = b"something else"
        for _ in range(2):
            error = await failure(files.fetch(server.url, DIGEST))
            assert error.kind is Failure.REJECTED
            assert DIGEST in error.detail
            assert hashlib.sha256(b"something else").hexdigest() in error.detail
        assert len(server.requests) == 1

    play(steps)


def test_later_it_asks_whether_the_file_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware_files, "FRESH_S", 0.0)

    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        server.headers = {"ETag": '"1"'}
        first = await files.fetch(server.url, DIGEST)
        assert await files.fetch(server.url, DIGEST) == first
        assert server.requests[1].headers["If-None-Match"] == '"1"'
        server.headers, server.content = {"ETag": '"2"'}, b"replaced"
        assert (await failure(files.fetch(server.url, DIGEST))).kind is Failure.REJECTED
        assert first.path is not None
        assert not Path(first.path).exists()  # noqa: ASYNC240  of a test

    play(steps)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [(404, Failure.REJECTED, "HTTP 404"), (503, Failure.UNREACHABLE, "HTTP 503"), (302, Failure.REJECTED, "redirects")],
)
def test_a_server_that_gives_no_file(status: int, kind: Failure, words: str) -> None:
    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        server.status, server.headers = status, {"Location": "http://169.254.169.254/latest"}
        error = await failure(files.fetch(server.url, DIGEST))
        assert error.kind is kind
        assert words in error.detail
        assert "verifiedBy: bmc" in error.detail

    play(steps)


def test_a_server_that_nobody_reaches_is_asked_once_for_all_nodes() -> None:
    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        url = "http://127.0.0.1:1/bios.bin"
        errors = await asyncio.gather(*(failure(files.fetch(url, DIGEST)) for _ in range(20)))
        assert {error.kind for error in errors} == {Failure.UNREACHABLE}
        assert len({error.detail for error in errors}) == 1

    play(steps)


def test_a_file_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware_files, "LARGEST", 1 << 20)

    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        error = await failure(files.fetch(server.url, DIGEST))
        assert error.kind is Failure.REJECTED
        assert "more than 1 MiB" in error.detail

    play(steps)


def test_copies_have_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware_files, "KEPT", len(CONTENT))

    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        first = await files.fetch(server.url, DIGEST)
        second = await files.fetch(f"{server.url}?2", DIGEST)
        assert first.path is not None
        assert second.path is not None
        assert not Path(first.path).exists()  # noqa: ASYNC240  of a test
        assert Path(second.path).exists()  # noqa: ASYNC240  of a test

    play(steps)


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def steps(server: Server, files: HttpFirmwareFiles) -> None:
        assert (await files.fetch(server.url, DIGEST)).path is not None

    play(steps)
