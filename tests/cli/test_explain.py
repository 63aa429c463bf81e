"""`explain`: what an operator reads about one node at night, and what a script reads about one value."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.validate import validate_spec
from reconciler.drivers.ledger import SqlLedger
from reconciler.gate import certificate as proof
from reconciler.model.documents import dump, load
from reconciler.model.gate import Binding, Certificate
from reconciler.model.observed import Observation
from reconciler.model.plan import BlockCode
from reconciler.model.records import Rollout
from reconciler.render.explain_waiting import HEADLINES
from reconciler.render.waiting import TERMS
from reconciler.spec import load_spec
from tests.cli.shell import SPEC, Done, reconciler
from tests.cli.test_documents import HOSTILE, check_markdown

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
]


@dataclass(frozen=True)
class Place:
    """The worked example in a git repository of its own, and the ledger that commands find for it."""

    spec: Path
    state: Path
    observation: Path

    def git(self, *arguments: str, author: str = "Ann Example") -> str:
        environment = os.environ | {
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": author, "GIT_AUTHOR_EMAIL": "a@example.com",
            "GIT_COMMITTER_NAME": author, "GIT_COMMITTER_EMAIL": "a@example.com",
        }  # fmt: skip
        command = ["git", "-C", str(self.spec.parent), *arguments]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.spec / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def run(self, what: str, *more: str | Path) -> Done:
        return reconciler("explain", what, self.spec, "--observation", self.observation, *more)

    def text(self, what: str, *more: str | Path) -> str:
        done = self.run(what, *more)
        assert (done.code, done.err) == (0, "")
        return done.out

    def json(self, what: str, *more: str | Path) -> Any:
        return self.run(what, "--output", "json", *more).json

    def value(self, node: str, path: str, *more: str | Path) -> Any:
        [found] = self.json(f"{node}.{path}", *more)["values"]
        return found

    @contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        path = self.state / "reconciler" / "demo.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        ledger = SqlLedger(path)
        try:
            yield ledger
        finally:
            ledger.close()

    def adopt(self) -> None:
        """Certificates for all nodes as they are, and the memory of one pass over them."""
        fleet = load_spec(self.spec, directory=str(self.spec))
        seen = load(Observation, self.observation.read_bytes())
        issued = datetime.now(UTC) - timedelta(days=7)
        with self.ledger() as ledger:
            for name, node in fleet.nodes.items():
                assert node.profile.acceptance is not None
                binding = proof.binding_of(node, seen.nodes[name], proof.tests_digest(node.profile.acceptance))
                if isinstance(binding, Binding):
                    ledger.save_certificate(Certificate("1.0", name, issued, binding, (), adopted=True))
        self.look()

    def look(self) -> None:
        """Have a pass recorded, in a ledger that is there."""
        with self.ledger():
            assert reconciler("drift", self.spec, "--observation", self.observation).code in (0, 4)

    def attempt(
        self, node: str, action: str, outcome: str, *, began: datetime, seconds: float, detail: str = "",
        cause: str = "drift",
    ) -> None:  # fmt: skip
        with self.ledger() as ledger:
            lease = ledger.acquire("demo", "a runner", 86400.0, began)
            number = ledger.begin("run-1", node, action, "", cause, {}, lease.token, began)
            ledger.finish(number, outcome, detail, began + timedelta(seconds=seconds))
            ledger.drop(lease)


@pytest.fixture
def place(tmp_path: Path, demo: Path) -> Place:
    made = Place(tmp_path / "repo" / "fleet-spec", tmp_path / "state", demo)
    shutil.copytree(SPEC, made.spec)
    made.git("init", "-q", "-b", "main")
    made.git("add", ".")
    made.git("commit", "-q", "-m", "The first spec")
    return made


@pytest.fixture
def well(place: Place, clean: Path) -> Place:
    """All of whose nodes are as specified and certified."""
    made = Place(place.spec, place.state, clean)
    made.adopt()
    return made


# --- who set a value --------------------------------------------------------------------------------------------------


def test_each_value_names_the_commit_that_set_its_line(place: Place) -> None:
    place.edit("hardware.yaml", "NPS1", "NPS4")
    place.git("commit", "-qam", "More domains", author="Bo Example")
    head = place.git("rev-parse", "HEAD")
    values = {value["path"]: value for value in place.json("gpu-a002")["values"]}
    changed, other = values["bios.NumaNodesPerSocket"], values["bios.SriovGlobalEnable"]
    assert changed["set_by"] == f"{place.spec}/hardware.yaml:49:27"
    assert changed["commit"]["commit"] == head
    assert (changed["commit"]["author"], changed["commit"]["summary"]) == ("Bo Example", "More domains")
    assert datetime.fromisoformat(changed["commit"]["at"]) <= datetime.now(UTC)
    assert (other["commit"]["commit"], other["commit"]["author"]) == (place.git("rev-parse", "HEAD~1"), "Ann Example")
    assert {value["commit"]["author"] for value in values.values()} == {"Ann Example", "Bo Example"}, "all are told"
    text = place.text("gpu-a002")
    assert f"hardware.yaml:49:27  {head[:12]}" in text
    assert text.count("Bo Example") == 1, "who and when is told once a commit"
    assert f"{head[:12]} Bo Example" in place.text("gpu-a002.bios.NumaNodesPerSocket")


def test_a_line_that_nobody_committed_says_so(place: Place) -> None:
    place.edit("hardware.yaml", "NPS1", "NPS4")
    assert place.value("gpu-a002", "bios.NumaNodesPerSocket")["commit"]["commit"] == ""
    assert place.value("gpu-a002", "bios.SriovGlobalEnable")["commit"]["author"] == "Ann Example"
    assert "commit   not committed" in place.text("gpu-a002.bios.NumaNodesPerSocket")
    place.git("rm", "-q", "--cached", "fleet-spec/hardware.yaml")
    assert place.value("gpu-a002", "bios.SriovGlobalEnable")["commit"]["author"] == "Ann Example", "HEAD still has it"
    place.git("commit", "-qm", "Hardware is kept elsewhere")
    assert place.value("gpu-a002", "bios.SriovGlobalEnable")["commit"]["commit"] == ""


def test_at_a_revision_the_commits_are_those_of_its_own_history(place: Place) -> None:
    place.edit("hardware.yaml", "NPS1", "NPS4")
    place.git("commit", "-qam", "More domains", author="Bo Example")
    place.edit("hardware.yaml", "NPS4", "NPS0")
    for rev, wanted, author in (("HEAD", "NPS4", "Bo Example"), ("HEAD~1", "NPS1", "Ann Example")):
        found = place.value("gpu-a002", "bios.NumaNodesPerSocket", "--rev", rev)
        assert (found["wanted"], found["commit"]["author"]) == (wanted, author)


def test_a_shallow_clone_admits_that_it_may_be_older(place: Place, tmp_path: Path) -> None:
    place.edit("hardware.yaml", "NPS1", "NPS4")
    place.git("commit", "-qam", "More domains", author="Bo Example")
    shallow = tmp_path / "shallow"
    place.git("clone", "-q", "--depth", "1", f"file://{place.spec.parent}", str(shallow))
    cloned = Place(shallow / "fleet-spec", place.state, place.observation)
    assert cloned.value("gpu-a002", "bios.SriovGlobalEnable")["commit"]["or_earlier"] is True
    assert "or earlier" in cloned.text("gpu-a002")
    assert place.value("gpu-a002", "bios.SriovGlobalEnable")["commit"]["or_earlier"] is False
    assert "or earlier" not in place.text("gpu-a002")


def test_outside_of_git_there_are_no_commits(spec: Path, demo: Path) -> None:
    found = reconciler("explain", "gpu-a002", spec, "--observation", demo, "--output", "json").json
    assert {value["commit"] for value in found["values"]} == {None}
    text = reconciler("explain", "gpu-a002", spec, "--observation", demo).out
    assert "commit" not in text


def test_offline_shows_what_is_wanted_and_which_commit_set_it(place: Place) -> None:
    done = reconciler("explain", "gpu-a002", place.spec, "--offline")
    assert "Ann Example" in done.out
    assert "NPS1" in done.out
    assert "as specified" not in done.out
    document = reconciler("explain", "gpu-a002", place.spec, "--offline", "--output", "json").json
    assert (document["plan"], document["waiting"], document["actions"]) == (None, None, [])


# --- what holds a node back -------------------------------------------------------------------------------------------


def test_a_converged_node_is_shown_as_converged(well: Place) -> None:
    text = well.text("gpu-a001")
    assert text.startswith("gpu-a001 [train]: in service, nothing to do\n")
    assert text.endswith("\nnothing to do\n")
    assert "not as specified" not in text
    assert "adopted 7d" in text
    found = well.json("gpu-a001")
    assert {value["verdict"] for value in found["values"]} == {"as specified"}
    assert {value["source"] for value in found["values"]} == {"redfish", "ssh", "kubernetes", "ledger"}
    assert all(value["read_at"] for value in found["values"] if value["source"] != "ledger")
    assert (found["waiting"]["code"], found["waiting"]["may_go"], found["actions"]) == (None, [], [])


def test_a_node_that_waits_for_the_budget_shows_which_nodes_use_it_and_since_when(place: Place) -> None:
    place.look()
    first = place.json("gpu-a002")["waiting"]["since"]
    text, waiting = place.text("gpu-a002"), place.json("gpu-a002")["waiting"]
    assert text.startswith("gpu-a002 [train]: in service, 3 values not as specified, waits for the budget\n")
    assert waiting["code"] == "budget"
    assert waiting["since"] == first, "it is the same drift each time"
    assert first["what"] == "its drift was first seen"
    fleet, rack = waiting["limits"]
    assert (fleet["scope"], fleet["limit"], fleet["total"], fleet["out"]) == ("fleet", 5, 12, ["gpu-a005", "gpu-b003"])
    assert set(fleet["before_it"]) == {"gpu-a001", "gpu-a007", "gpu-b001"}
    assert (rack["scope"], rack["limit"], rack["out"], rack["before_it"]) == ("rack r1", 2, [], ["gpu-a001"])
    assert "as soon as there is room in every limit below, in batch 2" in text
    assert "out now: gpu-a005, gpu-b003; before it go" in text
    assert waiting["start"] is not None
    assert waiting["start"] < waiting["end"]


def test_a_held_node_shows_the_owner_of_the_hold_and_how_it_ends(place: Place) -> None:
    assert (
        reconciler("hold", "gpu-a002", "--reason", "waits for a cable", "--for", "2h", "--spec", place.spec).code == 0
    )
    text, waiting = place.text("gpu-a002"), place.json("gpu-a002")["waiting"]
    assert text.startswith("gpu-a002 [train]: in service, 3 values not as specified, held\n")
    assert "held by ops: waits for a cable" in text
    assert "reconciler release gpu-a002" in text
    assert waiting["since"]["what"] == "it was held"
    assert waiting["holds"][0]["reason"] == "waits for a cable"
    assert waiting["until"] is not None
    assert waiting["may_go"][0].startswith("not before ")
    assert waiting["may_go"][0].endswith((", in 1h59m", ", in 2h00m"))


def test_a_later_wave_reads_which_one_goes_first(well: Place) -> None:
    well.edit("hardware.yaml", "NPS1", "NPS4")
    well.git("commit", "-qam", "More domains", author="Bo Example")
    waves = {name: well.json(name)["waiting"]["rollouts"][0] for name in ("gpu-a001", "gpu-a004")}
    assert {rollout["waves"] for rollout in waves.values()} == {3}
    [early] = [name for name, rollout in waves.items() if rollout["state"] == "open"]
    [late] = [name for name, rollout in waves.items() if rollout["state"] == "waiting"]
    text = well.text(late)
    assert f"{late} [train]: in service, 1 value not as specified, waits for its wave\n" in text
    assert "rollout of bios.NumaNodesPerSocket in pool train, begins with the next apply" in text
    assert f"held back (rollout): wave 1 goes first: {early} has bios.NumaNodesPerSocket still to change" in text
    assert "it is in wave 3; waves (and their nodes): 1 open (1), 2 waiting (3), 3 waiting (4)" in text
    assert "when the waves before its own are well and have baked" in text
    assert "nothing holds it back: the next apply goes to work on it" in well.text(early)


def test_a_node_explained_alone_shows_no_wave_that_a_full_plan_would_contradict(well: Place, tmp_path: Path) -> None:
    well.edit("hardware.yaml", "NPS1", "NPS4")
    well.git("commit", "-qam", "More domains", author="Bo Example")
    seen = load(Observation, well.observation.read_bytes())
    for name in ("gpu-a001", "gpu-a004"):
        alone = tmp_path / "alone.json"
        alone.write_text(dump(replace(seen, nodes={name: seen.nodes[name]})))
        one = Place(well.spec, well.state, alone)
        text, [rollout] = one.text(name), one.json(name)["waiting"]["rollouts"]
        assert "rollout of bios.NumaNodesPerSocket in pool train" in text
        assert "other nodes were not planned: `reconciler plan` tells which wave it is in" in text
        assert "it is in wave" not in text
        assert (rollout["wave"], rollout["waves"]) == (None, None)


def test_a_halted_rollout_shows_every_member_what_would_resume_it(well: Place) -> None:
    well.edit("hardware.yaml", "NPS1", "NPS4")
    well.git("commit", "-qam", "More domains", author="Bo Example")
    document = reconciler("plan", well.spec, "--observation", well.observation, "--output", "json").json
    [planned] = [rollout for rollout in document["rollouts"] if rollout["pool"] == "train"]
    members = tuple(name for wave in planned["waves"] for name in wave["nodes"])
    now = datetime.now(UTC)
    begun = Rollout("train", planned["digest"], planned["changes"], {}, members, False, now - timedelta(hours=2), "")
    with well.ledger() as ledger:
        ledger.start_rollout(begun, "run-1")
    well.attempt(
        members[0], "set_bios", "permanent", began=now - timedelta(hours=1), seconds=60, detail="no such value"
    )
    text, waiting = well.text(members[-1]), well.json(members[-1])["waiting"]
    assert text.splitlines()[0].endswith("its rollout is halted")
    assert waiting["may_go"][0] == "when one of these is done:"
    assert any(f"reconciler hold {members[0]}" in said for said in waiting["may_go"])
    assert waiting["rollouts"][0]["halted"]
    assert f"{members[0]}: set_bios failed (no such value)" in text
    assert "expected" not in text


def test_a_node_that_is_given_up_shows_what_is_done_all_the_same(place: Place) -> None:
    now = datetime.now(UTC)
    for hours, rung in ((5, "soft_restart"), (4, "power_cycle")):
        place.attempt("gpu-a007", rung, "done", began=now - timedelta(hours=hours), seconds=400, cause="remediation")
    text, waiting = place.text("gpu-a007"), place.json("gpu-a007")["waiting"]
    assert text.splitlines()[0].endswith("given up: its attempts are used up")
    assert waiting["may_go"][0].startswith(f"after {now - timedelta(hours=5) + timedelta(days=1):%Y-%m-%d %H:%M}")
    assert "done all the same: the fewest actions that lead there, 1 in all" in text
    assert "without it  no way to take it out of service as ours" in text


def test_outside_of_a_window_the_next_one_is_named(place: Place) -> None:
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%a").lower()
    hours = f"{{kind: allow, days: [{yesterday}], from: '02:00', to: '06:00', timezone: UTC, reason: quiet hours}}"
    place.edit("fleet.yaml", "  drift:", f"  windows: [{hours}]\n  drift:")
    waiting = place.json("gpu-a002")["waiting"]
    assert waiting["code"] == "window"
    assert "quiet hours" in waiting["detail"]
    assert waiting["may_go"][0].startswith(
        f"not before {datetime.fromisoformat(waiting['until']):%Y-%m-%d} 02:00:00 UTC"
    )


def test_a_dark_bmc_is_named(place: Place) -> None:
    place.look()
    text, waiting = place.text("gpu-a008"), place.json("gpu-a008")["waiting"]
    assert text.startswith("gpu-a008 [train]: in service, 1 value not as specified, 15 not known, left alone")
    assert "held back (unknown): BMC unreachable: no answer from the BMC: bios, boot" in text
    assert "when its BMC https://10.20.0.18 answers again" in waiting["may_go"]
    assert waiting["since"]["what"] == "it could first not be read"
    assert "redfish: unreachable (no answer from the BMC)" in place.text("gpu-a008.firmware.bmc")


def test_a_pause_after_a_failure_shows_what_failed(place: Place) -> None:
    began = datetime.now(UTC) - timedelta(seconds=20)
    place.attempt("gpu-a001", "drain", "transient", began=began, seconds=15, detail="3 pods left")
    text, waiting = place.text("gpu-a001"), place.json("gpu-a001")["waiting"]
    assert "waits after a failure" in text.splitlines()[0]
    assert "last done to it: drain, transient (3 pods left)" in text
    assert waiting["since"]["what"] == "drain failed"
    assert waiting["may_go"][0].startswith("not before ")


def test_what_a_node_has_cost_is_shown_beside_its_health(place: Place) -> None:
    place.look()
    assert "lemon score" not in place.text("gpu-a001")
    began = datetime.now(UTC) - timedelta(days=2)
    place.attempt("gpu-a001", "power_cycle", "done", began=began, seconds=60, cause="remediation")
    place.attempt("gpu-a001", "run_gate", "permanent", began=began + timedelta(hours=1), seconds=60)
    old = datetime.now(UTC) - timedelta(days=30)
    place.attempt("gpu-a002", "power_cycle", "done", began=old, seconds=60, cause="remediation")
    said = "lemon score: 4 in 28 days (1 repair, 1 gate failure); nothing acts on it"
    assert said in place.text("gpu-a001")
    assert place.json("gpu-a001")["lemon"]["score"] == 4
    assert "lemon score" not in place.text("gpu-a002"), "longer ago than 28 days"


def test_used_up_attempts_show_when_they_expire(place: Place) -> None:
    now = datetime.now(UTC)
    for hours in (3, 2, 1):
        place.attempt("gpu-a001", "reimage", "permanent", began=now - timedelta(hours=hours), seconds=60)
    waiting = place.json("gpu-a001")["waiting"]
    assert waiting["code"] == "attempts"
    again = now - timedelta(hours=3) + timedelta(days=1)
    assert waiting["may_go"][0].startswith(f"after {again:%Y-%m-%d %H:%M:%S} UTC")


def test_a_foreign_cordon_and_a_quarantine_show_how_they_end(place: Place) -> None:
    assert "kubectl uncordon gpu-b003" in place.text("gpu-b003")
    place.edit("pools/infer.yaml", "spec:\n", "spec:\n  state: quarantined\n")
    text = place.text("gpu-b001")
    assert text.splitlines()[0].endswith("quarantined")
    assert "when the spec says `state: active` for it" in text


def test_whatever_holds_a_node_back_has_its_words() -> None:
    assert TERMS.keys() == HEADLINES.keys() == set(BlockCode)


def test_one_node_alone_shows_that_others_were_not_read(place: Place) -> None:
    """Of an observation that lacks other nodes nobody can tell who goes first."""
    document = load(Observation, place.observation.read_bytes())
    only = place.state.parent / "only.json"
    only.write_text(dump(replace(document, nodes={"gpu-a002": document.nodes["gpu-a002"]})))
    done = reconciler("explain", "gpu-a002", place.spec, "--observation", only)
    assert done.code == 0
    assert done.out.startswith("gpu-a002 [train]: in service, 3 values not as specified")
    assert "`reconciler plan` tells which nodes go first" in done.out
    assert "expected" not in done.out


# --- the actions ------------------------------------------------------------------------------------------------------


def test_each_action_shows_the_alternative_without_it(place: Place) -> None:
    found = {action["action"]: action for action in place.json("gpu-a002")["actions"]}
    assert list(found) == ["mark", "drain", "set_bios", "soft_restart", "run_gate", "admit"]
    assert found["drain"]["because"] == ["required by set_bios"]
    assert found["set_bios"]["without"]["sentence"] == "no way to set its BIOS"
    assert found["soft_restart"]["without"]["sentence"] == (
        "power_cycle at the least: 1m more, by the catalogue's times"
    )
    assert found["soft_restart"]["without"]["more"] == {"drains": 0, "reboots": 0, "seconds": 60.0, "actions": 0}
    text = place.text("gpu-a002")
    assert "the fewest actions that lead there, 6 in all, up to reboot, about 42m40s:" in text
    assert text.count("without it") == len(found)


def test_a_path_narrows_everything(place: Place) -> None:
    document = place.json("gpu-a003.firmware.nic0")
    assert [value["path"] for value in document["values"]] == ["firmware.nic0"]
    assert [action["action"] for action in document["actions"]] == [
        "update_firmware:nic0",
        "power_cycle",
        "check_trust",
    ]
    text = place.text("gpu-a003.firmware.nic0")
    assert "the fewest actions that lead there, 7 in all, up to firmware" in text
    assert "; of these, for firmware.nic0:" in text
    assert "  found    28.43.1013\n" in text
    assert "bios" not in text.partition("firmware.nic0\n")[2]
    well = place.json("gpu-a003.bios")
    assert {value["path"].partition(".")[0] for value in well["values"]} == {"bios"}
    assert well["actions"] == [], "nothing is done to its BIOS settings"
    assert "fewest actions" not in place.text("gpu-a003.bios")
    assert {a["action"] for a in place.json("gpu-a003.firmware")["actions"]} >= {"update_firmware:nic0", "power_cycle"}
    assert place.run("gpu-a003.firmware.nic7").code == 64


def test_history_shows_how_long_actions_take(place: Place) -> None:
    began = datetime.now(UTC) - timedelta(days=1)
    for seconds in (200, 210, 220, 600):
        place.attempt("gpu-a006", "drain", "done", began=began, seconds=seconds)
    [drain] = [a for a in place.json("gpu-a002")["plan"]["actions"] if a["name"] == "drain"]
    assert (drain["estimate_s"], drain["p90_s"]) == (215.0, 600.0)
    assert "drain, about 3m35s (90% within 10m), from 4 runs on such hardware" in place.text("gpu-a002")
    assert "soft_restart  reboot, about 7m\n" in place.text("gpu-a002"), (
        "where history knows nothing, the catalogue does"
    )


def test_what_machines_and_commits_say_breaks_no_form(place: Place) -> None:
    """Pitfall M5: a serial number is what a BMC says it is, an author what a commit says."""
    place.edit("hardware.yaml", "NPS1", "NPS4")
    place.git("commit", "-qam", HOSTILE.splitlines()[0], author="Bo |</details><b>")
    document = json.loads(place.observation.read_text())
    document["nodes"]["gpu-a002"]["hot"]["value"]["serial"] = HOSTILE
    document["nodes"]["gpu-a002"]["host"]["value"]["hostname"] = HOSTILE
    spoiled = Place(place.spec, place.state, place.state.parent / "spoiled.json")
    spoiled.observation.write_text(json.dumps(document))
    for what in ("gpu-a002", "gpu-a002.host.hostname", "gpu-a002.identity.serial", "gpu-a002.bios"):
        text = spoiled.text(what)
        assert "\x1b" not in text
        assert "\u202e" not in text
        page = spoiled.text(what, "--output", "markdown")
        check_markdown(page)
        assert "http://evil" not in page
        assert "@all" not in page


@pytest.mark.parametrize("node", ["gpu-a001", "gpu-a002.bios", "gpu-a005", "gpu-a007", "gpu-a008", "gpu-b003"])
def test_every_form_holds_the_same(place: Place, node: str) -> None:
    document, text, page = place.json(node), place.text(node), place.text(node, "--output", "markdown")
    check_markdown(page)
    plain = page.replace("\\", "").replace("\u200b", "")
    for value in document["values"]:
        assert value["path"] in text
        assert value["path"] in plain
    for action in document["actions"]:
        for form in (text, plain):
            assert action["action"] in form
            assert action["without"] is None or action["without"]["sentence"] in form
    for said in document["waiting"]["may_go"]:
        if not said.startswith("expected"):  # the clock goes on from one form to the next
            assert said in text
            assert said in plain


def test_the_signals_of_a_node_are_one_finding(demo: Path, spec: Path) -> None:
    """The finding has each signal that the plan shows as drift, and no other."""
    told: dict[str, Any] = {}
    for node in json.loads(demo.read_text())["nodes"]:
        found = reconciler("explain", node, spec, "--observation", demo, "--output", "json").json
        drift = {item["path"] for item in found["plan"]["drift"] if item["path"].startswith("health.")}
        finding = found["finding"]
        shown = set() if finding is None else {one["path"] for one in (*finding["evidence"], *finding["apart"])}
        assert shown == drift, node
        told |= {node: finding} if finding else {}
    assert told, "the fleet has an ill node"
    for node, finding in told.items():
        assert f"health: {finding['cause']}" in reconciler("explain", node, spec, "--observation", demo).out


@pytest.mark.parametrize("output", ["human", "markdown", "json"])
def test_an_explanation_for_others_names_no_machine(place: Place, output: str) -> None:
    """It may be posted where others read it."""
    fleet, _ = validate_spec(place.spec, None)
    assert fleet is not None
    name, node = next((name, node) for name, node in fleet.nodes.items() if node.serial)
    whole, told = place.run(name, "-o", output), place.run(name, "-o", output, "--redact")
    assert told.code == whole.code == 0
    assert str(node.serial) in whole.out
    for secret in (node.serial, node.endpoints.bmc, node.endpoints.host):
        assert str(secret) not in told.out
    assert name in told.out


def test_without_an_observation_nobody_knows_what_names_a_machine(place: Place) -> None:
    done = reconciler("explain", "gpu-0001", place.spec, "--offline", "--redact")
    assert (done.code, "leave out --offline" in done.err) == (64, True)
