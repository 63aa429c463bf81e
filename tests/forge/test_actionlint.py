"""actionlint and shellcheck on our workflows and scripts, both as wheels of PyPI have them.

This actionlint is a fork that is kept up: the first one, by rhysd, publishes no wheels.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / ".github/workflows"
SCRIPTS = [
    ROOT / "deploy/container/build.sh",
    *(one for one in (ROOT / ".ci").iterdir() if one.is_file() and one.suffix != ".py"),
]
PROGRAMS = Path(sysconfig.get_path("scripts"))


def found(*files: Path) -> list[str]:
    """What actionlint says, and shellcheck of the scripts in the steps."""
    shellcheck = f"-shellcheck={PROGRAMS / 'shellcheck'}"
    command: list[str | Path] = [PROGRAMS / "actionlint", "-no-color", "-oneline", shellcheck, "-pyflakes=", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = re.findall(r"^\S+?:\d+:\d+: (.*) \[[\w-]+\]$", done.stdout, re.MULTILINE)
    assert bool(lines) is (done.returncode != 0), done.stdout + done.stderr
    return lines


def test_they_find_nothing() -> None:
    assert found(*sorted(FOLDER.iterdir())) == []
    done = subprocess.run([PROGRAMS / "shellcheck", *SCRIPTS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


@pytest.mark.parametrize(
    ("file", "was", "now", "said"),
    [
        ("release.yml", "needs: [build, container]", "needs: [bild]", 'needs job "bild" which does not exist'),
        ("commands.yml", "${{ github.sha }}", "${{ github.shaa }}", 'property "shaa" is not defined'),
        ("apply.yml", "queue: max", "queues: max", 'unexpected key "queues" for "concurrency"'),
        ("commands.yml", 'hold "$NODE"', "hold $NODE", "SC2086"),
    ],
)
def test_what_github_does_not_know_is_noticed(tmp_path: Path, file: str, was: str, now: str, said: str) -> None:
    text = (FOLDER / file).read_text()
    assert was in text
    copy = tmp_path / file
    copy.write_text(text.replace(was, now))
    assert any(said in line for line in found(copy))
