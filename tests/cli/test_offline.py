"""Offline plans by command: nobody is contacted, no secret resolved, no ledger opened, and nothing applied."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reconciler.model.documents import dump
from reconciler.model.observed import Observation, Observed
from reconciler.model.plan import Offline
from reconciler.model.published import Published
from reconciler.render.publish import publish
from reconciler.spec import load_spec
from tests import builders as b
from tests.cli.shell import SPEC, Done, reconciler
from tests.forge.runner import git
from tests.render.test_plan import node, plan
from tests.render.test_publish import KEY, Known

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program")

LONG_AGO = b.NOW - timedelta(days=100)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """The example's spec, and a change of it."""
    shutil.copytree(SPEC, tmp_path / "repo" / "fleet-spec")
    git(tmp_path / "repo", "init", "-q", "-b", "main")
    git(tmp_path / "repo", "add", "-A")
    git(tmp_path / "repo", "commit", "-q", "-m", "as it is")
    path = tmp_path / "repo" / "fleet-spec" / "personas.yaml"
    path.write_text(path.read_text().replace('vm.swappiness: "1"', 'vm.swappiness: "5"'))
    git(tmp_path / "repo", "commit", "-q", "-am", "less")
    return tmp_path / "repo"


@pytest.fixture
def published(repo: Path) -> Path:
    """Every node silent but for what the ledger knows of it: what is said of them is not what is tried here."""
    fleet = load_spec(repo / "fleet-spec", directory="fleet-spec")
    fleet = replace(fleet, source=replace(fleet.source, commit=git(repo, "rev-parse", "HEAD~1")))
    silent = b.silent("timeout", "https://10.20.0.11")
    seen = Observation(
        "1.0", fleet.settings.fleet, fleet.source.commit, LONG_AGO, LONG_AGO,
        {name: Observed(name, silent, silent, silent, silent) for name in fleet.nodes},
    )  # fmt: skip
    path = repo / "published.json"
    path.write_text(dump(publish(fleet, seen, Known(), KEY, {})))
    return path


def offline(repo: Path, published: Path, *words: str, **env: str) -> Done:
    """With secrets and a ledger that would fail whoever touched them."""
    traps = {"RECONCILER_SECRETS": str(repo / "none.yaml"), "RECONCILER_LEDGER": "postgresql://nowhere.invalid/x"}
    return reconciler("plan", repo / "fleet-spec", "--observation", published, *words, env=traps | env)


# --- what is published --------------------------------------------------------------------------------------------


def test_a_pass_that_reached_nobody_is_not_published_over_the_last_good_one(
    repo: Path, clean: Path, tmp_path: Path
) -> None:
    dark = tmp_path / "dark.json"
    seen = json.loads(clean.read_text())
    for one in seen["nodes"].values():
        one["cold"] = one["hot"] = one["host"] = {"reason": "unreachable", "source": "x", "at": seen["finished_at"]}
        one["member"] = one["hot"] | {"reason": "not_asked"}
    dark.write_text(json.dumps(seen))
    out = tmp_path / "published.json"
    assert reconciler("drift", repo / "fleet-spec", "--observation", clean, "--publish", out).code == 0
    good = out.read_bytes()
    done = reconciler("drift", repo / "fleet-spec", "--observation", dark, "--publish", out)
    assert (done.code, out.read_bytes() == good) == (4, True)
    assert "not published: this machine can't reach" in done.err


def test_what_can_not_be_published_costs_no_document(repo: Path, demo: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    # A name may have 255 bytes. The part that is written beside it has more, however few digits the PID has.
    where = tmp_path / ("x" * 254)
    done = reconciler(
        "drift", repo / "fleet-spec", "--observation", demo, "--publish", where, "--output", "json", "--ledger", ledger,
        "--create-ledger",
    )  # fmt: skip
    assert done.code == 1
    assert json.loads(done.out)["changes"] is True
    assert "can't be written: File name too long" in done.err
    with closing(sqlite3.connect(ledger)) as found:
        [(ended,)] = found.execute("SELECT ended_at FROM runs")
    assert ended


# --- plans from it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [(), ("--rev", "HEAD~1"), ("--base", "HEAD~1"), ("--base", "HEAD~1", "--head", "HEAD")]
)
def test_a_plan_is_made_without_anything_but_files(repo: Path, published: Path, words: tuple[str, ...]) -> None:
    out = repo / "plan.json"
    done = offline(repo, published, *words, "--out", str(out))
    assert done.code == 4, "nothing was known of any node"
    assert "Made offline: no node was contacted" in done.out
    assert "too old to rely on" in done.out
    document = json.loads(out.read_text())
    assert document["offline"]["published_at"] == LONG_AGO.isoformat().replace("+00:00", "Z")
    assert ("change" in document and document["change"] is not None) == ("--base" in words)
    assert "10.20.0.11" not in published.read_text()
    assert "reconciler apply" not in done.err


def test_what_was_published_of_another_fleet_is_refused(repo: Path, published: Path) -> None:
    text = published.read_text()
    published.write_text(text.replace('"fleet": "demo"', '"fleet": "other"'))
    assert text != published.read_text()
    done = offline(repo, published)
    assert (done.code, "of fleet other" in done.err) == (64, True)


def test_a_file_that_is_no_published_observation_is_refused(repo: Path, published: Path) -> None:
    published.write_text('{"ledger": 7, "format_version": "1.0"}')
    done = offline(repo, published)
    assert (done.code, "this is no published observation" in done.err) == (64, True)
    published.write_text('{"ledger":')
    assert offline(repo, published).code == 64


def test_it_is_for_plans_alone(repo: Path, published: Path) -> None:
    for words in (("show", published), ("drift", repo / "fleet-spec", "--observation", published)):
        done = reconciler(*words)
        assert (done.code, "published observation" in done.err) == (64, True), words


def test_an_offline_plan_is_never_applied(repo: Path, published: Path) -> None:
    made = replace(plan(node("gpu-a001")), fleet="demo", offline=Offline(b.NOW))
    path = repo / "plan.json"
    path.write_text(dump(made))
    done = reconciler(
        "apply", repo / "fleet-spec", "--plan", path, "--yes", "--ledger", published.with_suffix(".sqlite")
    )
    assert (done.code, "was made offline" in done.err) == (5, True)
    assert not published.with_suffix(".sqlite").exists()


def test_the_document_is_what_its_schema_says(published: Path) -> None:
    import jsonschema

    from reconciler.spec.schema import all_schemas

    jsonschema.validate(json.loads(published.read_text()), all_schemas()["published-observation.json"])
    assert Published.__dataclass_fields__.keys() >= json.loads(published.read_text()).keys()
