"""A runner of workflow files: checks out, carries out scripts as they stand, and keeps artifacts and outputs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.forge.workflows import WORKFLOWS, Step, evaluated, steps

_KEPT = ("PATH", "HOME", "LANG", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=alice", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(("git", *identity, *words), cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass
class Runner:
    """`origin` is the repository; `env` is what GitHub gives to every job, `fleet` what the machine has that reaches
    the nodes.
    """

    origin: Path
    where: Path
    env: Mapping[str, str]
    fleet: Mapping[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)  # needs.JOB.outputs.NAME and steps.ID.outputs.NAME
    results: dict[str, str] = field(default_factory=dict)  # job -> success | failure
    jobs: int = 0  # that have been run

    def run(self, workflow: str, job: str, context: Mapping[str, str]) -> str:
        """One job, on a machine of its own. Its result, as `needs.JOB.result` has it."""
        self.jobs += 1
        at = self.where / f"{self.jobs}-{workflow}-{job}"
        at.mkdir(parents=True)
        failed = False
        for step in (step for step in steps(workflow) if step.job == job):
            if not self._wanted(step, at, failed):
                continue
            uses = str(step.said.get("uses", ""))
            if uses.startswith("actions/"):
                self._action(step, uses.partition("@")[0], at, context)
            elif step.run:
                failed |= self._script(step, at, context) != 0
        self.results[job] = "failure" if failed else "success"
        for name, text in WORKFLOWS[workflow]["jobs"][job].get("outputs", {}).items():
            self.outputs[f"needs.{job}.outputs.{name}"] = evaluated(text, self.outputs)
        return self.results[job]

    @staticmethod
    def _wanted(step: Step, at: Path, failed: bool) -> bool:
        said = str(step.said.get("if", ""))
        anyway = "always()" in said or "!cancelled()" in said
        files = re.findall(r"hashFiles\('([^']+)'\) != ''", said)
        return (anyway or not failed) and all((at / name).is_file() for name in files)

    def _action(self, step: Step, action: str, at: Path, context: Mapping[str, str]) -> None:
        given = {key: evaluated(value, context) for key, value in step.said.get("with", {}).items()}
        if action == "actions/checkout":
            target = at / given.get("path", "")
            git(self.where, "clone", "-q", str(self.origin), str(target) + ".tmp")
            shutil.copytree(str(target) + ".tmp", target, dirs_exist_ok=True)
            git(target, "fetch", "-q", "origin", "+refs/pull/*:refs/remotes/pull/*")
            git(target, "checkout", "-q", given.get("ref") or context["github.sha"])
        elif action == "actions/upload-artifact":
            kept = self.where / "artifacts" / given["name"]
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for name in given["path"].split():
                if (at / name).is_file():
                    shutil.copy(at / name, kept)
        elif action == "actions/download-artifact":
            names = given.get("name") or given["pattern"].strip("{}")
            for name in names.split(","):
                kept = self.where / "artifacts" / name
                if kept.is_dir():
                    shutil.copytree(kept, at / given["path"], dirs_exist_ok=True)
        elif action == "actions/cache/save":
            kept = self.where / "caches" / given["key"]
            kept.mkdir(parents=True)
            shutil.copy(at / given["path"], kept / "file")
        elif action == "actions/cache/restore":
            found = sorted(
                (self.where / "caches").glob(f"{given['restore-keys']}*/file"), key=lambda p: p.stat().st_mtime
            )
            if found:
                (at / given["path"]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found[-1], at / given["path"])

    def _script(self, step: Step, at: Path, context: Mapping[str, str]) -> int:
        out, summary = at / "github_output", at / "github_summary"
        out.touch()
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        env |= self.env
        if WORKFLOWS[step.workflow]["jobs"][step.job]["runs-on"] == "${{ vars.RECONCILER_RUNNER }}":
            env |= self.fleet
        env |= {"GITHUB_OUTPUT": str(out), "GITHUB_STEP_SUMMARY": str(summary), "CI": "true"}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        own = {name: evaluated(value, {**context, **self.outputs}) for name, value in step.env.items()}
        env |= {name: value for name, value in own.items() if value or name == "ENVIRONMENT"}
        script = at / f"{re.sub(r'[^a-z]+', '-', step.name.lower())}.sh"
        script.write_text(step.run)
        words = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script))
        with script.with_suffix(".log").open("w") as log:
            done = subprocess.run(
                words,
                cwd=at / step.said.get("working-directory", "."),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if "id" in step.said:
            for line in out.read_text().splitlines():
                name, _, value = line.partition("=")
                self.outputs[f"steps.{step.said['id']}.outputs.{name}"] = value
        return done.returncode

    def log(self, text: str = "") -> str:
        """What the last job's scripts printed, for a test that fails."""
        last = max(self.where.glob("[0-9]*-*"), key=lambda path: int(path.name.partition("-")[0]))
        return text + "\n".join(path.read_text() for path in last.glob("*.log"))
