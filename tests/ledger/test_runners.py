"""Several runners on one fleet, each a process of its own, against a lab on the wire and a ledger that they share.

What they did is what the lab counted (invariant 12, two_runners_never_act_twice). The lease is short here; all else is
as people run it.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.cli.shell import LabDirectory, reconciler, running_lab, until

pytestmark = pytest.mark.wire

NODES = ("gpu-0001", "gpu-0002")
TTL_S = 5.0
ASK_S = 1.0  # a standby
LONG_S = 180.0
PASS_S = 60.0  # to start Python, observe and finish two nodes on a machine that is busy with other things
_RUNNER = f"""\
import sys
from reconciler.converge import lease, loop
lease.TTL_REAL_S, loop.ASK_AGAIN_S = {TTL_S}, {ASK_S}
from reconciler.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("runners"), "--scenario", "clean", nodes=len(NODES)) as found:
        found.respec("fleet.yaml", "25%", "100%")
        found.respec("fleet.yaml", "50%", "100%")
        for pool in sorted((found.spec / "pools").glob("*.yaml")):  # waves have tests of their own
            pool.write_text(pool.read_text().rstrip("\n") + "\n  rollout: {waves: ['100%'], bake: 0s}\n")
        yield found


class Fleet:
    """The lab with one ledger. `changed`: what the lab has counted since the spec last changed."""

    def __init__(self, lab: LabDirectory, where: str, tmp_path: Path) -> None:
        self.lab = lab
        self.where = where
        self._logs = tmp_path
        self._started = 0

    def plan(self) -> Path:
        path = self.lab.path / "plan.json"
        assert self.lab.run("plan", "--out", path, "--ledger", self.where, "--create-ledger").code == 0
        return path

    def change(self) -> None:
        """Another BIOS setting for every node: a drain, a restart and a gate each."""
        path = self.lab.spec / "hardware.yaml"
        text = path.read_text()
        self.wanted = "NPS2" if "NumaNodesPerSocket: NPS1" in text else "NPS1"
        path.write_text(re.sub(r"NumaNodesPerSocket: \w+", f"NumaNodesPerSocket: {self.wanted}", text))
        self._before = self.counted()

    def counted(self) -> dict[str, tuple[int, ...]]:
        machines = self.lab.state()["nodes"]
        names = ("boots", "bios_writes", "power_cycles", "installs", "flashes", "killed_work")
        return {node: tuple(machines[node]["counters"][name] for name in names) for node in NODES}

    def changed(self) -> dict[str, tuple[int, ...]]:
        now = self.counted()
        return {node: tuple(a - b for a, b in zip(now[node], self._before[node], strict=True)) for node in NODES}

    def check_done_once(self) -> None:
        assert self.changed() == dict.fromkeys(NODES, (1, 1, 0, 0, 0, 0)), "one restart and one BIOS write each"
        state = self.lab.state()
        assert {state["nodes"][node]["bios"]["NumaNodesPerSocket"] for node in NODES} == {self.wanted}
        for node in NODES:
            found = state["cluster"]["nodes"][node]
            assert not found["unschedulable"]
            assert [taint["key"] for taint in found["taints"] if "reconciler.dev" in taint["key"]] == []

    @contextmanager
    def runner(self, name: str, *words: str | Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
        """A process, and the file that its stderr goes to."""
        self._started += 1
        log = self._logs / f"{name}-{self._started}.log"
        command = [*self.lab.words(words[0], *words[1:]), "--ledger", self.where]  # type: ignore[arg-type]  # a name
        with log.open("w") as err:
            process = subprocess.Popen(
                [sys.executable, "-c", _RUNNER, *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=err, text=True, env={**os.environ, "RECONCILER_ACTOR": name},
            )  # fmt: skip
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()

    def leases(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = reconciler("lease", "list", "--ledger", self.where, "--output", "json").json
        return found

    def open_attempts(self) -> list[tuple[str, str]]:
        book = SqlLedger(self.where)
        found = [(node, action) for _, node, action, _, _ in book.unfinished()]
        book.close()
        return found


@pytest.fixture(scope="module")
def on_file(lab: LabDirectory, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    place = tmp_path_factory.mktemp("on-file")
    return Fleet(lab, str(place / "ledger.sqlite"), place)


@pytest.fixture(scope="module")
def on_server(lab: LabDirectory, postgresql: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(lab, postgresql(), tmp_path_factory.mktemp("on-server"))


def told(log: Path, words: str) -> bool:
    return words in log.read_text()


@pytest.mark.parametrize(("count", "ledger"), [(2, "on_file"), (5, "on_server")])
def test_of_runners_that_start_at_once_one_acts_and_the_others_name_it(
    request: pytest.FixtureRequest, count: int, ledger: str
) -> None:
    """A runner that starts after the first has ended finds its plan used up."""
    fleet: Fleet = request.getfixturevalue(ledger)
    fleet.change()
    plan = fleet.plan()
    ends = {}
    with ExitStack() as stack:
        names = [f"runner-{number}" for number in range(count)]
        words = ("apply", "--plan", plan, "--yes")
        running = {name: stack.enter_context(fleet.runner(name, *words)) for name in names}
        for name, (process, log) in running.items():
            process.wait(timeout=LONG_S)
            ends[name] = (process.returncode, log.read_text())
    (leader,) = [name for name, (code, _) in ends.items() if code == 0]
    others = {name: end for name, end in ends.items() if name != leader}
    assert {code for code, _ in others.values()} <= {5, 6}
    for code, said in others.values():
        if code == 6:
            assert re.search(rf"lab is being written by {leader}, run-\S+, until ", said), said
        else:
            assert "is used up" in said
    fleet.check_done_once()
    assert fleet.leases() == []


def test_a_leader_that_is_killed_in_the_middle_of_an_action_is_followed_within_its_lease(on_server: Fleet) -> None:
    """Two `run` on one ledger: one leads, the other stands by, and finishes what the first has begun."""
    fleet = on_server
    fleet.change()
    options = ("run", "--listen", "off", "--interval", "60m", "--log", "human")
    with fleet.runner("first", *options) as (first, log), fleet.runner("second", *options) as (second, other):
        until(lambda: told(log, "soft_restart") or told(other, "soft_restart"), LONG_S)
        leader, standby = (first, other) if told(log, "soft_restart") else (second, log)
        until(lambda: told(standby, "is being written by"), LONG_S)
        assert not told(standby, "soft_restart")
        leader.kill()
        killed = time.monotonic()
        assert "soft_restart" in {action for _, action in fleet.open_attempts()}
        until(lambda: told(standby, "holds the lease"), TTL_S + PASS_S)
        taken_over = time.monotonic() - killed
        until(lambda: fleet.open_attempts() == [] and fleet.leases()[:1] and done(fleet), LONG_S)
        (survivor,) = {first, second} - {leader}
        survivor.send_signal(signal.SIGTERM)
        assert survivor.wait(timeout=60) == 0
    assert taken_over < TTL_S + 2 * ASK_S + 3, "the lease, and two looks for it"
    fleet.check_done_once()
    assert fleet.leases() == []


def done(fleet: Fleet) -> bool:
    nodes = fleet.lab.state()["cluster"]["nodes"]
    marked = [node for node in NODES if any("reconciler.dev" in taint["key"] for taint in nodes[node]["taints"])]
    return not marked and all(counts[0] for counts in fleet.changed().values())


def stop_between_writes(process: subprocess.Popen[str], ledger: str) -> None:
    """Stop a runner that holds no lock of the file itself: SQLite lets nobody write until such a one goes on."""
    while True:
        process.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", LONG_S)
        try:
            with closing(sqlite3.connect(ledger, timeout=0, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
                return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)


def test_a_runner_that_was_stopped_for_longer_than_its_lease_does_nothing_when_it_wakes(on_file: Fleet) -> None:
    """SIGSTOP in the middle of restarts; another one finishes; SIGCONT."""
    fleet = on_file
    fleet.change()
    plan = fleet.plan()
    with fleet.runner("sleeper", "apply", "--plan", plan, "--yes") as (sleeper, log):
        until(lambda: told(log, "soft_restart"), LONG_S)
        stop_between_writes(sleeper, fleet.where)
        stopped = time.monotonic()
        held = {lease["scope"]: lease["holder"] for lease in fleet.leases()}
        assert held["lab"].startswith("sleeper, run-")
        assert set(held) - {"lab"} <= {scope for scope in held if scope.startswith("bmc/127.0.0.1:")}
        with fleet.runner("early", "apply", "--plan", plan, "--yes") as (early, said):
            assert early.wait(timeout=LONG_S) == 6 or time.monotonic() > stopped + TTL_S, said.read_text()
        while early.returncode == 6:
            time.sleep(max(0.2, stopped + TTL_S - time.monotonic()))
            with fleet.runner("next", "apply", "--plan", plan, "--yes") as (early, said):
                early.wait(timeout=LONG_S)
        assert early.returncode == 0, said.read_text()
        fleet.check_done_once()
        before = fleet.counted(), fleet.lab.counters()
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(timeout=60) == 6
        assert re.search(r"the lease on lab (was lost to|is gone|ran out)", log.read_text()), log.read_text()[-500:]
        assert (fleet.counted(), fleet.lab.counters()) == before
    assert fleet.open_attempts() == []
    assert fleet.leases() == []
