"""`reconciler conformance forge` on forges that we play: what passes, what a lying one fails, and what is not tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.drivers.forge.github import GitHub
from reconciler.drivers.forge.gitlab import GitLab
from reconciler.model.forge import ForgeKind
from tests.cli.shell import Done, reconciler
from tests.forge import gitlab, server

pytestmark = pytest.mark.wire
HEAD = "c" * 40
CONSENT = ("--allow-writes", "--pull", "7", "--confirm")


@pytest.fixture(params=ForgeKind)
def forge(request: pytest.FixtureRequest) -> Iterator[Any]:
    served: Any = server.serving() if request.param is ForgeKind.GITHUB else gitlab.serving()
    with served as fake:
        made = fake.commit("before", "its tree")
        fake.push("main", made.get("sha") or made["id"])
        opened = fake.open_pull if request.param is ForgeKind.GITHUB else fake.open_merge
        opened(7, HEAD, "fleet-spec/pools/infer.yaml")
        yield fake


def conformance(forge: Any, *words: str) -> Done:
    done = reconciler("conformance", "forge", name_of(forge), "--output", "json", *words, env=forge.env())
    assert (server.TOKEN in done.out + done.err, gitlab.TOKEN in done.out + done.err) == (False, False)
    return done


def name_of(forge: Any) -> str:
    return server.REPOSITORY if isinstance(forge, server.FakeGitHub) else gitlab.PROJECT


def results(done: Done) -> dict[str, str]:
    return {one["name"]: one["result"] for one in done.json["checks"]}


def test_it_only_reads_unless_it_may_write(forge: Any) -> None:
    done = conformance(forge)
    assert done.code == 0, done.out + done.err
    assert set(results(done).values()) == {"pass", "not tried"}
    assert all(one.method == "GET" for one in forge.requests)
    refused = conformance(forge, "--allow-writes")
    assert (refused.code, f"--confirm 'write to {name_of(forge)}'" in refused.err) == (64, True), refused.err
    assert conformance(forge, "--pull", "7").code == 64


def test_what_writes_passes_and_closes_what_it_opened(forge: Any) -> None:
    for _ in range(2):
        done = conformance(forge, *CONSENT, f"write to {name_of(forge)}")
        assert (done.code, set(results(done).values())) == (0, {"pass"}), done.out + done.err
    known = forge.pulls if isinstance(forge, server.FakeGitHub) else forge.merges
    states = [one["state"] for number, one in known.items() if number != 7]
    assert states == ["closed", "closed"]


def test_a_forge_that_is_away_or_refuses_us_is_not_asked_on(forge: Any) -> None:
    forge.failures.append(server.Failure("GET", ".*", status=401, times=10_000))
    done = conformance(forge)
    assert (done.code, set(results(done).values())) == (4, {"not tried"}), done.out
    assert len({one.path for one in forge.requests}) <= 2


def test_a_driver_that_overwrites_what_others_pushed_fails(forge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = GitHub if isinstance(forge, server.FakeGitHub) else GitLab
    right = driver.write_branch

    async def careless(self: Any, *words: Any, over: str | None) -> Any:
        return await right(self, *words, over=await self.tip(words[0]))

    monkeypatch.setattr(driver, "write_branch", careless)
    done = conformance(forge, *CONSENT, f"write to {name_of(forge)}")
    assert (done.code, results(done)["write-branch"]) == (7, "fail"), done.out
    [detail] = [one["detail"] for one in done.json["checks"] if one["result"] == "fail"]
    assert detail == "a write over another commit than was seen is not refused"


@pytest.mark.parametrize("consents", [False, True])
def test_a_repository_that_is_not_there_does_not_pass(forge: Any, consents: bool) -> None:
    """A typo, or a token whose grant has ended: GitHub and GitLab say 404 to both."""
    forge.failures.append(server.Failure("GET", ".*", status=404, times=10_000))
    done = conformance(forge, *((*CONSENT, f"write to {name_of(forge)}") if consents else ()))
    assert (done.code, set(results(done).values())) == (4, {"not tried"}), done.out
    assert "it is not there, or the token may not see it" in done.json["checks"][0]["detail"]
