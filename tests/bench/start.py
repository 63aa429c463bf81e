"""The start-up time of the command."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench import measure
from tests.bench.report import Table

TARGET_MS = 250
_COMMAND = str(Path(sys.executable).with_name("reconciler"))


def section(runs: int) -> list[Table]:
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
    notes = (f"target: {TARGET_MS} ms for --help", f"the median of {runs} runs")
    return [Table("Start: wall-clock milliseconds", ("command", "ms", "--help/this"), rows, notes)]
