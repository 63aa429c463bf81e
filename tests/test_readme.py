"""README.md is true: its tour is typed word for word, its tables are those of the code, and its examples load."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.exit_codes import MEANING
from reconciler.cli.main import COMMANDS
from reconciler.drivers.secrets import SecretStore
from reconciler.health.table import SIGNAL_RULES, Effect
from reconciler.spec import check_spec
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
TIME_SCALE = 240  # of the tour's lab, where the README has 60: what machines take shrinks, what commands say does not
TOUR, START = "A tour, five minutes", "Use it on your fleet"
LABS = {TOUR: "/tmp/lab", START: "/tmp/fleet"}
MARK = "@@@ "


@dataclass(frozen=True)
class Step:
    """A command of the tour, and the lines that the README shows of what it prints."""

    command: str
    shown: tuple[str, ...]

    @property
    def starts_lab(self) -> bool:
        return self.command.startswith("reconciler lab up ")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def tour(title: str) -> list[Step]:
    steps: list[Step] = []
    for line in "".join(blocks("console", section(title))).splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], ()))
        else:
            steps[-1] = Step(steps[-1].command, (*steps[-1].shown, line))
    return steps


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(first: str) -> list[tuple[str, ...]]:
    """The rows of the table whose first column is headed `first`."""
    rows = README.partition(f"\n| {first} | ")[2].partition("\n\n")[0].splitlines()[2:]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]


# --- the tour -----------------------------------------------------------------------------------------------------


def script(steps: list[Step], lab: Path, shown: str) -> str:
    """What a person types, in one shell. The lab has a terminal of its own, which is its log here."""
    lines = ["exec 2>&1"]
    for at, step in enumerate(steps):
        command = step.command.replace(shown, str(lab)).replace("/tmp/my-fleet", str(lab.parent / "my-fleet"))
        lines.append(f"echo '{MARK}{at}'")
        if step.starts_lab:
            pace = "" if "--time-scale" in command else f"--time-scale {TIME_SCALE}"
            lines += [
                f"{command} {pace} > '{lab}.log' 2>&1 &",
                f"until [ -e '{lab}/ready' ] || ! kill -0 $!; do sleep 0.1; done",
                f"cat '{lab}.log'",
                f"[ -e '{lab}/ready' ]",
            ]
        else:
            lines.append(command)
        lines += [f'echo "{MARK}ended $?"']
    return "\n".join([*lines, "wait", ""])


# What differs from one run to the next: instants, durations, digests and names of runs, and who runs them.
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?|\b\d\d:\d\d(:\d\d)?\b|\b\d\d-\d\d \d\d:\d\d\b"), "INSTANT"),
    (re.compile(r"\b(\d+[dhms])+\b"), "DURATION"),
    (re.compile(r"\b(plan|run|drift|explain)-\d{8}-\d{6}-[0-9a-f]{6}\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{12}…?(?= |$)"), "DIGEST"),
    (re.compile(r"\d+ times as fast"), "N times as fast"),
    (re.compile(r"\s+"), " "),
)


def alike(line: str) -> str:
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return line.strip()


def missing(shown: tuple[str, ...], printed: str) -> Iterator[str]:
    """Lines of the README that were not printed; one that ends in ... stands for all that begin like it."""
    lines = {alike(line) for line in printed.splitlines()}
    for line in map(alike, shown):
        beginning = line.removesuffix("...").strip()
        if not (line in lines or (line.endswith("...") and any(one.startswith(beginning) for one in lines))):
            yield line


def play(title: str, home: Path) -> list[tuple[Step, str, int]]:
    """Each step of a section, what it printed and its exit status."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    lab, steps = home / "lab", tour(title)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RECONCILER_", "XDG_"))}
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script(steps, lab, LABS[title])], capture_output=True, text=True, timeout=280,
        env={**clean, "PATH": path, "HOME": str(home), "COLUMNS": "200"},
    )  # fmt: skip
    parts = done.stdout.split(MARK)[1:]
    told = [(parts[at], parts[at + 1]) for at in range(0, len(parts), 2)]
    assert len(told) == len(steps), done.stdout + done.stderr
    return [
        (step, printed.partition("\n")[2].replace(str(lab), LABS[title]), int(ended.split()[1]))
        for step, (printed, ended) in zip(steps, told, strict=True)
    ]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Step, str, int]]:
    return play(TOUR, tmp_path_factory.mktemp("tour"))


@pytest.mark.wire
def test_who_begins_gets_where_the_readme_says(tmp_path: Path) -> None:
    """With a home of their own, a name for git, and a clone of this repository."""
    (tmp_path / ".gitconfig").write_text("[user]\nname = me\nemail = me@example.com\n")
    (tmp_path / "reconciler").symlink_to(ROOT)
    for step, printed, status in play(START, tmp_path):
        assert status == 0, f"$ {step.command}\n{printed}\nended with {status}"
        assert list(missing(step.shown, printed)) == [], f"$ {step.command}\n{printed}"
    workflows = (tmp_path / "my-fleet" / ".github" / "workflows").glob("*.yml")
    assert not any(re.search(r"uses: \./", file.read_text()) for file in workflows)


@pytest.mark.wire
@pytest.mark.xdist_group("tour")  # typed once
def test_the_tour_is_as_the_readme_tells_it(typed: list[tuple[Step, str, int]]) -> None:
    for step, printed, status in typed:
        assert status == 0, f"$ {step.command}\n{printed}\nended with {status}"
        assert list(missing(step.shown, printed)) == [], f"$ {step.command}\n{printed}"


@pytest.mark.wire
@pytest.mark.xdist_group("tour")  # typed once
def test_the_tour_shows_what_operators_need(typed: list[tuple[Step, str, int]]) -> None:
    """A tour that lost its commands would pass as well."""
    types = " ".join(step.command for step, _, _ in typed)
    for name in ("validate", "doctor", "drift", "plan", "explain", "apply", "history", "hold", "release", "lab fault"):
        assert f"reconciler {name}" in types


@pytest.mark.parametrize("refused", ["", "orgs/", "reviewers", "branch-policies", "secret"])
def test_nothing_runs_before_somebody_has_to_approve(tmp_path: Path, refused: str) -> None:
    """The variable that starts it all is set after reviewers and branches, and not when GitHub refuses any of that."""
    (example,) = (block for block in blocks("sh", section(START)) if "RECONCILER_RUNNER" in block)
    gh, log = tmp_path / "gh", tmp_path / "log"
    gh.write_text(f'#!/bin/sh\necho "$*" >> {log}\ncase "$*" in *"${{REFUSED:-none}}"*) exit 1;; esac\necho 7\n')
    gh.chmod(0o755)
    for name in ("reconciler", "git"):
        (tmp_path / name).symlink_to("/bin/true")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REFUSED": refused}
    subprocess.run(["bash", "-c", example], env=env, check=True, capture_output=True)
    asked = log.read_text().splitlines()
    [fleet] = [line for line in asked if "--method PUT" in line and "environments/fleet " in line] or [""]
    if refused:
        assert not any("RECONCILER_RUNNER" in line for line in asked)
        return
    at = asked.index("variable set RECONCILER_RUNNER --body fleet")
    assert "reviewers[][type]=Team -F reviewers[][id]=7 -F prevent_self_review=true" in fleet
    for name in ("fleet", "fleet-plan"):
        where = f"repos/{{owner}}/{{repo}}/environments/{name}"
        [made] = [line for line in asked[:at] if "--method PUT" in line and f"{where} " in line]
        assert "deployment_branch_policy[protected_branches]=false" in made
        assert "deployment_branch_policy[custom_branch_policies]=true" in made
        assert f"api --silent {where}/deployment-branch-policies -f name=main" in asked[:at]


# --- tables and examples ------------------------------------------------------------------------------------------


def test_exit_codes() -> None:
    assert table("exit code") == [(str(int(code)), meaning) for code, meaning in MEANING.items()]


def test_commands() -> None:
    assert table("command") == [(name, summary) for name, (_, summary) in COMMANDS.items()]


def test_signals_that_isolate() -> None:
    """All of them and no other, with the number of reads that each takes."""
    told = {name: reads for names, _, reads in table("signal") for name in re.findall(r"`(\w+)`", names)}
    assert {name.replace("TYPE", ""): reads for name, reads in told.items()} == {
        name: "one" if row.latched else "two" for name, row in SIGNAL_RULES.items() if row.effect is Effect.ISOLATES
    }


def test_metrics_exist() -> None:
    declared = (ROOT / "reconciler" / "drivers" / "status" / "metrics.py").read_text()
    named = re.findall(r"`(reconciler_\w+)`", README)
    assert named
    assert [name for name in named if f'"{name.removesuffix("_total")}"' not in declared] == []


def test_kinds() -> None:
    """Every kind that there is, and none that there is not."""
    declared = set()
    for path in (ROOT / "schemas").glob("*.json"):
        kind = json.loads(path.read_text()).get("properties", {}).get("kind", {})
        declared.add(kind.get("const"))
    assert {row[0] for row in table("kind")} == declared - {None}


def test_the_limits_name_what_is_not_enforced() -> None:
    limits = section("Limits of this version")
    fields = {name for path in (ROOT / "schemas").glob("*.json") for name in _partly(json.loads(path.read_text()))}
    assert len(fields) > 5
    unnamed = {name for name in fields if not re.search(rf"`[\w.]*\b{name}\b", limits)}
    assert unnamed == set()


def _partly(schema: Any, name: str = "") -> Iterator[str]:
    """Names of fields that a schema marks as enforced in part or not at all."""
    if isinstance(schema, dict):
        if "x-enforced" in schema:
            yield name
        for key, part in schema.items():
            yield from _partly(part, key)


def test_the_example_of_a_spec_loads(tmp_path: Path) -> None:
    (example,) = (block for block in blocks("yaml") if block.startswith("# fleet-spec/"))
    place, _, text = example.removeprefix("# ").partition("\n")
    assert (ROOT / place).read_text().endswith(text), f"{place} says something else"
    shutil.copytree(ROOT / "fleet-spec", tmp_path / "fleet-spec")
    (tmp_path / place).write_text(text)
    fleet, problems = check_spec(tmp_path / "fleet-spec", directory="fleet-spec")
    assert not problems
    assert fleet is not None
    assert "gpu-b003" in fleet.nodes


def test_the_example_of_limits_loads(tmp_path: Path) -> None:
    """Put where its comments say, in place of what stands there."""
    (example,) = (block for block in blocks("yaml") if block.startswith("# in the Fleet"))
    of_fleet, _, of_pool = example.partition("# in a NodePool\n")
    shutil.copytree(ROOT / "fleet-spec", tmp_path / "fleet-spec")
    fleet_file, pool_file = tmp_path / "fleet-spec" / "fleet.yaml", tmp_path / "fleet-spec" / "pools" / "infer.yaml"
    kept = re.sub(r"(?m)^  (budgets|guards):.*\n(    .*\n)*", "", fleet_file.read_text())
    fleet_file.write_text(kept.rstrip("\n") + "\n" + of_fleet.partition("\n")[2])
    pool_file.write_text(pool_file.read_text().rstrip("\n") + "\n" + of_pool)
    fleet, problems = check_spec(tmp_path / "fleet-spec", directory="fleet-spec")
    assert not problems
    assert fleet is not None
    assert len(fleet.settings.budgets) == 3
    assert fleet.settings.windows
    assert fleet.rollouts["infer"].max_failures == 1


def test_the_example_of_secrets_loads(tmp_path: Path) -> None:
    (example,) = (block for block in blocks("yaml") if block.startswith("# secrets.yaml"))
    file = tmp_path / "secrets.yaml"
    file.write_text(example)
    file.chmod(0o600)
    store = SecretStore.load(file)
    assert store.public_key("release") is not None


def test_commands_in_examples_exist() -> None:
    for example in blocks("sh"):
        for name in re.findall(r"^reconciler (\w+)", example, re.MULTILINE):
            assert name in COMMANDS


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
