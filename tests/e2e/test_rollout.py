"""A pull request that bumps the image version, on forty nodes in four racks or fewer, over the wire.

What may be out of service is held against the lab's own record of it, never against what a run says.
"""

from __future__ import annotations

import faulthandler
import itertools
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.gate import certificate
from reconciler.model.documents import load
from reconciler.model.gate import Binding, Certificate
from reconciler.model.observed import Observation
from reconciler.model.records import Attempt
from reconciler.spec import load_spec
from tests.cli.shell import Done, LabDirectory, reconciler, running_lab

pytestmark = [
    pytest.mark.wire,
    pytest.mark.xdist_group("rollout"),  # one after the other: each is a whole machine's work
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
]
NODES = 28  # a quarter of them in infer-1
SCALE = 480.0
OLD, NEW = "2026.11.1", "2026.12.0"
BAKE = timedelta(minutes=10)
QUICK = ("[1, 40%, 100%]", [1, 2, 4])  # waves of the smaller pool, where a test says so: as in the spec, and in nodes


class Site(LabDirectory):
    """A lab whose spec is in git. Every node has its certificate, and the ledger knows that it is as specified."""

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=dev", "-c", "user.email=dev@example.com")
        command = ["git", "-C", str(self.spec), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def certify(self) -> None:
        seen = self.path / "seen.json"
        assert self.run("observe", "--out", seen).code == 0
        observation = load(Observation, seen.read_bytes(), name=str(seen))
        fleet = load_spec(self.spec, directory=str(self.spec))
        ledger = SqlLedger(self.path / "ledger.sqlite")
        for name, node in fleet.nodes.items():
            assert node.profile.acceptance is not None
            binding = certificate.binding_of(
                node, observation.nodes[name], certificate.tests_digest(node.profile.acceptance)
            )
            assert isinstance(binding, Binding), binding
            ledger.save_certificate(Certificate("1.0", name, observation.finished_at, binding, (), adopted=True))
        ledger.close()
        drift = self.run("drift", "--detailed-exitcode")
        assert drift.code == 0, drift.out

    def propose(self, *pools: str) -> None:
        """A branch that bumps the image of these pools."""
        self.git("switch", "-q", "-c", "bump")
        for pool in pools:
            self.respec(f"pools/{pool}.yaml", OLD, NEW)
        self.git("commit", "-q", "-a", "-m", f"Move {' and '.join(pools)} to {NEW}")

    def merge(self) -> None:
        self.git("switch", "-q", "main")
        self.git("merge", "-q", "--ff-only", "bump")

    def rollouts(self) -> dict[str, Any]:
        """By pool, as the plan of now has them."""
        return {one["pool"]: one for one in self.run("plan", "--output", "json").json["rollouts"]}

    def attempts(self) -> dict[str, list[Attempt]]:
        ledger = SqlLedger(self.path / "ledger.sqlite")
        names = list(self.state()["nodes"])
        found = {name: list(record.attempts) for name, record in ledger.nodes(names).items()}
        ledger.close()
        return found

    def images(self) -> dict[str, str]:
        """What each machine has really booted."""
        nodes = self.state()["nodes"]
        return {name: machine["disks"][machine["booted_disk"]]["version"] for name, machine in nodes.items()}

    def most_out(self) -> dict[str, int]:
        """The lab's record: how many were out of service at once, of the fleet, of each pool and of each rack."""
        groups = self.state()["cluster"]["out_of_service"]
        assert len([group for group in groups if group.startswith("rack ")]) > 1
        return {group: found["most"] for group, found in groups.items()}


@pytest.fixture(autouse=True)
def _more_time_than_others() -> Iterator[None]:
    """What hangs is ended all the same; on a machine that is busy with other tests these take minutes."""
    faulthandler.dump_traceback_later(1200, exit=True, file=2)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., AbstractContextManager[Site]]:
    @contextmanager
    def up(*edits: tuple[str, str, str]) -> Iterator[Site]:
        """`edits`: of the spec before anything happens, as (file, old, new)."""
        with running_lab(tmp_path, "--scenario", "clean", "--seed", "7", nodes=NODES, time_scale=SCALE) as lab:
            found = Site(lab.path, lab.spec)
            for edit in edits:
                found.respec(*edit)
            found.git("init", "-q", "-b", "main")
            found.git("add", ".")
            found.git("commit", "-q", "-m", "The fleet as it is")
            found.certify()
            yield found

    return up


# Machines take next to no time at this scale, our own computing does: what waits for it is given more.
PATIENT = (
    ("fleet.yaml", "  budgets:", "  observation: {deadlines: {redfish: 3h, ssh: 3h, kubernetes: 3h}}\n  budgets:"),
    ("personas.yaml", "timeout: 10m", "timeout: 3h"),
    ("policies.yaml", "timeout: 10m", "timeout: 3h"),
)
SMALL = (
    *PATIENT,
    ("fleet.yaml", "nodes: 25%", "nodes: 3"),
    ("pools/infer-1.yaml", "persona: inference\n", f"persona: inference\n  rollout: {{waves: {QUICK[0]}}}\n"),
)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def check_waves_were_kept(attempts: dict[str, list[Attempt]], waves: list[list[str]]) -> None:
    """No node was taken out before all of the wave before had been admitted, and had baked."""

    def times(wave: list[str], action: str) -> list[datetime]:
        return [one.ended_at or one.at for name in wave for one in attempts[name] if one.action == action]

    for before, after in itertools.pairwise(waves):
        assert len(times(before, "admit")) == len(before)
        assert max(times(before, "admit")) + BAKE <= min(one.at for n in after for one in attempts[n])


def check_nothing_was_lost(site: Site, moved: set[str], *limit: str) -> None:
    images = site.images()
    assert {name for name, version in images.items() if version == NEW} == moved
    for name, counters in site.counters().items():
        if name != "evictions":
            assert (counters["installs"], counters["killed_work"]) == (int(name in moved), 0), name
    drift = site.run("drift", "--detailed-exitcode", *limit)
    assert drift.code == 0, drift.out


def test_a_pull_request_is_planned_in_waves_and_one_long_call_rolls_it_out(site: Any) -> None:
    with site(*PATIENT) as here:
        here.propose("train-1", "infer-1")
        shown = here.run("plan", "--base", "main", "--head", "bump", "--output", "json")
        assert shown.code == 0
        plan = shown.json
        assert plan["totals"]["nodes_disrupted"] == NODES
        rollouts = {one["pool"]: one for one in plan["rollouts"]}
        sizes = {pool: [len(wave["nodes"]) for wave in one["waves"]] for pool, one in rollouts.items()}
        assert sizes == {"train-1": [1, 2, 8, 10], "infer-1": [1, 3, 3]}
        for one in rollouts.values():
            for before, after in itertools.pairwise(one["waves"]):
                assert moment(before["start"]) < moment(before["end"]) <= moment(after["start"])
        text = here.run("plan", "--base", "main", "--head", "bump").out
        for words in ("wave", "at most 7 of 28 nodes", "Certificates that become void (28)", "GPU-hours"):
            assert words in text
        here.merge()
        # The other pool would make it one and a half times as long, and show no more.
        larger = ("--limit", "pool=train-1")
        done = here.apply(here.plan(*larger), *larger, "--wait", "3d", "--output", "json")
        assert done.code == 0, done.out[-3000:]
        assert {end["state"] for end in done.json["nodes"].values()} == {"done"}
        waves = [wave["nodes"] for wave in rollouts["train-1"]["waves"]]
        check_waves_were_kept(here.attempts(), waves)
        most = here.most_out()
        assert 4 < most["fleet"] <= 7
        assert max(count for group, count in most.items() if group.startswith("rack ")) <= 3
        check_nothing_was_lost(here, {name for wave in waves for name in wave}, *larger)


def test_several_short_calls_come_to_the_same(site: Any) -> None:
    """Each starts what may go, waits for that alone, and ends: nothing but the ledger lives in between."""
    with site(*SMALL) as here:
        here.propose("infer-1")
        here.merge()
        [rollout] = here.rollouts().values()
        waves = [wave["nodes"] for wave in rollout["waves"]]
        assert [len(wave) for wave in waves] == QUICK[1]
        approved, calls, left = here.plan(), [], True
        while left:
            done = here.apply(approved, "--wait", "0", "--output", "json")
            worked = sorted(name for name, end in done.json["nodes"].items() if end["state"] == "done")
            assert len(worked) <= 3, "the budget's worth, and no more"
            assert done.code == 0, done.out[-3000:]
            calls += [worked] if worked else []
            left = any(end["state"] == "not_started" for end in done.json["nodes"].values())
            if not worked:
                time.sleep(BAKE.total_seconds() / SCALE)
            assert len(calls) < 10
        assert [len(worked) for worked in calls] == [1, 2, 3, 1]
        check_waves_were_kept(here.attempts(), waves)
        most = here.most_out()
        assert (most["fleet"], most["pool infer-1"], most["pool train-1"]) == (3, 3, 0)
        assert max(count for group, count in most.items() if group.startswith("rack ")) <= 3
        check_nothing_was_lost(here, {name for wave in waves for name in wave})


def test_a_canary_that_fails_its_gate_halts_the_rollout_until_somebody_has_seen_to_it(site: Any) -> None:
    with site(*SMALL) as here:
        here.propose("infer-1")
        here.merge()
        [[canary], *_] = [wave["nodes"] for wave in here.rollouts()["infer-1"]["waves"]]
        here.fault(canary, "low_nccl")
        failed = here.apply(here.plan(), "--wait", "2h")
        assert failed.code == 7, failed.out
        check_told(failed, canary)
        plan = here.path / "halted.json"
        for halted in (here.run("plan", "--out", plan), here.apply(plan, "--wait", "2h")):
            assert halted.code == 8, halted.out
            check_told(halted, canary)
        installs = {name: one["installs"] for name, one in here.counters().items() if name != "evictions"}
        assert {name for name, count in installs.items() if count} == {canary}
        assert here.most_out()["fleet"] == 1

        # As the message says: leave it out, and the others go on.
        place = ("--spec", here.spec, "--endpoints", here.endpoints)
        held = reconciler("hold", canary, "--reason", "a slow NVLink, ticket 4711", *place)
        assert held.code == 0
        second = here.apply(here.plan(), "--wait", "0", "--output", "json")
        assert second.code == 0, second.out[-3000:]
        [next_canary] = [name for name, end in second.json["nodes"].items() if end["state"] == "done"]
        assert next_canary != canary
        assert here.images()[next_canary] == NEW

        # Repaired and released, it passes its gate and serves.
        here.clear(canary)
        assert reconciler("release", canary, *place).code == 0
        third = here.apply(here.plan("--limit", canary), "--limit", canary, "--wait", "0", "--output", "json")
        assert third.code == 0, third.out[-3000:]
        assert third.json["nodes"][canary]["state"] == "done"
        assert not here.rollouts()["infer-1"]["halted"]
        assert here.state()["cluster"]["out_of_service"]["fleet"]["now"] == []
        assert here.counters()[canary]["installs"] == 1, "what it has is what it shall have: it is tested again"


def check_told(done: Done, canary: str) -> None:
    """Which node failed, in what, and what to type."""
    assert canary in done.out
    assert "busbw" in done.out
    assert f"reconciler hold {canary} --reason" in done.out
    assert "maxFailures" in done.out
