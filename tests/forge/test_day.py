"""A day of a fleet on GitHub: the workflows' own commands against a lab, what they say kept in tests/forge/comments.

`pytest tests/forge/test_day.py --update` writes what is said anew: read what has changed.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.render.comment import mark_of
from tests.cli.shell import LabDirectory, reconciler, running_lab
from tests.forge.runner import Runner, git
from tests.forge.server import REPOSITORY, TOKEN, FakeGitHub, secretless, serving
from tests.render.test_comment import balanced

pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.xdist_group("day"),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl program"),
]
FORK = "mallory/fleet"
SAID = Path(__file__).parent / "comments"


@dataclass
class Day:
    lab: LabDirectory
    github: FakeGitHub
    runner: Runner
    desk: Path  # where alice works
    update: bool

    @property
    def spec(self) -> Path:
        return self.desk / "fleet-spec"

    def main(self) -> str:
        return git(self.desk, "rev-parse", "origin/main")

    def propose(self, number: int, file: str, old: str, new: str, *, fork: str = "") -> str:
        """A pull request that replaces a text in a file of the spec. Its commit."""
        git(self.desk, "checkout", "-q", "-B", f"change-{number}", "origin/main")
        path = self.spec / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1))
        git(self.desk, "commit", "-q", "-am", f"Change {file}")
        head = git(self.desk, "rev-parse", "HEAD")
        git(self.desk, "push", "-q", "origin", f"change-{number}", f"HEAD:refs/pull/{number}/head")
        self.github.open_pull(number, head, f"fleet-spec/{file}", fork=fork)
        return head

    def merge(self, number: int) -> str:
        git(self.desk, "checkout", "-q", "-B", "main", "origin/main")
        git(self.desk, "merge", "-q", "--no-ff", "-m", f"Merge #{number}", f"change-{number}")
        git(self.desk, "push", "-q", "origin", "main")
        self.github.merge(number, self.main())
        return self.main()

    def review(self, number: int, job: str) -> tuple[str, str]:
        """What review.yml does for a pull request: results of this job of it and of that which comments."""
        context = {
            "github.sha": self.main(),
            "github.event.workflow_run.head_sha": self.github.pulls[number]["head"]["sha"],
            "github.token": TOKEN,
            "needs.fork.result == 'skipped' && 'plan' || 'fork'": job,
            "vars.RECONCILER_ENVIRONMENT": "prod",
        }
        shutil.rmtree(self.runner.where / "artifacts", ignore_errors=True)  # of other runs
        return self.runner.run("review", job, context), self.runner.run("review", "comment", context)

    def planned(self, number: int) -> tuple[str, str]:
        """For a pull request of this repository."""
        return self.review(number, "plan")

    def commanded(self, number: int, text: str, login: str) -> list[str]:
        """What commands.yml does for a comment: results of its jobs, as many as are run."""
        event = self.runner.where / "event.json"
        event.write_text(json.dumps(self.github.event(number, text, login)))
        self.runner.env = {**self.runner.env, "GITHUB_EVENT_PATH": str(event)}
        context = {
            "github.sha": self.main(), "github.token": TOKEN, "vars.RECONCILER_ENVIRONMENT": "prod",
            "github.event.comment.html_url": f"https://github.com/{REPOSITORY}/pull/{number}#issuecomment-1",
        }  # fmt: skip
        shutil.rmtree(self.runner.where / "artifacts", ignore_errors=True)  # of other runs
        results = [self.runner.run("commands", "request", context)]
        if self.runner.outputs["needs.request.outputs.verb"] != "nothing":
            results.append(self.runner.run("commands", "act", context))
            results.append(self.runner.run("commands", "reply", {**context, "needs.act.result": results[-1]}))
        return results

    def validated(self, number: int) -> str:
        """What plan.yml does, which may be the pull request's own."""
        before = len(self.github.requests)
        context = {
            "github.event.pull_request.base.sha": self.main(),
            "github.event.pull_request.head.sha": self.github.pulls[number]["head"]["sha"],
        }
        result = self.runner.run("plan", "validate", context)
        assert len(self.github.requests) == before
        return result

    def on_main(self, workflow: str, *jobs: str) -> list[str]:
        context = {
            "github.sha": self.main(), "github.token": TOKEN, "vars.RECONCILER_ENVIRONMENT": "prod",
            "github.server_url": "https://github.com", "github.repository": REPOSITORY, "github.run_id": "7",
            "github.run_attempt": str(self.runner.jobs),
        }  # fmt: skip
        return [self.runner.run(workflow, job, context) for job in jobs]

    def said(self, name: str, text: str) -> None:
        """It is well formed, tells no secret, and reads as it was last read by a person."""
        balanced(text)
        secretless(self.github, text)
        found = steady(text)
        path = SAID / f"{name}.md"
        if self.update:
            SAID.mkdir(exist_ok=True)
            path.write_text(found)
        assert found == path.read_text()


def steady(text: str) -> str:
    """Without what differs from day to day."""
    text = re.sub(r"(?m)^observing: .*\n", "", text)  # as often as there was time for it
    for pattern, word in (
        (r"\b[0-9a-f]{64}\b", "DIGEST"), (r"\b[0-9a-f]{40}\b", "COMMIT"), (r"\b[0-9a-f]{12}\b", "COMMIT"),
        (r"\b(plan|run)-\d{8}-\d{6}-[0-9a-f]{6}\b", r"\1-ID"),
        (r"(\d\d:\d\d - )\d{4}-\d\d-\d\d (\d\d:\d\d UTC)", r"\1\2"),  # it ends on the next day
        (r"\b\d{4}-\d\d-\d\d(,? \d\d:\d\d(:\d\d)?( UTC)?)?", "TIME"), (r"\b\d\d-\d\d \d\d:\d\d\b", "TIME"),
        (r"(?<![:\w])\d\d:\d\d(:\d\d)?\b", "TIME"),
        (r"\b(\d+d)?(\d+h)?\d+m(\d+s)?\b|\b\d+d\d+h\b|\b\d+s\b|\b\d+h\b", "SPAN"),
        (r"127\.0\.0\.1:\d+", "LOOPBACK"), (r"[\d.]+ GPU-hours", "N GPU-hours"),
        (r"SPAN to SPAN", "SPAN"), (r"TIME - TIME", "TIME"),
        (r"T(\\?)\+(0|SPAN)( - T\\?\+SPAN)?(?![\w])", "WHEN"),  # less than half a minute after the apply begins is T+0
    ):  # fmt: skip
        text = re.sub(pattern, word, text)
    return text


def test_a_plan_that_ends_on_the_next_day_says_the_same() -> None:
    assert (
        steady("expected 23:20 - 2026-11-23 00:22 UTC") == steady("expected 09:30 - 10:32 UTC") == "expected TIME UTC"
    )


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Day]:
    where = tmp_path_factory.mktemp("day")
    origin, desk = where / "origin.git", where / "desk"
    with (
        running_lab(where / "lab", "--scenario", "clean", nodes=3, time_scale=240) as lab,
        serving() as github,
    ):
        github.permissions = {"pull_requests", "issues", "checks"}  # the most that a job of ours has
        lab.respec("fleet.yaml", "25%", "100%")
        lab.respec("fleet.yaml", "50%", "100%")
        for pool in (lab.spec / "pools").glob("*.yaml"):
            pool.write_text(pool.read_text().rstrip("\n") + "\n  rollout: {waves: ['100%'], bake: 0s}\n")
        git(where, "init", "-q", "--bare", "-b", "main", str(origin))
        git(where, "clone", "-q", str(origin), str(desk))
        shutil.copytree(lab.spec, desk / "fleet-spec")
        git(desk, "checkout", "-q", "-b", "main")
        git(desk, "add", "-A")
        git(desk, "commit", "-q", "-m", "As it is", "--date", "2026-01-01T00:00:00Z")  # not in one second with the next
        git(desk, "push", "-q", "-u", "origin", "main")
        env = {
            "GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_RUN_ID": "7",
            "GITHUB_SERVER_URL": "https://github.com",
        }  # fmt: skip
        fleet = {"RECONCILER_ENDPOINTS": str(lab.endpoints)}
        update = bool(request.config.getoption("--update"))
        yield Day(lab, github, Runner(origin, where / "runner", env, fleet), desk, update)


# The parts of the story, in their order: each begins where the one before it ended.


def a_change_is_planned_merged_and_applied(day: Day) -> None:
    head = day.propose(7, "personas.yaml", "vm.swappiness: '1'", "vm.swappiness: '5'")
    assert day.planned(7) == ("success", "success"), day.runner.log()
    [plan] = day.github.texts(7)
    day.said("plan", plan)
    assert [(one["head_sha"], one["conclusion"]) for one in day.github.checks] == [(head, "success")]

    merged = day.merge(7)
    assert day.on_main("apply", "plan") == ["success"], day.runner.log()
    assert day.runner.outputs["needs.plan.outputs.code"] == "2"
    assert day.on_main("apply", "apply", "report") == ["success", "success"], day.runner.log()
    sticky, applied = day.github.texts(7)
    day.said("plan-applied", sticky)
    day.said("apply", applied)
    assert (day.github.checks[-1]["head_sha"], day.github.checks[-1]["conclusion"]) == (merged, "success")

    assert day.on_main("apply", "plan") == ["success"]
    assert day.runner.outputs["needs.plan.outputs.code"] == "0", "nothing is left to approve"


def a_clean_fleet_makes_no_noise(day: Day) -> None:
    assert day.on_main("drift", "drift", "report") == ["success", "success"], day.runner.log()
    assert day.github.issues == {}


def a_command_in_a_comment_is_carried_out_for_those_who_may(day: Day) -> None:
    day.github.roles = {"alice": "write", "mallory": "read"}
    head = day.propose(16, "personas.yaml", "vm.swappiness: '5'", "vm.swappiness: '7'")
    assert day.commanded(16, "/reconciler plan", "alice") == ["success"] * 3, day.runner.log()
    [plan] = day.github.texts(16)
    assert (mark_of(plan)["key"], mark_of(plan)["head"]) == ("plan/lab/prod", head)

    assert day.commanded(16, "/reconciler hold gpu-0002 bad DIMM", "alice") == ["success"] * 3, day.runner.log()
    assert "asked by alice: done." in day.github.texts(16)[-1]
    held = reconciler("hold", "--spec", day.spec, "--endpoints", day.lab.endpoints).out
    assert "bad DIMM" in held
    assert f"alice on https://github.com/{REPOSITORY}/pull/16#issuecomment-1" in held.replace("\n", "")
    journal = reconciler("audit", "list", "--endpoints", day.lab.endpoints).out
    assert "alice on https://github.com/" in journal.replace("\n", "")

    assert day.commanded(16, "/reconciler explain gpu-0002", "alice") == ["success"] * 3, day.runner.log()
    told = day.github.texts(16)[-1]
    assert "gpu-0002 [" in told
    assert "bad DIMM" in told
    day.said("command-explain", told)
    for secret in re.findall(r"127\.0\.0\.1:\d+", (day.lab.spec / "fleet.yaml").read_text()):
        assert secret not in told

    assert day.commanded(16, "/reconciler hold gpu-9999", "alice") == ["success", "failure", "success"]
    assert "asked by alice: failed." in day.github.texts(16)[-1]
    before = len(day.github.texts(16))
    assert day.commanded(16, "/reconciler hold gpu-0001", "mallory") == ["success"]
    assert "mallory may not write" in day.github.texts(16)[before]
    assert day.commanded(16, "/reconciler reimage gpu-0001", "alice") == ["success"]
    assert "there is no such command" in day.github.texts(16)[-1]
    assert "gpu-0001" not in reconciler("hold", "--spec", day.spec, "--endpoints", day.lab.endpoints).out
    assert reconciler("release", "gpu-0002", "--spec", day.spec, "--endpoints", day.lab.endpoints).code == 0
    del day.github.pulls[16]


def a_change_of_an_address_is_told_and_nobody_is_contacted_there(day: Day) -> None:
    """Conventions S3."""
    [file] = [path for path in (day.spec / "pools").glob("*.yaml") if "gpu-0001" in path.read_text()]
    [old] = re.findall(r"bmc: ['\"]?(https://127\.0\.0\.1:\d+)", file.read_text())[:1]
    day.propose(8, f"pools/{file.name}", old, "https://203.0.113.9")
    assert day.planned(8) == ("success", "success"), day.runner.log()
    [text] = day.github.texts(8)
    assert "🔴 Plan for fleet lab, prod: this change touches no node, 1 address or credential edited" in text
    assert "Nobody contacts what is new here before the change is merged" in text
    day.said("address", text)


def a_change_that_is_no_spec_fails_and_says_why(day: Day) -> None:
    day.propose(9, "personas.yaml", "sysctls:", "sysctl:")
    assert day.validated(9) == "failure"
    assert day.planned(9) == ("failure", "success"), day.runner.log()
    [text] = day.github.texts(9)
    assert "did you mean" in text
    day.said("invalid", text)
    assert day.github.checks[-1]["conclusion"] == "failure"
    del day.github.pulls[9]


def a_fork_is_planned_offline_by_what_drift_published(day: Day) -> None:
    day.lab.fault("gpu-0003", "bmc_unreachable")  # after the last publication: nobody looks, so nobody knows
    head = day.propose(10, "personas.yaml", "vm.swappiness: '5'", "vm.swappiness: '9'", fork=FORK)
    assert day.validated(10) == "success", day.runner.log()
    assert day.review(10, "fork") == ("success", "success"), day.runner.log()
    [text] = day.github.texts(10)
    assert "no node was contacted" in text
    assert "sealed-" not in text
    day.said("fork", text)
    check = day.github.checks[-1]
    assert check.pop("output")["summary"] in text, "the report itself, where the check is looked at"
    assert check == {
        "head_sha": head, "conclusion": "success", "status": "completed", "name": "reconciler/plan (prod)",
        "details_url": f"https://github.com/{REPOSITORY}/actions/runs/7/attempts/1",
    }  # fmt: skip
    day.lab.clear("gpu-0003")


def a_fork_that_edits_an_address_needs_a_person(day: Day) -> None:
    """Conventions S3: the check does not pass by itself."""
    [file] = [path for path in (day.spec / "pools").glob("*.yaml") if "gpu-0001" in path.read_text()]
    [old] = re.findall(r"bmc: ['\"]?(https://127\.0\.0\.1:\d+)", file.read_text())[:1]
    day.propose(13, f"pools/{file.name}", old, "https://203.0.113.66", fork=FORK)
    assert day.review(13, "fork") == ("success", "success"), day.runner.log()
    [text] = day.github.texts(13)
    day.said("fork-address", text)
    assert day.github.checks[-1]["conclusion"] == "action_required"


def a_fork_whose_spec_is_none_is_told_where(day: Day) -> None:
    day.propose(14, "personas.yaml", "sysctls:", "'</details>`@maintainer': 1\n      sysctls:", fork=FORK)
    assert day.validated(14) == "failure"
    assert day.review(14, "fork") == ("failure", "success"), day.runner.log()
    [text] = day.github.texts(14)
    day.said("fork-invalid", text)
    assert day.github.checks[-1]["conclusion"] == "failure"


def a_fork_before_anything_was_published_is_told_so(day: Day) -> None:
    shutil.rmtree(day.runner.where / "caches")
    day.propose(15, "personas.yaml", "vm.swappiness: '5'", "vm.swappiness: '8'", fork=FORK)
    assert day.review(15, "fork") == ("failure", "success"), day.runner.log()
    [text] = day.github.texts(15)
    day.said("fork-unpublished", text)
    assert day.github.checks[-1]["conclusion"] == "failure"
    for number in (10, 13, 14, 15):
        del day.github.pulls[number]


def an_approval_that_the_world_has_overtaken_is_refused_and_told(day: Day) -> None:
    """Conventions G9: what main says by now was not approved."""
    day.propose(11, "personas.yaml", "vm.swappiness: '5'", "vm.swappiness: '6'")
    day.merge(11)
    assert day.on_main("apply", "plan") == ["success"], day.runner.log()
    day.propose(12, "personas.yaml", "vm.swappiness: '6'", "vm.swappiness: '7'")
    day.merge(12)
    assert day.on_main("apply", "apply", "report") == ["failure", "success"], day.runner.log()
    [text] = day.github.texts(12)
    assert day.github.texts(11) == []
    day.said("stale", text)


def drift_is_told_to_whom_it_concerns_until_it_is_gone(day: Day) -> None:
    assert day.on_main("apply", "plan", "apply", "report") == ["success"] * 3, day.runner.log()
    day.lab.fault("gpu-0002", "bmc_unreachable")
    assert day.on_main("drift", "drift", "report") == ["failure", "success"], "what is not known is not clean"
    [issue] = day.github.issues.values()
    day.said("drift", issue["body"])
    assert issue["state"] == "open"
    day.lab.clear("gpu-0002")
    assert day.on_main("drift", "drift", "report") == ["success", "success"], day.runner.log()
    assert issue["state"] == "closed"


STORY = (
    a_change_is_planned_merged_and_applied,
    a_clean_fleet_makes_no_noise,
    a_command_in_a_comment_is_carried_out_for_those_who_may,
    a_change_of_an_address_is_told_and_nobody_is_contacted_there,
    a_change_that_is_no_spec_fails_and_says_why,
    a_fork_is_planned_offline_by_what_drift_published,
    a_fork_that_edits_an_address_needs_a_person,
    a_fork_whose_spec_is_none_is_told_where,
    a_fork_before_anything_was_published_is_told_so,
    an_approval_that_the_world_has_overtaken_is_refused_and_told,
    drift_is_told_to_whom_it_concerns_until_it_is_gone,
)


def test_a_day_of_a_fleet(day: Day, subtests: pytest.Subtests) -> None:
    """One test, since its parts are one story: no part means anything without those before it."""
    for part in STORY:
        with subtests.test(part.__name__):
            part(day)
