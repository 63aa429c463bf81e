"""The image's way over a network that breaks: the same bytes in the end, or a reason. No disk is needed."""

from __future__ import annotations

import hashlib
import itertools
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import ClassVar

import pytest

from reconciler.installer.client import Client, Patience, Unanswered, opener
from reconciler.installer.documents import Image
from reconciler.installer.image import Download
from reconciler.installer.machine import Failed
from reconciler.lab.pki import TlsAuthority
from tests.installer.server import ContractServer, Troubles

pytestmark = pytest.mark.wire

HASTY = Patience(call=2, rest=0.01, longest_rest=0.05, stalled=1.0, slowest=1)
DATA = hashlib.shake_256(b"an image").digest(3 << 20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ContractServer]:
    authority = TlsAuthority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    with ContractServer(tmp_path, authority) as made:
        made.image = DATA
        yield made


def fetch(server: ContractServer, patience: Patience = HASTY, proxy: str | None = None, url: str = "") -> Download:
    web = opener(server.folder / "ca.pem", proxy, redirects=True)
    image = Image("a", "1", url or server.image_url, hashlib.sha256(DATA).hexdigest(), size=len(DATA))
    download = Download(web, image, patience, lambda _: None)
    got = b"".join(download.blocks())
    assert got == DATA
    download.check()
    return download


def test_a_download_that_is_cut_off_goes_on_where_it_was(server: ContractServer) -> None:
    server.troubles = Troubles(cut_after=[1 << 20, 5, 0, 1 << 16])
    fetch(server)
    starts = [int(told.removeprefix("bytes=").removesuffix("-")) for told in server.ranges if told]
    assert starts[0] > 0
    assert starts == sorted(starts)


def test_a_server_without_ranges_is_read_again_from_the_start(server: ContractServer) -> None:
    server.troubles = Troubles(cut_after=[1 << 20], ranges=False)
    fetch(server)


def test_a_server_that_fails_for_a_while_is_asked_again(server: ContractServer) -> None:
    server.troubles = Troubles(answers={"/images/image.raw.zst": [503, 502, 429]}, cut_after=[1 << 19])
    fetch(server)


def test_another_file_under_the_same_name_is_noticed(server: ContractServer) -> None:
    """Its ETag is another one: what was fetched and what would follow don't belong together."""
    tags = map('"{}"'.format, itertools.count())
    server.troubles = Troubles(cut_after=[1 << 19], etag=lambda: next(tags))
    with pytest.raises(Failed, match="changed while it was fetched"):
        fetch(server)


def test_a_server_that_always_cuts_at_once_is_given_up(server: ContractServer) -> None:
    server.troubles = Troubles(cut_after=[0] * 1000)
    with pytest.raises(Failed, match=r"too slow: 0 bytes in 1 s; last: the connection ended after 0 of"):
        fetch(server)


def test_a_server_that_says_nothing_is_given_up(server: ContractServer) -> None:
    server.troubles = Troubles(pause=30)
    with pytest.raises(Failed, match=r"too slow: 0 bytes in .* last: no answer in time"):
        fetch(server, replace(HASTY, call=0.3))


def test_a_wrong_digest_is_told_with_both(server: ContractServer) -> None:
    web = opener(server.folder / "ca.pem", None, redirects=True)
    download = Download(web, Image("a", "1", server.image_url, "0" * 64), HASTY, lambda _: None)
    list(download.blocks())
    with pytest.raises(Failed, match=f"digest is {hashlib.sha256(DATA).hexdigest()}, and its publisher signed 000"):
        download.check()


def test_the_way_of_a_file_or_another_scheme_is_refused(server: ContractServer) -> None:
    with pytest.raises(Failed, match="neither http, https nor oci"):
        fetch(server, url="file:///etc/shadow")


def test_an_image_in_a_registry_is_the_blob_of_its_digest(server: ContractServer) -> None:
    """The registry asks for a token, and cuts the connection once."""
    server.troubles = Troubles(cut_after=[1 << 20])
    host = server.origin.removeprefix("https://")
    download = fetch(server, url=f"oci://{host}/images/gpu@sha256:{'1' * 64}")
    assert download.url.endswith(f"/v2/images/gpu/blobs/sha256:{hashlib.sha256(DATA).hexdigest()}")


def test_what_is_no_reference_of_a_registry_is_refused(server: ContractServer) -> None:
    with pytest.raises(Failed, match="is not oci://"):
        fetch(server, url="oci://registry.example.com/../x")


def test_a_clock_that_is_wrong_breaks_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificates have expired, as all have for a machine whose battery is empty."""
    monkeypatch.setattr("reconciler.lab.pki._LIFETIME", timedelta(minutes=-30))
    authority = TlsAuthority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    with ContractServer(tmp_path, authority) as expired:
        expired.image = DATA
        fetch(expired)


class Proxy(StreamRequestHandler):
    """Joins a client to the server that it asks for (CONNECT), and sees nothing of what they say."""

    asked: ClassVar[list[str]] = []

    def handle(self) -> None:
        self.asked.append(self.rfile.readline().decode().strip())
        while self.rfile.readline().strip():
            pass
        host, port = self.asked[-1].split()[1].split(":")
        with socket.create_connection((host, int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {self.connection: there, there: self.connection}
            while True:
                ready, _, _ = select.select(list(ends), [], [], 10)
                for end in ready:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    ends[end].sendall(data)


def test_a_proxy_carries_what_it_can_not_read(server: ContractServer) -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        fetch(server, proxy=f"http://127.0.0.1:{proxy.server_address[1]}")
        proxy.shutdown()
    assert Proxy.asked == [f"CONNECT {server.origin.removeprefix('https://')} HTTP/1.0"]


def test_a_server_of_another_authority_gets_no_answer_from_us(server: ContractServer) -> None:
    (server.folder / "ca.pem").write_text(TlsAuthority().pem)
    client = Client(server.url, opener(server.folder / "ca.pem", None, redirects=False), HASTY)
    with pytest.raises(Unanswered, match="its certificate is not trusted here"):
        client.once("status", b'{"phase":"started"}')
    assert server.statuses == []
