"""The rules of conventions G, asserted of the workflow files as they are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import click
import pytest

from reconciler.cli.main import COMMANDS, cli
from tests.conftest import ROOT
from tests.forge.workflows import ACTION, EXPRESSION, FLEET, FOLDER, WORKFLOWS, Step, read, steps

JOBS = [(name, job) for name in WORKFLOWS for job in WORKFLOWS[name]["jobs"]]
OPERATING = {
    ("review", "plan"),
    ("commands", "act"),
    ("apply", "plan"),
    ("apply", "apply"),
    ("drift", "drift"),
}  # they have credentials
READS = {"contents": "read"}
PERMISSIONS = {
    ("commands", "request"): READS | {"pull-requests": "write"},
    ("commands", "reply"): READS | {"pull-requests": "write", "checks": "write"},
    ("review", "comment"): READS | {"pull-requests": "write", "checks": "write"},
    ("apply", "report"): READS | {"pull-requests": "write", "checks": "write"},
    ("drift", "report"): READS | {"pull-requests": "write", "issues": "write"},
    ("release", "publish"): READS | {"id-token": "write", "attestations": "write"},
    ("release", "publish-container"): READS | {"packages": "write", "id-token": "write", "attestations": "write"},
}
CONTEXTS = re.compile(r"\b(github|vars|secrets|needs|steps|inputs|matrix|env|runner)\.[\w.-]+")
# Variables that a step has by itself. Names of tags and repositories hold no character of a shell inside quotes.
RUNNER = {"code", "GITHUB_ACTOR", "GITHUB_OUTPUT", "GITHUB_REF_NAME", "GITHUB_REPOSITORY", "PATH", "PWD"}
# What a person wrote decides, and is in nothing that is run; the rest GitHub made up.
OF_COMMENTS = (
    "startsWith(github.event.comment.body, '/reconciler')",
    "github.event.comment.html_url",
    "github.event.comment.id",
    "github.event.issue.pull_request",
)
FUNCTIONS = {"startsWith", "always", "cancelled", "failure", "success", "hashFiles"}
UNTRUSTED = re.compile(r"github\.event\.(issue|comment|review|head_commit|commits|pull_request\.(title|body|head\.ref))"
                       r"|github\.head_ref|\.head_branch|\.label\b")  # fmt: skip


def job(name: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = WORKFLOWS[name]["jobs"][key]
    return found


def expressions(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, one in value.items() for text in (one if key == "if" and isinstance(one, str) else "",)
                if text] + [text for one in value.values() for text in expressions(one)]  # fmt: skip
    if isinstance(value, list):
        return [text for one in value for text in expressions(one)]
    return EXPRESSION.findall(value) if isinstance(value, str) else []


# --- conventions G1, G2, G8: what starts them ------------------------------------------------------------------------


def test_what_starts_each() -> None:
    starts = {name: WORKFLOWS[name]["on"] for name in FLEET}
    assert starts["plan"] == {"pull_request": None}, "no filter: a required check must report"
    assert starts["review"] == {"workflow_run": {"workflows": ["plan"], "types": ["completed"]}}
    assert starts["commands"] == {"issue_comment": {"types": ["created"]}}, "what is edited later is no command"
    assert set(starts["apply"]) == {"push", "schedule", "workflow_dispatch"}
    assert starts["apply"]["push"] == {"branches": ["main"]}
    assert set(starts["drift"]) == {"schedule", "workflow_dispatch"}
    assert not any("pull_request_target" in path.read_text() for path in FOLDER.iterdir())


@pytest.mark.parametrize(("name", "key"), JOBS)
def test_only_a_repository_that_names_a_runner_has_a_fleet(name: str, key: str) -> None:
    """A copy of the project does not try to reach nodes, and a fork's pull request never meets a credential."""
    if name not in FLEET:
        return
    first = job(name, key)
    while "needs" in first:
        needs = first["needs"]
        first = job(name, needs if isinstance(needs, str) else needs[0])
    assert "vars.RECONCILER_RUNNER != ''" in first["if"]
    if name == "review" and (name, key) in OPERATING:
        assert "github.event.workflow_run.head_repository.full_name == github.repository" in first["if"]
    if name in ("apply", "drift"):
        assert first["if"] == "vars.RECONCILER_RUNNER != '' && github.ref == 'refs/heads/main'", "by hand too"


# --- G2, G3, S3: whose code runs, and whom forks are trusted with -------------------------------------------------


def test_what_a_pull_request_may_rewrite_has_nothing_to_give_away() -> None:
    """GitHub takes a workflow of `pull_request` from the pull request: of a branch as of a fork."""
    for name, workflow in WORKFLOWS.items():
        if "pull_request" not in workflow["on"]:
            continue
        for key, said in workflow["jobs"].items():
            assert "environment" not in said, (name, key)
            assert "secrets." not in str(said)
            assert said["runs-on"] == "ubuntu-24.04", "never a machine that reaches the fleet"
            assert "write" not in said.get("permissions", workflow["permissions"]).values()
            assert "upload-artifact" not in str(said), "nobody would believe it"
            assert "actions/cache" not in str(said)


def test_code_and_endpoints_come_from_the_base_commit() -> None:
    for step in steps(*FLEET):
        if not step.said.get("uses", "").startswith("actions/checkout@"):
            continue
        given = step.said["with"]
        if given.get("path") == "change":
            assert (step.workflow, step.job) in {("plan", "validate"), ("review", "fork")}, "data, without credentials"
        elif step.workflow == "plan":
            assert given["ref"] == "${{ github.event.pull_request.base.sha }}"
        else:
            assert "ref" not in given, "the default branch"
    for step in steps():
        uses = step.said.get("uses", "")
        assert not uses.startswith("./change"), uses
        inside = step.said.get("working-directory") == "change"
        if inside or re.search(r"change/|cd change", step.run):
            [first, *rest] = step.run.splitlines()
            assert (inside and first == "exec reconciler validate fleet-spec" and not rest) or (
                first == "cd change" and rest[0].startswith("exec reconciler plan fleet-spec --observation ../report/")
            )
    for key in ("plan", "fork"):
        [plan] = [step for step in steps("review") if step.job == key and step.name == "Plan"]
        assert plan.env["BASE"] == "${{ github.sha }}"
        assert '--base "$BASE" --head "$HEAD"' in plan.run, "both: what stands in the work tree is not looked at"


def test_no_step_of_a_forks_job_sees_a_secret() -> None:
    said = job("review", "fork")
    assert "github.event.workflow_run.head_repository.full_name != github.repository" in said["if"]
    for word in ("secrets.", "github.token", "environment", "vars.RECONCILER_SECRETS", "RECONCILER_LEDGER"):
        assert word not in str(said)
    assert said["runs-on"] == "ubuntu-24.04"
    assert said["permissions"] == READS
    text = " ".join(step.run for step in steps("review") if step.job == "fork")
    assert "--observation ../report/published.json" in text
    assert "|| " not in text


def test_what_is_believed_was_made_on_the_default_branch() -> None:
    """Artifacts are of the same run. What was published comes from a cache of the default branch, in which a pull
    request, whose caches are its own, can put nothing.
    """
    for step in steps(*FLEET):
        uses = step.said.get("uses", "")
        if uses.startswith("actions/download-artifact@"):
            assert not {"run-id", "github-token", "repository"} & set(step.said["with"])
        if uses.startswith("actions/cache/"):
            assert step.workflow in ("review", "drift")
    [save] = [one for one in steps() if one.said.get("uses", "").startswith("actions/cache/save@")]
    [restore] = [one for one in steps() if one.said.get("uses", "").startswith("actions/cache/restore@")]
    assert (save.workflow, save.job, restore.workflow, restore.job) == ("drift", "report", "review", "fork")
    assert save.said["with"]["path"] == restore.said["with"]["path"], "else another cache is looked for"
    assert save.said["with"]["key"].startswith(restore.said["with"]["restore-keys"])
    [drift] = [step for step in steps("drift") if step.name == "Drift"]
    assert "--publish published.json" in drift.run


def test_a_command_is_carried_out_for_those_who_may_and_with_code_of_main() -> None:
    """Who may, which node and which commit come from `forge request`, which asks GitHub and refuses the rest."""
    act, reply = job("commands", "act"), job("commands", "reply")
    assert act["if"] == "needs.request.outputs.verb != 'nothing'"
    assert "secrets." not in str(job("commands", "request")) + str(reply)
    [step] = [step for step in steps("commands") if step.name == "Act"]
    for name in ("HEAD", "NODE", "REASON", "VERB"):
        assert step.env[name] == f"${{{{ needs.request.outputs.{name.lower()} }}}}"
    assert step.env["BASE"] == "${{ github.sha }}"
    assert '--base "$BASE" --head "$HEAD"' in step.run
    assert "*) exit 64 ;;" in step.run
    assert set(job("commands", "request")["outputs"]) == {"verb", "pull", "head", "node", "reason", "actor"}


# --- G4: permissions, pins, credentials ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "key"), JOBS)
def test_permissions_are_as_few_as_can_be(name: str, key: str) -> None:
    assert WORKFLOWS[name]["permissions"] == ({} if name in FLEET else READS)
    granted = job(name, key).get("permissions", WORKFLOWS[name]["permissions"])
    assert granted == PERMISSIONS.get((name, key), READS)


@pytest.mark.parametrize(("name", "key"), JOBS)
def test_who_may_write_on_github_has_no_credentials_of_the_fleet(name: str, key: str) -> None:
    text = str(job(name, key))
    if "write" in job(name, key).get("permissions", {}).values():
        assert "secrets." not in text
        assert job(name, key)["runs-on"] == "ubuntu-24.04"
    assert ("secrets." in text) == ((name, key) in OPERATING)
    if (name, key) in OPERATING:
        assert job(name, key)["environment"] == ("fleet" if key == "apply" else "fleet-plan")
        assert "github.token" not in text


def test_actions_are_pinned_and_keep_no_token() -> None:
    found = [(step.name, step.said) for step in steps()] + [
        (str(one.get("uses")), one) for one in read(ACTION)["runs"]["steps"]
    ]
    texts = [path.read_text() for path in (*FOLDER.glob("*.yml"), ACTION)]
    for _, said in found:
        uses = said.get("uses")
        if uses is None or uses == "./":
            continue
        assert re.fullmatch(r"(actions/[\w-]+(/[\w-]+)?|pypa/gh-action-pypi-publish)@[0-9a-f]{40}", uses), uses
        assert any(re.search(re.escape(uses) + r" # v\d+\.\d+\.\d+\n", text) for text in texts)
        if uses.startswith("actions/checkout@"):
            assert said["with"]["persist-credentials"] is False


def test_a_release_is_built_where_nothing_may_be_signed() -> None:
    """What builds it can neither attest nor publish, and what publishes runs none of the project's code."""
    release = WORKFLOWS["release"]
    assert release["on"] == {"push": {"tags": ["v*"]}}
    for name in ("build", "container"):
        assert "permissions" not in release["jobs"][name]
    publishing = [step for step in steps("release") if step.job in ("publish", "publish-container")]
    assert not any("checkout" in str(step.said.get("uses")) for step in publishing)
    [push] = [step for step in publishing if step.run]
    assert not re.search(r"\b(make|pip|python\S*|bash|\./\S+|\.venv\S*)\b", push.run), "skopeo copies what was built"
    environments = [release["jobs"][name]["environment"] for name in ("publish", "publish-container")]
    assert environments == ["pypi", "ghcr"], "who may approve it is said there"


def test_secrets_are_given_to_single_steps() -> None:
    for name, key in JOBS:
        for env in (job(name, key).get("env", {}), WORKFLOWS[name].get("env", {})):
            assert "secrets." not in str(env)
            assert "github.token" not in str(env), "else what is being installed could read it"


def test_every_step_that_resolves_secrets_says_how_to_give_it_some() -> None:
    """`env: NAME` in the secrets file finds nothing unless the step has it: a secret is no variable."""
    at, given = "RECONCILER_SECRETS: ${{ vars.RECONCILER_SECRETS }}\n", "# NAME: ${{ secrets.NAME }} -- "
    for name in FLEET:
        _, *after = (FOLDER / f"{name}.yml").read_text().split(at)
        assert len(after) == sum(one == name for one, _ in OPERATING)
        assert all(text.lstrip().startswith(given) for text in after)


# --- scripts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [step for step in steps() if step.run], ids=lambda s: f"{s.workflow}-{s.job}-{s.name}")
def test_scripts_are_exactly_calls_of_ours(step: Step) -> None:
    """No expression is pasted into a script, every variable of it is set, and its options exist."""
    assert "${{" not in step.run
    assert "|| true" not in step.run
    used = set(re.findall(r"\$\{?([A-Za-z_]\w*)", step.run)) - RUNNER
    assert used <= set(step.env)
    assert not re.search(r'(?<!")\$\w+(?!")', re.sub(r'"[^"]*"', "", step.run).replace("code=$?", "")), "quoted"
    for line in re.findall(r"reconciler (?:[^\n\\]|\\\n)+", step.run):
        words = shlex.split(re.split(r" 2?>>? | \|\| | ;;", line.replace("\\\n", ""))[0])[1:]
        command = cli.get_command(click.Context(cli), words[0])
        assert words[0] in COMMANDS
        if isinstance(command, click.Group):
            words = words[1:]
            command = command.get_command(click.Context(command), words[0])
        assert command is not None
        given = [word.replace("$WHAT", "fork") for word in words[1:]]
        parser = command.make_parser(click.Context(command))
        _, rest, _ = parser.parse_args(given)
        assert len(rest) == 0 or command.params


def test_what_acts_is_interrupted_itself_and_not_its_shell() -> None:
    """Conventions G6: on cancellation the process that holds the lease gets the signal."""
    [apply] = [step for step in steps("apply") if step.job == "apply" and step.run]
    assert apply.run.startswith("exec reconciler apply ")
    assert "--plan approved/plan.json --yes" in apply.run, "what was approved, and nothing else (conventions G9)"
    assert job("apply", "apply")["timeout-minutes"] > 300


def test_exit_codes_are_handled_one_by_one() -> None:
    """Conventions G11."""
    [plan] = [step for step in steps("apply") if step.name == "Plan"]
    assert "--detailed-exitcode" in plan.run
    assert re.search(r"0 \| 2\) ;;.*\n\s*\*\) exit \"\$code\" ;;", plan.run)
    assert job("apply", "apply")["if"] == "needs.plan.outputs.code == '2'"
    for step in steps(*FLEET):
        if step.said.get("continue-on-error"):
            assert step.said["uses"].startswith("actions/download-artifact@")


# --- conventions G5, G7, G10 -----------------------------------------------------------------------------------------


def test_runs_do_not_get_in_each_others_way() -> None:
    assert WORKFLOWS["plan"]["concurrency"]["cancel-in-progress"] is True
    assert "pull_request.number" in WORKFLOWS["plan"]["concurrency"]["group"]
    assert WORKFLOWS["review"]["concurrency"]["cancel-in-progress"] is True
    for part in ("head_repository.full_name", "head_branch"):
        assert part in WORKFLOWS["review"]["concurrency"]["group"], "a fork must not end the run of another"
    assert WORKFLOWS["apply"]["concurrency"] == {"group": "apply", "queue": "max", "cancel-in-progress": False}


@pytest.mark.parametrize(("name", "key"), JOBS)
def test_every_job_ends(name: str, key: str) -> None:
    assert 0 < job(name, key)["timeout-minutes"] <= 350


def test_artifacts_are_kept_for_a_time_and_survive_a_failure() -> None:
    uploads = [step.said for step in steps(*FLEET) if "upload-artifact" in step.said.get("uses", "")]
    assert {one["with"]["name"] for one in uploads} == {"plan", "outcome", "drift"}
    for one in uploads:
        assert one["with"]["retention-days"] > 0
        assert one["if"] in ("${{ !cancelled() }}", "always()")


def test_artifacts_name_no_machine() -> None:
    """Conventions G10: of what a command that reads nodes leaves behind."""
    for step in steps(*FLEET):
        if (step.workflow, step.job) in OPERATING and re.search(r"reconciler (plan|apply|drift|explain) ", step.run):
            assert "--redact" in step.run, step
            assert "reconciler observe" not in step.run


@pytest.mark.parametrize(("name", "key"), sorted(OPERATING))
def test_nobody_plans_or_acts_without_a_ledger_that_lasts(name: str, key: str) -> None:
    own = [step for step in steps(name) if step.job == key]
    [setup] = [step for step in own if step.said.get("uses") == "./"]
    assert setup.said["with"]["ledger"] == "required"
    assert "RECONCILER_LEDGER" in setup.env
    [check, *_] = read(ACTION)["runs"]["steps"]
    assert check["if"] == "inputs.ledger != 'none'"
    for url, code in (("postgresql://db/fleet", 0), ("postgresql+psycopg://db/fleet", 0), ("", 64), ("x.sqlite", 64)):
        env = {"RECONCILER_LEDGER": url, "WANTED": "required", "PATH": os.environ["PATH"]}
        done = subprocess.run(("bash", "-e", "-c", check["run"]), env=env, capture_output=True)
        assert done.returncode == code, url


def installing() -> dict[str, Any]:
    [found] = [one for one in read(ACTION)["runs"]["steps"] if "pip install" in one.get("run", "")]
    return dict(found)


@pytest.mark.parametrize("name", FLEET)
def test_extensions_are_named_once_for_all_jobs(name: str) -> None:
    """Which a Fleet needs wherever its spec is read; a report may go to the forge of one."""
    setups = [step for step in steps(name) if step.said.get("uses") == "./"]
    assert setups
    assert {step.said["with"]["packages"] for step in setups} == {"${{ vars.RECONCILER_PACKAGES }}"}


@pytest.mark.parametrize(
    ("constraints", "packages", "words"),
    [
        ("", "", ["src[postgresql]"]),
        (".github/my pins.txt", "", ["--constraint", ".github/my pins.txt", "src[postgresql]"]),
        ("", "acme-fleet==1.2.0  x[y]>=2\nz@git+https://git.example.com/z@c0ffee\n",
         ["src[postgresql]", "acme-fleet==1.2.0", "x[y]>=2", "z@git+https://git.example.com/z@c0ffee"]),
        ("", "$(touch gone) `touch gone` *", ["src[postgresql]", "$(touch", "gone)", "`touch", "gone`", "*"]),
    ],
)  # fmt: skip
def test_what_it_needs_can_be_pinned_and_more_installed_beside_it(
    tmp_path: Path, constraints: str, packages: str, words: list[str]
) -> None:
    bin_, log = tmp_path / "reconciler" / "bin", tmp_path / "log"
    bin_.mkdir(parents=True)
    for path in (tmp_path / "python", bin_ / "python", bin_ / "reconciler"):
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\necho reconciler 1.0\n')
        path.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path), "SOURCE": "src",
           "GITHUB_PATH": str(tmp_path / "path"), "GITHUB_OUTPUT": str(tmp_path / "output")}  # fmt: skip
    assert installing()["env"]["CONSTRAINTS"] == "${{ inputs.constraints }}"
    assert installing()["env"]["PACKAGES"] == "${{ inputs.packages }}"
    given = env | {"CONSTRAINTS": constraints, "PACKAGES": packages}
    subprocess.run(("bash", "-e", "-c", installing()["run"]), env=given, cwd=tmp_path, check=True)
    said = log.read_text().splitlines()
    assert said[said.index("--disable-pip-version-check") + 1 : -1] == words
    assert not (tmp_path / "gone").exists()


def test_the_action_is_one_that_others_can_use() -> None:
    """What it takes and gives is what the guide says, and nothing of a caller is pasted into its scripts."""
    action = read(ACTION)
    assert set(action) == {"name", "description", "inputs", "outputs", "runs"}
    assert action["runs"]["using"] == "composite"
    said = (ROOT / "docs" / "how-to" / "github.md").read_text()
    for kind in ("inputs", "outputs"):
        for name, entry in action[kind].items():
            assert entry["description"]
            assert f"`{name}`" in said, name
    for entry in action["inputs"].values():
        assert "default" in entry, "none has to be given"
    ids = {one["id"] for one in action["runs"]["steps"] if "id" in one}
    for entry in action["outputs"].values():
        assert re.findall(r"^\$\{\{ steps\.(\w+)\.outputs\.\w+ \}\}$", entry["value"])[0] in ids
    for one in action["runs"]["steps"]:
        assert "${{" not in one.get("run", "")
        assert "run" not in one or one["shell"] == "bash"
    install = installing()
    assert install["env"]["RECONCILER_LEDGER"] == "", "packages run code when they are installed"
    [check, *_] = action["runs"]["steps"]
    env = {"RECONCILER_LEDGER": "postgresql://db/fleet", "WANTED": "requird", "PATH": os.environ["PATH"]}
    done = subprocess.run(("bash", "-e", "-c", check["run"]), env=env, capture_output=True)
    assert done.returncode == 64, "a word that is misspelt does not switch the check off"


# --- as actionlint would ------------------------------------------------------------------------------------------


def test_expressions_name_what_there_is() -> None:
    for name, workflow in WORKFLOWS.items():
        for said in workflow["jobs"].values():
            ids = {one["id"] for one in said["steps"] if "id" in one}
            needs = said.get("needs", [])
            needs = {needs} if isinstance(needs, str) else set(needs)
            assert needs <= set(workflow["jobs"])
            for text in expressions(said):
                for known in OF_COMMENTS:
                    text = text.replace(known, "true")
                assert not UNTRUSTED.search(text), text
                text = text.replace("true", "")
                bare = CONTEXTS.sub("", re.sub(r"'[^']*'", "", text))
                assert set(re.findall(r"[A-Za-z]\w*", bare)) <= FUNCTIONS, f"{name}: {text}"
                assert {match[1] for match in re.finditer(r"needs\.([\w-]+)\.", text)} <= needs, f"{name}: {text}"
                assert {match[1] for match in re.finditer(r"steps\.([\w-]+)\.", text)} <= ids, f"{name}: {text}"
            for output in re.findall(r"needs\.([\w-]+)\.outputs\.([\w-]+)", str(said)):
                assert output[1] in workflow["jobs"][output[0]]["outputs"]


def test_zizmor_finds_nothing(tmp_path: Path) -> None:
    """What it audits without asking GitHub. Of low severity is that `./`, which each GitHub has, could be `$/`."""

    def audited(*places: Path) -> int:
        zizmor = Path(sysconfig.get_path("scripts")) / "zizmor"
        command = [str(zizmor), "--offline", "--no-progress", "--min-severity=medium", *map(str, places)]
        return subprocess.run(command, capture_output=True).returncode

    assert audited(FOLDER, ACTION) == 0
    unpinned = tmp_path / "release.yml"
    unpinned.write_text(re.sub(r"publish@[0-9a-f]{40}.*", "publish@release/v1", (FOLDER / "release.yml").read_text()))
    assert audited(unpinned) != 0


def test_keys_are_those_that_github_knows() -> None:
    for workflow in WORKFLOWS.values():
        assert set(workflow) <= {"name", "on", "permissions", "concurrency", "jobs"}
        for said in workflow["jobs"].values():
            assert set(said) <= {
                "needs", "if", "runs-on", "environment", "permissions", "timeout-minutes", "outputs", "env", "steps",
                "container", "strategy",
            }  # fmt: skip
            for step in said["steps"]:
                assert set(step) <= {
                    "name", "id", "if", "uses", "with", "env", "run", "continue-on-error", "working-directory"
                }  # fmt: skip
                assert ("uses" in step) != ("run" in step)
