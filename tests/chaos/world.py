"""A lab with one node per case, and the command line for one of these nodes."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO, Any

from reconciler.cli.exit_codes import ExitCode
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab import control
from reconciler.lab.process import lab_process
from reconciler.lab.wire.ssh_port import bound
from tests.chaos import target_process
from tests.chaos.cases import Case
from tests.chaos.target_process import FaultPoint
from tests.cli.shell import ROOT, Done, reconciler

TARGET_S = 240.0
PATIENCE = 5
_IMPORTED = ("tests.chaos.target_process", "reconciler.cli.commands.apply", "reconciler.converge.apply")


@cache
def _forkserver() -> ForkServerContext:
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([*_IMPORTED])
    return found


def node_of(number: int) -> str:
    return f"n{number + 1:03d}"


def write_spec(directory: Path, cases: Sequence[Case]) -> Path:
    """Write the worked example with a node for each case, without limits on nodes out of service or a storm brake."""
    spec = directory / "spec"
    shutil.copytree(ROOT / "fleet-spec", spec)
    shutil.rmtree(spec / "pools")
    (spec / "pools").mkdir()
    fleet = spec / "fleet.yaml"
    text = fleet.read_text().replace('nodes: "34%"', 'nodes: "100%"').replace("nodes: 2}", 'nodes: "100%"}')
    # Nodes of other cells boot meanwhile: of ten nodes, two that are not Ready would be a storm.
    fleet.write_text(text + '  brake: {fleet: "99%", domain: "99%", within: 10m}\n')
    for name, persona, staged in sorted({(_pool(case), case.persona, case.staged) for case in cases}):
        nodes = [
            {
                "name": node_of(at),
                "bmc": f"https://10.20.{at // 250}.{at % 250 + 1}",
                "host": f"10.21.{at // 250}.{at % 250 + 1}",
                "serial": f"SN-{at + 1:03d}",
                "domains": {"rack": f"r{at % 4}"},
            }
            for at, case in enumerate(cases)
            if _pool(case) == name
        ]
        pool = {
            "image": {"name": "ubuntu-gpu", "version": "2026.11.1"},
            "hardware": "reset" if staged else "hgx-h100",
            "persona": persona,
            "rollout": {"waves": ["100%"], "bake": "0s"},
            "nodes": nodes,
        }
        document = {
            "apiVersion": "reconciler.dev/v1alpha1",
            "kind": "NodePool",
            "metadata": {"name": name},
            "spec": pool,
        }
        (spec / "pools" / f"{name}.yaml").write_text(json.dumps(document))
    _write_second_profile(spec)
    _shorten_gate(spec)
    _write_personas(spec)
    _add_mild_rungs(spec)
    return spec


def _pool(case: Case) -> str:
    return case.persona + ("-reset" if case.staged else "")


def _write_second_profile(spec: Path) -> None:
    """Write a hardware profile whose NIC firmware becomes active at a BMC reset."""
    text = (spec / "hardware.yaml").read_text()
    text = text.replace("name: hgx-h100", "name: reset").replace("activation: power_cycle", "activation: bmc_reset")
    (spec / "reset.yaml").write_text(text)
    images = spec / "images.yaml"
    images.write_text(re.sub(r"hardware: \[hgx-h100\]", "hardware: [hgx-h100, reset]", images.read_text()))


def _shorten_gate(spec: Path) -> None:
    """Reduce the gate to two long tests, which are enough points to kill a run in."""
    path = spec / "acceptance.yaml"
    kept, left_out = path.read_text().split("        - name: pcie\n")
    path.write_text(
        kept + "        - name: nccl\n" + left_out.split("- name: nccl\n")[1].split("        - name: storage")[0]
    )


def _write_personas(spec: Path) -> None:
    """Let the join start kubelet, and for the persona `joining` the host configuration."""
    path = spec / "personas.yaml"
    text = path.read_text()
    joining = text.split("\n---\n")[0].replace("name: training", "name: joining")
    path.write_text(text.replace(", kubelet: running", "") + "---\n" + joining + "\n")


def _add_mild_rungs(spec: Path) -> None:
    path = spec / "remediation.yaml"
    mild = "".join(f"    - action: {name}\n      attempts: 1\n" for name in ("restart_service", "gpu_reset"))
    text = path.read_text()
    assert "  ladder:\n" in text
    path.write_text(text.replace("  ladder:\n", f"  ladder:\n{mild}"))


@dataclass(frozen=True)
class World:
    directory: Path
    spec: Path

    def endpoints(self, node: str) -> Path:
        return self.directory / "lab" / f"endpoints-{node}.json"

    def write_endpoints(self, node: str, installer: int) -> None:
        """Write a node's endpoints file, so that all of its runs serve install documents on the same port."""
        document = json.loads((self.directory / "lab" / "endpoints.json").read_text())
        document["installer"]["listen"] = f"127.0.0.1:{installer}"
        self.endpoints(node).write_text(json.dumps(document))

    def state(self) -> dict[str, Any]:
        return control.read_state(self.directory / "lab")


@contextlib.contextmanager
def running(directory: Path, cases: Sequence[Case], time_scale: float) -> Iterator[World]:
    """Run a lab with one node for each case, in this order."""
    directory.mkdir(parents=True, exist_ok=True)
    spec = write_spec(directory, cases)
    scenario = directory / "scenario.yaml"
    scenario.write_text(json.dumps({"nodes": {node_of(at): case.play for at, case in enumerate(cases)}}))
    options = ("--spec", str(spec), "--scenario", str(scenario), "--time-scale", str(time_scale))
    with lab_process(directory / "lab", *options), contextlib.ExitStack() as stack:
        world = World(directory, spec)
        for at in range(len(cases)):
            kept = stack.enter_context(bound("127.0.0.1", 0))  # reserved while no run listens there
            world.write_endpoints(node_of(at), kept.getsockname()[1])
        yield world


@dataclass(frozen=True)
class Bench:
    """One node of a world with its own ledger. `database`: its URL; if empty, the ledger is a file."""

    world: World
    node: str
    database: str = ""

    @property
    def place(self) -> Path:
        found = self.world.directory / "nodes" / self.node
        found.mkdir(parents=True, exist_ok=True)
        return found

    @property
    def ledger_place(self) -> str:
        return self.database or str(self.place / "ledger.sqlite")

    @contextlib.contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        found = SqlLedger(self.ledger_place)
        try:
            yield found
        finally:
            found.close()

    @property
    def machine(self) -> dict[str, Any]:
        found: dict[str, Any] = self.world.state()["nodes"][self.node]
        return found

    @property
    def member(self) -> dict[str, Any]:
        """Return the node object, or {} when the cluster has none."""
        found: dict[str, Any] = self.world.state()["cluster"]["nodes"].get(self.node, {})
        return found

    # --- the command line ---

    @property
    def where(self) -> tuple[str | Path, ...]:
        return "--endpoints", self.world.endpoints(self.node), "--ledger", self.ledger_place

    def words(self, name: str, *words: str | Path) -> list[str | Path]:
        return [name, self.world.spec, "--limit", self.node, *words, *self.where]

    def plan(self) -> tuple[Path, int]:
        """Make a plan; return its path and the exit code. Retry when a busy machine leaves sources unread."""
        path = self.place / "plan.json"
        for _ in range(PATIENCE):
            done = reconciler(*self.words("plan", "--out", path, "--detailed-exitcode", "--create-ledger"))
            if done.code != ExitCode.INCOMPLETE:
                break
        assert path.exists(), f"exit {done.code}: {done.err}"
        return path, done.code

    def apply(self, plan: Path) -> Done:
        return reconciler(*self.words("apply", "--plan", plan, "--yes", "--output", "json"))

    def start_target(
        self, point: FaultPoint, plan: Path, *, err: int | IO[str] = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        words = self.words("apply", "--plan", plan, "--yes", "--output", "json")
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.target_process", point.text, *map(str, words)], cwd=ROOT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
            env={**os.environ, "RECONCILER_ACTOR": target_process.ACTOR},
        )  # fmt: skip

    def run_target(self, point: FaultPoint, plan: Path) -> Done:
        """Run the target process, forked from a process with all imports, which saves most of the time."""
        words = list(map(str, self.words("apply", "--plan", plan, "--yes", "--output", "json")))
        out, err = self.place / "target.out", self.place / "target.err"
        process = _forkserver().Process(target=target_process.run_forked, args=(point, words, str(out), str(err)))
        process.start()
        process.join(TARGET_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, TARGET_S)
        return Done(process.exitcode, out.read_text(), err.read_text())

    def release_lease(self) -> None:
        """Release the lease, as an operator does who knows that the run is dead."""
        listed = reconciler("lease", "list", *self.where, "--output", "json")
        for one in json.loads(listed.out):
            done = reconciler("lease", "release", "--id", str(one["id"]), *self.where)
            assert done.code == 0, done.err
