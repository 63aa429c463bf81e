"""not_evidence_is_not_pass (invariant 18), for every declared part, one by one.

A healthy machine's own texts, from the tools to the verdict: one cell of one part is made unreadable, or a part of the
text is taken away. Then the comparison does not call the node as desired, and no passive acceptance test passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.drivers.ssh.facts import host_facts, requests
from reconciler.gate.tools import TOOLS
from reconciler.lab.inprocess.virtual_time import EPOCH
from reconciler.lab.wire import facts as wire_facts
from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.desired import DesiredGpu, DesiredInventory, GateTest
from reconciler.model.drift import DriftClass
from reconciler.model.gate import CommandResult, Verdict
from reconciler.model.observed import Drive, Observed
from reconciler.model.records import NodeRecord
from tests import builders as b
from tests.lab.machines import Time, example_lab

GPUS, LINKS, PORTS, DRIVES = 8, 18, 8, 5
WANTED = b.node(
    profile=b.profile(
        image=None,
        gpu=DesiredGpu(None),
        inventory=DesiredInventory(
            gpus=GPUS,
            gpu_model="NVIDIA H100 80GB HBM3",
            nvlinks_per_gpu=LINKS,
            rdma_ports=PORTS,
            rdma_rate_gbps=400,
            drives=DRIVES,
        ),
    )
)
GARBLED = (
    "",
    "ERR!",
    "Unknown Error",
    "[Unknown Error]",
    "GPU requires reset",
    "-1",
    "nan",
    "???",
    "Function Not Found",
)
NO_VALUE = (*GARBLED, "N/A", "[N/A]", "[Not Supported]")  # of a cell that its siblings give, N/A is none either
Answers = Mapping[str, CommandResult]

# What is read of each GPU in nvidia-smi -q -x, as a 570 driver calls it.
CELLS = (
    "product_name", "gpu_recovery_action", "persistence_mode", "current_mig", "current_ecc", "current_link_width",
    "max_link_width", "current_link_gen", "max_link_gen", "replay_counter", "remapped_row_unc", "remapped_row_pending",
    "remapped_row_failure", "sram_threshold_exceeded", "dram_uncorrectable", "sram_uncorrectable_parity",
    "sram_uncorrectable_secded", "clocks_event_reason_hw_thermal_slowdown",
    "clocks_event_reason_hw_power_brake_slowdown", "state", "status", "gpu_temp", "gpu_temp_tlimit",
    "gpu_temp_slow_tlimit_threshold",
)  # fmt: skip


@cache
def healthy() -> Answers:
    """What a machine that is well answers to the facts program."""
    machine = example_lab("clean", Time()).machines["gpu-a001"]
    asked = requests(["vm.swappiness"], ["containerd"])
    return {
        fact.name: wire_facts.answer(fact.name, FactContext(machine.state, machine.now, EPOCH, fact.command))
        for fact in asked
    }


def seen(answers: Answers) -> Observed:
    read = host_facts(answers, ["vm.swappiness"], ["containerd"])
    rest = b.facts()
    facts = replace(
        read, hostname=rest.hostname, sysctls=rest.sysctls, services=rest.services, secure_boot=True, serial=rest.serial
    )
    inventory = b.inventory(drives=tuple(Drive(str(at)) for at in range(DRIVES)))
    return b.observed(host=facts, inventory=inventory)


def not_as_desired(observed: Observed) -> set[DriftClass]:
    found = Comparer(IgnoreRules((), b.NOW)).compare(WANTED, observed, NodeRecord(WANTED.node))
    return {item.kind for item in found}


def verdicts(observed: Observed) -> dict[str, Verdict]:
    return {
        name: TOOLS[name].judge(GateTest(name, name, {}, (), 60.0), WANTED, observed, ()).verdict
        for name in ("inventory", "xid")
    }


def assert_not_evidence(answers: Answers) -> None:
    observed = seen(answers)
    assert not_as_desired(observed), "called converged"
    told = verdicts(observed)
    assert Verdict.PASS not in told.values(), told


def changed(name: str, text: str, *, exit_status: int = 0) -> Answers:
    return {**healthy(), name: CommandResult(exit_status, text)}


def test_a_machine_that_is_well_passes() -> None:
    observed = seen(healthy())
    assert not_as_desired(observed) == set()
    assert verdicts(observed) == {"inventory": Verdict.PASS, "xid": Verdict.PASS}


# --- each GPU, each cell -----------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(gpu=st.integers(0, GPUS - 1), cell=st.sampled_from(CELLS), text=st.sampled_from(NO_VALUE), data=st.data())
def test_not_evidence_is_not_pass_of_a_cell(gpu: int, cell: str, text: str, data: st.DataObject) -> None:
    document = healthy()["nvidia_smi"].stdout
    start = [match.start() for match in re.finditer("<gpu id", document)][gpu]
    end = document.index("</gpu>", start)
    found = list(re.finditer(rf"<{cell}>([^<]*)</{cell}>", document[start:end]))
    match = data.draw(st.sampled_from(found))
    if cell == "current_mig" and text == "N/A":
        return  # how a board without MIG says so
    if cell == "product_name" and text in ("-1", "???"):
        return  # it is another model, then
    whole = document[: start + match.start(1)] + text + document[start + match.end(1) :]
    assert_not_evidence(changed("nvidia_smi", whole))


@given(gpu=st.integers(0, GPUS - 1), cell=st.sampled_from([cell for cell in CELLS if cell != "current_mig"]))
def test_not_evidence_is_not_pass_of_a_cell_that_is_gone(gpu: int, cell: str) -> None:
    """Of one GPU: a driver that does not know the cell at all leaves it out everywhere."""
    document = healthy()["nvidia_smi"].stdout
    start = [match.start() for match in re.finditer("<gpu id", document)][gpu]
    end = document.index("</gpu>", start)
    without = re.sub(rf"<{cell}>[^<]*</{cell}>", "", document[start:end])
    assert_not_evidence(changed("nvidia_smi", document[:start] + without + document[end:]))


@pytest.mark.parametrize("cell", ["current_ecc", "remapped_row_pending", "remapped_row_failure", "remapped_rows"])
def test_what_this_model_is_known_to_have_is_missed_on_all_gpus(cell: str) -> None:
    document = healthy()["nvidia_smi"].stdout
    whole = re.sub(rf"<{cell}>.*?</{cell}>", f"<{cell}>N/A</{cell}>", document, flags=re.DOTALL)
    assert_not_evidence(changed("nvidia_smi", whole))


@pytest.mark.parametrize(
    "cell", ["gpu_recovery_action", "sram_threshold_exceeded", "state", "status", "persistence_mode"]
)
def test_what_a_driver_leaves_out_everywhere_is_no_fault(cell: str) -> None:
    """An older driver, or a board without NVSwitch."""
    document = healthy()["nvidia_smi"].stdout
    observed = seen(changed("nvidia_smi", re.sub(rf"<{cell}>[^<]*</{cell}>", "", document)))
    assert not_as_desired(observed) == set()
    assert verdicts(observed) == {"inventory": Verdict.PASS, "xid": Verdict.PASS}


@pytest.mark.parametrize("status", [2, 4, 8, 9, 10, 12, 13, 15, 255])
def test_a_whole_document_and_a_bad_exit_contradict_each_other(status: int) -> None:
    assert_not_evidence(changed("nvidia_smi", healthy()["nvidia_smi"].stdout, exit_status=status))


@given(attached=st.sampled_from(["", "N/A", "ERR!", "7", "9", "0"]))
def test_a_count_that_contradicts_the_document_is_no_evidence(attached: str) -> None:
    document = healthy()["nvidia_smi"].stdout
    said = re.sub(r"<attached_gpus>\d+<", f"<attached_gpus>{attached}<", document)
    assert_not_evidence(changed("nvidia_smi", said))


@given(gpu=st.integers(0, GPUS - 1))
def test_a_gpu_that_is_described_twice_is_no_evidence_of_two(gpu: int) -> None:
    blocks = re.findall(r"\t<gpu id.*?</gpu>\n", healthy()["nvidia_smi"].stdout, re.DOTALL)
    document = healthy()["nvidia_smi"].stdout.replace(blocks[gpu], blocks[gpu - 1])
    assert_not_evidence(changed("nvidia_smi", document))


# --- each link, port and drive -----------------------------------------------------------------------------------


@given(
    gpu=st.integers(0, GPUS - 1),
    link=st.integers(0, LINKS - 1),
    text=st.sampled_from((*NO_VALUE, "0.000 GB/s", "0 GB/s", "13.281 GB/s", "<inactive>", None)),
)
def test_not_evidence_is_not_pass_of_an_nvlink(gpu: int, link: int, text: str | None) -> None:
    """None: its line is gone."""
    lines = healthy()["nvlink"].stdout.splitlines(keepends=True)
    at = gpu * (LINKS + 1) + 1 + link
    assert f"Link {link}:" in lines[at]
    lines[at] = "" if text is None else f"\t Link {link}: {text}\n"
    assert_not_evidence(changed("nvlink", "".join(lines)))


@given(gpu=st.integers(0, GPUS - 1), text=st.sampled_from(("", *(f"{garbled}\n" for garbled in GARBLED))))
def test_not_evidence_is_not_pass_of_all_nvlinks_of_a_gpu(gpu: int, text: str) -> None:
    lines = healthy()["nvlink"].stdout.splitlines(keepends=True)
    at = gpu * (LINKS + 1)
    for first in (at, at + 1):  # with its header, and without
        assert_not_evidence(changed("nvlink", "".join(lines[:first]) + text + "".join(lines[at + LINKS + 1 :])))


@given(port=st.integers(0, PORTS - 1), cell=st.integers(0, 2), text=st.sampled_from(("", "???", "ERR!")))
def test_not_evidence_is_not_pass_of_a_port(port: int, cell: int, text: str) -> None:
    """State, physical state and rate."""
    lines = healthy()["rdma"].stdout.splitlines()
    head, *parts = lines[port].split(" | ")
    name, number, state = head.split(" ", 2)
    cells = [state, *parts]
    cells[cell] = text
    lines[port] = f"{name} {number} {' | '.join(cells)}"
    assert_not_evidence(changed("rdma", "\n".join(lines)))


@given(port=st.integers(0, PORTS - 1), rate=st.sampled_from(["100 Gb/sec (4X EDR)", "200 Gb/sec (4X HDR)", None]))
def test_a_port_that_is_slow_or_gone_does_not_pass(port: int, rate: str | None) -> None:
    lines = healthy()["rdma"].stdout.splitlines()
    if rate is None:
        del lines[port]
    else:
        lines[port] = re.sub(r"400 Gb/sec \([^)]*\)", rate, lines[port])
    assert_not_evidence(changed("rdma", "\n".join(lines)))


@given(
    drive=st.integers(0, DRIVES - 1),
    cell=st.sampled_from(["critical_warning", "media_errors", "percent_used", "avail_spare"]),
    value=st.sampled_from(["", "ERR!", None, [], -1, "N/A"]),
)
def test_not_evidence_is_not_pass_of_a_drive(drive: int, cell: str, value: object) -> None:
    blocks = re.split(r"(?=^== )", healthy()["nvme"].stdout, flags=re.MULTILINE)[1:]
    head, _, log = blocks[drive].partition("\n")
    blocks[drive] = f"{head}\n{json.dumps(json.loads(log) | {cell: value})}\n"
    assert_not_evidence(changed("nvme", "".join(blocks)))


@given(
    drive=st.integers(0, DRIVES - 1), said=st.sampled_from(["", "{}", "[]", "failed to open device\n", '{"critical'])
)
def test_not_evidence_is_not_pass_of_a_smart_log(drive: int, said: str) -> None:
    blocks = re.split(r"(?=^== )", healthy()["nvme"].stdout, flags=re.MULTILINE)[1:]
    blocks[drive] = f"{blocks[drive].partition(chr(10))[0]}\n{said}\n"
    assert_not_evidence(changed("nvme", "".join(blocks)))


# --- each fact ---------------------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(["nvidia_smi", "nvlink", "rdma", "links", "nvme"]),
    status=st.sampled_from([1, 127, 0]),
    timed_out=st.booleans(),
)
def test_not_evidence_is_not_pass_of_a_fact(name: str, status: int, timed_out: bool) -> None:
    answer = CommandResult(-1 if timed_out else status, "", "", timed_out)
    if answer == CommandResult(0, "") and name == "nvme":
        return  # a node without an NVMe drive: the BMC has counted its drives, which may be of another kind
    assert_not_evidence({**healthy(), name: answer})


@given(status=st.sampled_from([1, 127, 0]))
def test_not_evidence_is_not_pass_of_the_kernel_log(status: int) -> None:
    assert verdicts(seen({**healthy(), "kernel_log": CommandResult(status, "")}))["xid"] is not Verdict.PASS


# --- the software of the image -----------------------------------------------------------------------------------

SOFTWARE = {"cuda": "12.8", "nccl": "2.26.2", "containerRuntime": "1.7.24", "kubelet": "1.31"}


def image_drift(answers: Answers) -> dict[str, DriftClass]:
    node = b.node(profile=b.profile(image=replace(b.IMAGE, contents=SOFTWARE)))
    found = Comparer(IgnoreRules((), b.NOW)).compare(node, seen(answers), NodeRecord(node.node))
    return {item.path: item.kind for item in found if item.path.removeprefix("image.") in SOFTWARE}


@given(part=st.sampled_from(sorted(SOFTWARE)), text=st.sampled_from(NO_VALUE), status=st.sampled_from([0, 1, 127]))
def test_not_evidence_is_not_pass_of_software(part: str, text: str, status: int) -> None:
    """A version that was not read is neither as specified nor drift."""
    assert image_drift(healthy()) == {}
    fact = "container_runtime" if part == "containerRuntime" else part
    assert image_drift(changed(fact, text, exit_status=status)) == {f"image.{part}": DriftClass.UNKNOWN}
