"""`reconciler completion`: a real shell completes commands, options, and what the spec names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The command is beside the interpreter, which is not on PATH in each run of the tests.
WITH_COMMAND = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
# bash calls the function with what is typed, and takes what it leaves in COMPREPLY.
_BASH = """\
source <(reconciler completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(( $# - 1 )) COMPREPLY=()
_reconciler_completion reconciler
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str, at: Path = ROOT) -> list[str]:
    """Return what bash offers for the last word."""
    command = ["bash", "-c", _BASH, "bash", "reconciler", *words]
    done = subprocess.run(command, cwd=at, env=WITH_COMMAND, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("expl",), ["explain"]),
        (("plan", "--lim"), ["--limit"]),
        (("explain", "gpu-a00"), [f"gpu-a00{number}" for number in range(1, 9)]),
        (("gate", "run", "gpu-a001", "gpu-a00"), [f"gpu-a00{number}" for number in range(2, 9)]),
        (("hold", "pool/"), ["pool/infer", "pool/train"]),
        (("history", "nobody"), []),
        (("plan", "--limit", "po"), ["pool=infer", "pool=train"]),
        (("apply", "--exclude", "gpu-a00"), [f"gpu-a00{number}" for number in range(1, 9)]),
    ],
)
def test_bash_completes_what_there_is(words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(*words) == offered


def test_another_spec_is_asked_for_its_names(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(ROOT / "fleet-spec")
    assert completed("explain", "gpu-a001", at=tmp_path) == []
    assert completed("history", "--spec", "elsewhere", "gpu-a001", at=tmp_path) == ["gpu-a001"]


def test_a_spec_with_errors_completes_nothing_and_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "fleet-spec").mkdir()
    (tmp_path / "fleet-spec/fleet.yaml").write_text("kind: [\n")
    assert completed("explain", "gpu", at=tmp_path) == []


@pytest.mark.tool
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (apt-get install {shell})")
    asked = [sys.executable, "-m", "reconciler", "completion", shell]
    script = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    subprocess.run([shell, "-n"], input=script, text=True, check=True)
