"""A gate's test with partners, run for real: an sshd for each node, and iperf3 between them.

All nodes are this machine, so each sshd has a lock file of its own in the place of the gate's, by a mount that no other
process sees.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock
from reconciler.converge.group_run import Side
from reconciler.converge.pair_test import PairTest
from reconciler.converge.ports import TakenPartner
from reconciler.drivers.ssh import SshHost
from reconciler.gate.fabric.partners import NoPartner
from reconciler.gate.lock import FILE
from reconciler.model.desired import Endpoints, GateTest, Threshold
from reconciler.model.gate import TestResult, Verdict
from tests import builders as b
from tests.drivers.ssh.conftest import HostFactory, Keys, await_banner, free_port, private
from tests.gate.cases import SEEN

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.xdist_group("gate-tools")]
NODES = ("x", "near", "far", "other")


@dataclass(frozen=True)
class Node:
    port: int
    lock: Path


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[dict[str, Node]]:
    """Start an sshd for each node."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("iperf3") is None or os.getuid() != 0:
        pytest.skip("needs sshd, iperf3, and root for a lock file of each node's own")
    Path("/run/sshd").mkdir(exist_ok=True)
    Path(FILE).touch()
    home = tmp_path_factory.mktemp("pairs")
    (home / "host").write_text(private(keys.host))
    (home / "host").chmod(0o600)
    (home / "host-cert.pub").write_bytes(keys.certificate.export_certificate())
    (home / "authorized").write_bytes(keys.login.export_public_key())
    nodes: dict[str, Node] = {}
    with ExitStack() as stack:
        for name in NODES:
            port = free_port()
            nodes[name] = Node(port, home / f"{name}.lock")
            (home / f"{name}.lock").touch()
            (home / f"{name}.config").write_text(
                f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nHostCertificate {home}/host-cert.pub\n"
                f"AuthorizedKeysFile {home}/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
                "PermitRootLogin prohibit-password\nPidFile none\n"
            )
            script = 'mount --bind "$1" "$2" || exit 9; exec "$3" -D -e -f "$4"'
            words = (str(home / f"{name}.lock"), FILE, program, str(home / f"{name}.config"))
            log = home / f"{name}.log"
            with log.open("wb") as sink:
                process = subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh", *words], stderr=sink)
            stack.callback(process.wait, 5)
            stack.callback(process.terminate)
            await_banner(process, port, log)
        yield nodes


@dataclass
class Given:
    """Partners as a test gives them: those behind the node's leaf, and others."""

    near: list[TakenPartner]
    far: list[TakenPartner]
    told: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)

    async def take(self, *, near: bool, avoid: Collection[str], within: str = "") -> TakenPartner | NoPartner:
        assert not within
        found = next((one for one in (self.near if near else self.far) if one.name not in avoid), None)
        if found is None:
            return NoPartner("nobody is idle", wait=True)
        self.held.add(found.name)
        return found

    async def free(self, partner: TakenPartner) -> None:
        self.held.remove(partner.name)

    async def recover(self, names: Collection[str]) -> None:
        raise AssertionError(names)

    def tell(self, text: str) -> None:
        self.told.append(text)


Judge = Callable[..., tuple[TestResult, Given]]


@pytest.fixture
def judge(servers: dict[str, Node], make_host: HostFactory) -> Judge:
    def run(
        near: Collection[str], far: Collection[str], test: GateTest, /, **addresses: str
    ) -> tuple[TestResult, Given]:
        hosts = {name: make_host(node.port) for name, node in servers.items()}

        def side(name: str) -> Side:
            node = b.node(name, endpoints=Endpoints(None, f"{addresses.get(name, '127.0.0.1')}:22"))
            return Side(node, SEEN, hosts[name])

        def partner(name: str, behind: bool) -> TakenPartner:
            one = side(name)
            return TakenPartner(one.desired, one.observed, one.host, behind, certified=True)

        given = Given([partner(name, True) for name in near], [partner(name, False) for name in far])

        async def main() -> TestResult:
            try:
                return await PairTest(test, side("x"), RealClock(), given).result()
            finally:
                await asyncio.gather(*(host.close() for host in hosts.values() if isinstance(host, SshHost)))

        return asyncio.run(main()), given

    return run


def iperf3(at_least: float = 0.001, **args: int | str) -> GateTest:
    settings = {"partners": 2, "seconds": 1, "port": free_port(), **args}
    return GateTest("wire", "iperf3", settings, (Threshold("gbps", min=at_least),), 20.0)


def nothing_is_left(test: GateTest) -> bool:
    found = subprocess.run(["ss", "-Hltn", f"sport = :{test.args['port']}"], capture_output=True, check=True)
    return found.stdout == b""


def test_a_node_passes_with_a_partner_on_each_side_of_its_leaf(judge: Judge) -> None:
    test = iperf3()
    result, given = judge(["near"], ["far"], test)
    assert result.verdict is Verdict.PASS, result
    by_way = {f"gbps.{name}.{way}" for name in ("near", "far") for way in ("there", "back")}
    assert by_way | {"gbps", "gbps.near", "gbps.far", "retransmits"} <= set(result.metrics)
    assert result.metrics["gbps"] == min(result.metrics[name] for name in by_way) > 0
    assert result.tool_version.startswith("3")
    assert result.printed.count('"sum_received_bidir_reverse"') == 2
    assert given.held == set()
    assert nothing_is_left(test)


def test_a_bar_that_every_pair_misses_is_a_common_cause(judge: Judge) -> None:
    """All of them are one machine: the control fails as well, so nobody is convicted."""
    test = iperf3(at_least=1e9)
    result, given = judge(["near"], ["far"], test)
    assert result.verdict is Verdict.UNJUDGED, result
    assert "a common cause" in result.reasons[0]
    assert any("disagree with the node" in text for text in given.told)
    assert given.held == set()
    assert nothing_is_left(test)


def test_one_partner_is_neither_a_pass_nor_a_fail(judge: Judge) -> None:
    for least in (0.001, 1e9):
        result, given = judge(["near"], [], iperf3(least))
        assert result.verdict is Verdict.UNJUDGED, result
        assert "needs partners" in result.reasons[0]
        assert "gbps" not in result.metrics, "no bar may be judged by it later"
        assert given.held == set()


def test_a_partner_that_does_not_answer_proves_nothing_and_another_is_asked(judge: Judge) -> None:
    test = iperf3(port=free_port())
    result, given = judge(["near", "other"], ["far"], test, near="127.0.0.1.invalid")
    assert result.verdict is Verdict.PASS, result
    assert {"gbps.other", "gbps.far"} <= set(result.metrics)
    assert "gbps.near" not in result.metrics
    assert given.held == set()


def test_a_partner_on_which_a_gate_runs_is_told_as_that(judge: Judge, servers: dict[str, Node]) -> None:
    """Its server does not start under the lock, and the client's error alone would not say why."""
    with servers["near"].lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result, given = judge(["near"], [], iperf3())
    assert result.verdict is Verdict.UNJUDGED, result
    assert any("another gate runs on this node" in reason for reason in result.reasons), result.reasons
    assert given.held == set()


# The two halves of a program over two nodes: each ends with one exchange, as the ranks of a collective do.
WAITS = (
    "import os,socket; s=socket.create_server((os.environ['PARTNER'],{port})); c=s.accept()[0]; c.recv(9); c.send(b'7')"
)
MEETS = """import os,socket,time
for _ in range(50):
    try: s=socket.create_connection((os.environ['PARTNER'],{port})); break
    except OSError: time.sleep(0.1)
s.send(b'x'); print('busbw', float(s.recv(9))*{times}, 'GB/s')"""


def program(at_least: float, times: int = 50, serve: str = WAITS) -> GateTest:
    port = free_port()
    run, other = (text.format(port=port, times=times) for text in (MEETS, serve))
    args: dict[str, str | int] = {
        "run": f'python3 -c "{run}"',
        "serve": f'python3 -c "{other}"',
        "metrics": "busbw",
        "partners": 2,
    }
    return GateTest("pair", "command", {**args, "repeat": 2, "port": port}, (Threshold("busbw", min=at_least),), 20.0)


def test_a_program_of_the_site_runs_over_two_nodes_with_each_partner(judge: Judge) -> None:
    test = program(340.0)
    result, given = judge(["near"], ["far"], test)
    assert result.verdict is Verdict.PASS, result
    assert result.metrics["busbw"] == result.metrics["busbw.near"] == result.metrics["busbw.far"] == 350.0
    assert given.held == set()
    assert nothing_is_left(test), "also of the part that starts again whenever it ends"


def test_a_program_that_can_not_run_on_the_partner_is_no_verdict(judge: Judge) -> None:
    test = program(340.0, serve="import no_such_collective")
    result, given = judge(["near"], ["far"], test)
    assert result.verdict is Verdict.UNJUDGED, result
    assert any("exit status 1" in reason for reason in result.reasons), result.reasons
    assert given.held == set()
    assert nothing_is_left(test)
