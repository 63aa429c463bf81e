"""Messages as Events of node objects, through kubectl on the lab's API server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.drivers.kube.node_events import MOST_NODES, NodeEvents, event_name
from reconciler.drivers.kube.process import Kubectl
from reconciler.drivers.kube.rights import EVENT_RIGHTS
from reconciler.model.errors import UsageError
from reconciler.model.notices import Channel, Message, NotDelivered, Severity
from tests.drivers.kube.bench import Bench
from tests.drivers.kube.test_cluster import run

pytestmark = [pytest.mark.wire, pytest.mark.tool]

CHANNEL = Channel("events", "", kubernetes=True)
T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
MESSAGE = Message(
    "key-1", "events", "thread-1", Severity.CRITICAL, False, "demo: gpu-001 needs a repair", "XID 79\non GPU 3",
    ("node/gpu-001",),
)  # fmt: skip


class Sender:
    def __init__(self, bench: Bench) -> None:
        self.bench, self.now = bench, T0

    @property
    def events(self) -> dict[str, Any]:
        return self.bench.front._written.events

    def node_events(self) -> NodeEvents:
        return NodeEvents(lambda: Kubectl(self.bench.program, self.bench.kubeconfig, None, 10), lambda: self.now)

    def send(self, message: Message) -> None:
        self.now += timedelta(minutes=5)
        run(self.node_events().send(CHANNEL, message))


def test_an_event_is_on_the_node_and_counts_what_is_new(bench: Bench) -> None:
    sender = Sender(bench)
    sender.send(MESSAGE)
    sender.send(MESSAGE)  # the process died before it knew that this was sent
    (event,) = sender.events.values()
    assert event["involvedObject"]["kind"] == "Node"
    assert event["involvedObject"]["name"] == "gpu-001"
    assert event["involvedObject"]["uid"]
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "FleetCritical", 1)
    assert event["message"] == "demo: gpu-001 needs a repair. XID 79. on GPU 3"
    assert event["firstTimestamp"] == event["lastTimestamp"]
    sender.send(replace(MESSAGE, key="key-2", over=True, title="demo: ended: gpu-001 needs a repair"))
    (event,) = sender.events.values()
    assert (event["type"], event["reason"], event["count"]) == ("Normal", "FleetDone", 2)
    assert event["firstTimestamp"] < event["lastTimestamp"]


def test_a_node_that_is_in_no_cluster_has_its_event_all_the_same(bench: Bench) -> None:
    sender = Sender(bench)
    sender.send(replace(MESSAGE, about=("node/gone",)))
    (event,) = sender.events.values()
    assert "uid" not in event["involvedObject"]


def test_a_storm_is_not_thousands_of_events(bench: Bench) -> None:
    sender = Sender(bench)
    few = replace(MESSAGE, about=("node/gpu-001", "brake", "node/gpu-002"))
    sender.send(few)
    assert set(sender.events) == {event_name("thread-1", "gpu-001"), event_name("thread-1", "gpu-002")}
    assert MOST_NODES <= 100


def test_what_is_of_no_node_is_about_the_namespace(bench: Bench) -> None:
    sender = Sender(bench)
    sender.send(replace(MESSAGE, about=("stop",)))
    (event,) = sender.events.values()
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Namespace", "name": "default"}


def test_a_server_that_refuses_is_told_and_rights_are_asked_for(bench: Bench) -> None:
    sender = Sender(bench)
    bench.front.rights = {("get", "nodes")}
    with pytest.raises(NotDelivered, match="forbidden"):
        sender.send(MESSAGE)
    assert run(sender.node_events().missing_rights()) == EVENT_RIGHTS
    bench.front.rights = None
    assert run(sender.node_events().missing_rights()) == ()


def test_a_fleet_without_a_cluster_is_told() -> None:
    def nowhere() -> Kubectl:
        raise UsageError("the Fleet names no cluster")

    with pytest.raises(NotDelivered, match="names no cluster"):
        run(NodeEvents(nowhere, lambda: T0).send(CHANNEL, MESSAGE))
