"""--record by command, and beside the loop: what it keeps, and what happens when it can't."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.app.recording import LoopRecorder
from reconciler.converge.events import ActionFinished, Event, LoopTold, NodeSettled
from reconciler.model.desired import Fleet
from reconciler.model.errors import LedgerError
from reconciler.model.observed import Observation
from reconciler.model.outcome import Done
from reconciler.model.plan import Plan, PlannedAction
from reconciler.model.recording import RecordError, Recording
from reconciler.model.vocab import Certainty, Concern, Disruption
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render.redact import Identifiers
from reconciler.spec import load_spec
from tests.cli.shell import SPEC, reconciler

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def git(directory: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(spec: Path) -> Path:
    git(spec.parent, "init", "-q", "-b", "main")
    git(spec.parent, "add", "fleet-spec")
    git(spec.parent, "-c", "user.name=me", "-c", "user.email=me@example.com", "commit", "-q", "-m", "as it is")
    return spec.parent


def test_drift_is_recorded_when_it_changes(repo: Path, demo: Path, clean: Path) -> None:
    def drift(observation: Path, *more: str) -> None:
        words: list[str | Path] = ["--observation", observation, "--record", "branch:history", *more]
        done = reconciler("drift", repo / "fleet-spec", *words)
        assert done.code in (0, 4), done.err

    drift(demo)
    drift(demo)
    assert git(repo, "rev-list", "--count", "history") == "1"
    drift(clean, "--limit", "gpu-a007")
    drift(clean)
    subjects = git(repo, "log", "--format=%s", "history").splitlines()
    assert len(subjects) == 3
    assert all(subject.startswith("drift: ") for subject in subjects)
    changed = git(repo, "show", "--name-only", "--format=", "history~1").splitlines()
    assert [name.rpartition("/")[2] for name in changed] == ["gpu-a007.json"]
    assert git(repo, "status", "--porcelain", "fleet-spec") == ""


def test_what_can_not_be_recorded_costs_no_document(repo: Path, demo: Path) -> None:
    (repo / ".git" / "refs" / "heads" / "history.lock").touch()
    done = reconciler(
        "drift", repo / "fleet-spec", "--observation", demo, "--record", "branch:history", "--output", "json"
    )
    assert done.code == 1
    assert json.loads(done.out)["changes"] is True
    assert "\nreconciler: can't record to branch history: " in done.err


def test_what_is_redacted_in_the_document_is_redacted_in_the_record(repo: Path, demo: Path) -> None:
    """The example's machine of another serial is told from the one that was wanted all the same."""
    seen = json.loads(demo.read_text())
    serial = seen["nodes"]["gpu-a001"]["hot"]["value"]["serial"]
    (repo / "wrong.json").write_text(demo.read_text().replace(serial, "SECRET-0815"))

    def recorded(branch: str, *more: str) -> str:
        words: list[str | Path] = ["--observation", repo / "wrong.json", "--record", f"branch:{branch}", *more]
        assert reconciler("drift", repo / "fleet-spec", *words).code == 4
        return git(repo, "log", "-p", branch)

    assert "SECRET-0815" in recorded("plain")
    assert "identity.serial" in recorded("redacted", "--redact")
    assert "SECRET-0815" not in recorded("redacted", "--redact")


def test_that_bmcs_take_a_vendors_login_is_in_nothing_that_is_posted(demo: Path, tmp_path: Path) -> None:
    """An issue, a comment, an artifact and a page have other readers; what the spec switches off, they read in it."""
    seen = json.loads(demo.read_text())
    seen["insecure"] = ["3 of 12 BMCs take the login that Dell's iDRAC comes with (secret bmc)"]
    observation, drift, plan = tmp_path / "seen.json", tmp_path / "drift.json", tmp_path / "plan.json"
    observation.write_text(json.dumps(seen))

    def posted(*more: str) -> list[str]:
        drift.write_text(reconciler("drift", SPEC, "--observation", observation, "-o", "json", *more).out)
        reconciler("plan", SPEC, "--observation", observation, "--out", plan, *more)
        return [
            *(file.read_text() for file in (drift, plan)),
            *(reconciler("comment", file, "--dry-run").out for file in (drift, plan)),
        ]

    assert all("BMCs take the login" in text for text in posted()), "who may read it is told"
    for text in posted("--redact"):
        assert "gpu-a001" in text
        assert "take the login" not in text


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("branch:main", "branch main is checked out in"),
        ("branch:", "branch: needs a name"),
        ("branch:a b", "'a b' can't be the name of a branch"),
        ("fleet-spec/records", "is part of the spec"),
        (".", "holds something else"),
        ("fleet-spec/fleet.yaml", "is a file"),
    ],
)
def test_an_unusable_target_is_refused_before_anything_is_done(
    repo: Path, demo: Path, monkeypatch: pytest.MonkeyPatch, place: str, told: str
) -> None:
    monkeypatch.chdir(repo)
    done = reconciler("drift", "fleet-spec", "--observation", demo, "--record", place)
    assert (done.code, done.out) == (64, "")
    assert told in done.err


def test_a_branch_of_a_private_clone_is_refused(tmp_path: Path) -> None:
    done = reconciler("run", SPEC, "--repo", str(tmp_path), "--record", "branch:history")
    assert done.code == 64
    assert "record to a directory" in done.err


# --- beside the loop --------------------------------------------------------------------------------------------------


@dataclass
class FakeRecorder:
    """A recorder that can fail. It is a fake, since these tests are about who writes and when."""

    broken: str = ""
    saved: list[Recording] = field(default_factory=list)

    async def check(self) -> None:
        """There is nothing to check."""

    async def save(self, recording: Recording) -> bool:
        if self.broken:
            raise RecordError(self.broken)
        self.saved.append(recording)
        return True


class World:
    def __init__(self, demo: Path) -> None:
        from reconciler.model.documents import load

        self.fleet: Fleet = load_spec(SPEC, directory=str(SPEC))
        self.observation = load(Observation, demo.read_bytes())
        self.target = FakeRecorder()
        self.events: list[Event] = []
        self.failures = 0
        self.recorder = LoopRecorder(self.target, self.events.append, lambda: NOW, self.failed)

    def failed(self) -> None:
        self.failures += 1

    def plan(self, at: datetime = NOW, selected: list[str] | None = None) -> Plan:
        request = PlanRequest(f"pass-{at:%H%M%S}", {}, selected)
        return plan_fleet(self.fleet, self.observation, LedgerSnapshot("l"), at, request)

    async def passes(self, plan: Plan) -> None:
        self.recorder.pass_ended(self.fleet, plan, self.observation)
        await self.recorder.saved()

    def does(self, node: str, name: str, detail: str = "") -> None:
        action = PlannedAction(
            name, "", Concern.CLUSTER, (), Disruption.NONE, 1.0, Certainty.EXACT, (), ()
        )  # fmt: skip
        self.recorder(ActionFinished(node, action, Done(detail), 60.0))

    @property
    def problems(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, LoopTold) and event.problem]


@pytest.fixture
def world(demo: Path) -> World:
    return World(demo)


def test_a_pass_with_the_same_drift_is_not_recorded_again(world: World) -> None:
    async def main() -> None:
        await world.passes(world.plan())
        await world.passes(world.plan(NOW + timedelta(minutes=2)))

    asyncio.run(main())
    assert len(world.target.saved) == 1
    assert world.target.saved[0].subject.startswith("drift: ")


def test_actions_are_recorded_once_when_their_node_has_settled(world: World) -> None:
    async def main() -> None:
        plan = world.plan()
        await world.passes(plan)
        world.does("gpu-a001", "drain")
        world.does("gpu-a002", "drain")
        world.recorder(NodeSettled("gpu-a001", "done", "in service"))
        await world.passes(plan)
        await world.passes(plan)
        world.recorder(NodeSettled("gpu-a002", "failed", "it burns"))
        await world.recorder.close()

    asyncio.run(main())
    assert [one.subject for one in world.target.saved[1:]] == ["apply: 1 done; 1 action", "apply: 1 failed; 1 action"]
    assert [event.node for event in world.events if isinstance(event, NodeSettled)] == ["gpu-a001", "gpu-a002"]


def test_the_loop_can_redact_what_it_records(world: World) -> None:
    async def main() -> None:
        world.recorder.names = lambda _fleet, _seen: {"gpu-a001": ("10.20.0.11",)}
        world.does("gpu-a001", "drain", "no answer from 10.20.0.11")
        world.recorder(NodeSettled("gpu-a001", "failed", "10.20.0.11 burns"))
        await world.passes(replace(world.plan(), insecure=("1 of 12 BMCs take the login of their vendor",)))

    asyncio.run(main())
    (one,) = world.target.saved
    assert "burns" in one.body
    for hidden in ("10.20.0.11", "login of their vendor"):
        assert hidden not in one.body + "".join(one.files.values())


def test_a_failing_target_is_reported_once_and_nothing_is_lost(world: World) -> None:
    async def main() -> None:
        plan = world.plan()
        world.target.broken = "the disk is full"
        world.does("gpu-a001", "drain")
        world.recorder(NodeSettled("gpu-a001", "done", "in service"))
        for _ in range(3):
            await world.passes(plan)
        world.target.broken = ""
        await world.passes(plan)
        await world.passes(plan)

    asyncio.run(main())
    assert world.problems == ["the disk is full"]
    assert world.failures == 3
    assert [one.subject for one in world.target.saved] == ["apply: 1 done; 1 action"]
    assert isinstance(world.events[-1], LoopTold)
    assert not world.events[-1].problem


def test_an_unreachable_ledger_stops_neither_the_loop_nor_the_recording(world: World) -> None:
    """The texts to redact are read from the ledger."""

    def away(_fleet: Fleet, _seen: Observation) -> Identifiers:
        raise LedgerError("the ledger can't be reached")

    async def main() -> None:
        plan = world.plan()
        world.does("gpu-a001", "drain")
        world.recorder(NodeSettled("gpu-a001", "done", "in service"))
        world.recorder.names = away
        await world.passes(plan)
        await world.passes(plan)
        await world.recorder.close()
        world.recorder.names = None
        await world.passes(plan)

    asyncio.run(main())
    assert world.problems == ["the ledger can't be reached"]
    assert world.failures == 3
    assert [one.subject for one in world.target.saved] == ["apply: 1 done; 1 action"]
