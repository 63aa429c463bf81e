"""PCIe links as `lspci -vvv` of real machines prints them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import SEEN, gate_test, wanted

# The lines that matter of a GPU behind a switch, as pciutils 3.9 prints them.
GPU = """0000:{bus:02x}:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
\tSubsystem: NVIDIA Corporation Device 16c1
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed {speed}, Width {width}
\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-

"""
BRIDGE = """0000:0a:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

"""


def gpus(speed: str = "32GT/s", width: str = "x16", number: int = 8) -> str:
    whole = [GPU.format(bus=0x10 + at, speed="32GT/s", width="x16") for at in range(number - 1)]
    return BRIDGE + "".join([*whole, GPU.format(bus=0x40, speed=speed, width=width)])


def judged(text: str, *, load: str = "") -> TestResult:
    outputs = [CommandResult(0, "lspci version 3.9.0\n"), CommandResult(0, text)]
    test = gate_test("pcie", **({"load": load} if load else {}))
    return TOOLS["pcie"].judge(test, wanted(), SEEN, outputs)


def test_a_whole_node_passes_and_has_its_figures() -> None:
    result = judged(gpus(), load="gpu_burn 30")
    assert result.verdict is Verdict.PASS, result.reasons
    assert (result.metrics["width"], result.metrics["speed_gts"], result.metrics["acs_on"]) == (16, 32, 0)
    assert result.metrics["width.spread"] == 0


@pytest.mark.parametrize(
    ("text", "load", "verdict", "reason"),
    [
        (gpus(width="x8 (downgraded)"), "", Verdict.FAIL, "0000:40:00.0: width x8 of x16"),
        (gpus(speed="16GT/s (downgraded)"), "x", Verdict.FAIL, "0000:40:00.0: 16 GT/s under load, of 32"),
        (gpus(number=7), "", Verdict.FAIL, "7 GPUs are on the PCIe bus, 8 are declared"),
        (gpus(number=9), "", Verdict.FAIL, "9 GPUs are on the PCIe bus, 8 are declared"),
        (gpus().replace("\t\tLnkSta:", "\t\tLnkXta:", 1), "", Verdict.UNJUDGED, "no capability and state"),
        (re.sub(r"LnkCap.*", "<access denied>", gpus()), "", Verdict.ERROR, "rights of root"),
        ("", "", Verdict.FAIL, "0 GPUs"),
    ],
)
def test_a_link_that_is_not_whole(text: str, load: str, verdict: Verdict, reason: str) -> None:
    result = judged(text, load=load)
    assert any(reason in one for one in result.reasons), result.reasons
    assert result.verdict is verdict or verdict is Verdict.ERROR


def test_an_idle_link_may_be_slow_and_says_so_in_its_metrics() -> None:
    result = judged(gpus(speed="2.5GT/s (downgraded)"))
    assert result.verdict is Verdict.PASS, result.reasons
    assert result.metrics["speed_gts"] == 2.5
    assert result.metrics["speed_gts.spread"] == pytest.approx(92.1875)


def test_acs_counts_the_functions_that_redirect() -> None:
    text = gpus().replace("ACSCtl:\tSrcValid- TransBlk- ReqRedir-", "ACSCtl:\tSrcValid+ TransBlk- ReqRedir+")
    assert judged(text).metrics["acs_on"] == 1


def test_nothing_that_is_cut_passes() -> None:
    text = gpus()
    assert {judged(text[:at]).verdict for at in range(0, len(text) - 1, 7)} <= set(Verdict) - {Verdict.PASS}


def test_real_outputs_are_judged(samples: Path) -> None:
    """One of them is of a whole node with eight H100, which idle."""
    files = [path for path in sorted((samples / "lspci").iterdir()) if path.suffix != ".src"]
    results = {path.name: judged(path.read_text(errors="replace")) for path in files}
    assert [name for name, result in results.items() if result.verdict is Verdict.PASS] == ["gpud_lspci-vvv.txt"]
    metrics = results["gpud_lspci-vvv.txt"].metrics
    assert (metrics["width"], metrics["width.spread"]) == (16, 0)
