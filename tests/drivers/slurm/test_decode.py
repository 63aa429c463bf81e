"""What scontrol and squeue print, and what is made of it. Outputs are of Slurm 22.05.8, and of later shapes of JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.slurm import jobs, nodes, reasons
from reconciler.drivers.slurm.hostlist import expand
from reconciler.drivers.slurm.states import rule_of
from reconciler.model.observed import Member
from reconciler.model.records import OWNER_ANNOTATION, Mark
from reconciler.planner.node.foreign_holds import hold_of

NODE = """NodeName=n1 Arch=x86_64 CoresPerSocket=1{space}
   CPUAlloc=1 CPUEfctv=2 CPUTot=2 CPULoad=8.07
   AvailableFeatures=(null)
   Gres=gpu:h100:8
   NodeAddr=127.0.0.1 NodeHostName=n1 Port=17001 Version=22.05.8
   OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0{space}
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main{space}
   BootTime=2026-11-26T20:38:06 SlurmdStartTime={started}
   CapWatts=n/a
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
{reason}
"""
OURS = "reconciler ledger=L plan=P at=A why=because"


def shown(state: str, reason: str = "", started: str = "2026-11-27T00:54:53") -> str:
    line = f"   Reason={reason} [ada@2026-11-27T00:55:42]" if reason else ""
    return NODE.format(state=state, reason=line, started=started, space=" ")


def member(state: str, reason: str = "", started: str = "2026-11-27T00:54:53") -> Member:
    (node,) = nodes.decode(shown(state, reason, started))
    return nodes.member(node, "gpu-1", (), ("NHC",))


@pytest.mark.parametrize(
    ("state", "reason", "ready", "out", "hold"),
    [
        ("IDLE", "", True, False, ""),
        ("MIXED+PLANNED", "", True, False, ""),
        ("IDLE+RESERVED", "", True, False, ""),
        ("UNKNOWN", "", False, False, ""),
        ("IDLE+NOT_RESPONDING", "", False, False, ""),
        ("IDLE+DRAIN", OURS, True, True, ""),
        ("DOWN+DRAIN", OURS, True, True, ""),  # after a reboot, with ReturnToService=0
        ("DOWN+DRAIN+NOT_RESPONDING", OURS, False, True, ""),
        ("IDLE+DRAIN", "ask Ada", True, True, "ada keeps it out of Slurm: ask Ada"),
        ("DOWN", "broken fan", True, True, "ada keeps it out of Slurm: broken fan"),
        ("IDLE+DRAIN", "slurm-operator: cordoned", True, True, "slurm-operator: cordoned"),
        ("IDLE+DRAIN", "NHC: check_gpu", False, False, ""),
        ("DOWN+NOT_RESPONDING", "Not responding", False, False, ""),
        ("DOWN", "Node unexpectedly rebooted", False, False, ""),
        ("DOWN", "Reboot ASAP : reboot issued : reboot timed out", False, False, ""),
        ("DOWN", "kernel : reboot issued : reboot timed out", True, True, "ada keeps it out"),
        ("IDLE+DRAIN", "gres/gpu count reported lower than configured (7 < 8)", False, False, ""),
        ("DOWN+DRAIN+INVALID_REG", "Low RealMemory (reported:1 < 100.00% of configured:2)", False, False, ""),
        ("IDLE+DRAIN", "Kill task failed", False, False, ""),
        ("IDLE+FAIL", "ask Ada", True, True, "an administrator expects it to fail"),
        ("IDLE+MAINTENANCE+RESERVED", "", True, True, "maintenance reservation"),
        ("DOWN+DRAIN+REBOOT_ISSUED", "Reboot ASAP : reboot issued", False, False, "Slurm reboots it"),
        ("IDLE+REBOOT_REQUESTED", "reboot requested", True, False, "Slurm reboots it"),
        ("IDLE+POWERED_DOWN", "", True, False, "power saving"),
        ("IDLE+POWERING_UP+NOT_RESPONDING", "", False, False, "power saving"),
        ("IDLE+HAUNTED", "", True, False, "does not know (HAUNTED)"),
        ("IDLE+DRAIN+POWERING_DOWN", OURS, True, True, "power saving"),
    ],
)  # fmt: skip
def test_each_state_has_its_rule(state: str, reason: str, *, ready: bool, out: bool, hold: str) -> None:
    found = member(state, reason)
    assert (found.ready, found.unschedulable) == (ready, out)
    assert (hold in hold_of(found)) if hold else not hold_of(found)
    assert (OWNER_ANNOTATION in found.annotations) == (reason == OURS)


@pytest.mark.parametrize("state", ["ALLOCATED", "MIXED+DRAIN", "IDLE+COMPLETING+DRAIN"])
def test_a_node_in_use_is_never_quiet_though_the_queue_shows_no_job(state: str) -> None:
    assert member(state, OURS if "DRAIN" in state else "").pods


def test_a_node_that_never_registered_is_not_ready() -> None:
    assert member("IDLE", started="None").ready is False
    assert list(nodes.decode(shown("FUTURE"))) == []


@pytest.mark.parametrize("text", ["slurm_load_node error: x", "NodeName=n1 Arch=x\n   CPUAlloc=1\n"])
def test_what_is_no_record_of_a_node_is_no_absence(text: str) -> None:
    with pytest.raises(nodes.Unreadable):
        list(nodes.decode(text))


def test_a_write_is_guarded_by_state_and_reason() -> None:
    versions = [member(*args).resource_version for args in (("IDLE",), ("IDLE+DRAIN", "a"), ("IDLE+DRAIN", "b"))]
    assert len(set(versions)) == 3
    assert member("MIXED").resource_version == versions[0]  # jobs that come and go are no conflict


texts = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40)
words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20)


@given(words, texts, texts, texts, st.lists(words.filter(lambda word: "," not in word), max_size=3), texts)
def test_a_mark_survives_as_a_reason(ledger: str, plan: str, why: str, at: str, names: list[str], before: str) -> None:
    mark = Mark(ledger, plan, why.rstrip(), at, True, tuple(names))
    text = reasons.write(mark, before)
    assert reasons.read(text) == mark
    assert reasons.taken_over(text) == before
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set("\"'\\")


@pytest.mark.parametrize("reason", ["", "reconciler", "the reconciler ledger=1 plan= at= why=x", "rec:1:2:3"])
def test_another_reason_is_nobodys_mark(reason: str) -> None:
    assert reasons.read(reason) is None


# --- jobs ------------------------------------------------------------------------------------------------------------

OLD: dict[str, Any] = {
    "job_id": 7, "job_state": "RUNNING", "nodes": "n[1-2]", "restart_cnt": 1, "end_time": 1795741539,
    "user_name": "ada", "comment": "x reconciler.dev/checkpoint",
}  # fmt: skip
NEW = OLD | {
    "job_state": ["RUNNING"],
    "restart_cnt": 1,
    "end_time": {"set": True, "infinite": False, "number": 1795741539},
}


def decoded(*items: dict[str, Any]) -> list[jobs.Job]:
    return list(jobs.decode(json.dumps({"jobs": items})))


def test_old_and_new_shapes_of_a_job_are_the_same_job() -> None:
    assert decoded(OLD) == decoded(NEW)
    (job,) = decoded(OLD)
    assert (job.uid, job.nodes, job.takes_part) == ("7.1", ("n1", "n2"), True)
    assert job.pod().due_at is not None


@pytest.mark.parametrize("comment", ["reconciler.dev/checkpoints", "no-reconciler.dev/checkpoint", ""])
def test_a_job_that_does_not_say_so_takes_no_part(comment: str) -> None:
    assert decoded(OLD | {"comment": comment})[0].pod().checkpoint is None


@pytest.mark.parametrize("state", ["PENDING", "COMPLETED", "CANCELLED", "OUT_OF_MEMORY"])
def test_a_job_that_has_no_nodes_is_no_work(state: str) -> None:
    assert decoded(OLD | {"job_state": state}) == []


@pytest.mark.parametrize("states", ["COMPLETING", ["COMPLETED", "COMPLETING"]])
def test_a_job_whose_processes_end_is_work_that_is_ending(states: Any) -> None:
    (job,) = decoded(OLD | {"job_state": states})
    assert job.pod().terminating_since is not None


def test_a_job_without_a_limit_has_no_end() -> None:
    assert decoded(OLD | {"end_time": {"set": True, "infinite": True, "number": 0}})[0].ends_at is None
    assert decoded(OLD | {"end_time": 0})[0].ends_at is None


@pytest.mark.parametrize(
    "item", [{"job_state": "RUNNING"}, {"job_id": 1}, OLD | {"nodes": ["n1"]}, OLD | {"nodes": "n[1-"}]
)
def test_a_job_that_cant_be_read_makes_the_queue_unreadable(item: dict[str, Any]) -> None:
    with pytest.raises(nodes.Unreadable):
        decoded(item)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": {}}', '{"jobs": [1]}', "slurm_load_jobs error"])
def test_what_is_no_queue_is_not_empty(text: str) -> None:
    with pytest.raises(nodes.Unreadable):
        list(jobs.decode(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[01-03,7],login", ["n01", "n02", "n03", "n7", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[09-10]-ib", ["n09-ib", "n10-ib"]),
    ],
)
def test_hostlists_are_expanded(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[-3]", "n[0-999999999]", "n[1-9999]m[1-9999]"])
def test_no_hostlist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        expand(text)


def test_a_maintenance_reservation_of_ours_is_no_hold() -> None:
    flags = frozenset({"IDLE", "MAINTENANCE", "RESERVED"})
    assert rule_of(flags).hold
    assert not rule_of(flags, reserved_by_us=True).hold
