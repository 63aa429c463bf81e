"""Command lines that make no sense: 64, one line that says what is wrong and what would be right, and nothing done."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from reconciler.cli.main import COMMANDS, cli
from tests.cli.shell import SPEC, reconciler

READERS = ["drift", "plan"]  # take an observation from a file


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["plan", "--nonsense"], "No such option"),
        (["drift", "--output", "xml"], "'xml' is not one of"),
        (["plan", SPEC, "--out"], "requires an argument"),
        (["drift", SPEC, "extra"], "unexpected extra argument"),
        (["apply", SPEC, "--wait", "soon"], "soon"),
        (["apply", SPEC, "--plan", "/nonexistent/plan.json", "--yes"], "/nonexistent/plan.json"),
        (["drift", SPEC, "--observation", "/nonexistent/seen.json"], "/nonexistent/seen.json"),
        (["drift", SPEC, "--endpoints", "/nonexistent/endpoints.json"], "/nonexistent/endpoints.json"),
        (["plan", SPEC, "--out", "/nonexistent/plan.json"], "no directory /nonexistent"),
        (["observe", SPEC, "--out", "/nonexistent/seen.json"], "no directory /nonexistent"),
        (["drift", "/nonexistent"], "/nonexistent"),
        (["validate", "/nonexistent"], "/nonexistent"),
        (["explain", "gpu-a001", "/nonexistent", "--offline"], "/nonexistent"),
        (["hold", "gpu-a001", "--reason", "x", "--spec", "/nonexistent"], "/nonexistent"),
        (["hold", "gpu-a001", "--spec", SPEC], "--reason"),
        (["hold", "gpu-a999", "--reason", "x", "--spec", SPEC], "did you mean 'gpu-a00"),
        (["hold", "pool/trian", "--reason", "x", "--spec", SPEC], "did you mean 'pool/train'"),
        (["hold", "gpu-a001", "--reason", "x", "--for", "soon", "--spec", SPEC], "soon"),
        (["release", "gpu-a001", "--spec", SPEC], "nothing is held"),
        (["history", "gpu-a999", "--spec", SPEC], "has no 'gpu-a999'"),
        (["explain", "gpu-a999", SPEC, "--offline"], "has no 'gpu-a999'"),
        (["explain", "gpu-a001.image.verson", SPEC, "--offline"], "did you mean 'image.version'?"),
        (["explain", "gpu-a001.imag", SPEC, "--offline"], "did you mean 'image'?"),
        (["explain", "gpu-a001.zzz", SPEC, "--offline"], "it has values of bios, boot, "),
        (["schema", "plam"], "did you mean 'plan'"),
        (["show", "/nonexistent/plan.json"], "/nonexistent/plan.json"),
        (["lab", "nonsense"], "No such command"),
        (["lab", "up"], "--dir"),
        (["lab", "up", "--dir", "x", "--nodes", "0"], "0 is not in the range"),
        (["lab", "up", "--dir", "x", "--nodes", "2", "--time-scale", "0"], "0 is not in the range"),
        (["lab", "up", "--dir", "x", "--nodes", "2", "--scenario", "nonsense"], "no scenario 'nonsense'"),
        (["lab", "state", "--dir", "/nonexistent"], "no lab runs in /nonexistent"),
        (["lab", "down", "--dir", "/nonexistent"], "no lab runs in /nonexistent"),
        (["lab", "fault", "--dir", "/nonexistent", "n", "xid_79", "gpu"], "'gpu' is not KEY=VALUE"),
        (["demo", "/nonexistent"], "/nonexistent"),
        (["drift", SPEC, "--rev", "no-such-revision", "--observation", __file__], "no-such-revision"),
    ],
    ids=lambda value: " ".join(map(str, value))[:50] if isinstance(value, list) else None,
)
def test_a_wrong_command_line(words: list[Any], said: str, tmp_path: Path) -> None:
    done = reconciler(*words)
    assert done.code == 64, done.err
    assert said in done.err
    assert re.search(r"^reconciler: ", done.err, re.MULTILINE)
    assert "Traceback" not in done.err
    assert done.out == ""


def test_nothing_at_all_is_a_wrong_command_line_and_shows_the_commands() -> None:
    done = reconciler()
    assert done.code == 64
    assert all(name in done.err for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    done = reconciler(name, "--help")
    assert done.code == 0
    assert done.err == ""
    assert len(done.out.splitlines()) > 5


def _groups() -> list[str]:
    return [name for name in COMMANDS if isinstance(cli.get_command(click.Context(cli), name), click.Group)]


def test_a_group_says_of_each_command_the_whole_sentence() -> None:
    assert len(_groups()) > 10
    for name in _groups():
        shown = reconciler(name, "--help").out.partition("Commands:")[2]
        assert shown.count(".\n") >= len(re.findall(r"^  \S", shown, re.MULTILINE)), shown
        assert "..." not in shown


def started(*words: str) -> tuple[set[str], int, str]:
    """Run a command in a process of its own: the modules that it loads, the values that its end leaves be, stdout."""
    script = (
        "import atexit, gc, sys; from reconciler.cli.main import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count(), *sys.modules, file=sys.stderr)); main(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    frozen, *loaded = done.stderr.split()
    return set(loaded), int(frozen), done.stdout


@pytest.mark.parametrize(
    "words", [["--help"], ["validate", "--help"], ["plan", "--help"], ["apply", "--help"]], ids=" ".join
)
def test_help_loads_no_model_planner_or_driver(words: list[str]) -> None:
    """Building the models costs three times as long as the help itself, and nobody who asks for help needs one."""
    loaded, frozen, document = started(*words)
    assert not {"pydantic", "rich", "deepdiff", "sqlalchemy", "aiohttp", "asyncssh", "sushy", "git"} & loaded
    assert frozen, "Python searches everything for cycles before it ends"
    assert "Usage:" in document


def test_validate_loads_nothing_that_plans_or_reaches_a_node() -> None:
    loaded, _, document = started("validate", str(SPEC))
    assert not {"rich", "deepdiff", "sqlalchemy", "aiohttp", "asyncssh", "sushy", "cryptography"} & loaded
    assert "is valid" in document


def test_what_reads_nodes_off_a_terminal_loads_no_http_server_and_no_table() -> None:
    """Only what acts serves images or takes posts of BMCs: the client and server for them cost a plan 0.15 s."""
    script = (
        "import sys, reconciler.app.plan, reconciler.app.wire_fabric, reconciler.cli.frontend\n"
        "from datetime import datetime\n"
        "with reconciler.cli.frontend.make_progress('reading', datetime.now): print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "asyncssh" in done.stdout.split()
    assert not {"aiohttp", "rich.console"} & set(done.stdout.split())


def test_the_version_is_printed() -> None:
    assert reconciler("--version").out.startswith("reconciler, version ")


# --- apply off a terminal --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--yes"], ["--wait", "0"]])
def test_apply_off_a_terminal_needs_a_plan_and_yes(words: list[str], tmp_path: Path) -> None:
    done = reconciler("apply", SPEC, *words)
    assert done.code == 64
    assert "--plan FILE and --yes" in done.err
    assert not (tmp_path / "state").exists(), "it came as far as the ledger"


# --- which nodes -----------------------------------------------------------------------------------------------------


def selected(*words: str, observation: Path) -> list[str]:
    done = reconciler("plan", SPEC, "--observation", observation, "--output", "json", *words)
    assert done.code in (0, 4), done.err
    return list(done.json["nodes"])


A = [f"gpu-a{number:03d}" for number in range(1, 9)]
B = [f"gpu-b{number:03d}" for number in range(1, 5)]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], A + B),
        (["--limit", "gpu-a001"], A[:1]),
        (["--limit", "gpu-a001,gpu-b002"], [A[0], B[1]]),
        (["--limit", "gpu-a001", "--limit", "gpu-b002"], [A[0], B[1]]),
        (["--limit", "gpu-b*"], B),
        (["--limit", "gpu-a[002-004]"], A[1:4]),
        (["--limit", "gpu-a[001,003],gpu-b001"], [A[0], A[2], B[0]]),
        (["--limit", "pool=infer"], B),
        (["--limit", "rack=r2"], A[4:]),
        (["--limit", "rack=r*"], A + B),
        (["--limit", "rack=r2", "--exclude", "gpu-a006"], [A[4], A[6], A[7]]),
        (["--exclude", "pool=train"], B),
        (["--limit", "gpu-a001", "--limit", "pool=infer", "--exclude", "gpu-b[002-004]"], [A[0], B[0]]),
    ],
)
def test_limit_includes_then_exclude_takes_away(words: list[str], names: list[str], demo: Path) -> None:
    assert selected(*words, observation=demo) == sorted(names)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "gpu-a009"], "matches no node of fleet demo; did you mean 'gpu-a00"),
        (["--limit", "pool=trian"], "did you mean 'train'?"),
        (["--limit", "gpu-c*"], "matches no node"),
        (["--limit", "pool=nope"], "pool=NAME"),
        (["--limit", "rack=r9"], "rack=VALUE"),
        (["--limit", "rac=*"], "matches no node"),
        (["--limit", "gpu-a[004-001]"], "counts from 004 down to 001"),
        (["--limit", "gpu-a[001-004"], "brackets"),
        (["--limit", "gpu-a001]"], "brackets"),
        (["--limit", ""], "empty"),
        (["--limit", "gpu-a001,"], "empty"),
        (["--exclude", " "], "empty"),
        (["--exclude", "gpu-c*"], "matches no node"),
        (["--limit", "gpu-a001", "--exclude", "gpu-a*"], "leave no node"),
        (["--exclude", "gpu-*"], "leave no node"),
    ],
)
@pytest.mark.parametrize("name", READERS)
def test_a_selection_of_nothing_is_refused(name: str, words: list[str], said: str, demo: Path) -> None:
    """Of no node everything could be said: "no node differs" and exit code 0 of a typo would pass any check."""
    done = reconciler(name, SPEC, "--observation", demo, *words)
    assert (done.code, done.out) == (64, "")
    assert said in done.err


# --- files that are not what they should be --------------------------------------------------------------------------


def other(path: Path, tmp_path: Path, **changes: Any) -> Path:
    """The document with these keys changed; None takes one away."""
    document = json.loads(path.read_text()) | changes
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return changed


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format_version": "2.0"}, "format_version 2.0 is not readable by this version, which reads 1.x"),
        ({"format_version": None}, "not one of our documents"),
        ({"fleet": "other"}, "is an observation of fleet other, the spec is of demo"),
        ({"nodes": {}}, "has no observation of gpu-"),
        ({"nodes": 7}, "this is no observation: nodes"),
        ({"started_at": "yesterday"}, "started_at"),
    ],
)
def test_an_observation_that_is_none(name: str, changes: dict[str, Any], said: str, demo: Path, tmp_path: Path) -> None:
    done = reconciler(name, SPEC, "--observation", other(demo, tmp_path, **changes))
    assert (done.code, done.out) == (64, "")
    assert said in done.err


def test_a_later_minor_version_is_read(demo: Path, tmp_path: Path) -> None:
    newer = other(demo, tmp_path, format_version="1.9", something_new={"a": 1})
    assert reconciler("drift", SPEC, "--observation", newer).code == 4  # a BMC is dark


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a plan"),
        ("{}", "not a plan"),
        ("\0\0", "not JSON"),
        ("<!-- reconciler:v1 {} -->\n# Plan: 1 node is changed\n", "not JSON"),
    ],
)
def test_a_file_that_is_no_document_of_ours(text: str, said: str, tmp_path: Path) -> None:
    """Conventions R8: a comment is shown to people; an approval is a plan file, which is whole or is refused."""
    path = tmp_path / "x.json"
    path.write_text(text)
    shown = reconciler("show", path)
    assert (shown.code, shown.out) == (64, "")
    assert said in shown.err
    for name, option in (("drift", "--observation"), ("plan", "--observation"), ("apply", "--plan")):
        done = reconciler(name, SPEC, option, path, *(["--yes"] if name == "apply" else []))
        assert (done.code, done.out) == (64, "")
        assert str(path) in done.err


def test_an_observation_is_no_plan(demo: Path) -> None:
    done = reconciler("apply", SPEC, "--plan", demo, "--yes")
    assert done.code == 64
    assert "this is no plan" in done.err
