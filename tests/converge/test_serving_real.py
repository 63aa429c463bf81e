"""Two and four nodes with a real sshd and a real HTTP endpoint each, which together answer whatever is done to one.

What a node serves is an engine of a tensor-parallel group: it answers while every node that it was told to serve with
does. A machine of the lab that is installed anew takes its engine with it. A client asks without a pause, as one behind
a load balancer does: while nobody answers, there is an outage. The rest of the fleet is the lab's.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.converge.events import ActionFinished, ActionStarted, Event
from reconciler.lab.hardware.tools import k3s as lab_k3s
from reconciler.lab.hardware.tools import serving as lab_serving
from reconciler.lab.hardware.tools.call import Call, Ran
from reconciler.model.serving import CUT_OFF, TELL, DesiredServing, probe_of
from tests.converge.for_real import run_for_real
from tests.converge.real_nodes import RealNode, real_nodes
from tests.converge.test_backup import NEW, each, to_new_image
from tests.converge.test_k3s_killed import surviving
from tests.converge.world import SIGNATURES, World
from tests.drivers.ssh.conftest import Keys
from tests.drivers.ssh.conftest import keys as keys

pytestmark = [pytest.mark.wire, pytest.mark.tool]
URL = "http://127.0.0.1:8000/health"
HOUR = 3600.0

ENGINE = """
import http.server, json, pathlib, sys, urllib.request
told = pathlib.Path("/srv/told.json")
class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/alive" or serves() else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
def alive(address):
    try:
        return urllib.request.urlopen(f"http://{address}:8000/alive", timeout=2).status == 200
    except OSError:
        return False
def serves():
    peers = json.loads(told.read_text())
    return bool(peers) and all(map(alive, peers))
http.server.ThreadingHTTPServer(("", 8000), Engine).serve_forever()
"""
# It takes its time, as loading weights does, and only then the engine serves with other nodes than before.
TOLD = """
import json, os, pathlib, sys, time
addresses = json.loads(pathlib.Path(sys.argv[1]).read_text())
with open("/srv/commands", "a") as log:
    print(*sys.argv[2:], file=log)
time.sleep(0.3)
pathlib.Path("/srv/new.json").write_text(json.dumps([addresses[name] for name in sys.argv[2].split(",")]))
os.replace("/srv/new.json", "/srv/told.json")
"""


def answers(address: str, path: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"http://{address}:8000/{path}", timeout=5).status == 200)
    except OSError:  # of which an answer other than 2xx is one
        return False


@dataclass
class Client:
    """Asks all nodes of a group again and again until one of them answers 200; counts the times that none does."""

    addresses: list[str]
    asked: int = 0
    outages: list[float] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        began = time.monotonic()
        while not self.stop.wait(0.01):
            self.asked += 1
            if not any(answers(one, "health") for one in self.addresses):
                self.outages.append(round(time.monotonic() - began, 2))


class Events(list[Event]):
    """The events of the fleet. An installation ends what runs on the node, and its new system begins anew."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, ActionStarted) and event.action.name == "reimage":
            self.site.wipe(event.node)
        if isinstance(event, ActionFinished) and event.action.name == "reimage":
            self.site.boot(event.node)


@dataclass
class Site:
    """`kill`: at which of the commands on nodes the run dies, and when. `ran`: how many there were."""

    world: World
    nodes: dict[str, RealNode]
    home: Path
    kill: tuple[int, str] = (0, "")
    ran: int = 0
    wiped: list[str] = field(default_factory=list)

    def boot(self, name: str, peers: str = "[]") -> None:
        node = self.nodes[name]
        node.run("sh", "-c", f"echo '{peers}' > /srv/told.json")
        node.start(sys.executable, str(self.home / "engine.py"), log=self.home / f"{name}.engine")
        until = time.monotonic() + 10
        while not answers(node.address, "alive"):
            assert time.monotonic() < until, f"the engine of {name} does not start"
            time.sleep(0.05)

    def wipe(self, name: str) -> None:
        """End the engine, and forget all that was on the disk."""
        self.wiped.append(name)
        engine = self.nodes[name].started.pop()
        engine.kill()
        engine.wait(5)
        self.nodes[name].run("sh", "-c", "rm -rf /srv/* /var/lib/reconciler")

    def commands(self, name: str) -> list[str]:
        return self.nodes[name].run("sh", "-c", "cat /srv/commands 2>/dev/null || true").splitlines()

    def told(self, call: Call) -> Ran | None:
        return self.reach(call) if call.args[:2] == ("-c", TELL) else None

    def probe(self, call: Call) -> Ran | None:
        return self.reach(call) if (call.name, *call.args) == probe_of(URL) else None

    def reach(self, call: Call) -> Ran:
        self.ran += 1
        number, when = self.kill
        connect = self.nodes[call.machine.name].host
        return Ran(run_for_real(connect, call, when if number == self.ran else "", 0.1), 1.0)

    def apply(self) -> None:
        with surviving():
            self.world.apply(wait_s=10 * HOUR)

    @contextmanager
    def asked(self) -> Iterator[Client]:
        client = Client([node.address for node in self.nodes.values()])
        thread = threading.Thread(target=client.work)
        thread.start()
        try:
            yield client
        finally:
            client.stop.set()
            thread.join()


@contextmanager
def serving_site(number: int, keys: Keys, patch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Yield a group of so many nodes that serve together, each with its engine."""
    names = [f"n{at}" for at in range(number)]
    with tempfile.TemporaryDirectory(prefix="serving-") as folder, real_nodes(names, keys, Path(folder)) as nodes:
        home = Path(folder)
        (home / "engine.py").write_text(textwrap.dedent(ENGINE))
        (home / "told.py").write_text(textwrap.dedent(TOLD))
        addresses = ", ".join(f'"{node.name}": "{node.address}"' for node in nodes)
        (home / "addresses.json").write_text(f"{{{addresses}}}")
        command = (sys.executable, str(home / "told.py"), str(home / "addresses.json"), "{nodes}")
        group = DesiredServing(tuple(names), command, command, 600.0, URL, 60.0)
        world = World(home, nodes=number, signatures={**SIGNATURES, (NEW.name, NEW.version): True})
        world.adopt()
        each(world, lambda node: replace(node, serving=group))
        site = Site(world, {node.name: node for node in nodes}, home)
        world.events = Events(site)
        patch.setattr(lab_serving, "serving_script", site.told)
        patch.setattr(lab_k3s, "probe", site.probe)
        everyone = "[" + ", ".join(f'"{node.address}"' for node in nodes) + "]"
        for name in names:
            site.boot(name, everyone)
        yield site
        world.ledger.close()


@pytest.fixture
def pair(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving_site(2, keys, monkeypatch) as site:
        yield site


@pytest.fixture
def four(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving_site(4, keys, monkeypatch) as site:
        yield site


def check(site: Site, client: Client, rebuilt: str) -> None:
    names = list(site.nodes)
    others = [name for name in names if name != rebuilt]
    assert client.outages == []
    assert client.asked > 20
    assert site.wiped == [rebuilt]
    assert site.world.machine(rebuilt).disk().version == NEW.version
    assert all(map(site.world.serves, names))
    for name in others:
        assert site.commands(name) == [",".join(others), ",".join(names)], name  # each told once, whoever died
    assert site.commands(rebuilt) == [",".join(names)]


def test_two_nodes_answer_throughout_the_rebuild_of_one(pair: Site) -> None:
    to_new_image(pair.world, "n0")
    with pair.asked() as client:
        pair.apply()
    check(pair, client, "n0")


def test_four_nodes_answer_throughout_the_rebuild_of_all(four: Site) -> None:
    to_new_image(four.world)
    with four.asked() as client:
        four.apply()
    assert client.outages == []
    assert sorted(four.wiped) == ["n0", "n1", "n2", "n3"]
    assert all(map(four.world.serves, four.nodes))


@pytest.mark.parametrize(
    ("number", "when"),
    [*((at, "in the midst") for at in range(1, 8)), (1, "before"), (1, "after"), (5, "before"), (5, "after")],
)
def test_a_run_that_dies_anywhere_is_gone_on_with(pair: Site, number: int, when: str) -> None:
    to_new_image(pair.world, "n0")
    with pair.asked() as client:
        pair.kill = (number, when)
        pair.apply()
        assert pair.ran == number
        pair.kill = (0, "")
        pair.apply()
    check(pair, client, "n0")


@pytest.mark.parametrize("number", [2, 8, 12])
def test_a_run_on_four_nodes_that_dies_anywhere_is_gone_on_with(four: Site, number: int) -> None:
    to_new_image(four.world, "n3")
    with four.asked() as client:
        four.kill = (number, "in the midst")
        four.apply()
        four.kill = (0, "")
        four.apply()
    check(four, client, "n3")


def test_what_another_boot_was_told_counts_as_cut_off(pair: Site) -> None:
    """The engine went down with the host, whatever its command ended with before."""

    def tell(name: str) -> str:
        ask = 'code=$1; shift; sh -c "$code" sh "$@"; echo $?'
        return pair.nodes["n1"].run("sh", "-c", ask, "sh", TELL, name, "10", "touch", "/srv/ran")

    assert tell("1-a") == tell("1-a") == "0\n"
    node, home = pair.nodes["n1"], "/var/lib/reconciler/serving/1-a"
    assert node.run("cat", f"{home}/boot") == node.run("cat", "/proc/sys/kernel/random/boot_id")
    node.run("sh", "-c", f"echo another > {home}/boot; rm /srv/ran")
    assert tell("1-a") == f"{CUT_OFF}\n"
    assert tell("2-a") == "0\n"
    assert node.run("ls", "/srv/ran") == "/srv/ran\n", "a later attempt tells it again"


def test_the_client_sees_an_outage_where_a_node_goes_by_itself(pair: Site) -> None:
    """Or it would prove nothing: without its peer, what was told to serve with it does not answer."""
    with pair.asked() as client:
        pair.wipe("n0")
        time.sleep(0.5)
    assert client.outages
