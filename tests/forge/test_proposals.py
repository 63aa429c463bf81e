"""One pull request from a branch of ours, on each forge: opened, edited in place, closed, and never a second one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from reconciler.app.clocks import RealClock
from reconciler.app.proposing import GONE, ProposedChange, propose
from reconciler.drivers.forge import connect
from reconciler.model.errors import DriverError, UsageError
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
        self.run(lambda forge: propose(forge, change, said.append))
        return said

    def run(self, what: Callable[[ProposingForge], Coroutine[Any, Any, object]]) -> None:
        async def run() -> None:
            name, token = (
                (server.REPOSITORY, server.TOKEN) if self.kind is ForgeKind.GITHUB else (gitlab.PROJECT, gitlab.TOKEN)
            )
            forge = connect(name, token, RealClock(), kind=self.kind, url=self.fake.url)
            assert isinstance(forge, ProposingForge)
            try:
                await what(forge)
            finally:
                await forge.close()

        asyncio.run(run())

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

    def push(self, files: dict[str, str], *parents: str, message: str = "") -> str:
        """A commit that a person pushes to our branch; "" = amended, with the message that is there. Its SHA."""
        message = message or self.fake.commits[self.fake.branches[BRANCH]]["message"]
        if self.kind is ForgeKind.GITHUB:
            tree = [{"path": path, "content": text} for path, text in files.items()]
            self.fake.trees["their tree"] = {"base_tree": "its tree", "tree": tree}
            made = self.fake.commit(message, "their tree", *parents)["sha"]
        else:
            actions = [{"file_path": path, "content": text} for path, text in files.items()]
            made = self.fake.commit(message, actions, *parents)["id"]
        self.fake.push(BRANCH, made)
        return str(made)

    def close_by_a_person(self, *, merged: bool = False) -> None:
        if self.kind is ForgeKind.GITHUB:
            for one in self.fake.pulls.values():
                one |= {"state": "closed", "merged_at": "2026-11-21T12:00:00Z" if merged else None}
        else:
            for one in self.fake.merges.values():
                one["state"] = "merged" if merged else "closed"

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
        before: Any = "its tree"
        if request.param is ForgeKind.GITLAB:
            before = [{"file_path": path, "content": "as it was\n"} for path in FILES]
        made = fake.commit("before", before)
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


def test_a_file_that_is_there_is_changed_and_another_made(bench: Bench) -> None:
    """GitLab tells the two apart, and refuses the wrong one."""
    bench.propose(bench.change(files={**FILES, "fleet-spec/pools/train.yaml": "x: 1\n"}))
    assert bench.proposed() == {**FILES, "fleet-spec/pools/train.yaml": "x: 1\n"}
    if bench.kind is ForgeKind.GITLAB:
        sent = bench.fake.commits[bench.fake.branches[BRANCH]]["actions"]
        assert [one["action"] for one in sent] == ["update", "create"]


def test_it_is_closed_when_there_is_nothing_to_propose_and_opened_when_it_comes_back(bench: Bench) -> None:
    bench.propose(bench.change())
    left = bench.propose(bench.change(files={}, unsure=frozenset({"n1"})))
    assert "left as it is" in left[0]
    assert bench.pulls[0]["open"]
    assert bench.propose(bench.change(files={}))[0].startswith("closed")
    assert (bench.pulls[0]["open"], bench.pulls[0]["text"].startswith(GONE)) == (False, True)
    assert bench.propose(bench.change(files={})) == ["nothing to propose"]
    assert bench.propose(bench.change())[0].startswith("opened")
    assert [one["open"] for one in bench.pulls] == [False, True]


def test_one_whose_text_a_person_made_as_long_as_it_may_be_is_closed(bench: Bench) -> None:
    bench.propose(bench.change(text="x" * 65_536))
    assert bench.propose(bench.change(files={}))[0].startswith("closed")


def test_what_a_person_closed_is_not_proposed_again(bench: Bench) -> None:
    bench.propose(bench.change())
    bench.close_by_a_person()
    assert "closed by a person" in bench.propose(bench.change())[0]
    assert [one["open"] for one in bench.pulls] == [False]
    other = bench.change(files={"fleet-spec/personas.yaml": "vm.swappiness: '6'\n"})
    assert bench.propose(other)[0].startswith("opened"), "another value is another matter"


@pytest.mark.parametrize("deleted", [True, False])
def test_what_was_merged_is_not_proposed_again_before_it_is_in_force(bench: Bench, deleted: bool) -> None:
    """`deleted`: the branch, as many forges do with one that was merged."""
    bench.propose(bench.change())
    made = bench.fake.commit("Merge it", "its tree", bench.base)
    merged = bench.fake.branches["main"] = made["sha" if bench.kind is ForgeKind.GITHUB else "id"]
    bench.close_by_a_person(merged=True)
    if deleted:
        del bench.fake.branches[BRANCH]
    before = dict(bench.fake.branches)
    assert "merged, and is not in force here yet" in bench.propose(bench.change())[0]
    assert (bench.fake.branches, len(bench.pulls)) == (before, 1)
    came_back = bench.propose(bench.change(base=merged))
    assert came_back[0].startswith("opened"), "it was in force, and somebody has taken it back"


OTHER = {"fleet-spec/personas.yaml": "7\n"}


@pytest.mark.parametrize("ended", ["open", "closed", "merged"])
def test_a_commit_of_somebody_else_on_our_branch_is_left_alone(bench: Bench, ended: str) -> None:
    """Also with no pull request open: they may go on with the branch of one that was closed or merged."""
    bench.propose(bench.change())
    ours = bench.fake.branches[BRANCH]
    if ended != "open":
        bench.close_by_a_person(merged=ended == "merged")
    theirs = bench.push({"fleet-spec/personas.yaml": "6\n"}, ours, message="Take 6 instead")
    assert "somebody else has pushed" in bench.propose(bench.change(files=OTHER))[0]
    left = bench.propose(bench.change(files={}))[0]
    assert left == "nothing to propose" if ended != "open" else "somebody else has pushed" in left
    assert bench.fake.branches[BRANCH] == theirs
    assert [one["open"] for one in bench.pulls] == [ended == "open"]


@pytest.mark.parametrize("how", ["other content", "another file", "rebased", "reworded"])
def test_a_commit_of_ours_that_somebody_amended_is_left_alone(bench: Bench, how: str) -> None:
    """Our line is in its message all the same."""
    bench.propose(bench.change())
    if how == "other content":
        theirs = bench.push({"fleet-spec/personas.yaml": "6\n"}, bench.base)
    elif how == "another file":
        theirs = bench.push({**FILES, "README.md": "x\n"}, bench.base)
    elif how == "rebased":
        theirs = bench.push(FILES, bench.fake.branches[BRANCH])
    else:
        said = bench.fake.commits[bench.fake.branches[BRANCH]]["message"]
        theirs = bench.push(FILES, bench.base, message=said.replace("\n\n", "\n\nAsked for by ops.\n\n", 1))
    for files in (FILES, OTHER):
        assert "somebody else has pushed" in bench.propose(bench.change(files=files))[0]
    assert bench.fake.branches[BRANCH] == theirs


@pytest.mark.parametrize("files", [FILES, {}], ids=["drift", "nothing"])
@pytest.mark.parametrize("pushed", [True, False])
def test_commits_that_nobody_reviewed_are_not_proposed(bench: Bench, pushed: bool, files: dict[str, str]) -> None:
    """Nor does a spec that main lacks close the pull request."""
    bench.propose(bench.change())
    before, pulls = dict(bench.fake.branches), bench.pulls
    base = "f" * 40
    if pushed:
        made = bench.fake.commit("Not merged yet", "its tree")
        base = made["sha" if bench.kind is ForgeKind.GITHUB else "id"]
        bench.fake.unmerged.add(base)
    with pytest.raises(UsageError, match="is not on main"):
        bench.propose(bench.change(base=base, files=files))
    assert (bench.fake.branches, bench.pulls) == (before, pulls)


@pytest.mark.parametrize("known", [True, False])
def test_what_was_pushed_after_we_looked_is_not_overwritten(bench: Bench, known: bool) -> None:
    """`known`: we saw our commit there, or no branch at all."""
    bench.propose(bench.change())
    ours = bench.fake.branches[BRANCH]
    theirs = bench.push({"fleet-spec/personas.yaml": "6\n"}, ours, message="Take 6 instead")

    async def write(forge: ProposingForge) -> None:
        await forge.write_branch(BRANCH, bench.base, OTHER, "Adopt", over=ours if known else None)

    with pytest.raises(DriverError, match=r"meanwhile|already exists"):
        bench.run(write)
    assert bench.fake.branches[BRANCH] == theirs


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
