"""Worker, scheduler, database or network go away while the loop works by an engine, and it converges all the same.

Each cell has its own lab of two sites, a scheduler and a worker for each, and a leader that runs as a service: whatever
ends by itself is started again, as systemd does.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.cli.exit_codes import ExitCode
from tests.chaos.cases import CASES
from tests.chaos.cell import violations_of
from tests.chaos.outages import Forwarder, postgresql_outage
from tests.chaos.world import Bench, World, node_of, running
from tests.cli.shell import started
from tests.engine.world import Engine, make_certificates, running_engine
from tests.ledger.postgresql import Server

WORKER_KILLED, WORKER_HUNG, SCHEDULER_KILLED, DATABASE_CUT, NETWORK_CUT = OUTAGES = (
    "worker killed", "worker hung", "scheduler killed", "database cut", "network cut",
)  # fmt: skip
CASE = next(case for case in CASES if case.name == "soft_restart")
SITES = ("fra", "ams")
NODES = 4
AWAY_S = 8.0
HUNG_S = 25.0  # longer than a leader waits for a worker that hangs
CONVERGES_S = 240.0
TIME_SCALE = 60.0


@dataclass(frozen=True)
class Outcome:
    """`unread`: passes in which some node was not known. `leaders`: how often a leader was started."""

    outage: str
    broke: tuple[str, ...]
    unread: int
    leaders: int
    seconds: float
    told: str


@dataclass
class Leader:
    """`reconciler run` as a service."""

    words: list[str | Path]
    log: Path
    starts: int = 0
    process: subprocess.Popen[str] | None = None

    def keep(self) -> None:
        """Start it, and start it again where it has ended."""
        if self.process is None or self.process.poll() is not None:
            self.starts += 1
            with self.log.open("a") as out:
                self.process = started(*self.words, stdout=out, stderr=subprocess.STDOUT)

    def close(self) -> int:
        """End it as systemd does. Return its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()

    @property
    def passes(self) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in self.told.splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for event in events if event.get("event") == "pass"]

    def is_done(self, number: int) -> bool:
        """Tell whether it has made so many passes, and found nothing to do and nothing unknown in the last one.

        The machines themselves are looked at afterwards.
        """
        passes = self.passes
        return len(passes) >= number and not any(passes[-1][one] for one in ("changes", "at_work", "unknown"))

    @property
    def told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def play(outage: str, directory: Path, server: Server | None) -> Outcome:
    """Let a fleet converge while `outage` comes, and check every node against the rules of all cells."""
    began = time.monotonic()
    with running(directory, [CASE] * NODES, TIME_SCALE) as world, contextlib.ExitStack() as stack:
        _divide(world.spec)
        ledger = server.database() if server is not None else str(directory / "ledger.sqlite")
        engine = stack.enter_context(_engine(directory, world))
        forwarder = Forwarder(engine.port)
        leader = Leader(_words(world, ledger, engine, forwarder), directory / "leader.log")
        stack.callback(leader.close)
        leader.keep()
        broke = _until(leader, lambda: _acts(world), 120.0, "no action began")
        if not broke:
            before = len(leader.passes)
            _begin(outage, engine, forwarder, ledger)
            broke = _until(leader, lambda: leader.is_done(before + 2), CONVERGES_S, "it has not converged")
        code = leader.close()
        if code not in (ExitCode.DONE, ExitCode.INTERRUPTED):
            broke.append(f"the leader ended with {code} when it was told to")
        for at in range(NODES):
            node = node_of(at)
            broke += [f"{node}: {one}" for one in violations_of(CASE, Bench(world, node, ledger))]
        told = leader.told
    if "Traceback" in told:
        broke.append("the leader crashed")
    unread = sum(event["unknown"] > 0 for event in leader.passes)
    return Outcome(outage, tuple(broke), unread, leader.starts, time.monotonic() - began, told)


def _divide(spec: Path) -> None:
    """Put every other node at the other site."""
    for pool in (spec / "pools").glob("*.yaml"):
        document = json.loads(pool.read_text())
        for at, node in enumerate(document["spec"]["nodes"]):
            node["domains"]["site"] = SITES[at % len(SITES)]
        pool.write_text(json.dumps(document))


@contextlib.contextmanager
def _engine(directory: Path, world: World) -> Iterator[Engine]:
    tls = make_certificates(directory / "tls")
    endpoints = world.directory / "lab" / "endpoints.json"
    with running_engine(directory / "engine", tls, endpoints, **dict(zip(SITES, SITES, strict=True))) as engine:
        yield engine


def _words(world: World, ledger: str, engine: Engine, forwarder: Forwarder) -> list[str | Path]:
    where = ("--endpoints", world.directory / "lab" / "endpoints.json", "--ledger", ledger, "--create-ledger")
    by = ("--engine", f"tls://127.0.0.1:{forwarder.port}", "--engine-tls", engine.tls)
    return ["run", world.spec, "--interval", "5m", "--listen", "off", "--log", "json", *where, *by]


def _begin(outage: str, engine: Engine, forwarder: Forwarder, ledger: str) -> None:
    """Begin an outage. What systemd would start again comes back after a while."""
    if outage == WORKER_KILLED:
        engine.kill(SITES[0])
        _later(AWAY_S, lambda: engine.start_worker(SITES[0], SITES[0]))
    elif outage == WORKER_HUNG:
        hung = engine.processes[SITES[0]]
        hung.send_signal(signal.SIGSTOP)
        _later(HUNG_S, lambda: hung.send_signal(signal.SIGCONT))
    elif outage == SCHEDULER_KILLED:
        engine.kill("scheduler")
        _later(AWAY_S, lambda: _start_anew(engine))
    elif outage == DATABASE_CUT:
        postgresql_outage(ledger)()
    else:
        forwarder.interrupt(AWAY_S)


def _start_anew(engine: Engine) -> None:
    engine.start_scheduler()
    for site in SITES:
        engine.processes[site].wait(60)  # it ends without its scheduler
        engine.start_worker(site, site)


def _later(seconds: float, act: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def _until(leader: Leader, condition: Callable[[], bool], seconds: float, otherwise: str) -> list[str]:
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return [otherwise]
        leader.keep()
        time.sleep(0.2)
    return []


def _acts(world: World) -> bool:
    """Tell whether some node is taken out already."""
    return any(node["unschedulable"] for node in world.state()["cluster"]["nodes"].values())


def report_line(outcome: Outcome) -> str:
    verdict = "ok" if not outcome.broke else "BROKE: " + "; ".join(outcome.broke)
    return (
        f"engine: {outcome.outage:18} unread {outcome.unread:>3}, leaders {outcome.leaders}, "
        f"{outcome.seconds:>4.0f} s  {verdict}"
    )
