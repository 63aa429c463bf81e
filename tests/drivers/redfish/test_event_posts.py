"""Events that BMCs post: one subscription on each BMC, found again and renewed, and posts that count for nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reconciler.drivers import source_watch
from reconciler.drivers.redfish import RedfishBmc, event_listener, event_posts
from reconciler.drivers.redfish import event_stream as stream
from reconciler.drivers.redfish.event_listener import EventListener, addresses_of
from reconciler.drivers.redfish.event_posts import Posts
from reconciler.drivers.redfish.event_stream import BmcEventWatch
from reconciler.drivers.secrets import Secret, SecretError, SecretStore
from reconciler.drivers.secrets_file import SecretsFile
from reconciler.drivers.source_watch import Pauses
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.lab.wire.redfish_quirks import Quirks, quirks_of_make
from reconciler.model.access import EventListenerPolicy
from reconciler.model.errors import DriverError, Failure
from tests.drivers.redfish.bench import client
from tests.drivers.redfish.pki import authority, server_context
from tests.drivers.redfish.test_event_stream import NODE, PATIENCE_S, QUIET_S, until
from tests.lab.redfish_bench import EPOCH, PASSWORD, USERNAME, Clock, Trust, make_machine, make_trust

pytestmark = pytest.mark.wire
SUBSCRIPTIONS = "/redfish/v1/EventService/Subscriptions"
STREAMLESS = Quirks(event_stream="")


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "_LOOK_S", 0.05)
    monkeypatch.setattr(source_watch, "_DEAD_S", 0.3)
    monkeypatch.setattr(stream, "PAUSES", Pauses(0.1, 0.2, 0.1))
    monkeypatch.setattr(event_posts, "_LOOK_S", 0.05)
    monkeypatch.setattr(event_posts, "_KEPT_S", 0.3)
    monkeypatch.setattr(event_posts, "_AGAIN_S", 0.5)


@dataclass
class Posting:
    """A BMC without a stream, whom one process after another follows."""

    bmc: RedfishBmc
    machine: Machine
    front: RedfishServer
    listener: EventListener | None
    news: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    refused: str = ""  # why nothing may be written

    @property
    def subscriptions(self) -> dict[str, dict[str, Any]]:
        return self.machine.state.subscriptions

    @property
    def ours(self) -> dict[str, Any]:
        (found,) = self.subscriptions.values()
        return found

    async def _prove(self, name: str) -> None:
        assert name == NODE
        if self.refused:
            raise DriverError(Failure.REJECTED, self.refused)

    async def _follow(self) -> None:
        posts = Posts(lambda _: self.bmc, lambda: self.listener, self._prove)
        async with aclosing(
            BmcEventWatch(lambda: {NODE}, lambda _: self.bmc, posts).changes(self.told.append)
        ) as names:
            async for name in names:
                self.news.append(name)

    @asynccontextmanager
    async def following(self) -> Any:
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def subscribed(self) -> None:
        """Wait until posts are awaited: a BMC posts again what was not taken before."""
        await until(lambda: self.listener is not None and bool(self.listener._expected))

    async def heard(self) -> None:
        """Wait until an event of illness wakes the node."""
        before = len(self.news)
        self.machine.inject("failed_part", part="dimm", index=3, how="logged")
        await until(lambda: len(self.news) > before)

    async def post(self, url: str, body: bytes, method: str = "POST") -> tuple[int, bytes, dict[str, str]]:
        async with aiohttp.ClientSession() as client, client.request(method, url, data=body) as answer:
            return answer.status, await answer.read(), dict(answer.headers)


def listener(ledger: str = "ledger-1") -> EventListener:
    return EventListener(EventListenerPolicy("127.0.0.1:0"), SecretStore(SecretsFile(), Path("secrets.yaml")), ledger)


def played(
    trust: Trust,
    scenario: Callable[[Posting], Awaitable[None]],
    quirks: Quirks = STREAMLESS,
    *,
    listens: bool = True,
) -> None:
    async def whole() -> None:
        machine = make_machine(Clock())
        front = RedfishServer(machine, username=USERNAME, password=PASSWORD, quirks=quirks, epoch=EPOCH)
        port = await front.start(trust.server)
        options: dict[str, Any] = {"ca_pem": trust.ca.read_text(), "insecure": False}
        bmc = client(f"https://127.0.0.1:{port}", username=USERNAME, password=PASSWORD, **options)
        there = Posting(bmc, machine, front, listener() if listens else None)
        try:
            async with asyncio.timeout(6 * PATIENCE_S):
                await scenario(there)
        finally:
            await bmc.close()
            await front.stop()
            if there.listener is not None:
                await there.listener.close()
            await asyncio.sleep(0.01)

    asyncio.run(whole())


def streamless(make: str) -> Quirks:
    return replace(quirks_of_make(make), event_stream="")


@pytest.mark.parametrize(
    ("quirks", "asked"),
    [
        (streamless("HPE"), {"EventFormatType": "Event", "EventTypes": ["Alert"]}),
        (streamless("Dell Inc."), {"EventFormatType": "Event", "EventTypes": ["Alert"]}),
        (streamless("Supermicro"), {"EventFormatType": "Event", "RegistryPrefixes": ["OpenBMC", "ResourceEvent"]}),
        (Quirks(event_stream="", event_posts=""), {}),
    ],
    ids=["HPE", "Dell", "OpenBMC", "AMI"],
)
def test_a_bmc_is_asked_for_events_by_what_its_event_service_lists(
    quirks: Quirks, asked: dict[str, Any], trust: Trust
) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await until(lambda: bool(there.subscriptions))
            kept = {"SubscriptionType", "DeliveryRetryPolicy", "Status", "Destination", "Context", "Protocol"}
            assert {name: value for name, value in there.ours.items() if name not in kept} == asked
            there.machine._log("OK", "User admin logged in")
            await asyncio.sleep(QUIET_S)
            assert there.news == []
            await there.heard()
            assert there.told == []

    played(trust, scenario, quirks)


def test_a_restarted_reconciler_finds_its_subscription_again_and_leaves_those_of_others(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        others = {"Destination": "https://192.0.2.9/events", "Context": "their own", "Status": {"State": "Enabled"}}
        there.subscriptions["7"] = dict(others)
        async with there.following():
            await until(lambda: len(there.subscriptions) == 2)
        (ours,) = there.subscriptions.keys() - {"7"}
        before = dict(there.subscriptions[ours])
        for _ in range(3):
            async with there.following():
                await asyncio.sleep(QUIET_S)
                await there.heard()
        assert there.subscriptions == {"7": others, ours: before}
        assert there.front.requests["POST", SUBSCRIPTIONS] == 1

    played(trust, scenario)


def test_what_an_earlier_address_of_ours_left_is_deleted_and_another_fleets_is_not(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await until(lambda: bool(there.subscriptions))
        foreign = there.listener
        assert foreign is not None
        there.listener = listener("ledger-2")
        async with there.following():
            await until(lambda: len(there.subscriptions) == 2)
        first = next(iter(there.subscriptions))
        await there.listener.close()
        there.listener = listener("ledger-2")  # on another port
        old = [one["Destination"] for one in there.subscriptions.values()]
        async with there.following():
            await until(lambda: [one["Destination"] for one in there.subscriptions.values()] != old)
            await until(lambda: len(there.subscriptions) == 2)
            await there.heard()
        assert first in there.subscriptions, "another fleet's"
        assert await there.bmc.unsubscribe("ledger-2") == 1
        assert list(there.subscriptions) == [first]
        assert await there.bmc.unsubscribe("ledger-1") == 1
        assert await there.bmc.unsubscribe("ledger-1") == 0
        await foreign.close()

    played(trust, scenario)


def test_a_subscription_that_the_bmc_forgot_is_made_anew_and_the_node_read(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await until(lambda: bool(there.subscriptions))
            await there.heard()
            there.machine.inject("subscriptions_lost")
            there.news.clear()
            await until(lambda: bool(there.subscriptions))
            assert there.news == [NODE], "what was told meanwhile nobody heard"
            there.machine.reset_bmc()
            assert there.subscriptions == {}
            clock: Any = there.machine._clock
            clock.seconds += 600
            await until(lambda: bool(there.subscriptions))
            await there.heard()

    played(trust, scenario)


@pytest.mark.parametrize("undelivered", ["suspends", "terminates"])
def test_a_bmc_that_reaches_nobody_is_polled_and_told_of(undelivered: str, trust: Trust) -> None:
    """After three tries iDRAC9 switches a subscription off, and others delete it."""

    async def scenario(there: Posting) -> None:
        # An address that nobody answers at, as behind a firewall.
        nobody = EventListenerPolicy("127.0.0.1:0", "http://127.0.0.1:9/events")
        there.listener = EventListener(nobody, SecretStore(SecretsFile(), Path("secrets.yaml")), "ledger-1")
        async with there.following():
            for _ in range(600):
                there.machine._log("Critical", "Uncorrectable ECC @ DIMM3")
                await asyncio.sleep(0.1)
                assert len(there.subscriptions) <= 1
                if any("does it reach redfish.events.url" in told for told in there.told):
                    return
        raise AssertionError(there.told)

    played(trust, scenario, Quirks(event_stream="", event_posts="types", undelivered=undelivered))


@pytest.mark.parametrize(
    ("quirks", "why"),
    [
        (Quirks(event_stream="", event_posts="none"), "it pushes no events: its EventService is turned off"),
        (Quirks(event_stream="", most_subscriptions=0), "delete subscriptions of its EventService that nobody needs"),
    ],
)
def test_a_bmc_that_takes_no_subscription_is_polled_and_told_of(quirks: Quirks, why: str, trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await until(lambda: bool(there.told))
            assert why in there.told[0]
            assert there.news == []

    played(trust, scenario, quirks)


def test_nothing_is_written_to_a_bmc_that_is_not_proved_to_be_the_nodes(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        there.refused = "its serial number is XN-1"
        async with there.following():
            await until(lambda: bool(there.told))
            assert "its serial number is XN-1" in there.told[0]
            assert there.front.requests["POST", SUBSCRIPTIONS] == 0

    played(trust, scenario)


def test_without_a_listener_nothing_is_written_until_the_spec_declares_one(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await asyncio.sleep(2 * QUIET_S)
            assert (there.told, there.front.requests["POST", SUBSCRIPTIONS]) == ([], 0)
            there.listener = listener()
            await until(lambda: bool(there.subscriptions))
            await there.heard()

    played(trust, scenario, listens=False)


class Unreadable(SecretStore):
    """Secrets that can't be read for a while."""

    def __init__(self) -> None:
        super().__init__(SecretsFile(), Path("secrets.yaml"))
        self.readers: set[threading.Thread] = set()
        self.pem = ""

    def resolve(self, name: str, *_: Any, **__: Any) -> Secret:
        self.readers.add(threading.current_thread())
        if not self.pem:
            raise SecretError(f"secrets.yaml secrets.{name}: vault ended with status 1")
        return Secret(self.pem)


def test_a_certificate_that_can_not_be_read_is_told_of_and_read_without_holding_up_the_loop(
    trust: Trust, tmp_path: Path
) -> None:
    """It ended each follower as a bug does, again and again, and nobody was told."""

    async def scenario(there: Posting) -> None:
        kept = Unreadable()
        there.listener = EventListener(EventListenerPolicy("127.0.0.1:0", certificate="tls"), kept, "ledger-1")
        async with there.following():
            await until(lambda: bool(there.told))
            assert "secrets.yaml secrets.tls: vault ended with status 1" in there.told[0]
            assert not there.subscriptions
            server_context(authority("ours"), tmp_path)
            kept.pem = (tmp_path / "server-127.0.0.1.pem").read_text()
            await until(lambda: bool(there.subscriptions))
            assert str(there.ours["Destination"]).startswith("https://")
        assert threading.main_thread() not in kept.readers

    played(trust, scenario)


ILL = b'{"Events": [{"MessageSeverity": "Critical"}]%s}'


def test_a_forged_post_wakes_nobody_and_learns_nothing(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await there.subscribed()
            url = str(there.ours["Destination"])
            base = url.rpartition("/")[0]
            wrong = [
                await there.post(f"{base}/{'0' * 41}", ILL % b""),
                await there.post(base, ILL % b""),
                await there.post(f"{base}/{NODE}", ILL % b""),
                await there.post(url, ILL % b', "Context": "reconciler-guessed"'),
                await there.post(url, ILL % b', "Context": "\\ud800"'),
                await there.post(url, ILL % b', "Context": 7'),
                await there.post(url, ILL % b"", method="PUT"),
                await there.post(url, b"", method="GET"),
            ]
            assert {(status, body) for status, body, _ in wrong} == {(404, b"")}
            assert not any(
                "aiohttp" in value or "Python" in value for *_, headers in wrong for value in headers.values()
            )
            await asyncio.sleep(QUIET_S)
            assert there.news == []
            await there.post(url, b'{"Events": []}')
            assert there.news == []

    played(trust, scenario)


def test_a_replayed_or_garbled_or_endless_event_makes_the_node_be_read_and_no_more(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await there.subscribed()
            url = str(there.ours["Destination"])
            assert there.listener is not None
            (expected,) = there.listener._expected.values()
            taken: list[int] = []
            hear = expected.hear

            def take(body: bytes) -> None:
                taken.append(len(body))
                hear(body)

            expected.hear = take
            for body in (ILL % b"", ILL % b"", b'{"Events": [{"Sever', b"x" * 200_000):
                before = len(there.news)
                assert (await there.post(url, body))[0] == 204
                await until(lambda: len(there.news) == before + 1)  # noqa: B023 - it is awaited at once
            assert taken[-1] == 64 * 1024, "the rest is not read"

    played(trust, scenario)


def test_a_bmc_that_floods_is_not_heard_for_a_while(trust: Trust) -> None:
    async def scenario(there: Posting) -> None:
        async with there.following():
            await there.subscribed()
            url = str(there.ours["Destination"])
            answers = [(await there.post(url, ILL % (b', "x": "%s"' % (b"y" * 60_000))))[0] for _ in range(8)]
            assert (answers[0], answers[-1]) == (204, 404)
            await until(lambda: bool(there.told))
            assert "prints more than" in there.told[0]

    played(trust, scenario)


def test_an_event_from_elsewhere_does_not_count_and_is_told_of(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(url: str) -> Any:
        assert url.startswith("https://127.0.0.1:")
        return await addresses_of("https://192.0.2.7")

    monkeypatch.setattr(event_posts, "addresses_of", elsewhere)

    async def scenario(there: Posting) -> None:
        async with there.following():
            await there.subscribed()
            url = str(there.ours["Destination"])
            assert (await there.post(url, ILL % b""))[0] == 404
            await until(lambda: bool(there.told))
            assert "came from 127.0.0.1, which is not its address (192.0.2.7)" in there.told[0]
            assert there.news == []

    played(trust, scenario)


def test_a_sender_that_never_ends_is_given_up(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_listener, "_BODY_S", 0.2)

    async def scenario(there: Posting) -> None:
        async with there.following():
            await there.subscribed()
            host, port = str(there.ours["Destination"]).split("/")[2].split(":")
            path = str(there.ours["Destination"]).rpartition("/")[2]
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{".encode())
            async with asyncio.timeout(PATIENCE_S):
                assert b" 404 " in await reader.readline()
            writer.close()
            assert there.news == []

    played(trust, scenario)
