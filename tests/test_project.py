"""The project as a whole: what stands where, how long it is, and that its documents and commands agree."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconciler.cli.main import COMMANDS, cli
from tests.conftest import ROOT

MODULES = sorted((ROOT / "reconciler").rglob("*.py"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE))
GATE = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
SPEC_FILES = [path for path in sorted((ROOT / "fleet-spec").rglob("*")) if path.suffix in {".yaml", ".yml"}]
MODELINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")


def project_files() -> list[Path]:
    """What is committed, and what is about to be."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
    )
    if listing.returncode != 0:
        pytest.skip(f"not a git checkout: {listing.stderr.decode().strip()}")
    return [path for name in listing.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def commands(document: str) -> list[str]:
    """The command lines in a Markdown document's fenced blocks."""
    blocks = re.findall(r"^ *```(?:sh|bash|console|shell)?\n(.*?)^ *```", document, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line.split(" #")[0].strip() for line in lines]


# --- code -------------------------------------------------------------------------------------------------------


def test_modules_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_functions_fit_on_a_screen() -> None:
    long = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 60:
                    long[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = length
    assert long == {}


def test_every_folder_of_modules_is_a_package() -> None:
    """One that isn't would be left out when types and imports are checked."""
    assert {path.parent for path in MODULES} == {path.parent for path in MODULES if path.name == "__init__.py"}


def test_no_file_names_the_place_where_it_was_written() -> None:
    workplace = "/" + "work/"
    found = [path for path in project_files() if workplace.encode() in path.read_bytes()]
    assert [str(path.relative_to(ROOT)) for path in found] == []


# --- commands ---------------------------------------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    program = Path(sysconfig.get_path("scripts")) / "reconciler"
    shown = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    assert re.findall(r"^  ([a-z-]+) ", shown.partition("Commands:")[2], re.MULTILINE) == list(COMMANDS)
    modules = {path.stem for path in (ROOT / "reconciler" / "cli" / "commands").glob("*.py")} - {"__init__"}
    assert {module for module, _ in COMMANDS.values()} == modules


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    shown = CliRunner().invoke(cli, [name, "--help"], prog_name="reconciler")
    assert shown.exit_code == 0
    assert shown.output.startswith(f"Usage: reconciler {name}")


# --- how it is built and checked ----------------------------------------------------------------------------------


def test_the_gate_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in commands((ROOT / "README.md").read_text())
    assert "make test" in GATE


def test_make_knows_the_targets_that_others_name() -> None:
    texts = [*commands((ROOT / "README.md").read_text()), *GATE]
    named = {words[1] for text in texts if (words := text.split())[:1] == ["make"] and len(words) > 1}
    assert named <= TARGETS
    listed = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert set(re.findall(r"^  make (\S+)", listed, re.MULTILINE)) == TARGETS - {"tools"}


def test_the_workflow_runs_the_gate_and_pins_what_it_uses() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "- run: .ci/run\n" in workflow
    uses = re.findall(r"uses: (\S+)", workflow)
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in uses), uses


def test_the_license_is_what_the_package_says() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert re.match(r"\s*Apache License\s+Version 2\.0, January 2004", text)
    assert "END OF TERMS AND CONDITIONS" in text
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"


# --- the worked example -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SPEC_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_editors_find_the_schema_of_a_spec_file(path: Path) -> None:
    """One schema for the file means one kind in the file."""
    text = path.read_text()
    modeline = MODELINE.match(text)
    assert modeline, "the first line names no schema"
    schema = json.loads((path.parent / modeline[1]).resolve().read_text())
    kinds = set(re.findall(r"^kind: (\w+)$", text, re.MULTILINE))
    assert kinds == {schema["properties"]["kind"]["const"]}
