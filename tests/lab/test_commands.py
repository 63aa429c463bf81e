"""Command lines on a lab machine: their effects, and the output formats of tools."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.lab.hardware import commands
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.tools.call import Ran
from tests.lab.machines import HOUR, Time, after, example_lab


def run(machine: Machine, line: str, stdin: str = "") -> Ran:
    return commands.run(machine, line.split(), stdin)


def ok(machine: Machine, line: str, stdin: str = "") -> str:
    result = run(machine, line, stdin).result
    assert result.exit_status == 0, result
    return result.stdout


def json_of(machine: Machine, line: str) -> Any:
    return json.loads(run(machine, line).result.stdout)


# --- the system ---


def test_host_configuration(gpu_machine: Machine, clock: Time) -> None:
    ok(gpu_machine, "hostnamectl set-hostname renamed")
    assert ok(gpu_machine, "hostname") == "renamed\n"
    ok(gpu_machine, "sysctl -w vm.swappiness=7")
    assert ok(gpu_machine, "sysctl vm.swappiness") == "vm.swappiness = 7\n"
    ok(gpu_machine, "tee /etc/sysctl.d/90-reconciler.conf", "vm.swappiness = 7\n")
    ok(gpu_machine, "systemctl disable --now containerd")
    assert run(gpu_machine, "systemctl is-active containerd").result.exit_status == 3
    ok(gpu_machine, "systemctl reboot")
    after(gpu_machine, clock, HOUR)
    assert ok(gpu_machine, "cat /etc/hostname") == "renamed\n"
    assert gpu_machine.system().sysctls["vm.swappiness"] == "7"
    assert run(gpu_machine, "systemctl is-active containerd").result.stdout == "inactive\n"
    ok(gpu_machine, "systemctl enable --now containerd")
    assert ok(gpu_machine, "systemctl is-enabled containerd") == "enabled\n"
    assert gpu_machine.state.counters.boots == 1


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("systemctl start nope", 5, "Unit nope.service not found."),
        ("systemctl enable --now nope", 1, "Unit file nope.service does not exist."),
        ("sysctl -w vm.swapiness=1", 255, "cannot stat /proc/sys/vm/swapiness"),
        ("cat /nope", 1, "No such file or directory"),
        ("kubeadm join", 127, "kubeadm: command not found"),
        ("tee relative", 1, "Permission denied"),
        ("test -b /dev/nvme9n1", 1, ""),
    ],
)
def test_what_is_not_there_is_said_in_the_tools_words(gpu_machine: Machine, line: str, status: int, words: str) -> None:
    result = run(gpu_machine, line).result
    assert result.exit_status == status
    assert words in result.stderr


def test_the_image_file_is_what_the_installer_left(gpu_machine: Machine) -> None:
    found = json_of(gpu_machine, "cat /etc/reconciler/image.json")
    assert found["version"] == gpu_machine.disk().version
    assert found["root_disk"] == gpu_machine.state.booted_disk


# --- MIG ---


def test_a_mig_layout_is_laid_out_and_removed(gpu_machine: Machine) -> None:
    gpu_machine.gpu_clients = lambda: False
    assert "All done." in ok(gpu_machine, "nvidia-smi -mig 1")
    assert ok(gpu_machine, "nvidia-smi mig -cgi 3g.40gb,3g.40gb -C").count("compute instance") == 16
    assert [profile for profile, _ in gpu_machine.state.gpus[7].mig_instances] == ["3g.40gb", "3g.40gb"]
    full = run(gpu_machine, "nvidia-smi mig -cgi 1g.10gb -C -i 0")
    assert (full.result.exit_status, "Insufficient Resources" in full.result.stdout) == (19, True)
    assert (
        "In use" in run(gpu_machine, "nvidia-smi mig -dgi").result.stdout
    )  # compute instances must be destroyed first
    ok(gpu_machine, "nvidia-smi mig -dci")
    ok(gpu_machine, "nvidia-smi mig -dgi")
    assert run(gpu_machine, "nvidia-smi mig -dgi").result.exit_status == 6
    ok(gpu_machine, "nvidia-smi -mig 0")
    assert not any(gpu.mig_enabled for gpu in gpu_machine.state.gpus)


@pytest.mark.parametrize(
    ("words", "names"),
    [("9,9", ["3g.40gb"] * 2), ("19,15,14", ["1g.10gb", "1g.20gb", "2g.20gb"]), ("0", ["7g.80gb"])],
)
def test_profiles_have_numbers_too(gpu_machine: Machine, words: str, names: list[str]) -> None:
    gpu_machine.gpu_clients = lambda: False
    ok(gpu_machine, "nvidia-smi -i 1 -mig 1")
    ok(gpu_machine, f"nvidia-smi mig -cgi {words} -C -i 1")
    assert [profile for profile, _ in gpu_machine.state.gpus[1].mig_instances] == names
    assert gpu_machine.state.gpus[0].mig_instances == []
    assert run(gpu_machine, "nvidia-smi mig -cgi 3g.71gb -C -i 1").result.exit_status == 19


def test_work_on_the_gpus_holds_a_mode_change_up_until_the_boot(gpu_machine: Machine, clock: Time) -> None:
    assert gpu_machine.gpu_clients()
    assert "pending enable state" in ok(gpu_machine, "nvidia-smi -mig 1")
    gpu = gpu_machine.state.gpus[0]
    assert (gpu.mig_enabled, gpu.mig_pending) == (False, True)
    assert run(gpu_machine, "nvidia-smi --gpu-reset").result.exit_status == 19  # K3
    gpu_machine.reboot()
    after(gpu_machine, clock, HOUR)
    assert gpu.mig_enabled


def test_an_ampere_needs_a_reset_for_its_mode(gpu_machine: Machine) -> None:
    gpu_machine.gpu_clients = lambda: False
    for gpu in gpu_machine.state.gpus:
        gpu.name = "NVIDIA A100-SXM4-80GB"
    ok(gpu_machine, "nvidia-smi -mig 1")
    assert not gpu_machine.state.gpus[0].mig_enabled  # K4
    ok(gpu_machine, "systemctl stop nvidia-persistenced")  # it holds GPUs open (K3)
    ok(gpu_machine, "nvidia-smi --gpu-reset")
    assert gpu_machine.state.gpus[0].mig_enabled


def test_a_lost_gpu_can_not_be_changed(gpu_machine: Machine) -> None:
    gpu_machine.inject("xid_79", gpu=3)
    assert run(gpu_machine, "nvidia-smi -mig 1").result.exit_status == 15
    assert run(gpu_machine, "nvidia-smi -i 2 -mig 1").result.exit_status == 0


# --- the gate's tools ---


def statuses(document: Any) -> dict[str, list[str]]:
    tests = [test for category in document["DCGM Diagnostic"]["test_categories"] for test in category["tests"]]
    return {test["name"]: [result["status"] for result in test["results"]] for test in tests}


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_dcgm_documents_fit_their_schema(gpu_machine: Machine, samples: Path, level: int) -> None:
    schema = json.loads((samples / "dcgmi-diag/dcgm_v4.0.0_dcgm_diag_schema.json").read_text())
    ran = run(gpu_machine, f"dcgmi diag -r {level} -j")
    document = json.loads(ran.result.stdout)
    jsonschema.Draft7Validator(schema).validate(document)
    assert ran.result.exit_status == 0
    assert all(found == ["Pass"] * 8 for found in statuses(document).values())
    assert ran.seconds >= 5


def test_dcgm_finds_what_is_broken(gpu_machine: Machine) -> None:
    gpu_machine.inject("ecc_errors", gpu=5)
    ran = run(gpu_machine, "dcgmi diag -r 2 -j")
    document = json.loads(ran.result.stdout)
    assert ran.result.exit_status == 226
    assert statuses(document)["memory"] == ["Pass"] * 5 + ["Fail"] + ["Pass"] * 2
    assert statuses(document)["software"][5] == "Warn"
    gpu_machine.clear()
    gpu_machine.inject("xid_79", gpu=0)
    assert len(statuses(json_of(gpu_machine, "dcgmi diag -r 2 -j"))["memory"]) == 7  # a lost GPU has no row


def test_dcgm_skips_divided_gpus(mig_machine: Machine) -> None:
    assert statuses(json_of(mig_machine, "dcgmi diag -r 2 -j"))["memory"] == ["Skip"] * 8


def test_no_cuda_without_the_fabric_manager(gpu_machine: Machine) -> None:
    ok(gpu_machine, "systemctl stop nvidia-fabricmanager")
    assert "runtime_error" in json_of(gpu_machine, "dcgmi diag -r 2 -j")["DCGM Diagnostic"]
    assert "not yet initialized" in json_of(gpu_machine, "nvbandwidth -j")["nvbandwidth"]["error"]
    assert "not yet initialized" in run(gpu_machine, "all_reduce_perf -g 8").result.stdout


def test_nvbandwidth(gpu_machine: Machine) -> None:
    found = json_of(gpu_machine, "nvbandwidth -j -t host_to_device_memcpy_ce,device_to_device_memcpy_read_ce")
    host, peers = found["nvbandwidth"]["testcases"]
    assert (host["status"], len(host["bandwidth_matrix"][0])) == ("Passed", 8)
    assert min(map(float, host["bandwidth_matrix"][0])) > 48
    assert [row[at] for at, row in enumerate(peers["bandwidth_matrix"])] == ["N/A"] * 8
    assert min(float(cell) for row in peers["bandwidth_matrix"] for cell in row if cell != "N/A") > 335
    ran = run(gpu_machine, "nvbandwidth -j -t nonsense")
    assert json.loads(ran.result.stdout)["nvbandwidth"]["testcases"] == [{"name": "nonsense", "status": "Not Found"}]
    assert ran.result.exit_status == 1
    gpu_machine.inject("xid_79")
    assert run(gpu_machine, "nvbandwidth -j").result.exit_status == 1


def busbw(machine: Machine) -> list[float]:
    text = ok(machine, "all_reduce_perf -b 8G -e 16G -f 2 -g 8 -n 20 -w 5 -c 1")
    return [float(line.split()[7]) for line in text.splitlines() if re.match(r" +\d", line)]


def test_nccl_tests(gpu_machine: Machine, samples: Path) -> None:
    real = (samples / "nccl-tests/json_HEAD_ok.stdout.log").read_text().splitlines()
    ours = ok(gpu_machine, "all_reduce_perf -b 8G -e 16G -f 2 -g 8 -n 20 -w 5 -c 1").splitlines()
    shape = [re.sub(r"\d", "0", line) for line in real[1:-1]]  # the first line names a JSON file
    assert [line for line in ours if line.startswith("#  ") and "Rank" not in line] == [
        line for line in real if line.startswith("#  ") and "Rank" not in line
    ]
    assert len(ours) == len(shape)
    assert len(busbw(gpu_machine)) == 2
    assert min(busbw(gpu_machine)) > 470
    gpu_machine.inject("low_nccl", busbw=200)
    assert max(busbw(gpu_machine)) < 201
    gpu_machine.clear()
    gpu_machine.inject("nvlink_down", links=9)
    assert max(busbw(gpu_machine)) < 250
    gpu_machine.inject("xid_79")
    assert run(gpu_machine, "all_reduce_perf -g 8").result.exit_status != 0


def test_fio(gpu_machine: Machine) -> None:
    line = "fio --output-format=json+ --name=x --rw=read --bs=1M --runtime=30 --filename=/dev/nvme1n1"
    job = json_of(gpu_machine, line)["jobs"][0]
    assert job["read"]["bw_bytes"] == pytest.approx(6.5e9, rel=0.05)
    assert job["write"]["io_bytes"] == 0
    assert json_of(gpu_machine, line)["disk_util"][0]["name"] == "nvme1n1"
    assert run(gpu_machine, line).seconds >= 30
    gpu_machine.inject("slow_storage", factor=0.1)
    assert json_of(gpu_machine, line)["jobs"][0]["read"]["bw_bytes"] < 1e9
    gpu_machine.clear()
    ok(gpu_machine, line.replace("rw=read", "rw=write"))
    assert gpu_machine.state.counters.overwritten_drives == 1


def test_fio_measures_memory_where_there_is_no_drive_unless_it_is_forbidden(gpu_machine: Machine) -> None:
    line = "fio --output-format=json --name=x --rw=read --filename=/dev/nvme9n1"
    found = json_of(gpu_machine, line)
    assert (found["jobs"][0]["error"], found["disk_util"]) == (0, [])
    ran = run(gpu_machine, f"{line} --allow_file_create=0")
    assert (ran.result.exit_status, json.loads(ran.result.stdout)["jobs"][0]["read"]["io_bytes"]) == (1, 0)


def test_measurements_differ_between_machines_and_not_between_runs(clock: Time) -> None:
    machines = list(example_lab("clean", clock).machines.values())
    figures = {name: busbw(machine) for name, machine in ((m.name, m) for m in machines)}
    assert len({tuple(found) for found in figures.values()}) == len(machines)
    assert busbw(machines[0]) == figures[machines[0].name]


@pytest.mark.parametrize(
    ("line", "status", "shown"),
    [
        ("systemctl daemon-reload", 0, ""),
        ("systemctl restart containerd", 0, ""),
        ("systemctl frobnicate", 1, "Unknown command verb"),
        ("systemctl is-enabled nope", 1, "No such file"),
        ("sysctl --system", 0, "Applying"),
        ("hostnamectl", 0, "Static hostname"),
        ("hostnamectl frobnicate", 1, "Unknown command verb"),
        ("nvidia-smi -i 9 -mig 1", 6, "No devices were found"),
        ("nvidia-smi -mig 2", 2, "Invalid MIG mode"),
        ("nvidia-smi mig -lgi", 2, "Invalid combination"),
        ("nvidia-smi mig -cgi 9 -C", 6, "No MIG-enabled devices found."),
        ("nvidia-smi -q", 2, "Invalid argument"),
        ("dcgmi --version", 0, "Version : 4."),
        ("dcgmi diag -j", 255, "PARSE ERROR"),
        ("fio job.fio", 1, "unable to open"),
        ("fio --version", 0, "fio-3"),
        ("fio --rw=read", 1, "No job(s) defined"),
        ("test -f /etc/reconciler/image.json", 0, ""),
        ("test -x", 2, "unary operator"),
        ("cat /proc/sys/kernel/random/boot_id", 0, "-"),
        ("/bin/true", 0, ""),
    ],
)
def test_odd_calls(gpu_machine: Machine, line: str, status: int, shown: str) -> None:
    result = run(gpu_machine, line).result
    assert (result.exit_status, shown in result.stdout + result.stderr) == (status, True), result


def test_a_machine_without_gpus(gpu_machine: Machine) -> None:
    gpu_machine.state.gpus = []
    assert run(gpu_machine, "nvidia-smi -mig 1").result.exit_status == 6
    assert "runtime_error" in json_of(gpu_machine, "dcgmi diag -r 1 -j")["DCGM Diagnostic"]
    assert "no CUDA-capable device" in json_of(gpu_machine, "nvbandwidth -j")["nvbandwidth"]["error"]
    assert run(gpu_machine, "all_reduce_perf -g 8").result.exit_status == 2


def test_powering_off_from_inside(gpu_machine: Machine, clock: Time) -> None:
    ok(gpu_machine, "systemctl poweroff")
    assert after(gpu_machine, clock, HOUR).state.power == "off"
