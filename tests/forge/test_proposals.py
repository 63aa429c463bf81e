"""One pull request from a branch of ours, on each forge: opened, edited in place, closed, and never a second one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from reconciler.app.clocks import RealClock
from reconciler.app.proposing import GONE, ProposedChange, propose
from reconciler.drivers.forge import connect
from reconciler.model.forge import ForgeKind, ProposingForge
from tests.forge import gitlab, server

pytestmark = pytest.mark.wire

BRANCH = "reconciler/drift/demo"
FILES = {"fleet-spec/personas.yaml": "vm.swappiness: '5' # asked for by ops\n"}


@dataclass
class Bench:
    """A forge, and what is in it, in the same words for both kinds."""

    kind: ForgeKind
    fake: Any
    base: str

    def change(self, **changes: Any) -> ProposedChange:
        return replace(ProposedChange(BRANCH, self.base, FILES, "Adopt drift", "what and why"), **changes)

    def propose(self, change: ProposedChange) -> list[str]:
        """What was said."""
        said: list[str] = []

        async def run() -> None:
            name, token = (
                (server.REPOSITORY, server.TOKEN) if self.kind is ForgeKind.GITHUB else (gitlab.PROJECT, gitlab.TOKEN)
            )
            forge = connect(name, token, RealClock(), kind=self.kind, url=self.fake.url)
            assert isinstance(forge, ProposingForge)
            try:
                await propose(forge, change, said.append)
            finally:
                await forge.close()

        asyncio.run(run())
        return said

    @property
    def pulls(self) -> list[dict[str, Any]]:
        """State, title and text of each, oldest first."""
        known = self.fake.pulls if self.kind is ForgeKind.GITHUB else self.fake.merges
        return [
            {
                "open": one["state"] in ("open", "opened"),
                "title": one["title"],
                "text": one.get("body", one.get("description")),
                "into": one["base"]["ref"] if self.kind is ForgeKind.GITHUB else one["target_branch"],
            }
            for one in known.values()
        ]

    def close_by_a_person(self) -> None:
        known = self.fake.pulls if self.kind is ForgeKind.GITHUB else self.fake.merges
        for one in known.values():
            one["state"] = "closed"

    def proposed(self) -> dict[str, str]:
        """The files in the commit at the head of our branch, which must be one commit on the base."""
        commit = self.fake.commits[self.fake.branches[BRANCH]]
        if self.kind is ForgeKind.GITLAB:
            return {one["file_path"]: one["content"] for one in commit["actions"]}
        assert [one["sha"] for one in commit["parents"]] == [self.base]
        tree = self.fake.trees[commit["tree"]["sha"]]
        assert tree["base_tree"] == "its tree"
        return {one["path"]: one["content"] for one in tree["tree"]}


@pytest.fixture(params=ForgeKind)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with server.serving() if request.param is ForgeKind.GITHUB else gitlab.serving() as fake:
        made = fake.commit("before", "its tree")
        yield Bench(request.param, fake, made["sha" if request.param is ForgeKind.GITHUB else "id"])


def test_it_is_opened_once_and_edited_in_place(bench: Bench) -> None:
    assert bench.propose(bench.change())[0].startswith("opened https://")
    assert bench.pulls == [{"open": True, "title": "Adopt drift", "text": "what and why", "into": "main"}]
    assert bench.proposed() == FILES
    head = bench.fake.branches[BRANCH]
    assert bench.propose(bench.change())[0].endswith("unchanged")
    assert bench.propose(bench.change(text="more evidence"))[0].startswith("edited")
    assert bench.fake.branches[BRANCH] == head, "the same change is not written again: it would undo approvals"
    more = {**FILES, "fleet-spec/pools/train.yaml": "x: 1\n"}
    assert bench.propose(bench.change(files=more))[0].startswith("edited")
    assert bench.proposed() == more
    assert [one["open"] for one in bench.pulls] == [True], "never a second one"


def test_it_is_closed_when_there_is_nothing_to_propose_and_opened_when_it_comes_back(bench: Bench) -> None:
    bench.propose(bench.change())
    left = bench.propose(bench.change(files={}, settled=False))
    assert "left as it is" in left[0]
    assert bench.pulls[0]["open"]
    assert bench.propose(bench.change(files={}))[0].startswith("closed")
    assert (bench.pulls[0]["open"], bench.pulls[0]["text"].startswith(GONE)) == (False, True)
    assert bench.propose(bench.change(files={})) == ["nothing to propose"]
    assert bench.propose(bench.change())[0].startswith("opened")
    assert [one["open"] for one in bench.pulls] == [False, True]


def test_what_a_person_closed_is_not_proposed_again(bench: Bench) -> None:
    bench.propose(bench.change())
    bench.close_by_a_person()
    assert "closed by a person" in bench.propose(bench.change())[0]
    assert [one["open"] for one in bench.pulls] == [False]
    other = bench.change(files={"fleet-spec/personas.yaml": "vm.swappiness: '6'\n"})
    assert bench.propose(other)[0].startswith("opened"), "another value is another matter"


def test_a_commit_of_somebody_else_on_our_branch_is_left_alone(bench: Bench) -> None:
    bench.propose(bench.change())
    theirs = bench.fake.commit("Take 6 instead", "their tree")
    sha = theirs["sha" if bench.kind is ForgeKind.GITHUB else "id"]
    bench.fake.push(BRANCH, sha)
    for change in (bench.change(files={"fleet-spec/personas.yaml": "7\n"}), bench.change(files={})):
        assert "somebody else has pushed" in bench.propose(change)[0]
    assert bench.fake.branches[BRANCH] == sha
    assert bench.pulls[0]["open"]


def test_an_answer_that_was_lost_opens_no_second_one(bench: Bench) -> None:
    path = "/pulls$" if bench.kind is ForgeKind.GITHUB else "/merge_requests$"
    bench.fake.failures.append(server.Failure("POST", path, 502, done=True))
    assert bench.propose(bench.change())[0].startswith("opened")
    assert [one["open"] for one in bench.pulls] == [True]


def test_a_run_that_died_after_its_branch_was_written_is_gone_on_with(bench: Bench) -> None:
    path = "/pulls$" if bench.kind is ForgeKind.GITHUB else "/merge_requests$"
    bench.fake.failures.append(server.Failure("POST", path, 403))
    with pytest.raises(Exception, match="403"):
        bench.propose(bench.change())
    assert bench.propose(bench.change())[0].startswith("opened")
    assert [one["open"] for one in bench.pulls] == [True]
