"""reconciler report --html: from spec, observation, ledger and git to a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.cli.shell import SPEC, Done, reconciler


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    place = tmp_path / "ledger.sqlite"
    SqlLedger(place).close()
    return place


def report(observation: Path, ledger: Path, directory: Path, *more: str) -> Done:
    return reconciler("report", SPEC, "--ledger", ledger, "--html", directory, "--observation", observation, *more)


def data(directory: Path) -> Any:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', (directory / "index.html").read_text()
    )
    assert found is not None
    return json.loads(found[1])


def test_a_page_shows_every_node_as_spec_ledger_and_git_know_it(demo: Path, ledger: Path, tmp_path: Path) -> None:
    drifted = reconciler("drift", SPEC, "--ledger", ledger, "--observation", demo, "-o", "json").json
    reconciler("hold", "gpu-a003", "--reason", "ticket 4711", "--spec", SPEC, "--ledger", ledger)
    done = report(demo, ledger, tmp_path / "new" / "page")
    assert done.code == 0
    assert done.out.startswith("Fleet demo"), "the period is told as ever"
    assert f"written to {tmp_path}/new/page/index.html" in done.err

    found = data(tmp_path / "new" / "page")
    nodes, texts = found["nodes"], found["texts"]
    names = nodes["name"]
    differing = {(item["node"], item["path"]) for item in drifted["items"]}
    shown = {
        (name, texts[found["drifts"][place][1]])
        for name, drift in zip(names, nodes["drift"], strict=True)
        for place, _since in drift
    }
    assert shown == differing
    since = [at for drift in nodes["drift"] for _, at in drift]
    assert all(at is not None and at <= 0 for at in since), "the ledger knows since when"
    status = {name: found["statuses"][at] for name, at in zip(names, nodes["status"], strict=True)}
    assert status["gpu-a003"] == "held"
    told = [texts[word] for _, place in nodes["history"][names.index("gpu-a003")] for word in found["events"][place]]
    assert any("ticket 4711" in word for word in told)
    set_by = {tuple(texts[at] for at in row[2:4]) for row in found["values"]}
    assert all(re.search(r"fleet-spec/.+:\d+", place) for place, _ in set_by)
    assert any(re.match(r"[0-9a-f]{12} .+ \d{4}-\d\d-\d\d|not committed", commit) for _, commit in set_by)


def test_a_page_is_written_anew_as_a_whole(demo: Path, clean: Path, ledger: Path, tmp_path: Path) -> None:
    report(demo, ledger, tmp_path)
    before = (tmp_path / "index.html").read_text()
    report(clean, ledger, tmp_path, "--since", "1h")
    after = (tmp_path / "index.html").read_text()
    assert before != after
    assert after.endswith("</html>\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_page_that_can_not_be_written_is_an_error(demo: Path, ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert report(demo, ledger, tmp_path / "file").code == 64
    done = report(demo, ledger, tmp_path / "file" / "below")
    assert done.code == 1
    assert f"{tmp_path}/file/below can't be made" in done.err
    lost = reconciler("report", SPEC, "--ledger", ledger, "--observation", demo)
    assert lost.code == 64
    assert "--observation needs --html" in lost.err


def test_stories_in_bulk_are_those_of_each_node(demo: Path, ledger: Path, tmp_path: Path) -> None:
    for _ in range(2):
        report(demo, ledger, tmp_path)
        reconciler("hold", "gpu-a003", "--reason", "again", "--spec", SPEC, "--ledger", ledger)
    book = SqlLedger(ledger)
    every = {entry.node for _, entry in book.journal(None, 10_000)}
    stories = book.histories(every, 4)
    names = {name for name in stories if "/" not in name}
    assert len(names) > 5
    assert {name: stories[name] for name in names} == {name: list(book.history(name, 4)) for name in names}
    book.close()
