"""The recipes of CONTRIBUTING are true: each is performed in a copy of the tree, and its checks pass there.

That the recipe of an action is true is shown by tests/converge/test_actions.py, in the same way.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.recipes import RECIPES, Recipe

CONTRIBUTING = ROOT / ".github" / "CONTRIBUTING.md"
COPIED = ("reconciler", "tests", "schemas", "fleet-spec", ".github", "pyproject.toml")
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc")


def named(title: str) -> list[str]:
    """The files that a recipe lists."""
    section = CONTRIBUTING.read_text().partition(f"\n### {title}\n")[2].partition("\n#")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which every recipe was followed."""
    root = tmp_path_factory.mktemp("recipes")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=_SKIPPED)
        else:
            shutil.copy(source, root / name)
    for recipe in RECIPES:
        for edit in recipe.edits:
            edit.make(root)
    run(root, "-m", "reconciler", "schema", "--write", "schemas")
    run(root, "-m", "tests.health.compiled")
    return root


def run(root: Path, *words: str) -> str:
    """What Python prints in the copy, whose packages hide the installed ones. AssertionError when it fails."""
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *words], cwd=root, env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def passed(tree: Path) -> str:
    """What the checks of all recipes print: one run of pytest costs as much as the checks of one recipe."""
    checks = [check for recipe in RECIPES for check in recipe.checks]
    return run(
        tree, "-m", "pytest", "-q", "-rA", "-n0", "-p", "no:cacheprovider", *checks, "tests/spec/test_schemas.py"
    )


@pytest.mark.wire
@pytest.mark.xdist_group("recipes")  # performed once
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_who_follows_a_recipe_has_it(passed: str, recipe: Recipe) -> None:
    for check in recipe.checks:
        assert re.search(rf"^PASSED {re.escape(check)}", passed, re.MULTILINE), check


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_lists_the_files_that_it_takes(recipe: Recipe) -> None:
    touched = list(dict.fromkeys(edit.file for edit in recipe.edits))
    assert sorted(named(recipe.title)) == sorted([*touched, *(["schemas/"] if recipe.schemas else [])])


def test_what_a_recipe_misses_is_said() -> None:
    with pytest.raises(LookupError, match="no line with"):
        type(RECIPES[0].edits[0])("pyproject.toml", "x", "not in there").make(ROOT)


def test_every_layer_is_in_the_picture() -> None:
    picture = re.search(r"^```mermaid\n(.*?)^```$", CONTRIBUTING.read_text(), re.MULTILINE | re.DOTALL)
    assert picture
    layers = {path.parent.name for path in (ROOT / "reconciler").glob("*/__init__.py")}
    assert {layer for layer in layers if not re.search(rf"\b{layer}\b", picture[1])} == set()
