"""The boot medium: whole or in slices, each attempt reads its own credential in it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.installer.medium import Medium, UnsatisfiableError, parse_range
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import (
    CREDENTIAL_SIZE,
    MARKER,
    AttemptCredential,
    empty_credential,
    fill_credential,
    load_contract,
)
from tests.drivers.installer.conftest import DOCUMENT, PAYLOAD, TOKEN, Site, ask, boot_medium, run

SIZE = 2 * len(PAYLOAD) + CREDENTIAL_SIZE
EDGES = st.sampled_from((len(PAYLOAD), len(PAYLOAD) + CREDENTIAL_SIZE)).flatmap(
    lambda edge: st.integers(edge - 3, edge + 3)
)
CUTS = st.lists(st.integers(0, SIZE) | EDGES, max_size=8)
CREDENTIAL = fill_credential(AttemptCredential(url="https://a:1/t", mac="02:00:00:00:00:01"))


@pytest.fixture(scope="module")
def medium() -> Iterator[Medium]:
    with tempfile.TemporaryDirectory() as folder:
        yield Medium.open(boot_medium(Path(folder) / "a.iso"), "a.iso")


@given(cuts=CUTS)
def test_any_slices_together_are_the_filled_file(medium: Medium, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), SIZE]
    slices = [medium.read(begin, end, CREDENTIAL) for begin, end in pairwise(edges)]
    assert b"".join(slices) == PAYLOAD + CREDENTIAL + PAYLOAD


@given(begin=st.integers(0, 40), end=st.none() | st.integers(0, 40), size=st.integers(1, 30))
def test_a_range_is_what_http_says(begin: int, end: int | None, size: int) -> None:
    whole = bytes(range(size))
    header = f"bytes={begin}-{'' if end is None else end}"
    expected = whole[begin : size if end is None else end + 1]
    if end is not None and end < begin:
        assert parse_range(header, size) is None, "not a range: the whole file"
    elif not expected:
        with pytest.raises(UnsatisfiableError):
            parse_range(header, size)
    else:
        found = parse_range(header, size)
        assert found is not None
        assert whole[slice(*found)] == expected


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, None),
        ("bytes=-5", (95, 100)),
        ("bytes=-500", (0, 100)),
        ("bytes=-", None),
        ("bytes=1-2,5-6", None),
        ("lines=1-2", None),
        ("bytes=0-0", (0, 1)),
    ],
)
def test_ranges_from_the_end_and_what_is_no_range(header: str | None, found: tuple[int, int] | None) -> None:
    assert parse_range(header, 100) == found


def test_a_range_of_no_bytes_from_the_end_can_not_be_satisfied() -> None:
    with pytest.raises(UnsatisfiableError):
        parse_range("bytes=-0", 100)


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        (PAYLOAD, r"has no placeholder for an attempt \(4096 bytes that begin with @@RECONCILER-ATTEMPT@@\)"),
        (PAYLOAD + MARKER + PAYLOAD, "has no placeholder"),
        (PAYLOAD + empty_credential() + PAYLOAD + empty_credential(), "more than one placeholder .* 131072 and 266240"),
        (PAYLOAD + CREDENTIAL, "has no placeholder"),
        (b"", "can't be read"),
    ],
    ids=["none", "a marker alone", "two", "filled already", "empty"],
)
@pytest.mark.wire
def test_what_is_no_boot_medium_is_refused_before_a_machine_is_touched(
    site: Site, contents: bytes, problem: str
) -> None:
    Path(site.policy.iso).write_bytes(contents)

    async def publish() -> None:
        async with site.serving() as installer:
            with pytest.raises(DriverError, match=problem) as refused:
                await installer.publish(TOKEN, DOCUMENT, None)
            assert refused.value.kind is Failure.REJECTED
            assert "\n" not in refused.value.detail
            assert site.policy.iso in refused.value.detail

    run(publish())


# --- over HTTP ---------------------------------------------------------------------------------------------------


def curl(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return subprocess.run(["curl", "-sS", "-m", "5", *arguments], capture_output=True, check=False)


@pytest.mark.wire
@pytest.mark.tool
def test_curl_asks_for_head_slices_and_too_much(site: Site) -> None:
    async def fetch() -> None:
        async with site.serving() as installer:
            url = await installer.publish(TOKEN, DOCUMENT, AttemptCredential(url="", address="10.0.0.7/24"))
            head = (await asyncio.to_thread(curl, "-I", url)).stdout.decode()
            assert head.startswith("HTTP/1.1 200 OK")
            assert f"Content-Length: {SIZE}\r\n" in head
            assert "Accept-Ranges: bytes\r\n" in head
            middle = len(PAYLOAD) + 100
            parts = [
                (await asyncio.to_thread(curl, "-r", one, url)).stdout
                for one in (f"0-{middle - 1}", f"{middle}-{middle + 9}", f"{middle + 10}-")
            ]
            whole = (await asyncio.to_thread(curl, url)).stdout
            assert b"".join(parts) == whole
            attempt = load_contract(AttemptCredential, whole[len(PAYLOAD) : len(PAYLOAD) + CREDENTIAL_SIZE])
            assert attempt == AttemptCredential(url=url.removesuffix("/boot.iso"), address="10.0.0.7/24")
            beyond = await asyncio.to_thread(curl, "-D", "-", "-r", f"{SIZE}-", url)
            assert beyond.stdout.startswith(b"HTTP/1.1 416 ")
            assert f"Content-Range: bytes */{SIZE}".encode() in beyond.stdout
            gone = await asyncio.to_thread(curl, "-I", url.replace(TOKEN, "0" * 32))
            assert gone.stdout.startswith(b"HTTP/1.1 404 ")

    run(fetch())


@pytest.mark.wire
def test_a_download_is_resumed_if_the_medium_is_still_the_same(site: Site) -> None:
    async def fetch() -> None:
        store = site.ledger()
        async with site.serving(store) as installer:
            url = await installer.publish(TOKEN, DOCUMENT, None)
            other = await installer.publish("6a" * 16, DOCUMENT, None)
            first = await ask("GET", url, headers={"Range": "bytes=0-9"})
            tag = first.headers["ETag"]
            assert first.headers["Content-Range"] == f"bytes 0-9/{SIZE}"
            assert (await ask("HEAD", other)).headers["ETag"] != tag, "another attempt's medium is another file"
            assert (await ask("GET", url, headers={"Range": "bytes=10-", "If-Range": tag})).status == 206
            changed = await ask("GET", url, headers={"Range": "bytes=10-", "If-Range": '"another"'})
            assert (changed.status, len(changed.body)) == (200, SIZE)
            port = url.split("/")[2]
        async with site.serving(store, listen=port) as again:
            await again.publish(TOKEN, DOCUMENT, None)
            assert (await ask("HEAD", url)).headers["ETag"] == tag, "any leader serves the same file"

    run(fetch())


@pytest.mark.wire
def test_an_attempt_keeps_its_medium_when_another_takes_its_name(site: Site) -> None:
    async def fetch() -> None:
        async with site.serving() as installer:
            url = await installer.publish(TOKEN, DOCUMENT, None)
            fresh = Path(site.policy.iso).with_suffix(".new")
            fresh.write_bytes(b"another" + empty_credential())
            fresh.replace(site.policy.iso)
            assert len((await ask("GET", url)).body) == SIZE
            late = await installer.publish("6a" * 16, DOCUMENT, None)
            assert len((await ask("GET", late)).body) == 7 + CREDENTIAL_SIZE

    run(fetch())


@asynccontextmanager
async def file_server(file: Path, seen: list[str], up: list[bool]) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.FileResponse(file) if up else web.Response(status=503)
        await response.prepare(request)
        seen.append(f"{request.method} {response.status}")
        return response

    app = web.Application()
    app.router.add_get("/boot.iso", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/boot.iso"
    finally:
        await runner.cleanup()


@pytest.mark.wire
def test_a_medium_at_a_url_is_fetched_once_for_all(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    file, seen, up = Path(site.policy.iso), list[str](), [True]

    async def fetch() -> None:
        async with file_server(file, seen, up) as upstream, site.serving(iso=upstream) as installer:
            urls = [await installer.publish(f"{number:032x}", DOCUMENT, None) for number in range(5)]
            for url in urls:
                assert len((await ask("GET", url)).body) == SIZE
            assert seen == ["GET 200"]
            monkeypatch.setattr("reconciler.drivers.installer.medium.FRESH_S", 0.0)
            installer._source._fresh_until = 0.0
            await installer.publish(TOKEN, DOCUMENT, None)
            assert seen == ["GET 200", "GET 304"]
            up.clear()
            with pytest.raises(DriverError, match="its server answers 503") as silent:
                await installer.publish(TOKEN, DOCUMENT, None)
            assert silent.value.kind is Failure.UNREACHABLE

    run(fetch())
