"""The tutorials, the how-to guides and README's tour are typed word for word, and print what the pages show.

One lab serves the first tutorial and the how-to guides, which are typed before its last command. README's tour is the
tutorial's, shortened: each of its commands is one of the tutorial's, and what it shows was printed there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import DOCS, README, Step, name, page, steps

TIME_SCALE = 240  # of the tutorial's lab, where the page has 60: what machines take shrinks, what commands say does not
TUTORIAL, FLEET = page("tutorial/lab"), page("tutorial/your-fleet")
GUIDES = [path for path in sorted((DOCS / "how-to").glob("*.md")) if steps(path)]
PATIENCE_S = 540  # its 42 commands take 97 s of CPU, and eight workers may share two cores
MARK = "@@@ "


@dataclass(frozen=True)
class Typed:
    """A step as it went: the page that shows it, what was printed, and the exit status."""

    page: Path
    step: Step
    printed: str
    status: int

    def check(self) -> None:
        where = f"{name(self.page)}: $ {self.step.command}\n{self.printed}"
        assert self.status == 0, f"{where}\nended with {self.status}"
        assert list(missing(self.step.shown, self.printed)) == [], where


# What differs from one run to the next: instants, durations, digests and names of runs, and who runs them.
_VARIES = (
    (
        re.compile(r"\b(plan|run|drift|explain)-\d{8}-\d{6}-[0-9a-f]{6}\b"),
        "RUN",
    ),  # first: its end may look like 48198d, a duration
    (re.compile(r"\b((\d{4}-)?\d\d-\d\d )?\d\d:\d\d(:\d\d)?\b( UTC)?"), "INSTANT"),
    (re.compile(r"\b(\d+[dhms])+\b"), "DURATION"),
    (re.compile(r"\b[0-9a-f]{12}…?(?= |$)"), "DIGEST"),
    (re.compile(r"\d+ times as fast"), "N times as fast"),
    (re.compile(r"\s+"), " "),
)


def alike(line: str) -> str:
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return line.strip()


def test_a_span_that_crosses_midnight_is_shown_like_any_other() -> None:
    assert alike("expected 23:20 - 2026-11-23 00:22 UTC") == alike("expected 09:30 - 10:32 UTC")


def missing(shown: tuple[str, ...], printed: str) -> Iterator[str]:
    """Lines of the page that were not printed; a line that ends in ... means any line that begins like it."""
    lines = {alike(line) for line in printed.splitlines()}
    for line in map(alike, shown):
        beginning = line.removesuffix("...").strip()
        if not (line in lines or (line.endswith("...") and any(one.startswith(beginning) for one in lines))):
            yield line


def script(typed: list[Step], lab: Path, shown: str) -> str:
    """What a person types, in one shell. The lab has a terminal of its own, which is its log here."""
    lines = ["exec 2>&1"]
    for at, step in enumerate(typed):
        command = step.command.replace(shown, str(lab)).replace("/tmp/my-fleet", str(lab.parent / "my-fleet"))
        lines.append(f"echo '{MARK}{at}'")
        if step.command.startswith("reconciler lab up "):
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


def play(wanted: list[tuple[Path, Step]], home: Path, shown: str) -> list[Typed]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    lab = home / "lab"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RECONCILER_", "XDG_"))}
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", script([step for _, step in wanted], lab, shown)], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**clean, "PATH": path, "HOME": str(home), "COLUMNS": "200"},
    ) as shell:  # fmt: skip
        try:
            printed, errors = shell.communicate(timeout=PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # when it took too long, its lab goes too
                os.killpg(shell.pid, signal.SIGKILL)
    parts = printed.split(MARK)[1:]
    told = [(parts[at], parts[at + 1]) for at in range(0, len(parts), 2)]
    assert len(told) == len(wanted), printed + errors
    return [
        Typed(path, step, output.partition("\n")[2].replace(str(lab), shown), int(ended.split()[1]))
        for (path, step), (output, ended) in zip(wanted, told, strict=True)
    ]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> list[Typed]:
    """The tutorial, and the how-to guides before its last command, which ends the lab."""
    *tutorial, last = [(TUTORIAL, step) for step in steps(TUTORIAL)]
    assert last[1].command.startswith("reconciler lab down ")
    guides = [(path, step) for path in GUIDES for step in steps(path)]
    return play([*tutorial, *guides, last], tmp_path_factory.mktemp("tour"), "/tmp/lab")


@pytest.mark.wire
@pytest.mark.xdist_group("tour")  # typed once
@pytest.mark.parametrize("path", [TUTORIAL, *GUIDES], ids=name)
def test_what_a_page_shows_is_what_is_printed(typed: list[Typed], path: Path) -> None:
    for one in typed:
        if one.page == path:
            one.check()


@pytest.mark.wire
@pytest.mark.xdist_group("tour")  # typed once
def test_the_tour_of_the_readme_is_the_tutorials(typed: list[Typed]) -> None:
    """In the same order, and with nothing that changes the lab left out before its end."""
    tutorial = iter([one for one in typed if one.page == TUTORIAL])
    for step in steps(README):
        same = next((one for one in tutorial if one.step.command == step.command), None)
        assert same is not None, f"the tutorial does not have, or not in this place: {step.command}"
        assert list(missing(step.shown, same.printed)) == [], f"$ {step.command}\n{same.printed}"


@pytest.mark.wire
def test_the_second_tutorial_leads_where_it_says(tmp_path: Path) -> None:
    """With a home of their own, a name for git, and a clone of this repository."""
    (tmp_path / ".gitconfig").write_text("[user]\nname = me\nemail = me@example.com\n")
    (tmp_path / "reconciler").symlink_to(ROOT)
    for one in play([(FLEET, step) for step in steps(FLEET)], tmp_path, "/tmp/fleet"):
        one.check()
    workflows = (tmp_path / "my-fleet" / ".github" / "workflows").glob("*.yml")
    assert not any(re.search(r"uses: \./", file.read_text()) for file in workflows)


def test_the_tutorial_shows_what_operators_need() -> None:
    """A tutorial that lost its commands would pass as well."""
    types = " ".join(step.command for path in (TUTORIAL, *GUIDES) for step in steps(path))
    for command in (
        "validate", "doctor", "drift", "plan", "explain", "apply", "history", "hold", "release", "lab fault", "adopt",
        "rehearse", "report", "isolation", "stop", "resume", "lease", "audit",
    ):  # fmt: skip
        assert f"reconciler {command}" in types
    assert len(steps(README)) >= 6
