"""Events that BMCs push: what wakes a node, what does not, and what of a BMC that floods, refuses or goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers import source_watch
from reconciler.drivers.redfish import RedfishBmc, event_stream
from reconciler.drivers.redfish.event_stream import BmcEventWatch, EventReader
from reconciler.drivers.redfish.news import is_news
from reconciler.drivers.source_watch import Pauses
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.lab.wire.redfish_quirks import Quirks, quirks_of_make
from tests.drivers.redfish.bench import ROOT, SESSIONS, Bench, Call, client
from tests.lab.redfish_bench import EPOCH, PASSWORD, USERNAME, Clock, Trust, make_machine, make_trust

NODE = "gpu-a001"
SERVICE, STREAM = "/redfish/v1/EventService", "/redfish/v1/EventService/SSE"
PATIENCE_S = 10.0
QUIET_S = 0.4


# --- what is read in a stream --------------------------------------------------------------------------------------


def one(**event: Any) -> bytes:
    return json.dumps({"@odata.type": "#Event.v1_4_0.Event", "Id": "1", "Events": [event]}).encode()


CMC = {"EventType": "Alert", "Severity": "Informational", "MessageId": "CMC9000"}  # Dell, OpenManage Enterprise 3.9


@pytest.mark.parametrize(
    ("data", "news"),
    [
        (one(MessageSeverity="Critical", MessageId="ResourceEvent.1.0.ResourceErrorsDetected"), True),
        (one(Severity="Warning", MessageId="IDRAC.2.8.PSU0003"), True),
        (one(MessageSeverity="OK", Severity="OK", MessageId="IDRAC.2.8.USR0030"), False),
        (one(**CMC), False),
        (one(EventType="ResourceUpdated", MessageId="TST100"), True),  # it says nothing of how bad it is
        (b'{"@odata.type": "#MetricReport.v1_4_2.MetricReport", "MetricValues": []}', False),
        (b'{"@odata.type": "#Event.v1_4_0.Event", "Events": []}', False),
        (b'{"Events": [{"Severity": "Crit', True),
        (b"[]", True),
        (b"\xff\xfe", True),
    ],
)
def test_what_is_not_ok_is_news_and_what_nobody_understands_too(data: bytes, news: bool) -> None:
    assert is_news(data) is news


FRAMED = (
    b"\xef\xbb\xbf: keep-alive\n\nid: 1\nretry: 3000\ndata: {\ndata:   1\ndata: }\n\n"
    b"id: 2\r\ndata:two\r\n\r\nevent: x\rdata: three\r\r\ndata: unfinished"
)


@given(st.lists(st.integers(0, len(FRAMED)), max_size=8))
def test_events_are_the_same_however_the_network_cuts_them(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(FRAMED)]
    reader = EventReader()
    found = [event for a, b in pairwise(edges) for event in reader.feed(FRAMED[a:b])]
    assert found == [b"{\n  1\n}", b"two", b"three"]


def test_an_event_without_end_is_kept_within_its_limit() -> None:
    reader = EventReader()
    for _ in range(300):
        assert reader.feed(b"data: " + b"x" * 1024 + b"\n") == []
    assert len(reader.feed(b"\n")[0]) < 80 * 1024
    for _ in range(300):
        reader.feed(b"x" * 1024)
    assert len(reader._rest) <= 64 * 1024


# --- a BMC of the lab ----------------------------------------------------------------------------------------------


@dataclass
class Followed:
    """A watch on the BMC of one node, whose news are counted."""

    bmc: RedfishBmc
    machine: Machine
    front: RedfishServer
    port: int
    news: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=lambda: {NODE})

    async def follow(self) -> None:
        watch = BmcEventWatch(lambda: self.names, lambda _: self.bmc)
        async with aclosing(watch.changes(self.told.append)) as names:
            async for name in names:
                self.news.append(name)

    def log(self, severity: str, *messages: str) -> None:
        for message in messages:
            self.machine._log(severity, message)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "_LOOK_S", 0.05)
    monkeypatch.setattr(source_watch, "_DEAD_S", 0.3)
    monkeypatch.setattr(event_stream, "PAUSES", Pauses(0.1, 0.2, 0.1))
    monkeypatch.setattr(event_stream, "_PROVEN_S", 0.0)


def followed(
    trust: Trust,
    scenario: Callable[[Followed], Awaitable[None]],
    quirks: Quirks | None = None,
    streams: int = 1,
    others: int = 0,
) -> None:
    """Play a scenario once so many streams are open. `others`: clients that have streams already."""

    async def whole() -> None:
        machine = make_machine(Clock())
        front = RedfishServer(machine, username=USERNAME, password=PASSWORD, quirks=quirks or Quirks(), epoch=EPOCH)
        front._bmc.streams.update(f"{9 - n}" for n in range(others))
        port = await front.start(trust.server)
        options: dict[str, Any] = {"ca_pem": trust.ca.read_text(), "insecure": False}
        bmc = client(f"https://127.0.0.1:{port}", username=USERNAME, password=PASSWORD, **options)
        there = Followed(bmc, machine, front, port)
        task = asyncio.create_task(there.follow())
        try:
            await until(lambda: front.event_streams >= streams)
            await scenario(there)
        finally:
            task.cancel()
            await asyncio.wait([task])
            await bmc.close()
            await front.stop()
            await asyncio.sleep(0.01)  # TLS says goodbye

    asyncio.run(whole())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - the lab's machines tell nobody
            await asyncio.sleep(0.02)


@pytest.mark.wire
@pytest.mark.parametrize("make", ["Supermicro", "Dell Inc.", "HPE", "NVIDIA"])
def test_an_event_of_illness_wakes_the_node_and_no_other_event_does(make: str, trust: Trust) -> None:
    async def scenario(there: Followed) -> None:
        there.log("OK", "System power on", "User admin logged in")
        await asyncio.sleep(QUIET_S)
        assert there.news == []
        there.machine.inject("failed_part", part="dimm", index=3, how="logged")
        await until(lambda: there.news == [NODE])

    followed(trust, scenario, quirks_of_make(make))


@pytest.mark.wire
def test_the_stream_takes_no_session_beside_that_of_reads_and_lets_them_pass(trust: Trust) -> None:
    async def scenario(there: Followed) -> None:
        await there.bmc.hot()
        await there.bmc.inventory()
        assert (there.front.logins, there.front.open_sessions, there.front.event_streams) == (1, 1, 1)

    followed(trust, scenario)


@pytest.mark.wire
def test_a_bmc_that_floods_is_read_once_and_not_followed_for_a_while(trust: Trust) -> None:
    async def scenario(there: Followed) -> None:
        there.log("Warning", *(f"Fan {n % 8} speed below its limit" for n in range(3000)))
        await until(lambda: bool(there.told))
        assert "prints more than" in there.told[0]
        assert there.told[0].startswith(f"1 of 1 BMCs, which are only read in passes; the first is {NODE}")
        heard = len(there.news)
        assert 1 <= heard < 50, "a burst is one piece of news"
        assert there.front.event_streams == 0
        there.log("Warning", "more")
        await asyncio.sleep(QUIET_S)
        assert len(there.news) == heard

    followed(trust, scenario)


@pytest.mark.wire
def test_a_bmc_that_restarts_is_followed_again_and_its_node_read(trust: Trust) -> None:
    async def scenario(there: Followed) -> None:
        there.machine.reset_bmc()
        await until(lambda: there.front.event_streams == 0)
        there.log("Critical", "logged while nobody listened")
        clock: Any = there.machine._clock
        clock.seconds += 600
        await until(lambda: there.front.event_streams == 1)
        await until(lambda: len(there.news) >= 1)

    followed(trust, scenario)


@pytest.mark.wire
def test_where_others_take_all_streams_the_bmc_is_polled_and_told_of(trust: Trust) -> None:
    async def scenario(there: Followed) -> None:
        await until(lambda: bool(there.told))
        assert "exceeding the limit" in there.told[0]
        there.front._bmc.streams.clear()
        await until(lambda: there.told[-1] == "")
        assert there.news == [NODE], "what was told meanwhile nobody heard"

    followed(trust, scenario, Quirks(event_stream="/redfish/v1/SSE", most_event_streams=2), others=2)


def bent() -> Bench:
    service = {"@odata.id": SERVICE, "ServerSentEventUri": STREAM, "ServiceEnabled": True}
    root = {"SessionService": {"@odata.id": "/redfish/v1/SessionService"}, "EventService": {"@odata.id": SERVICE}}
    return Bench({ROOT: {**root, "Links": {"Sessions": {"@odata.id": SESSIONS}}}, SERVICE: service})


def told_of(bench: Bench) -> str:
    """Follow a BMC until people are told that it can't be; return what they are told. Reads must pass as before."""
    told: list[str] = []

    async def whole() -> None:
        async with bench.serving():
            bmc = bench.client(insecure=True)
            watch = BmcEventWatch(lambda: {NODE}, lambda _: bmc)
            async with aclosing(watch.changes(told.append)) as news:
                listening = asyncio.ensure_future(anext(news))
                await until(lambda: bool(told))
                async with asyncio.timeout(PATIENCE_S):
                    await bmc.hot()
                listening.cancel()
                await asyncio.wait([listening])
            await bmc.close()

    asyncio.run(whole())
    return told[0]


@pytest.mark.wire
def test_a_bmc_that_never_answers_holds_up_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_ANSWER_S", 0.2)
    bench = bent()

    async def hang(call: Call) -> web.StreamResponse | None:
        if call.path == STREAM:
            await asyncio.sleep(3600)
        return None

    bench.rules.append(hang)
    assert "no answer within 0.2 s" in told_of(bench)


@pytest.mark.wire
@pytest.mark.parametrize(
    ("kind", "why"), [("text/event-stream", "ended the stream at once"), ("text/html", "not with a stream of events")]
)
def test_a_stream_that_is_none_is_tried_again_after_growing_pauses(
    kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenBMC answers 200 and closes where all of its streams are taken."""
    monkeypatch.setattr(event_stream, "_PROVEN_S", 60.0)
    bench = bent()
    bench.answer("GET", STREAM, web.Response(body=b"", headers={"Content-Type": kind}), forever=True)
    assert why in told_of(bench)
    asked = [call for call in bench.calls if call.path == STREAM]
    assert 2 <= len(asked) <= 5
    assert asked[0].headers["Accept"] == "text/event-stream"
    assert bench.logins == 1


@pytest.mark.wire
def test_a_bmc_without_a_stream_is_polled_and_nobody_is_told(trust: Trust) -> None:
    async def scenario(there: Followed) -> None:
        await until(lambda: there.front.requests["GET", SERVICE] == 1)
        await asyncio.sleep(2 * QUIET_S)
        assert (there.told, there.news, there.front.requests["GET", SERVICE]) == ([], [], 1)

    followed(trust, scenario, Quirks(event_stream=""), streams=0)
