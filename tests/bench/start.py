"""The start-up time of the command, and the CPU time of short commands, which is mostly that of their imports."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from reconciler.lab.process import lab_process
from tests.bench import measure
from tests.bench.report import Table

TARGETS_MS = {"reconciler --help": 80, "reconciler validate": 250, "reconciler plan": 1500}
_NODES = 12
_COMMAND = str(Path(sys.executable).with_name("reconciler"))
_THEIRS = "pydantic, sqlalchemy.dialects.sqlite, asyncssh, sushy"


def section(runs: int) -> list[Table]:
    return [_walls(runs), _cpu(runs)]


def _walls(runs: int) -> Table:
    commands = {
        "reconciler --help": [_COMMAND, "--help"],
        "floor: python -c pass": [sys.executable, "-c", "pass"],
        "floor: python -c 'import click'": [sys.executable, "-c", "import click"],
        "reconciler validate --help": [_COMMAND, "validate", "--help"],
        "reconciler plan --help": [_COMMAND, "plan", "--help"],
        "reconciler apply --help": [_COMMAND, "apply", "--help"],
    }
    walls = {name: measure.median_wall(command, runs) for name, command in commands.items()}
    ours = walls["reconciler --help"]
    rows = [(name, 1000 * wall, ours / wall if "floor" in name else None) for name, wall in walls.items()]
    return Table("Start: wall-clock milliseconds", ("command", "ms", "--help/this"), rows, (f"median of {runs} runs",))


def _cpu(runs: int) -> Table:
    """Run the commands beside a lab, whose own process is not counted."""
    commands = {
        "reconciler --help": [_COMMAND, "--help"],
        "reconciler validate": [_COMMAND, "validate", "fleet-spec"],
        "floor: python -c pass": [sys.executable, "-c", "pass"],
        "floor: import pydantic": [sys.executable, "-c", "from pydantic import BaseModel, TypeAdapter"],
        f"floor: import {_THEIRS}": [sys.executable, "-c", f"import {_THEIRS}"],
        "floor: kubectl get --raw /version": ["kubectl", "get", "--raw", "/version"],
    }
    with tempfile.TemporaryDirectory() as home:
        lab = Path(home) / "lab"
        own = {"KUBECONFIG": str(lab / "kubeconfig"), "RECONCILER_ENDPOINTS": str(lab / "endpoints.json"),
               "XDG_STATE_HOME": home}  # fmt: skip
        with lab_process(lab, "--nodes", str(_NODES), "--scenario", "drifted", "--seed", "5"):
            commands["reconciler plan"] = [_COMMAND, "plan", str(lab / "fleet-spec")]
            rows = [
                (name, 1000 * measure.best_cpu(command, runs, **own), TARGETS_MS.get(name))
                for name, command in commands.items()
            ]
    notes = (
        f"the best of {runs} runs; children count",
        f"plan: of {_NODES} nodes of a lab, which it reads over Redfish, SSH and by 4 runs of kubectl",
    )
    return Table("Start: CPU milliseconds", ("command", "ms", "target"), rows, notes)
