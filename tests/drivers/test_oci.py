"""Images in registries: Docker's own registry on loopback, the tokens of public ones, and answers that are refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from reconciler.drivers.oci import download, resolve_oci
from reconciler.model.errors import DriverError, UsageError

IMAGE = b"an image" * 1000
DIGEST = hashlib.sha256(IMAGE).hexdigest()
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
EMPTY = b"{}"


def manifest(*layers: dict[str, Any]) -> bytes:
    """As `oras push` writes it."""
    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": "application/vnd.example.disk",
            "config": {
                "mediaType": "application/vnd.oci.empty.v1+json",
                "digest": f"sha256:{hashlib.sha256(EMPTY).hexdigest()}",
                "size": len(EMPTY),
            },
            "layers": list(layers),
        }
    ).encode()


LAYER = {"mediaType": "application/zstd", "digest": f"sha256:{DIGEST}", "size": len(IMAGE)}
MANIFEST = manifest(LAYER)


def reference(registry: str, body: bytes = MANIFEST) -> str:
    return f"oci://{registry}/nodes/debian@sha256:{hashlib.sha256(body).hexdigest()}"


# --- a registry that we did not write ------------------------------------------------------------------------------


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (apt-get install docker-registry)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '{address}'}}\n"
        f"storage: {{filesystem: {{rootdirectory: {tmp_path / 'blobs'}}}}}\n"
    )
    log = (tmp_path / "log").open("wb")
    child = subprocess.Popen([program, "serve", tmp_path / "config.yml"], stdout=log, stderr=log)
    try:
        _await_port(address, child)
        yield address
    finally:
        child.terminate()
        child.wait(10)
        log.close()


def _await_port(address: str, child: subprocess.Popen[bytes]) -> None:
    host, _, port = address.partition(":")
    ends = time.monotonic() + 20
    while time.monotonic() < ends and child.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.05)
    pytest.fail("docker-registry does not listen")


async def push(registry: str, body: bytes, *blobs: bytes) -> None:
    base = f"http://{registry}/v2/nodes/debian"
    async with ClientSession() as session:
        for blob in blobs:
            async with session.post(f"{base}/blobs/uploads/") as begun:
                place = begun.headers["Location"]
            digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
            async with session.put(f"{place}&digest={digest}", data=blob) as done:
                assert done.status == 201, await done.text()
        headers = {"Content-Type": MANIFEST_TYPE}
        async with session.put(f"{base}/manifests/latest", data=body, headers=headers) as done:
            assert done.status == 201, await done.text()


@pytest.mark.tool
@pytest.mark.wire
def test_an_image_comes_from_a_real_registry(registry: str, tmp_path: Path) -> None:
    async def go() -> None:
        await push(registry, MANIFEST, IMAGE, EMPTY)
        blob = await resolve_oci(reference(registry))
        assert (blob.size, blob.digest) == (len(IMAGE), DIGEST)
        assert blob.url == f"http://{registry}/v2/nodes/debian/blobs/sha256:{DIGEST}"
        await download(reference(registry), tmp_path / "image")
        with pytest.raises(DriverError, match="answers 404"):
            await resolve_oci(reference(registry, b"another"))

    asyncio.run(go())
    assert (tmp_path / "image").read_bytes() == IMAGE


# --- what other registries do --------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


def fake(
    *, body: bytes = MANIFEST, blob: bytes = IMAGE, token: str = "", asks: str = "", gives: str = ""
) -> web.Application:
    """A registry. With a `token`, it challenges who does not show it, and its realm `gives` one to anybody."""

    def check(request: web.Request) -> None:
        if token and request.headers.get("Authorization") != f"Bearer {token}":
            challenge = (
                asks or f'Bearer realm="http://{request.host}/token",service="registry",scope="repository:x:pull"'
            )
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": challenge})

    async def manifests(request: web.Request) -> web.Response:
        check(request)
        return web.Response(body=body, content_type=MANIFEST_TYPE)

    async def blobs(request: web.Request) -> web.Response:
        check(request)
        return web.Response(body=blob)

    async def tokens(request: web.Request) -> web.Response:
        assert dict(request.query) == {"service": "registry", "scope": "repository:x:pull"}
        return web.json_response({"token": gives or token})

    app = web.Application()
    app.router.add_get("/v2/nodes/debian/manifests/{digest}", manifests)
    app.router.add_get("/v2/nodes/debian/blobs/{digest}", blobs)
    app.router.add_get("/token", tokens)
    return app


@pytest.mark.wire
def test_a_public_registry_gives_a_token_and_wants_it(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(fake(token="secret")) as address:
            blob = await resolve_oci(reference(address))
            assert blob.headers == {"Authorization": "Bearer secret"}
            assert "secret" not in repr(blob)
            await download(reference(address), tmp_path / "image")

    asyncio.run(go())
    assert (tmp_path / "image").read_bytes() == IMAGE


REFUSED = [
    ({"body": MANIFEST + b" "}, MANIFEST, "gives another manifest"),
    ({"blob": b"altered"}, MANIFEST, "gives another file"),
    ({"body": manifest(LAYER, LAYER)}, None, "has 2 layers"),
    ({"body": json.dumps({"manifests": []}).encode()}, None, "no layers: an index"),
    ({"body": manifest({"digest": "sha256:../../x", "size": 1})}, None, "does not say digest and size"),
    ({"body": manifest({"digest": LAYER["digest"], "size": "1"})}, None, "does not say digest and size"),
    ({"body": b"<html>"}, None, "not JSON"),
    ({"body": b" " * (5 << 20)}, None, "longer than any"),
    ({"token": "x", "gives": "y"}, MANIFEST, "does not accept its own token"),
    ({"token": "x", "asks": "Basic realm=x"}, MANIFEST, "wants a password"),
]


@pytest.mark.wire
@pytest.mark.parametrize(("how", "named", "why"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_is_not_the_named_image_is_refused(
    how: dict[str, Any], named: bytes | None, why: str, tmp_path: Path
) -> None:
    async def go() -> None:
        async with serving(fake(**how)) as address:
            with pytest.raises(DriverError, match=why):
                await download(reference(address, how["body"] if named is None else named), tmp_path / "image")

    asyncio.run(go())


@pytest.mark.parametrize("url", ["oci://x/y:latest", "oci://x/y", f"oci://x/Y@sha256:{'0' * 64}", "https://x/y"])
def test_a_reference_has_a_digest(url: str) -> None:
    with pytest.raises(UsageError, match=re.escape(url)):
        asyncio.run(resolve_oci(url))
