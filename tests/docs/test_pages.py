"""README and docs/ are true: tables are those of the code, examples load, commands parse, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from reconciler.cli.main import cli
from reconciler.drivers.secrets import SecretStore
from reconciler.health.table import Effect, health_table
from reconciler.spec import check_spec
from tests.conftest import ROOT
from tests.docs.pages import README, blocks, documents, links, name, page, pages, table, text

SHELL = [(path, block) for path in pages() for block in blocks("sh", text(path))]


def test_the_readme_is_short() -> None:
    assert len(text(README).splitlines()) <= 250


# --- tables -----------------------------------------------------------------------------------------------------------


def test_signals_that_isolate() -> None:
    """All of them and no other, with the number of reads that each takes."""
    rows = table(page("explanation/isolation"), "signal")
    told = {signal: reads for names, _, reads in rows for signal in re.findall(r"`(\w+)`", names)}
    assert {signal.replace("TYPE", ""): reads for signal, reads in told.items()} == {
        signal: "one" if row.latched else "two"
        for signal, row in health_table().rules.items()
        if row.effect is Effect.ISOLATES
    }


def test_metrics_exist() -> None:
    declared = (ROOT / "reconciler" / "drivers" / "status" / "metrics.py").read_text()
    named = {metric for path in pages() for metric in re.findall(r"`(reconciler_\w+)`", text(path))}
    assert named
    assert {metric for metric in named if f'"{metric.removesuffix("_total")}"' not in declared} == set()


def test_kinds() -> None:
    """Every kind that there is, and none that there is not."""
    declared = set()
    for path in (ROOT / "schemas").glob("*.json"):
        kind = json.loads(path.read_text()).get("properties", {}).get("kind", {})
        declared.add(kind.get("const"))
    assert {row[0] for row in table(page("reference/spec"), "kind")} == declared - {None}


def test_the_limits_name_what_is_not_enforced() -> None:
    limits = text(page("reference/not-enforced"))
    fields = {field for path in (ROOT / "schemas").glob("*.json") for field in _partly(json.loads(path.read_text()))}
    assert fields
    unnamed = {field for field in fields if not re.search(rf"`[\w.]*\b{field}\b", limits)}
    assert unnamed == set()


def _partly(schema: Any, field: str = "") -> Iterator[str]:
    """Names of fields that a schema marks as not enforced."""
    if isinstance(schema, dict):
        if "x-enforced" in schema:
            yield field
        for key, part in schema.items():
            yield from _partly(part, key)


def test_every_environment_variable_is_in_the_reference() -> None:
    """Those that the code or the workflows read, and no other."""
    sources = [
        *(ROOT / "reconciler").rglob("*.py"),
        *(ROOT / ".github" / "workflows").glob("*.yml"),
        ROOT / "action.yml",
    ]
    read = {found for path in sources for found in re.findall(r"\bRECONCILER_[A-Z_]+\b", path.read_text())}
    told = set(re.findall(r"`(RECONCILER_[A-Z_]+)`", text(page("reference/environment"))))
    assert told == read


def test_every_dependency_is_explained() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    declared = project.partition("\ndependencies = [")[2].partition("\n]")[0]
    named = {re.split(r"[>=\[]", item)[0] for item in re.findall(r'^    "([^"]+)"', declared, re.MULTILINE)}
    assert {row[0] for row in table(page("explanation/dependencies"), "package")} == named | {
        "apprise",
        "distributed",
        "psycopg",
        "pyarrow",
    }


# --- examples ---------------------------------------------------------------------------------------------------------


def example(where: str, begins: str) -> str:
    (found,) = (block for block in blocks("yaml", text(page(where))) if block.startswith(begins))
    return found


def test_the_example_of_a_spec_loads(tmp_path: Path) -> None:
    place, _, content = example("reference/spec", "# fleet-spec/").removeprefix("# ").partition("\n")
    assert (ROOT / place).read_text().endswith(content), f"{place} says something else"
    shutil.copytree(ROOT / "fleet-spec", tmp_path / "fleet-spec")
    (tmp_path / place).write_text(content)
    fleet, problems = check_spec(tmp_path / "fleet-spec", directory="fleet-spec")
    assert not problems
    assert fleet is not None
    assert "gpu-b003" in fleet.nodes


def test_the_example_of_limits_loads(tmp_path: Path) -> None:
    """Put where its comments say, in place of what is there."""
    in_fleet, _, in_pool = example("how-to/limits", "# in the Fleet").partition("# in a NodePool\n")
    shutil.copytree(ROOT / "fleet-spec", tmp_path / "fleet-spec")
    fleet_file, pool_file = tmp_path / "fleet-spec" / "fleet.yaml", tmp_path / "fleet-spec" / "pools" / "infer.yaml"
    kept = re.sub(r"(?m)^  (budgets|guards):.*\n(    .*\n)*", "", fleet_file.read_text())
    fleet_file.write_text(kept.rstrip("\n") + "\n" + in_fleet.partition("\n")[2])
    pool_file.write_text(pool_file.read_text().rstrip("\n") + "\n" + in_pool)
    fleet, problems = check_spec(tmp_path / "fleet-spec", directory="fleet-spec")
    assert not problems
    assert fleet is not None
    assert len(fleet.settings.budgets) == 4
    assert fleet.settings.windows
    assert fleet.rollouts["infer"].max_failures == 1


def test_the_example_of_notifications_loads(tmp_path: Path) -> None:
    in_fleet, _, in_pool = example("how-to/notifications", "# in the Fleet").partition("# in a NodePool\n")
    shutil.copytree(ROOT / "fleet-spec", tmp_path / "fleet-spec")
    fleet_file, pool_file = tmp_path / "fleet-spec" / "fleet.yaml", tmp_path / "fleet-spec" / "pools" / "infer.yaml"
    for file, lines in ((fleet_file, in_fleet.partition("\n")[2]), (pool_file, in_pool)):
        file.write_text(file.read_text().rstrip("\n") + "\n" + re.sub(r"(?m)^(?=.)", "  ", lines))
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text(example("how-to/notifications", "# secrets.yaml"))
    fleet, problems = check_spec(tmp_path / "fleet-spec", directory="fleet-spec")
    assert not problems
    assert fleet is not None
    oncall, chat, mail = fleet.settings.notifications
    assert (oncall.severity, chat.pools, mail.digest_s) == ("critical", ("infer",), 86400.0)
    SecretStore.load(secrets)


def test_the_example_of_secrets_loads(tmp_path: Path) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_text(example("how-to/secrets", "# secrets.yaml"))
    file.chmod(0o600)
    store = SecretStore.load(file)
    assert store.public_key("release") is not None


@pytest.mark.parametrize("refused", ["", "orgs/", "reviewers", "branch-policies", "secret"])
def test_nothing_runs_before_somebody_has_to_approve(tmp_path: Path, refused: str) -> None:
    """The variable that starts it all is set after reviewers and branches, and not when GitHub refuses any of that."""
    (shown,) = (block for block in blocks("sh", text(page("tutorial/your-fleet"))) if "RECONCILER_RUNNER" in block)
    gh, log = tmp_path / "gh", tmp_path / "log"
    gh.write_text(f'#!/bin/sh\necho "$*" >> {log}\ncase "$*" in *"${{REFUSED:-none}}"*) exit 1;; esac\necho 7\n')
    gh.chmod(0o755)
    for program in ("reconciler", "git"):
        (tmp_path / program).symlink_to("/bin/true")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REFUSED": refused}
    subprocess.run(["bash", "-c", shown], env=env, check=True, capture_output=True)
    asked = log.read_text().splitlines()
    [fleet] = [line for line in asked if "--method PUT" in line and "environments/fleet " in line] or [""]
    if refused:
        assert not any("RECONCILER_RUNNER" in line for line in asked)
        return
    at = asked.index("variable set RECONCILER_RUNNER --body fleet")
    assert "reviewers[][type]=Team -F reviewers[][id]=7 -F prevent_self_review=true" in fleet
    for environment in ("fleet", "fleet-plan"):
        where = f"repos/{{owner}}/{{repo}}/environments/{environment}"
        [made] = [line for line in asked[:at] if "--method PUT" in line and f"{where} " in line]
        assert "deployment_branch_policy[protected_branches]=false" in made
        assert "deployment_branch_policy[custom_branch_policies]=true" in made
        assert f"api --silent {where}/deployment-branch-policies -f name=main" in asked[:at]


# --- commands and links -----------------------------------------------------------------------------------------------


def _calls(shell: str) -> Iterator[list[str]]:
    for line in shell.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|\||[|;]", line):
            words = shlex.split(re.sub(r"\d?>.*", "", part), comments=True)
            if words[:1] == ["reconciler"]:
                yield words[1:]


@pytest.mark.parametrize(("path", "shell"), SHELL, ids=lambda part: name(part) if isinstance(part, Path) else None)
def test_commands_in_examples_are_understood(path: Path, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names, their options and the values of these; files that they read need not exist."""
    monkeypatch.setattr(click.Path, "convert", lambda *given: Path(given[1]))
    for words in _calls(shell):
        command: click.Command = cli
        parent, rest = click.Context(cli, info_name="reconciler"), words
        while isinstance(command, click.Group):
            found = command.get_command(parent, rest[0])
            assert found is not None, f"{name(path)}: reconciler {shlex.join(words)}"
            command, rest = found, rest[1:]
        if "--help" not in rest:
            command.make_context(words[0], list(rest), parent=parent)


def test_examples_are_found() -> None:
    assert len([words for _, shell in SHELL for words in _calls(shell)]) > 10
    assert next(_calls("a && reconciler plan --out 'x y' > /dev/null  # told")) == ["plan", "--out", "x y"]


@pytest.mark.parametrize("path", documents(), ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    """Anchors of generated headings are checked by `make docs`."""
    for file, anchor in links(path):
        target = path.parent / file if file else path
        assert target.exists(), f"{file} is not there"
        if anchor and target.suffix == ".md" and target not in pages():
            heads = re.findall(r"^#+ (.*)$", text(target), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head).lower().replace(" ", "-") for head in heads}, anchor


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {
        (path.parent / entry).with_suffix(".md").resolve()
        for path in pages()
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", text(path), re.MULTILINE | re.DOTALL)
        for entry in tree.split()
        if not entry.startswith(":") and not entry.isdigit()
    }
    assert {path for path in pages()[1:] if path not in listed} == {page("index")}
