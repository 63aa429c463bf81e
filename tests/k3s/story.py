"""The life of the cluster, stage by stage, by the command line that an operator has, which dies at a sample of moments.

A run is killed (SIGKILL) before, during or after a command on a host, whichever is next; then somebody releases its
lease, and gives the same command again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from reconciler.cli.exit_codes import ExitCode
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.k3s import BINARY
from reconciler.model.records import MARK_TAINT
from tests.conftest import ROOT
from tests.k3s.lab import NodesLab
from tests.k3s.root_files import left_of_k3s
from tests.k3s.spec import GPUS, NEW, OLD

TTL_S = 900.0
RUNS = 4  # of a stage, after the last kill
WAYS = ("before", "during", "after")
KEPT = "/var/lib/rancher/k3s/storage"  # a partition of its own on the first agent
RUN_S = 1800.0  # above the 25 minutes of --wait, after which a run ends by itself


@dataclass
class Stage:
    """`seconds`: from its first command to its last. `kills`: what was under way, and how the run died there."""

    name: str
    seconds: float = 0.0
    runs: int = 0
    commands: int = 0
    kills: list[str] = field(default_factory=list)
    took: dict[str, list[float]] = field(default_factory=dict)  # action -> seconds of each that ended well


class Wrong(Exception):
    """Something is not as it must be."""


@dataclass
class Story:
    lab: NodesLab
    home: Path
    servers: list[str]
    agents: list[str]
    every: int
    kills: int
    stages: list[Stage] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    victim: asyncio.subprocess.Process | None = None
    began: float = field(default_factory=time.monotonic)
    version: str = OLD
    _at: int = 0  # the change of a host at which the run dies; 0: at none
    _way: str = ""
    _killed: str = ""

    def __post_init__(self) -> None:
        self.lab.played.before, self.lab.played.after = self._before, self._after
        cluster = self.lab.lab.cluster
        assert cluster is not None
        cluster.watcher = self._serves

    # --- the run and its death ---

    async def _before(self, node: str, command: str) -> None:
        if self._at and self.lab.played.changes >= self._at:
            if self._way == "before":
                self._kill(node, command)
                raise ConnectionResetError  # the command never reached the node
            if self._way == "during":
                asyncio.get_running_loop().call_later(0.1, self._kill, node, command)

    async def _after(self, node: str, command: str) -> None:
        if self._at and self.lab.played.changes >= self._at and self._way == "after":
            self._kill(node, command)

    def _kill(self, node: str, command: str) -> None:
        if not self._at or self.victim is None or self.victim.returncode is not None:
            return
        self._at = 0
        os.kill(self.victim.pid, signal.SIGKILL)
        what = " ".join(word for word in command.split() if word not in ("timeout", "-k"))[:60]
        self._killed = f"{self._way} `{what}` on {node}"

    async def command(self, *words: str) -> tuple[int, str, str]:
        """Run the reconciler once. What it says goes into a log, too."""
        environment = {**os.environ, "RECONCILER_SECRETS": str(self.home / "secrets.yaml"), "RECONCILER_ACTOR": "e2e"}
        environment["XDG_STATE_HOME"] = str(self.home / "state")
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "reconciler", *words, "--ledger", str(self.home / "ledger.sqlite"), cwd=ROOT,
            env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
        )  # fmt: skip
        self.victim = child
        try:
            out, err = await asyncio.wait_for(child.communicate(), RUN_S)
        finally:
            if child.returncode is None:
                child.kill()
        self.victim = None
        with (self.home / "said.txt").open("a") as log:
            log.write(f"--- {self._now()} {' '.join(words)}: exit {child.returncode}\n{out.decode()}{err.decode()}\n")
        return child.returncode or 0, out.decode(), err.decode()

    async def until_done(self, stage: Stage, *words: str) -> str:
        """Give a command again and again until it ends well, and kill it on the way. Return what it printed."""
        left, codes = RUNS, []
        while left:
            dies = bool(self.every) and len(stage.kills) < self.kills
            self._way = WAYS[len(stage.kills) % len(WAYS)]
            self._killed = ""
            if words[0] == "apply" and await self._is_converged(words):
                return ""
            if dies:
                self._at = self.lab.played.changes + self.every
            code, out, _ = await self.command(*words)
            self._at = 0
            stage.runs += 1
            self.never()
            if code == -signal.SIGKILL:
                stage.kills.append(f"{self._under_way()}: {self._killed}")
                print(f"  {self._now()} killed {stage.kills[-1]}", flush=True)
                await self._release_lease()
                continue
            if code == 0 and words[0] != "apply":
                return out
            if code:
                print(f"  {self._now()} a run ended with {code}", flush=True)
            codes.append(code)
            left -= 1
        raise Wrong(f"{stage.name}: it did not end well: exit {codes}, see {self.home / 'said.txt'}")

    async def _is_converged(self, words: Sequence[str]) -> bool:
        """Make the plan that `apply` is told to carry out. Return whether it has nothing to do, and all is known."""
        plan = ("plan", words[1], "--out", words[3], "--detailed-exitcode", "--create-ledger")
        code, _, _ = await self.command(*plan)
        if code not in (ExitCode.DONE, ExitCode.CHANGES):
            print(f"  {self._now()} a plan ended with {code}", flush=True)
        return code == ExitCode.DONE

    async def _release_lease(self) -> None:
        """Release the lease, as an operator does who knows that the run is dead."""
        _, listed, _ = await self.command("lease", "list", "--output", "json")
        for one in json.loads(listed):
            await self.command("lease", "release", "--id", str(one["id"]))

    def _under_way(self) -> str:
        with closing(SqlLedger(str(self.home / "ledger.sqlite"))) as ledger:
            found = sorted({one[2] for one in ledger.unfinished() if one[2] != "run"})
        return ", ".join(found) or "between actions"

    def _now(self) -> str:
        return f"{time.monotonic() - self.began:5.0f} s"

    # --- what must be ---

    def _serves(self, node: object, serves: bool) -> None:
        """A node begins to serve only with what its operators offer."""
        if serves and getattr(node, "allocatable", {}).get("nvidia.com/gpu") != GPUS:
            self.wrong.append(f"{node} serves without its GPUs")

    def never(self) -> None:
        """What must never be, whenever it is looked at."""
        site = self.lab.site
        checks = {
            "a second cluster was begun": site.begun <= 1,
            f"etcd lost its quorum, {site.fewest}": site.fewest >= 0,
            "two members joined at once": not any("too many learner" in why for why in site.refused),
            "a token lives longer than 15 minutes": all(
                one.expires - site.clock() <= TTL_S for one in site.valid().values()
            ),
        }
        self.wrong += [what for what, holds in checks.items() if not holds]

    def in_service(self) -> None:
        """See that each node serves with the version of now, and that nothing is left open."""
        cluster, site, version = self.lab.lab.cluster, self.lab.site, self.version
        assert cluster is not None
        everybody = [*self.servers, *self.agents]
        found = {name: cluster.node(name) for name in everybody}
        tokens = dict(site.valid())
        real = {self.lab.nodes[name].root(BINARY).read_text().splitlines()[1].removeprefix("# ") for name in found}
        checks = {
            f"servers: {site.members}": sorted(site.members) == self.servers,
            f"versions: {real}": real == {version} == {one.kubelet_version for one in found.values()},
            "a node is out of service": all(
                one.ready == "True" and not one.unschedulable and all(taint.key != MARK_TAINT for taint in one.taints)
                for one in found.values()
            ),
            f"tokens are left: {list(tokens)}": not tokens,
        }
        self.wrong += [what for what, holds in checks.items() if not holds]
        with closing(SqlLedger(str(self.home / "ledger.sqlite"))) as ledger:
            bare = [name for name in everybody if ledger.node(name).certificate is None]
            open_ends = [one for one in ledger.unfinished() if one[2] != "run"]
        self.wrong += [f"{bare} serve without a certificate"] if bare else []
        self.wrong += [f"intents without an outcome: {open_ends}"] if open_ends else []

    # --- the stages ---

    async def tell(self, skipped: Sequence[str]) -> int:
        spec = str(self.lab.spec.directory)
        plan = str(self.home / "plan.json")
        apply = ("apply", spec, "--plan", plan, "--yes", "--wait", "25m")
        node = self.lab.nodes[self.agents[0]]
        node.run(f"mkdir -p {KEPT} && mount -t tmpfs none {KEPT} && echo precious > {KEPT}/volume")

        async def begin(stage: Stage) -> None:
            await self.until_done(stage, *apply)
            self.in_service()

        async def upgrade(stage: Stage) -> None:
            alone = len(self.servers) == 1 or None
            self.lab.spec.change(bootstrap=None, allowDowntime=alone, release=self.lab.files.release(NEW))
            self.version = NEW
            await self.until_done(stage, *apply)
            self.in_service()
            saved = self.lab.site.snapshots
            for name in self.servers:
                if not any(one.startswith("before-") and f"-{name}-" in one for one in saved):
                    self.wrong.append(f"{name} has no snapshot of etcd of before the upgrade: {saved}")

        async def replace(stage: Stage) -> None:
            self.lab.spec.change(bootstrap=None)
            lost = self.servers[-1] if len(self.servers) > 1 else self.agents[-1]
            await self.command(
                "hold", lost, "--reason", "a new disk", "--spec", spec
            )  # as a person does who works on it
            await self.lab.lose(lost)
            await self.command("release", lost, "--spec", spec)
            await self.until_done(stage, *apply)
            self.in_service()

        async def teardown(stage: Stage) -> None:
            self.lab.spec.change(bootstrap=None)
            words = ("cluster", "teardown", "main", "--spec", spec, "--confirm", "tear down main")
            print(await self.until_done(stage, *words))
            await self.gone()

        stories: Sequence[tuple[str, Callable[[Stage], Awaitable[None]]]] = (
            ("begin", begin), ("upgrade by one minor", upgrade), ("replace a lost node", replace),
            ("tear down", teardown),
        )  # fmt: skip
        for name, play in [one for one in stories if one[0] not in skipped]:
            try:
                await self._stage(name, play)
            except Wrong as error:
                self.wrong.append(str(error))
        self._report()
        return 1 if self.wrong else 0

    async def _stage(self, name: str, play: Callable[[Stage], Awaitable[None]]) -> None:
        stage, began, commands = Stage(name), time.monotonic(), self.lab.played.commands
        since = datetime.now(UTC)
        self.stages.append(stage)
        print(f"{self._now()} {name}", flush=True)
        try:
            await play(stage)
        finally:
            stage.seconds, stage.commands = time.monotonic() - began, self.lab.played.commands - commands
            self._read_actions(stage, since)
            print(f"{self._now()} {name} ended: {stage.runs} runs, {stage.commands} commands on hosts", flush=True)
            for action, took in stage.took.items():
                print(
                    f"  {action:16} {len(took):3} times, {median(took):4.0f} s, {max(took):4.0f} s at most", flush=True
                )
        for what in self.wrong:
            print(f"  WRONG: {what}", flush=True)

    def _read_actions(self, stage: Stage, since: datetime) -> None:
        with closing(SqlLedger(str(self.home / "ledger.sqlite"))) as ledger:
            entries = [entry for name in (*self.servers, *self.agents) for entry in ledger.history(name, 1000)]
        for entry in sorted(entries, key=lambda one: one.at):
            if entry.event == "outcome" and entry.at >= since and entry.detail.startswith("done"):
                stage.took.setdefault(entry.action, []).append(entry.seconds or 0.0)

    async def gone(self) -> None:
        for name, node in self.lab.nodes.items():
            kept = KEPT if name == self.agents[0] else ""
            if left := left_of_k3s(node, kept):
                self.wrong.append(f"{name} still has {left[:5]}")
            if await self.lab.has_containers(name):
                self.wrong.append(f"{name} still has containers, mounts or links")
        volume = self.lab.nodes[self.agents[0]].root(f"{KEPT}/volume")
        if not volume.exists() or volume.read_text() != "precious\n":
            self.wrong.append("a partition below the data of K3s was not kept")

    def _report(self) -> None:
        print(f"\n| stage | seconds | runs | of them killed | commands on hosts |\n{'|---' * 5}|")
        for one in self.stages:
            print(f"| {one.name} | {one.seconds:.0f} | {one.runs} | {len(one.kills)} | {one.commands} |")
        played = self.lab.played
        print(f"\n{sum(played.downloads.values())} requests for files, {played.cut} downloads cut off", flush=True)
        print("\n".join(f"WRONG: {what}" for what in self.wrong) or "all as it must be")
