"""apply over the wire: approval, the lease, interruption, failure, refusal; and what scripts get to see of each.

One lab for all: the tests find a converged fleet, and leave one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.dispatcher import PARK_S
from tests.cli.shell import Done, LabDirectory, command, ended, reconciler, running_lab, started, until

pytestmark = pytest.mark.wire

NODES = ("gpu-0001", "gpu-0002", "gpu-0003")
SLACK_S = 5.0  # for starting and ending Python on a busy machine
_swappiness = itertools.count(10)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("apply"), "--scenario", "clean", nodes=3) as found:
        found.respec("fleet.yaml", "25%", "100%")
        found.respec("fleet.yaml", "50%", "100%")
        for pool in sorted((found.spec / "pools").glob("*.yaml")):  # waves have tests of their own
            pool.write_text(pool.read_text().rstrip("\n") + "\n  rollout: {waves: ['100%'], bake: 0s}\n")
        done = found.apply(found.plan(), "--detailed-exitcode")
        assert done.code == 0, done.err
        yield found


@pytest.fixture
def fleet(lab: LabDirectory) -> Iterator[LabDirectory]:
    """Converged, and converged again afterwards."""
    yield lab
    for node in NODES:
        lab.clear(node)
    plan = lab.plan()
    if json.loads(plan.read_text())["changes"]:
        done = lab.apply(plan, "--detailed-exitcode")
        assert done.code == 0, done.out + done.err


def change(lab: LabDirectory) -> str:
    """The spec wants another sysctl of every node, which takes no service away. What it wants now."""
    wanted = str(next(_swappiness))
    path = lab.spec / "personas.yaml"
    path.write_text(re.sub(r"vm\.swappiness: '\d+'", f"vm.swappiness: '{wanted}'", path.read_text()))
    return wanted


def change_bios(lab: LabDirectory) -> str:
    """The spec wants another BIOS setting of every node, which takes a reboot and a gate."""
    path = lab.spec / "hardware.yaml"
    text = path.read_text()
    wanted = "NPS2" if "NumaNodesPerSocket: NPS1" in text else "NPS1"
    path.write_text(re.sub(r"NumaNodesPerSocket: \w+", f"NumaNodesPerSocket: {wanted}", text))
    return wanted


def swappiness(lab: LabDirectory) -> dict[str, str]:
    return {name: machine["os"]["sysctls"]["vm.swappiness"] for name, machine in lab.state()["nodes"].items()}


def marks(lab: LabDirectory) -> list[str]:
    nodes = lab.state()["cluster"]["nodes"]
    return [name for name in NODES if any("reconciler.dev" in taint["key"] for taint in nodes[name]["taints"])]


# --- approval --------------------------------------------------------------------------------------------------------


def test_a_plan_is_done_once(fleet: LabDirectory) -> None:
    wanted = change(fleet)
    plan = fleet.plan()
    done = fleet.apply(plan, "--output", "json")
    assert done.code == 0
    assert swappiness(fleet) == dict.fromkeys(NODES, wanted)
    report = done.json
    assert {node: end["state"] for node, end in report["nodes"].items()} == dict.fromkeys(NODES, "done")
    assert [(entry["action"], entry["outcome"]) for entry in report["actions"]] == [("configure_host", "done")] * 3
    assert (report["changes"], report["incomplete"], report["interrupted"]) == (False, [], False)
    assert "configure_host" in done.err, "progress goes to stderr"
    before = fleet.counters()
    again = fleet.apply(plan)
    assert (again.code, again.out) == (5, "")
    assert "is used up; make a new one" in again.err
    assert fleet.counters() == before


def edited(plan: Path, **changes: Any) -> Path:
    path = plan.with_name("edited.json")
    path.write_text(json.dumps(json.loads(plan.read_text()) | changes))
    return path


def test_an_expired_plan_and_one_of_another_fleet_are_not_done(fleet: LabDirectory) -> None:
    before = swappiness(fleet), fleet.counters()
    change(fleet)
    plan = fleet.plan()
    for changed, said in (
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expired at 2020-01-01"),
        ({"fleet": "b"}, "fleet b"),
    ):
        done = fleet.apply(edited(plan, **changed))
        assert (done.code, done.out) == (5, "")
        assert said in done.err
    assert (swappiness(fleet), fleet.counters()) == before


def test_a_plan_whose_every_node_has_changed_since_is_stale(fleet: LabDirectory) -> None:
    before = swappiness(fleet), fleet.counters()
    change(fleet)
    plan = fleet.plan()
    change(fleet)
    done = fleet.apply(plan)
    assert done.code == 5
    assert "3 stale; 0 actions" in done.out, "the document, for whoever has to tell why"
    assert re.search(r'host\.sysctls\.vm\.swappiness: "\d+" -> "\d+" \(\S+/personas\.yaml:\d+:\d+\)', done.err)
    assert (swappiness(fleet), fleet.counters()) == before


@pytest.mark.parametrize(
    ("file", "old", "new", "field"),
    [
        ("images.yaml", r"model: SAMSUNG \S+", "model: DATA-1", r'image\.root_disk\.model: "SAMSUNG \S+" -> "DATA-1"'),
        ("hardware.yaml", "https://[^/]*/", "https://else/", r'firmware\.\w+\.url: "https://\S+ -> "https://else\S+"'),
        ("personas.yaml", r"provider: kubernetes\n", r"provider: command\n    command: [sh, -c, wipe]\n",
         r'drain\.provider: "kubernetes" -> "command"'),
    ],
    ids=["root disk", "firmware", "drain"],
)  # fmt: skip
def test_what_was_not_approved_is_not_carried_out(
    fleet: LabDirectory, file: str, old: str, new: str, field: str
) -> None:
    """None of it is drift, and the actions are the same: which disk, which file, and what is run on the host."""
    before = fleet.counters(), swappiness(fleet)
    change_bios(fleet)
    plan = fleet.plan()
    assert json.loads(plan.read_text())["changes"]
    path = fleet.spec / file
    text = path.read_text()
    try:
        path.write_text(re.sub(old, new, text))
        assert path.read_text() != text
        done = fleet.apply(plan)
    finally:
        path.write_text(text)
        change_bios(fleet)
    assert done.code == 5, done.out + done.err
    assert re.search(field + rf" \(\S+{re.escape(file)}:\d+:\d+\)", done.err), done.err
    assert "3 stale; 0 actions" in done.out
    assert (fleet.counters(), swappiness(fleet)) == before
    assert marks(fleet) == []


def test_an_edited_plan_is_refused_and_marks_nobody(fleet: LabDirectory) -> None:
    before = fleet.counters()
    change_bios(fleet)
    plan = fleet.plan()
    document = json.loads(plan.read_text())
    for node in document["nodes"].values():
        node["actions"] = []
    done = fleet.apply(edited(plan, nodes=document["nodes"]))
    assert (done.code, done.out) == (64, "")
    assert "it was changed after it was made" in done.err
    assert "make a new one" in done.err
    assert (fleet.counters(), marks(fleet)) == (before, [])
    change_bios(fleet)


def test_other_endpoints_are_not_approved(fleet: LabDirectory) -> None:
    change_bios(fleet)
    plan = fleet.plan()
    text = fleet.endpoints.read_text()
    try:
        fleet.endpoints.write_text(text + "\n")
        done = fleet.apply(plan)
    finally:
        fleet.endpoints.write_text(text)
        change_bios(fleet)
    assert done.code == 5
    assert '--endpoints: "' in done.err
    assert marks(fleet) == []


def test_a_plan_of_one_node_is_done_to_that_node(fleet: LabDirectory) -> None:
    before = swappiness(fleet)
    wanted = change(fleet)
    done = fleet.apply(fleet.plan("--limit", "gpu-0002"), "--output", "json")
    assert done.code == 0
    assert swappiness(fleet) == before | {"gpu-0002": wanted}
    assert list(done.json["nodes"]) == ["gpu-0002"]
    assert done.json["scope"]["selected"] == 1


def test_a_limit_narrows_a_plan(fleet: LabDirectory) -> None:
    before = swappiness(fleet)
    wanted = change(fleet)
    plan = fleet.plan()
    assert fleet.apply(plan, "--limit", "gpu-0001").code == 0
    assert swappiness(fleet) == before | {"gpu-0001": wanted}
    assert fleet.apply(plan, "--exclude", "gpu-0001").code == 0, "what is left of it may be done too"
    assert swappiness(fleet) == dict.fromkeys(NODES, wanted)


def test_what_is_held_after_the_plan_is_left_alone(fleet: LabDirectory) -> None:
    before = swappiness(fleet)
    wanted = change(fleet)
    plan = fleet.plan()
    place = ("--spec", fleet.spec, "--endpoints", fleet.endpoints)
    assert reconciler("hold", "gpu-0003", "--reason", "a cable is out", *place).code == 0
    try:
        done = fleet.apply(plan, "--output", "json")
        assert done.code == 0
        assert done.json["nodes"]["gpu-0003"]["state"] == "not_started"
        assert "a cable is out" in done.json["nodes"]["gpu-0003"]["detail"]
        assert swappiness(fleet) == before | {"gpu-0001": wanted, "gpu-0002": wanted}
        assert fleet.run("apply", "--plan", fleet.plan(), "--yes", "--detailed-exitcode").code == 2
    finally:
        assert reconciler("release", "gpu-0003", *place).code == 0


def test_the_outcome_in_all_forms(fleet: LabDirectory) -> None:
    change(fleet)
    human = fleet.apply(fleet.plan())
    assert human.out.startswith("Apply run-")
    assert "240 times as fast" in human.out
    markdown = fleet.apply(fleet.plan(), "--output", "markdown")
    assert markdown.code == 0
    assert markdown.out.startswith("## ✅")
    assert "\x1b" not in human.out + human.err


# --- one at a time, and stopping -------------------------------------------------------------------------------------


SLACK_S = 15.0  # for a loaded machine to start, render and end a process


def run_until(lab: LabDirectory, plan: Path, word: str) -> tuple[subprocess.Popen[str], Path]:
    """An apply in a process of its own, at work: `word` is in its progress."""
    progress = lab.path / "progress.txt"
    with progress.open("w") as err:
        running = started(*lab.words("apply", "--plan", plan, "--yes", "--output", "json"), stderr=err)
    until(lambda: word in progress.read_text() or running.poll() is not None)
    if running.poll() is not None:
        pytest.fail(f"it ended: {ended(running)}\n{progress.read_text()}")
    return running, progress


def test_an_interrupted_run_is_continued_and_a_failed_node_stays_as_it_is(fleet: LabDirectory) -> None:
    """Three nodes need a restart; the pods of one never leave. A second apply is refused while the first one works."""
    boots = {name: fleet.counters()[name]["boots"] for name in NODES}
    fleet.fault("gpu-0002", "pdb_never_yields")
    wanted = change_bios(fleet)
    plan = fleet.plan()
    running, progress = run_until(fleet, plan, "soft_restart")
    try:
        second = fleet.apply(plan)
        assert (second.code, second.out) == (6, "")
        assert re.search(r"lab is being written by ops, run-\S+, until ", second.err)
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        done = ended(running)
    finally:
        running.kill()
    assert time.monotonic() - began < PARK_S + SLACK_S
    assert (done.code, done.json["interrupted"]) == (130, True)
    assert "parked" in done.out
    assert "Traceback" not in progress.read_text()
    place = ("--spec", fleet.spec, "--endpoints", fleet.endpoints)
    begun = [
        entry["action"]
        for node in NODES
        for entry in reconciler("history", node, *place, "--output", "json").json
        if entry["event"] == "intent"
    ]
    assert "soft_restart" in begun

    again = fleet.apply(plan)
    assert again.code == 7, again.out + again.err
    assert re.search(r"failed\s+gpu-0002 .*disruption budget", again.out)
    assert re.search(r"done\s+gpu-\[0001,0003\]", again.out)
    assert "reconciler explain gpu-0002" in again.out
    for name, machine in fleet.state()["nodes"].items():
        changed = name != "gpu-0002"
        assert (machine["bios"]["NumaNodesPerSocket"] == wanted) is changed
        assert machine["counters"]["boots"] == boots[name] + changed, "no restart was repeated"
        assert machine["counters"]["killed_work"] == 0
    assert marks(fleet) == []


def test_a_second_interrupt_ends_it_at_once_and_leaves_the_way_free(fleet: LabDirectory) -> None:
    change_bios(fleet)
    running, progress = run_until(fleet, fleet.plan(), "drain")
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        running.send_signal(signal.SIGINT)
    done = ended(running)
    assert time.monotonic() - began < PARK_S + SLACK_S
    assert done.code == 130
    assert "Traceback" not in progress.read_text()
    change_bios(fleet)  # back to what the nodes have
    boots = {name: fleet.counters()[name]["boots"] for name in NODES}
    again = fleet.apply(fleet.plan())
    assert again.code == 0, again.out + again.err
    assert marks(fleet) == []
    assert {name: fleet.counters()[name]["boots"] for name in NODES} == boots


def test_an_interrupt_while_observing_says_so(fleet: LabDirectory) -> None:
    fleet.fault("gpu-0001", "ssh_hang")
    for name in ("drift", "plan"):
        running = started(*fleet.words(name))
        time.sleep(1.5)
        running.send_signal(signal.SIGINT)
        done = ended(running)
        assert (done.code, done.out) == (130, "")
        assert done.err.splitlines()[-1] == "reconciler: interrupted"
        assert "Traceback" not in done.err


# --- failure and refusal ---------------------------------------------------------------------------------------------


def test_an_incomplete_observation_is_4_and_the_others_are_converged(fleet: LabDirectory) -> None:
    before = swappiness(fleet)
    wanted = change(fleet)
    plan = fleet.plan()
    fleet.fault("gpu-0001", "ssh_refused")
    done = fleet.apply(plan, "--output", "json")
    assert done.code == 4
    assert (done.json["incomplete"], done.json["nodes"]["gpu-0001"]["state"]) == (["gpu-0001"], "not_started")
    assert swappiness(fleet) == before | {"gpu-0002": wanted, "gpu-0003": wanted}
    fleet.respec("fleet.yaml", "drift:\n", "observation:\n    tolerate: 1\n  drift:\n")
    try:
        tolerated = fleet.apply(fleet.plan())
        assert tolerated.code == 0, tolerated.err
        assert fleet.run("drift", "--detailed-exitcode").code == 2
    finally:
        fleet.respec("fleet.yaml", "observation:\n    tolerate: 1\n  drift:\n", "drift:\n")


def kubectl(lab: LabDirectory, *words: str) -> None:
    arguments = ("kubectl", "--kubeconfig", str(lab.path / "kubeconfig"), *words)
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)


def test_nothing_may_start_and_nothing_will(fleet: LabDirectory) -> None:
    """Somebody's cordon uses the budget up; it is kept, and the others wait."""
    fleet.respec("fleet.yaml", "scope: fleet\n    nodes: 100%", "scope: fleet\n    nodes: 1")
    kubectl(fleet, "cordon", "gpu-0003")
    try:
        change_bios(fleet)
        plan = fleet.plan()
        before = fleet.counters()
        done = fleet.apply(plan, "--wait", "0")
        assert done.code == 8, done.out
        assert "budget of fleet is used up: 1 of 1 out (gpu-0003)" in done.out
        assert fleet.counters() == before
        assert marks(fleet) == []
        assert fleet.state()["cluster"]["nodes"]["gpu-0003"]["unschedulable"] is True
    finally:
        change_bios(fleet)  # back to what the nodes have
        kubectl(fleet, "uncordon", "gpu-0003")
        fleet.respec("fleet.yaml", "scope: fleet\n    nodes: 1", "scope: fleet\n    nodes: 100%")


# --- on a terminal ---------------------------------------------------------------------------------------------------


def on_terminal(lab: LabDirectory, answer: str) -> Done:
    """`reconciler apply` without a plan, on a terminal, and somebody who answers its question."""
    ours, theirs = pty.openpty()
    words = command(*lab.words("apply", "--output", "json"))
    running = subprocess.Popen(
        words, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True, env={**os.environ, "COLUMNS": "200"},
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        os.write(ours, answer.encode())
        with contextlib.suppress(OSError):  # the other end is closed
            while found := os.read(ours, 4096):
                said += found
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
        os.close(ours)
    return Done(running.returncode, out, said.decode(errors="replace"))


def test_on_a_terminal_the_plan_is_shown_and_asked_about(fleet: LabDirectory) -> None:
    before = swappiness(fleet)
    wanted = change(fleet)
    no = on_terminal(fleet, "n\n")
    assert "Apply this to 3 nodes?" in no.err
    assert "vm.swappiness" in no.err
    assert (no.code, no.out) == (130, "")
    assert swappiness(fleet) == before
    yes = on_terminal(fleet, "y\n")
    assert yes.code == 0
    assert yes.json["plan"].startswith("plan-"), "what was shown is what is approved"
    assert swappiness(fleet) == dict.fromkeys(NODES, wanted)


def test_a_gate_by_hand_tests_a_node_in_service_and_keeps_what_it_measured(fleet: LabDirectory) -> None:
    refused = reconciler("gate", "run", NODES[0], "--spec", fleet.spec, "--endpoints", fleet.endpoints)
    assert refused.code == 64
    assert "--yes" in refused.err
    where = ("--spec", fleet.spec, "--endpoints", fleet.endpoints)
    reconciler("hold", NODES[1], "--reason", "traced", *where)
    held = reconciler("gate", "run", NODES[0], NODES[1], "--yes", *where)
    assert (held.code, f"{NODES[1]}: its gate can't run" in held.err) == (8, True), held.err
    reconciler("release", NODES[1], *where)
    done = reconciler("gate", "run", NODES[0], "--yes", "--output", "json", *where)
    assert done.code == 0, done.err
    assert [one["action"] for one in done.json["actions"]][-2:] == ["run_gate", "admit"]
    shown = reconciler("gate", "show", NODES[0], "--output", "json", *where)
    assert {row["verdict"] for row in shown.json} == {"pass"}
    output = next(row["output"] for row in shown.json if row["output"])
    assert reconciler("gate", "output", output, *where).out.startswith("--- command 1: exit status 0\n")
    rows = reconciler("gate", "history", NODES[0], "--since", "1d", "--output", "json", *where)
    assert {row["node"] for row in rows.json} == {NODES[0]}
