"""`drift.mode: propose`: a service on a lab keeps one pull request on a GitHub that we play, and does nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.loop_proposals import DriftProposer
from reconciler.app.loop_proposer import ProposerOptions
from reconciler.app.proposing import Proposed, ProposedChange
from reconciler.converge.events import LoopTold
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.secrets import Secret
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.forge import ForgeKind, SpecForge
from reconciler.model.records import Lease
from reconciler.model.vocab import DriftMode
from tests import builders as b
from tests.cli.shell import LabDirectory, running_lab, until
from tests.cli.test_run import Service, git, push, running, shown, swappiness
from tests.forge.server import REPOSITORY, TOKEN, FakeGitHub, serving
from tests.forge.server import Failure as Answer

PLACE = SpecForge(ForgeKind.GITHUB, REPOSITORY, "forge")


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with serving() as fake:
        yield fake


@pytest.fixture
def lab(tmp_path: Path, github: FakeGitHub) -> Iterator[LabDirectory]:
    """A fleet whose spec proposes drift to that GitHub, with the token in the lab's secrets."""
    with running_lab(tmp_path, "--scenario", "clean", nodes=2) as found:
        endpoints = json.loads(found.endpoints.read_text())
        token = found.path / "secrets" / "forge"
        token.touch(0o600)
        token.write_text(TOKEN)
        endpoints["secrets"]["forge"] = str(token)
        found.endpoints.write_text(json.dumps(endpoints))
        forge = f"{{kind: github, repository: {REPOSITORY}, token: forge, url: '{github.url}'}}"
        found.respec("fleet.yaml", "mode: correct", f"mode: propose\n    forge: {forge}")
        yield found


@pytest.fixture
def work(lab: LabDirectory) -> Path:
    bare, work = lab.path / "spec.git", lab.path / "work"
    git(lab.path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(lab.path, "clone", "--quiet", str(bare), str(work))
    shutil.copytree(lab.spec, work / "fleet-spec")
    return work


def published(work: Path, github: FakeGitHub) -> str:
    head = push(work, "change the spec")
    github.commits[head] = {"sha": head, "message": "", "tree": {"sha": "t"}, "parents": []}
    return head


def passes(service: Service) -> str:
    [found] = re.findall(r'"last_pass": "([^"]+)"', json.dumps(service.ready())) or [""]
    return str(found)


def opened(github: FakeGitHub) -> int:
    return sum(one.method == "POST" and one.path.endswith("/pulls") for one in github.requests)


@pytest.mark.wire
@pytest.mark.tool
@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program")
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl program")
def test_a_service_keeps_one_pull_request_and_goes_on_without_the_forge(
    lab: LabDirectory, work: Path, github: FakeGitHub
) -> None:
    swappiness(lab, work, "5")
    head = published(work, github)
    before = shown(lab)
    with running(lab, work) as service, running(lab, work) as other:
        until(lambda: github.pulls, 90)
        (pull,) = github.pulls.values()
        assert re.search(
            r"\| [^|]*vm\.swappiness[^|]*\|[^|]*\|[^|]*\| [0-9]{4}-[0-9]{2}-[0-9]{2} [^|]*\|", pull["body"]
        ), "since"
        made = github.commits[github.branches[pull["head"]["ref"]]]
        assert [one["sha"] for one in made["parents"]] == [head]
        (entry,) = github.trees[made["tree"]["sha"]]["tree"]
        assert entry["path"] == "fleet-spec/personas.yaml"
        until(lambda: service.said("proposal") or other.said("proposal"))
        leader = service if service.said("proposal") else other
        [told] = leader.said("proposal")
        assert told["message"] == f"opened {pull['html_url']}"
        github.failures.append(Answer("GET", ".*", status=503, times=10_000))
        until(lambda: len(leader.said("proposal")) == 2, 90)
        again = passes(leader)
        until(lambda: passes(leader) != again, 90)
        again = passes(leader)
        until(lambda: passes(leader) != again, 90)
        assert len(leader.said("proposal")) == 2, "an outage is told once"
        assert "drift is not proposed: " in leader.said("proposal")[1]["message"]
        github.failures.clear()
        until(lambda: len(leader.said("proposal")) == 3, 90)
        assert leader.said("proposal")[2]["message"] == "drift is proposed again"
        assert service.said("proposal") == [] or other.said("proposal") == []
        assert {one.stop().code for one in (service, other)} == {0}
    assert (opened(github), len(github.pulls)) == (1, 1)
    assert shown(lab) == before, "the nodes are left as they are"
    ledger = SqlLedger(lab.path / "ledger.sqlite")
    noted = [entry.detail for _, entry in ledger.journal(None, 500) if entry.event == "propose"]
    ledger.close()
    assert noted == [f"opened {pull['html_url']}"]
    assert TOKEN not in service.log.read_text() + other.log.read_text()


# --- when it tries, and what it tells --------------------------------------------------------------------------------


class Bench(DriftProposer):
    """A proposer whose tries end as the test says."""

    def __init__(self, ends: list[Exception | None], interval_s: float = 120.0) -> None:
        self.ends, self.tries, self.told = ends, 0, list[str]()
        self.hang = self.hangs_reading = False
        holder = Lease("demo", "me", 1, b.NOW + timedelta(minutes=1))
        ledger: Any = SimpleNamespace(holder=lambda *_: holder)
        workspace: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: b.NOW))
        super().__init__(workspace, ledger, self._note, ProposerOptions("me", interval_s, False))

    def _note(self, event: Any) -> None:
        assert isinstance(event, LoopTold)
        self.told.append(event.message)

    async def _wanted(self, *_: Any) -> ProposedChange | None:
        if self.hangs_reading:
            await asyncio.Event().wait()
        return ProposedChange("branch", "base", {}, "title", "text")

    async def _propose(self, *_: Any) -> bool:
        self.tries += 1
        if self.hang:
            await asyncio.Event().wait()
        if self.ends and (error := self.ends.pop(0)) is not None:
            raise error
        return True

    async def after(self, *seconds: float, mode: DriftMode = DriftMode.PROPOSE) -> None:
        """Passes that began then."""
        settings = replace(b.SETTINGS, drift_mode=mode, drift_forge=PLACE if mode is DriftMode.PROPOSE else None)
        fleet: Any = SimpleNamespace(settings=settings)
        plan: Any = None
        for one in seconds:
            seen: Any = SimpleNamespace(started_at=b.NOW + timedelta(seconds=one))
            self.pass_ended(fleet, plan, seen)
            await asyncio.sleep(0.01)


def test_it_tries_once_per_interval_and_in_its_mode_alone() -> None:
    bench = Bench([])
    asyncio.run(bench.after(0, 5, 119, 120, 130, 240))
    assert bench.tries == 3
    for mode in (DriftMode.OBSERVE, DriftMode.CORRECT):
        asyncio.run(bench.after(1000, 2000, mode=mode))
    assert bench.tries == 3


def test_a_forge_that_hangs_is_waited_for_by_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        bench.hang = True
        await bench.after(0, 120, 240)
        assert bench.tries == 1, "one at a time"
        monkeypatch.setattr("reconciler.app.loop_proposer._TRY_S", 0.05)
        bench.hang = False
        await bench.close()
        bench.hang = True
        await bench.after(360)
        await asyncio.sleep(0.2)
        assert bench.told == [f"drift is not proposed: {REPOSITORY}: no end after 0s"]
        bench.hangs_reading, bench._trouble = True, ""
        await bench.after(480)
        await asyncio.sleep(0.2)
        assert len(bench.told) == 1, "what is proposed may take longer than a forge"
        await bench.close()
        monkeypatch.setattr("reconciler.app.loop_proposer._CHANGE_S", 0.05)
        await bench.after(600)
        await asyncio.sleep(0.2)
        assert bench.told[1:] == ["drift is not proposed: reading drift: no end after 0s"]

    bench = Bench([])
    asyncio.run(run())


def test_an_outage_is_told_once_and_another_trouble_anew() -> None:
    down = [DriverError(kind, "away") for kind in (Failure.UNREACHABLE, Failure.TIMEOUT, Failure.BUSY)]
    denied, missing = DriverError(Failure.AUTH, "denied"), UsageError("there is no secret 'forge'")
    bench = Bench([*down, denied, denied, missing, missing, None, None, *down])
    asyncio.run(bench.after(*range(0, 12 * 120, 120)))
    assert [line.removeprefix("drift is not proposed: ").partition("(")[0] for line in bench.told] == [
        str(down[0]), str(denied), str(missing), "drift is proposed again", str(down[0]),
    ]  # fmt: skip


def test_a_crash_is_told_once_and_does_not_end_the_service() -> None:
    async def run() -> None:
        await bench.after(0, 120)
        await bench.close()
        await bench.after(240)

    bench = Bench([KeyError("pools/train.yaml"), KeyError("pools/train.yaml"), None])
    asyncio.run(run())
    crash, again = bench.told
    assert crash.startswith("drift is not proposed: internal error while proposing drift: KeyError: 'pools/train.yaml'")
    assert (bench.tries, again) == (3, "drift is proposed again")


@pytest.mark.parametrize("holder", [None, "another"])
def test_who_does_not_lead_asks_no_forge(holder: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = None if holder is None else Lease("demo", holder, 1, b.NOW)
    ledger: Any = SimpleNamespace(holder=lambda *_: lease)
    workspace: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: b.NOW))
    told: list[Any] = []
    proposer = DriftProposer(workspace, ledger, told.append, ProposerOptions("me", 1.0, False))
    fleet: Any = SimpleNamespace(settings=b.SETTINGS, source=SimpleNamespace(commit="c", dirty=False))
    assert proposer._leads(fleet) is False
    monkeypatch.setattr("reconciler.app.loop_proposals.observer_outage", lambda *_: "")
    proposer._trouble = "outage"
    seen: Any = None
    asyncio.run(proposer._try(PLACE, fleet, seen, seen))
    assert (told, proposer._trouble) == ([], "outage"), "nothing was proposed"


def test_the_loop_goes_on_while_a_program_prints_the_token() -> None:
    went_on = threading.Event()
    secrets: Any = SimpleNamespace(resolve=lambda *_, **__: Secret(TOKEN) if went_on.wait(5) else pytest.fail("stuck"))
    workspace: Any = SimpleNamespace(secrets=secrets)
    ledger: Any = None
    proposer = DriftProposer(workspace, ledger, lambda _: None, ProposerOptions("me", 1.0, False))

    async def run() -> None:
        asyncio.get_running_loop().call_later(0.01, went_on.set)
        port = await proposer._connect(PLACE)
        await port.close()

    asyncio.run(run())


def test_a_node_that_is_silent_for_a_pass_is_taken_from_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, new, other = (("n1", "p", "1"), ("n2", "p", "1"), ("n3", "p", "1"), ("n1", "p", "2"))
    silent = frozenset({"n2"})
    passes = [
        ({one, two}, frozenset(), True),
        ({one}, silent, False),
        (set(), frozenset({"n1", "n2"}), False),
        ({one, two}, frozenset(), True),
        ({one, new}, silent, True),
        ({one, two, new}, frozenset(), True),
        ({other, new}, silent, True),
        ({new}, silent, True),  # what n1 had is gone, and it answers
        (set(), frozenset(), True),
    ]
    asked: list[Any] = []

    async def propose(_port: Any, wanted: ProposedChange, _say: Any) -> Proposed:
        asked.append(set(wanted.adopted))
        return Proposed.LEFT  # a person has declined it

    change: Any = None
    monkeypatch.setattr("reconciler.app.loop_proposals.observer_outage", lambda *_: "")
    monkeypatch.setattr("reconciler.app.loop_proposals.read_revision", lambda *_: ({}, ""))
    monkeypatch.setattr("reconciler.app.loop_proposals.folder", lambda _: "")
    monkeypatch.setattr("reconciler.app.loop_proposals.proposed_change", lambda *_: change)
    monkeypatch.setattr("reconciler.app.loop_proposer.propose", propose)
    ledger: Any = SimpleNamespace(holder=lambda *_: Lease("demo", "me", 1, b.NOW))
    workspace: Any = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: b.NOW), secrets=SimpleNamespace(resolve=lambda *_, **__: Secret(TOKEN))
    )
    proposer = DriftProposer(workspace, ledger, lambda _: None, ProposerOptions("me", 1.0, False))
    monkeypatch.setattr(proposer, "_seen", lambda *_: None)
    fleet: Any = SimpleNamespace(
        settings=b.SETTINGS, source=SimpleNamespace(commit="c", dirty=False, directory="fleet-spec")
    )

    async def try_once() -> bool:
        seen: Any = None
        wanted = await proposer._wanted(fleet, seen, seen)
        return wanted is not None and await proposer._propose(PLACE, fleet, wanted)

    for adopted, unsure, asks in passes:
        change = ProposedChange("b", "c", {}, "", "", unsure=unsure, adopted=frozenset(adopted))
        before = len(asked)
        assert asyncio.run(try_once()) is asks, (adopted, unsure)
        assert asked[before:] == ([adopted] if asks else [])
