"""Server-sent events: nothing is missed, nothing is kept for who is slow, and who is gone is forgotten."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from reconciler.drivers.web import stream
from reconciler.drivers.web.access import WebOptions
from tests.cli.shell import until
from tests.web.conftest import TOKENS, Live, secret_store, serving, token

pytestmark = pytest.mark.wire

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
Frame = dict[str, str]


@contextmanager
def following(url: str, last: str = "") -> Iterator[Iterator[Frame]]:
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last} if last else {})
    with httpx.Client(timeout=10) as client, client.stream("GET", f"{url}/api/v1/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield frames(answer.iter_lines())


def frames(lines: Iterator[str]) -> Iterator[Frame]:
    frame: Frame = {}
    for line in lines:
        if line:
            key, _, value = line.partition(": ")
            frame[key] = value
        else:
            yield frame
            frame = {}


def of(frame: Frame) -> Any:
    return json.loads(frame["data"])


def test_what_comes_is_told_and_a_client_goes_on_where_it_was(live: Live, url: str) -> None:
    live.ledger.note("n1", "note", "before", NOW)
    with following(url) as told:
        begun = next(told)
        assert (begun["event"], begun["retry"]) == ("begun", "2000")
        live.ledger.note("n1", "note", "first", NOW)
        first = next(told)
        assert (first["event"], of(first)["detail"]) == ("entry", "first")
    for text in ("second", "third"):
        live.ledger.note("n1", "note", text, NOW)
    with following(url, first["id"]) as told:
        assert next(told)["event"] == "begun"
        assert [of(next(told))["detail"] for _ in range(2)] == ["second", "third"]


def test_who_was_away_for_long_gets_everything_in_order(live: Live, url: str) -> None:
    many = 3 * stream.BATCH + 7
    with live.ledger.batch():
        for at in range(many):
            live.ledger.note("n1", "note", str(at), NOW)
    with following(url, "0") as told:
        next(told)
        assert [of(next(told))["detail"] for _ in range(many)] == [str(at) for at in range(many)]


def test_work_is_told_at_once_and_many_steps_are_one_word(live: Live, url: str) -> None:
    with following(url) as told:
        next(told)
        time.sleep(0.3)  # it waits by now
        begun = time.monotonic()
        live.begin(steps=200)
        assert next(told)["event"] == "changed"
        assert time.monotonic() - begun < 0.5
        live.ledger.note("n1", "note", "after", NOW)
        seen = [next(told)["event"]]
        while seen[-1] != "entry":
            seen.append(next(told)["event"])
        assert seen.count("changed") <= 2


def test_a_client_that_takes_nothing_is_dropped(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLOW_S", 0.5)
    with live.ledger.batch():
        for at in range(20_000):
            live.ledger.note("n1", "note", f"{at} " + "x" * 390, NOW)
    with serving(live) as url, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = url.removeprefix("http://").rpartition(":")
        slow.connect((host, int(port)))
        headers = f"Host: {host}:{port}\r\nAccept: text/event-stream\r\nLast-Event-ID: 0\r\n\r\n"
        slow.sendall(f"GET /api/v1/events HTTP/1.1\r\n{headers}".encode())
        bell = live.view.changed.__self__  # type: ignore[attr-defined]
        until(lambda: bell.clients == 1, 5)
        until(lambda: bell.clients == 0, 20)
        with following(url) as told:
            assert next(told)["event"] == "begun", "others are served"


def test_a_client_that_is_gone_is_forgotten(live: Live) -> None:
    with serving(live) as url:
        bell = live.view.changed.__self__  # type: ignore[attr-defined]
        with following(url) as told:
            next(told)
            assert bell.clients == 1
        until(lambda: bell.clients == 0, 5)


def test_streams_are_bounded(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.drivers.web.reads.CLIENTS", 1)
    with serving(live) as url, following(url) as told:
        next(told)
        answer = httpx.get(f"{url}/api/v1/events", headers={"accept": "text/event-stream"})
        assert answer.status_code == 503
        assert "1 streams are open" in answer.json()["detail"]


def test_a_server_that_ends_ends_its_streams(live: Live) -> None:
    with serving(live) as url:
        follower = following(url)
        told = follower.__enter__()
        next(told)
        ended = time.monotonic()
    assert time.monotonic() - ended < 3
    assert list(told) == []
    follower.__exit__(None, None, None)


def test_a_stream_ends_when_its_client_may_not_read_any_more(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_ALIVE_S", 0.1)
    store = secret_store(tmp_path)
    options = WebOptions("127.0.0.1:0", tokens=TOKENS, proxy_roles={})
    with (
        serving(live, options, store=store) as url,
        httpx.Client(timeout=20, headers={"accept": "text/event-stream"} | token("ann")) as client,
        client.stream("GET", f"{url}/api/v1/events") as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        (tmp_path / "ann").write_text(f"other-{'x' * 30}\n")
        monkeypatch.setattr("reconciler.drivers.secrets.REREAD_S", 0.0)
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            for _ in lines:
                pass
