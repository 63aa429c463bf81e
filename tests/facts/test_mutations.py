"""Damaged outputs: whatever happens to a text on its way, no parser fails, and none makes facts up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.ssh.facts import FACTS, host_facts, requests
from reconciler.drivers.ssh.facts.fact import whole_number
from reconciler.model.gate import CommandResult
from reconciler.model.gpus import Gpu
from reconciler.model.observed import HostFacts

NO_VALUES = (
    "", "N/A", "[N/A]", "[Not Supported]", "[GPU is lost]", "GPU is lost", "[GPU requires reset]", "ERR!",
    "[Unknown Error]", "Unknown Error", "No Reading", "nan", "Skip", "Waived",
)  # fmt: skip
NO_NUMBERS = ("-1", "1e3", "0x", "٣³", "12 errors", "9" * 5000)
# The cells that Gpu is made of. A blank one must come out as None.
CELLS = {
    "uuid": "uuid",
    "product_name": "name",
    "serial": "serial",
    "vbios_version": "vbios",
    "current_ecc": "ecc_enabled",
    "remapped_row_pending": "remap_pending",
    "remapped_row_failure": "remap_failed",
    "current_mig": "mig_current",
    "pending_mig": "mig_pending",
}
# The cells of GpuCells. A blank one must come out as None, and N/A alone is no reason to call it unread.
STATES = {
    "sram_threshold_exceeded": "sram_threshold_exceeded",
    "hw_thermal_slowdown": "thermal_slowdown",
    "hw_power_brake_slowdown": "power_brake",
    "gpu_temp_tlimit": "over_limit",
    "current_link_width": "pcie_width",
    "max_link_width": "pcie_width_max",
    "current_link_gen": "pcie_gen",
    "max_link_gen": "pcie_gen_max",
    "persistence_mode": "persistence",
    "channel_repair_pending": "channel_repair_pending",
    "tpc_repair_pending": "tpc_repair_pending",
    "gpu_recovery_action": "recovery_action",
    "state": "fabric_state",
    "status": "fabric_status",
    "bandwidth": "fabric_health",
}
NOT_OFFERED = ("N/A", "[N/A]", "[Not Supported]")
XML = ("mocknvml_h100_allgpus_remap_pending", "mocknvml_h100_gpu4_lost", "netdata_a100-sxm4-mig", "telegraf_tesla-t4")


@cache
def load(path: Path) -> str:
    return path.read_text()


@pytest.fixture(scope="module")
def documents(samples: Path) -> Callable[[str], str]:
    return lambda name: load(samples / "nvidia-smi-xml" / f"{name}.xml")


def smi(text: str) -> HostFacts:
    return host_facts({"nvidia_smi": CommandResult(0, text)})


def gpus(text: str) -> dict[str, Gpu]:
    return {gpu.pci: gpu for gpu in smi(text).gpus or ()}


def assert_nothing_made_up(mutated: str, original: str) -> None:
    """Every value is one that the same GPU had before."""
    before = gpus(original)
    found = smi(mutated)
    assert found.gpus is not None or found.unknown["gpus"]
    assert len(found.gpus or ()) <= len(before)
    for gpu in found.gpus or ():
        for name, value in asdict(gpu).items():
            if name not in ("index", "lost", "mig_devices", "cells") and value is not None:
                assert value == getattr(before[gpu.pci], name), (gpu.pci, name)
        for name, value in asdict(gpu.cells).items():
            if name != "unread" and value is not None and value != "Reset":
                assert value == getattr(before[gpu.pci].cells, name), (gpu.pci, name)


@given(name=st.sampled_from(XML), share=st.floats(0, 1))
def test_a_cut_document_has_no_gpus(documents: Callable[[str], str], name: str, share: float) -> None:
    text = documents(name)
    cut = text[: int(share * text.rindex("</nvidia_smi_log>"))]
    assert smi(cut).gpus is None
    assert smi(cut).unknown["gpus"]


@given(name=st.sampled_from(XML), data=st.data(), blank=st.sampled_from(NO_VALUES))
def test_a_blanked_cell_is_none(documents: Callable[[str], str], name: str, data: st.DataObject, blank: str) -> None:
    text = documents(name)
    cells = [match for tag in CELLS for match in re.finditer(rf"<{tag}>([^<]*)</", text)]
    match = data.draw(st.sampled_from(cells))
    after = smi(text[: match.start(1)] + blank + text[match.end(1) :]).gpus
    assert after is not None
    gpu = after[text[: match.start()].count("<gpu id") - 1]
    tag = match[0][1:].partition(">")[0]
    no_mig = tag.endswith("_mig") and blank == "N/A" and not gpu.lost and "gpus.0.mig" not in smi(text).unknown
    assert getattr(gpu, CELLS[tag]) is (False if no_mig else None)
    assert gpu.lost == ("lost" in blank or ("GPU is lost" in text and gpu.index == 4))


@given(
    name=st.sampled_from(("mocknvml_h100_gpu3_hw_thermal", "telegraf_rtx-4000-sff-ada-v13")),
    data=st.data(),
    blank=st.sampled_from(NO_VALUES),
)
def test_a_blanked_state_is_none_and_unread(
    documents: Callable[[str], str], name: str, data: st.DataObject, blank: str
) -> None:
    """Names differ by driver: clocks_event_reason_ and clocks_throttle_reason_ begin those of slowdowns."""
    text = documents(name)
    tags = "|".join(STATES)
    cells = list(re.finditer(rf"<(?:clocks_(?:event|throttle)_reason_)?({tags})>([^<]*)</", text))
    match = data.draw(st.sampled_from(cells))
    found = gpus(text[: match.start(2)] + blank + text[match.end(2) :])
    gpu = list(found.values())[text[: match.start()].count("<gpu id") - 1]
    if "lost" in blank:
        assert gpu.lost
        return
    field = STATES[match[1]]
    reset = field == "recovery_action" and "requires reset" in blank
    assert getattr(gpu.cells, field) == ("Reset" if reset else None)
    assert (field in gpu.cells.unread) == (blank not in NOT_OFFERED)


@given(name=st.sampled_from(XML), data=st.data(), value=st.sampled_from(NO_VALUES + NO_NUMBERS))
def test_no_cell_is_made_up(documents: Callable[[str], str], name: str, data: st.DataObject, value: str) -> None:
    """Any leaf, not only those that we read, becomes something that is no value."""
    text = documents(name)
    leaves = [match for match in re.finditer(r"<(\w+)>([^<]*)</\1>", text) if match[1] not in CELLS]
    match = data.draw(st.sampled_from(leaves))
    mutated = text[: match.start(2)] + value + text[match.end(2) :]
    assert_nothing_made_up(mutated, text)


@given(st.integers(0, 1 << 200))
def test_a_count_is_read_whole_or_not_at_all(count: int) -> None:
    """Hypothesis found 5,000 digits read as their first 32."""
    assert whole_number(str(count)) == whole_number(hex(count)) == (count if count < 1 << 128 else None)
    assert whole_number("9" * 5000) is None


@given(name=st.sampled_from(XML), data=st.data())
def test_a_missing_gpu_is_missed(documents: Callable[[str], str], name: str, data: st.DataObject) -> None:
    text = documents(name)
    blocks = list(re.finditer(r"\s*<gpu id.*?</gpu>", text, re.DOTALL))
    match = data.draw(st.sampled_from(blocks))
    mutated = text[: match.start()] + text[match.end() :]
    found = smi(mutated)
    assert found.gpus is not None
    assert len(found.gpus) == len(blocks) - 1
    assert "gpus.count" in found.unknown
    assert_nothing_made_up(mutated, text)


@given(name=st.sampled_from(XML), before=st.text(max_size=200), after=st.text(max_size=200))
def test_what_stands_around_a_document_is_ignored(
    documents: Callable[[str], str], name: str, before: str, after: str
) -> None:
    text = documents(name)
    assert smi(before + text + after).gpus == smi(text).gpus


@given(name=st.sampled_from(XML), data=st.data(), noise=st.text(min_size=1, max_size=20))
def test_noise_inside_a_document(documents: Callable[[str], str], name: str, data: st.DataObject, noise: str) -> None:
    text = documents(name)
    at = data.draw(st.integers(0, len(text)))
    found = smi(text[:at] + noise + text[at:])
    assert found.gpus is not None or found.unknown["gpus"]
    assert len(found.gpus or ()) <= len(gpus(text))


@given(data=st.data())
def test_a_cut_kernel_log_has_no_more_messages(samples: Path, data: st.DataObject) -> None:
    text = load(samples / data.draw(st.sampled_from(["xid/dmesg_burst_13_43.txt", "xid/lines_sxid_real.txt"])))
    whole = host_facts({"kernel_log": CommandResult(0, text)}).xids or ()
    cut = text[: data.draw(st.integers(1, len(text)))]
    found = host_facts({"kernel_log": CommandResult(0, cut)}).xids
    assert found is not None
    assert sum(xid.count for xid in found) <= sum(xid.count for xid in whole)
    if cut.endswith("\n"):
        assert {(xid.code, xid.device) for xid in found} <= {(xid.code, xid.device) for xid in whole}


ALL = requests(["vm.swappiness"], ["kubelet"])
FIELDS = {fact.name: fact.fields for fact in FACTS} | {"services": ("services",), "sysctls": ("sysctls",)}
KEYS = ["blockdevices", "children", "type", "serial", "name", "ifname", "link_type", "operstate", "parentdev", "image"]
KEYS += ["version", "nonce", "value", "critical_warning", "media_errors", "avail_spare", "percent_used"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


def read_all(answer: CommandResult) -> HostFacts:
    return host_facts(dict.fromkeys(FIELDS, answer), ["vm.swappiness"], ["kubelet"])


@given(
    status=st.sampled_from([0, 1, 2, 9, 126, 127, 255, -9]),
    out=st.text(max_size=300),
    err=st.text(max_size=100),
    timed_out=st.booleans(),
)
def test_any_text_is_a_value_or_a_reason(status: int, out: str, err: str, timed_out: bool) -> None:
    facts = read_all(CommandResult(status, out, err, timed_out))
    for name, fields in FIELDS.items():
        for field in fields:
            first = field.partition(".")[0]
            assert field != first or getattr(facts, first) is not None or field in facts.unknown, (name, field)


@given(prefix=st.sampled_from(["", "WARNING: [x]\n", "== /dev/nvme0 S M\n", "{not json} "]), document=JSON)
def test_any_json_is_a_value_or_a_reason(prefix: str, document: object) -> None:
    read_all(CommandResult(0, prefix + json.dumps(document)))


HOSTILE = ["9" * 309, "9" * 5000, "-1e999", "1e999", "NaN", "-Infinity", '"\\ud800"', "[" * 100_000, "1e308", "-0.0"]
LOG = "== /dev/nvme0 S M\n"


@given(key=st.sampled_from(KEYS), value=st.sampled_from(HOSTILE), more=st.sampled_from(HOSTILE))
def test_a_number_that_nothing_holds_is_a_value_or_a_reason(key: str, value: str, more: str) -> None:
    whole = f'{{"{key}": {value}, "serial": {more}}}'
    for text in (whole, f"[{whole}]", LOG + whole, f'{{"blockdevices": [{whole}]}}'):
        facts = read_all(CommandResult(0, text))
        for name, fields in FIELDS.items():
            for field in fields:
                first = field.partition(".")[0]
                assert field != first or getattr(facts, first) is not None or field in facts.unknown, (name, field)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "<nvidia_smi_log>" + "<a>" * 100_000 + "</nvidia_smi_log>",
        "<nvidia_smi_log>" + "<a>" * 50_000 + "</a>" * 50_000 + "</nvidia_smi_log>",
        '{"critical_warning": ' + "9" * 5000 + "}",
        "== /dev/nvme0 S M\n" + '{"media_errors": ' + "9" * 4000 + "}",
        "NVRM: Xid (PCI:0000:19:00): " + "9" * 5000,
        "GPU " + "9" * 5000 + ": \n\t Link 0: 25 GB/s\n",
        "\0" * 1000,
        "a" * (4 * 1024 * 1024),
    ],
    ids=["lists", "objects", "open tags", "tags", "integer", "counter", "code", "index", "zeros", "bulk"],
)
def test_hostile_sizes(text: str) -> None:
    read_all(CommandResult(0, text))


def test_output_that_was_cut_is_unknown(documents: Callable[[str], str]) -> None:
    """A document that reached the frame's bound may lack anything after it."""
    padded = documents(XML[0]) + " " * (4 * 1024 * 1024)
    assert smi(padded).gpus is None
    assert "were cut" in smi(padded).unknown["gpus"]
