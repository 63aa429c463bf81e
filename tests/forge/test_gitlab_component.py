"""deploy/gitlab: a component by GitLab's own schema, with jobs that run when they should and hold what they need."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.ledger import SqlLedger
from tests.cli.shell import reconciler, running_lab
from tests.conftest import ROOT
from tests.forge.gitlab import FakeGitLab, serving
from tests.forge.index import needed, without_network, write_wheel
from tests.forge.runner import git
from tests.ledger.conftest import server as server  # a fixture
from tests.ledger.postgresql import Server

FILE = ROOT / "deploy" / "gitlab" / "templates" / "reconciler.yml"
GIVEN = {"source": "gpu-fleet-reconciler==1.0", "runner": "fleet"}
BRANCH = {"CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}
HOOK = BRANCH | {"CI_PIPELINE_SOURCE": "trigger", "TRIGGER_PAYLOAD": "/x"}
PIPELINES: Mapping[str, dict[str, str]] = {
    "merge request": {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_DEFAULT_BRANCH": "main"},
    "webhook": HOOK,
    "webhook on a branch": HOOK | {"CI_COMMIT_BRANCH": "evil"},
    "trigger without an event": HOOK | {"TRIGGER_PAYLOAD": ""},
    "push": BRANCH | {"CI_PIPELINE_SOURCE": "push"},
    "push to a branch": BRANCH | {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "evil"},
    "apply": BRANCH | {"CI_PIPELINE_SOURCE": "schedule", "RECONCILER_SCHEDULE": "apply"},
    "drift": BRANCH | {"CI_PIPELINE_SOURCE": "schedule", "RECONCILER_SCHEDULE": "drift"},
    "drift on a branch": BRANCH
    | {"CI_PIPELINE_SOURCE": "schedule", "RECONCILER_SCHEDULE": "drift", "CI_COMMIT_BRANCH": "evil"},
    "tag": {"CI_PIPELINE_SOURCE": "push", "CI_DEFAULT_BRANCH": "main", "CI_COMMIT_TAG": "v1"},
}
REVIEW = {"request": "on_success", "act": "on_success", "fork": "on_success", "answer": "always"}
APPLY = {"plan": "on_success", "approved": "on_success", "apply": "manual", "report": "always"}
JOBS: Mapping[str, dict[str, str]] = {
    "merge request": {"validate": "on_success"}, "webhook": REVIEW, "push": APPLY, "apply": APPLY,
    "drift": {"drift": "on_success", "drift-report": "always"},
}  # fmt: skip
CREDENTIALS = {"act", "plan", "apply", "drift"}
HEAD = "c" * 40


def documents(inputs: Mapping[str, str]) -> tuple[Any, Any]:
    """Its header, and its jobs with the inputs that GitLab would put in."""
    text = FILE.read_text()
    yaml = YAML(typ="safe", pure=True)
    yaml.constructor.add_constructor("!reference", lambda _loader, node: [one.value for one in node.value])
    header, _, body = text.partition("\n---\n")
    known = yaml.load(header)
    values = {name: one.get("default") for name, one in known["spec"]["inputs"].items()} | dict(inputs)
    assert set(values) == set(known["spec"]["inputs"])
    assert None not in values.values(), "an input without a default that nobody gave"
    filled = re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda match: str(values[match[1]]), body)
    assert "$[[" not in filled
    return known, yaml.load(filled)


HEADER, BODY = documents(GIVEN)


def job(name: str) -> dict[str, Any]:
    """A job with what it extends."""
    found: dict[str, Any] = BODY[name]
    if "extends" not in found:
        return found
    base = job(found["extends"])
    return {**base, **found, "variables": {**base.get("variables", {}), **found.get("variables", {})}}


NAMES = [name.removeprefix("reconciler-") for name in BODY if not name.startswith(".")]


def holds(condition: str, variables: Mapping[str, str]) -> bool:
    """What GitLab makes of `rules: if`, as far as these use it."""
    python = re.sub(r"\$(\w+)", lambda match: repr(variables.get(match[1], "")), condition)
    return bool(eval(python.replace("&&", "and").replace("||", "or"), {"__builtins__": {}}))


def when(name: str, variables: Mapping[str, str]) -> str:
    for rule in job(f"reconciler-{name}")["rules"]:
        if holds(rule["if"], variables):
            return str(rule.get("when", "on_success"))
    return "never"


def test_it_is_one_by_gitlabs_schema(tmp_path: Path) -> None:
    """The schema that GitLab publishes and its editor checks by, as check-jsonschema carries it."""
    header, jobs = tmp_path / "header.yml", tmp_path / "jobs.yml"
    text = FILE.read_text()
    first, _, rest = text.partition("\n---\n")
    header.write_text(first)
    jobs.write_text(re.sub(r"\$\[\[ inputs\.approvals \]\]", "1", rest))
    words: list[str | Path] = [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci",
             "--data-transform", "gitlab-ci"]  # fmt: skip
    done = subprocess.run([*words, header, jobs], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs.write_text(rest.replace("when: manual", "when: sometimes"))
    assert subprocess.run([*words, jobs], capture_output=True).returncode == 1


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_which_jobs_a_pipeline_has(pipeline: str) -> None:
    found = {name: when(name, PIPELINES[pipeline]) for name in NAMES}
    assert {name: word for name, word in found.items() if word != "never"} == JOBS.get(pipeline, {})


@pytest.mark.parametrize("name", NAMES)
def test_who_has_credentials_of_the_fleet_writes_nothing_on_gitlab(name: str) -> None:
    said = job(f"reconciler-{name}")
    fleet, forge = said.get("tags") == ["fleet"], "RECONCILER_FORGE_TOKEN" in said.get("variables", {})
    assert fleet == (name in CREDENTIALS)
    assert not (fleet and forge)
    environment = said.get("environment", {}).get("name")
    assert environment == ("fleet" if name == "apply" else "fleet-plan" if fleet else "fleet-report" if forge else None)
    assert ("reconciler comment" in str(said["script"]) or "reconciler forge" in str(said["script"])) == forge
    assert "timeout" in said
    if fleet and re.search(r"reconciler (plan|apply|drift|explain) ", str(said["script"])):
        assert "--redact" in str(said["script"])
    if fleet:
        assert "postgresql://*" in str(said["before_script"][0])
        assert said["before_script"][1] == [".reconciler", "before_script"]


def test_what_a_merge_request_may_rewrite_has_nothing_to_give_away() -> None:
    """GitLab takes the pipeline of a merge request from the merge request."""
    said = job("reconciler-validate")
    assert "environment" not in said
    assert "tags" not in said
    assert job("reconciler-fork").keys() & {"environment", "tags"} == set()


def test_nobody_applies_what_nobody_let_through() -> None:
    said = job("reconciler-apply")
    assert said["environment"] == {"name": "fleet"}, "protected: GitLab asks who may deploy there"
    assert set(said["needs"]) == {"reconciler-plan", "reconciler-approved"}
    assert said["allow_failure"] is False
    assert "--plan plan.json --yes" in said["script"][0]
    assert said["resource_group"]


def test_what_decides_is_no_variable_that_a_pipeline_can_be_given() -> None:
    """Variables of whoever starts a pipeline go before those of a job: what is installed and who approves is none."""
    inputs = HEADER["spec"]["inputs"]
    scripts = "\n".join(line for line in FILE.read_text().partition("\n---\n")[2].splitlines() if "[[" in line)
    pasted = set(re.findall(r"^ {4,}(?:- )?(?:echo|xargs|env|if|reconciler).*$", scripts, re.MULTILINE))
    named = {name for line in pasted for name in re.findall(r"inputs\.(\w+)", line)}
    assert named == {"source", "packages", "token", "approvals"}
    assert inputs["approvals"]["type"] == "number"
    for name, good, bad in (
        ("source", "git+https://x.example/a/b@0123abc", 'x"; id; "'),
        ("source", "gpu-fleet-reconciler[postgresql,notifications]==1.0", "x y"),
        ("packages", "", "a\nb"),
        ("packages", "acme-fleet==1.2.0 x[y]@git+https://x.example/a/b@0123abc", "a $(id)"),
        ("packages", "acme_fleet==1.2.0", 'a" | id; echo "b'),
        ("packages", "acme_fleet==1.2.0", "`id`"),
        ("token", "GITLAB_TOKEN", "A B"),
    ):
        assert re.fullmatch(inputs[name]["regex"], good)
        assert not re.fullmatch(inputs[name]["regex"], bad)


def test_the_guide_tells_of_every_input() -> None:
    for name, entry in HEADER["spec"]["inputs"].items():
        assert entry["description"]
        assert f"`{name}`" in (ROOT / "docs" / "how-to" / "gitlab.md").read_text()


# --- the scripts, carried out -------------------------------------------------------------------------------------


class Pipeline:
    """Jobs of one pipeline in one folder: what each leaves behind is there for the next."""

    def __init__(self, where: Path, gitlab: FakeGitLab) -> None:
        origin = where / "origin.git"
        self.at = where / "build"
        git(where, "init", "-q", "--bare", "-b", "main", str(origin))
        git(where, "clone", "-q", str(origin), str(self.at))
        shutil.copytree(ROOT / "fleet-spec", self.at / "fleet-spec")
        git(self.at, "checkout", "-q", "-b", "main")
        git(self.at, "add", "-A")
        git(self.at, "commit", "-q", "-m", "As it is")
        self.main = git(self.at, "rev-parse", "HEAD")
        git(self.at, "push", "-q", "origin", "main", "HEAD:refs/merge-requests/7/head")
        git(self.at, "push", "-q", "origin", "HEAD:refs/merge-requests/8/head")
        gitlab.open_merge(7, self.main, "fleet-spec/fleet.yaml")
        gitlab.open_merge(8, self.main, "fleet-spec/fleet.yaml", fork=43)
        self.ledger = where / "ledger.sqlite"
        self.env = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            **gitlab.env(CI_COMMIT_SHA=self.main, CI_PROJECT_URL="https://gitlab.example/acme/hpc/fleet"),
            "RECONCILER_LEDGER": str(self.ledger), "XDG_STATE_HOME": str(where / "state"),
            "XDG_CONFIG_HOME": str(where / "config"),
        }  # fmt: skip
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"

    def run(self, name: str) -> int:
        said = job(f"reconciler-{name}")
        values = {key: re.sub(r"\$\{?(\w+)\}?", lambda m: self.env.get(m[1], ""), str(value))
                  for key, value in said.get("variables", {}).items()}  # fmt: skip
        given = self.env | values
        if "tags" not in said:
            given.pop("RECONCILER_LEDGER", None)
        script = "\n".join(said["script"])
        done = subprocess.run(("bash", "-eo", "pipefail", "-c", script), cwd=self.at, env=given, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL)  # fmt: skip
        report = self.at / "request.env"
        if name == "request" and report.exists():
            self.env |= dict(line.split("=", 1) for line in report.read_text().splitlines())
        self.said = done.stdout + done.stderr
        return done.returncode

    def hook(self, event: Any) -> list[int]:
        for name in ("plan.json", "plan.txt", "plan.log", "code"):
            (self.at / name).unlink(missing_ok=True)
        file = self.at.parent / "payload.json"
        file.write_text(json.dumps(event))
        self.env["TRIGGER_PAYLOAD"] = str(file)
        return [self.run(name) for name in ("request", "act", "fork", "answer")]


@pytest.fixture
def gitlab() -> Iterator[FakeGitLab]:
    with serving() as found:
        found.levels[found.user("alice")["id"]] = 30
        yield found


@pytest.fixture
def pipeline(tmp_path: Path, gitlab: FakeGitLab) -> Pipeline:
    return Pipeline(tmp_path, gitlab)


@pytest.mark.wire
@pytest.mark.tool
def test_what_a_job_installs_can_plan(tmp_path: Path, server: Server) -> None:
    """From nothing, as GitLab starts it: before_script and script in one shell, and an extension beside the tool."""
    index = tmp_path / "index"
    index.mkdir()
    wanted = [*tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]]
    for one in needed("gpu-fleet-reconciler[postgresql]", *wanted):
        if one.name != "gpu-fleet-reconciler":
            write_wheel(one, index)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(index)]
    extension = shutil.copytree(ROOT / "docs/examples/acme-fleet", tmp_path / "acme-fleet")
    subprocess.run([*build, str(extension)], check=True, capture_output=True)
    database = server.database()
    SqlLedger(database).close()
    _, body = documents(GIVEN | {"source": str(ROOT), "packages": "acme-fleet==1.2.0"})
    before = "\n".join([body[".reconciler-fleet"]["before_script"][0], *body[".reconciler"]["before_script"]])
    with running_lab(tmp_path / "lab", "--scenario", "clean", nodes=2) as lab:
        env = without_network(index) | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8",
            "RECONCILER_SPEC": str(lab.spec), "RECONCILER_LEDGER": database, "TMPDIR": str(tmp_path),
            "RECONCILER_ENDPOINTS": str(lab.endpoints), "RECONCILER_SECRETS": str(lab.path / "secrets.yaml"),
        }  # fmt: skip
        script = "\n".join([before, "reconciler --version", *body["reconciler-plan"]["script"]])
        words = ("bash", "-eo", "pipefail", "-c", script)
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    log = tmp_path / "plan.log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    assert "acme-fleet 1.2.0" in done.stdout
    assert json.loads((tmp_path / "plan.json").read_text())["nodes"] is not None
    assert (tmp_path / "code").read_text().strip() in ("0", "2")


@pytest.mark.wire
def test_a_merge_request_is_checked_as_text(pipeline: Pipeline) -> None:
    assert pipeline.run("validate") == 0, pipeline.said
    assert json.loads((pipeline.at / "gl-code-quality-report.json").read_text()) == []
    fleet = pipeline.at / "fleet-spec" / "fleet.yaml"
    fleet.write_text(fleet.read_text().replace("kind: Fleet", "kind: Flet"))
    assert pipeline.run("validate") == 3
    assert json.loads((pipeline.at / "gl-code-quality-report.json").read_text())


@pytest.mark.wire
def test_a_hold_is_set_for_who_may(pipeline: Pipeline, gitlab: FakeGitLab) -> None:
    node = "gpu-a001"
    assert reconciler("ledger", "info", "--ledger", pipeline.ledger, "--create-ledger").code == 0
    assert pipeline.hook(gitlab.event(7, f"/reconciler hold {node} bad DIMM")) == [0, 0, 0, 0], pipeline.said
    [text] = gitlab.texts(7)
    assert f"`/reconciler hold {node}`, asked by alice: done." in text
    held = reconciler("hold", "--spec", pipeline.at / "fleet-spec", "--ledger", pipeline.ledger).out
    assert "bad DIMM" in held
    assert "alice on https://gitlab.example/acme/hpc/fleet/-/merge_requests/7" in held
    assert pipeline.hook(gitlab.event(7, "/reconciler hold gpu-a002", "mallory")) == [0, 0, 0, 0]
    assert "gpu-a002" not in reconciler("hold", "--spec", pipeline.at / "fleet-spec", "--ledger", pipeline.ledger).out
    assert pipeline.hook(gitlab.event(7, "/reconciler hold nobody"))[1] != 0
    assert "asked by alice: failed." in gitlab.texts(7)[-1]


@pytest.mark.wire
def test_a_plan_that_could_not_be_made_is_told(pipeline: Pipeline, gitlab: FakeGitLab) -> None:
    """Here nothing reaches a fleet, and nothing was published for forks."""
    event = {"object_kind": "merge_request", "object_attributes": {"iid": 7, "action": "open"}}
    request, act, fork, answer = pipeline.hook(event)
    assert (request, act != 0, fork, answer) == (0, True, 0, 0), pipeline.said
    assert "there is no plan" in gitlab.texts(7)[0]
    event["object_attributes"]["iid"] = 8  # type: ignore[index]  # a dictionary
    request, act, fork, answer = pipeline.hook(event)
    assert (request, act, fork != 0, answer) == (0, 0, True, 0), pipeline.said
    assert "A fork gets no credentials" in gitlab.texts(8)[0]
    assert [one["state"] for one in gitlab.statuses] == ["failed"] * len(gitlab.statuses)


@pytest.mark.wire
def test_what_nobody_approved_stops_before_it_is_applied(pipeline: Pipeline, gitlab: FakeGitLab) -> None:
    gitlab.merge(7, pipeline.main)
    (pipeline.at / "code").write_text("2\n")
    assert pipeline.run("approved") == 8
    gitlab.approve(7, "bob")
    gitlab.levels[gitlab.user("bob")["id"]] = 30
    assert pipeline.run("approved") == 0
    (pipeline.at / "code").write_text("0\n")
    gitlab.approved.clear()
    assert [pipeline.run(name) for name in ("approved", "apply", "report")] == [0, 0, 0], "there is nothing to do"
    (pipeline.at / "code").write_text("2\n")
    assert pipeline.run("report") == 0
    assert "there is no report of what was applied" in gitlab.texts(7)[0]
