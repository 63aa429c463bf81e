"""The command line as scripts and people use it: in this process where that is the same, else in its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.cli.main import run
from reconciler.lab import control
from reconciler.lab.process import lab_process

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "fleet-spec"
START_S = 60.0


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which holds one JSON document and nothing else."""
        return json.loads(self.out)


def reconciler(*words: str | Path, env: Mapping[str, str] | None = None) -> Done:
    """The command in this process; its standard input is no terminal, and neither are the others."""
    out, err = io.StringIO(), io.StringIO()
    kept = dict(os.environ)
    os.environ.update(env or {})
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(word) for word in words])
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return Done(int(code), out.getvalue(), err.getvalue())


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "reconciler", *map(str, words)]


def started(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own, with pipes, at once."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command(*words), text=True, **(pipes | options))


def ended(process: subprocess.Popen[str], timeout: float = 60.0) -> Done:
    out, err = process.communicate(timeout=timeout)
    return Done(process.returncode, out, err)


def until(condition: Any, seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come to pass"
        time.sleep(0.05)


@dataclass(frozen=True)
class LabDirectory:
    """A lab that runs in a process of its own."""

    path: Path
    spec: Path

    @property
    def endpoints(self) -> Path:
        return self.path / "endpoints.json"

    def endpoints_of(self, kind: str) -> Mapping[str, Any]:
        """Targets by the address that the spec has, such as `bmc`."""
        found: Mapping[str, Any] = json.loads(self.endpoints.read_text())[kind]
        return found

    def run(self, name: str, *words: str | Path, env: Mapping[str, str] | None = None) -> Done:
        return reconciler(*self.words(name, *words), env=env)

    def words(self, name: str, *words: str | Path) -> list[str | Path]:
        """`name` with this lab's spec and endpoints."""
        return [name, self.spec, *words, "--endpoints", self.endpoints]

    def plan(self, *words: str | Path) -> Path:
        """A plan of now."""
        path = self.path / "plan.json"
        assert self.run("plan", *words, "--out", path).code in (0, 4)
        return path

    def apply(self, plan: Path, *words: str | Path) -> Done:
        return self.run("apply", *words, "--plan", plan, "--yes")

    def fault(self, node: str, kind: str, **parameters: Any) -> None:
        control.inject_fault(self.path, node, kind, parameters)

    def clear(self, node: str, kind: str | None = None) -> None:
        control.clear_fault(self.path, node, kind)

    def state(self) -> dict[str, Any]:
        return control.read_state(self.path)

    def counters(self) -> dict[str, Any]:
        """All that was ever done to the hardware, and to pods."""
        state = self.state()
        return {"evictions": state["cluster"]["evictions"]} | {
            name: machine["counters"] for name, machine in state["nodes"].items()
        }

    def respec(self, file: str, old: str, new: str) -> None:
        path = self.spec / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {path}"
        path.write_text(text.replace(old, new))


@contextmanager
def running_lab(path: Path, *words: str, nodes: int = 3, time_scale: float = 240) -> Iterator[LabDirectory]:
    """`lab up` in a process of its own, as people start it; ended at the end."""
    with lab_process(path, "--nodes", str(nodes), "--time-scale", str(time_scale), *words):
        yield LabDirectory(path, path / "fleet-spec")
