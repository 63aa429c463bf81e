"""A gate tool of the worked example: openssl really runs, and what decides is not left to the extension."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.app.extensions import acceptance_gate, check_extensions, examine_extensions, gate_programs
from reconciler.app.wire_fabric import WireFabric
from reconciler.drivers.extensions import GateTool, Measured, Trial, extensions_of
from reconciler.drivers.extensions.fit import ExtensionRefused
from reconciler.gate import certificate as certificates
from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.extension import Program, tool_of
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.desired import Acceptance, Desired, Endpoints, Fleet, GatePhase, GateTest, Threshold
from reconciler.model.errors import UsageError
from reconciler.model.gate import Certificate, CommandResult, TestResult, Verdict
from reconciler.model.observed import Answered, HostFacts
from reconciler.model.ports import Host
from reconciler.spec import check_spec
from tests import builders as b
from tests.conftest import ROOT
from tests.drivers.test_extensions import NAMED, PIN, ROW, _forget, example, packages, spec, store
from tests.gate.cases import SEEN, wanted

__all__ = ["example", "packages", "spec"]  # fixtures
ARGS = {"use": "crypto_speed", "metrics": "encrypt_mbps", "options": "cipher=aes-128-gcm"}
PRINTED = "OpenSSL 3.0.19 27 Jan 2026\n+H:16384\n+F:22:AES-128-GCM:3940220928.00\n"
PHASES = "  phases:\n"
TEST = (
    "    - name: encryption\n      tests:\n        - name: crypto\n          tool: extension\n          args:\n"
    "            use: crypto_speed\n            metrics: encrypt_mbps\n"
    "          thresholds:\n            - {metric: encrypt_mbps, min: 500}\n"
)


def gate_test(*bars: Threshold, **changes: Any) -> GateTest:
    return GateTest("crypto", "extension", ARGS | changes.pop("args", {}), bars, 60.0, **changes)


def desired(test: GateTest) -> Desired:
    acceptance = Acceptance("standard", (GatePhase("burn", (test,)),), None)
    return b.node(profile=replace(b.PROFILE, acceptance=acceptance))


class ThisMachine:
    """Runs commands here, as sshd does on a node."""

    async def facts(self, *_: Any) -> Answered[HostFacts]:
        return Answered(b.NOW, b.facts())

    async def run(self, argv: Sequence[str], *, timeout: float) -> CommandResult:
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=timeout)
        return CommandResult(done.returncode, done.stdout, done.stderr)


def certified(test: GateTest, fleet: Fleet) -> Certificate:
    gate = acceptance_gate(lambda _: None, lambda: fleet)
    host = cast("Host", ThisMachine())
    return asyncio.run(gate.run(desired(test), host, b.observed(), VirtualClock()))


def admits(certificate: Certificate, test: GateTest) -> tuple[bool, Verdict]:
    node = desired(test)
    assert node.tests is not None
    binding = certificates.binding_of(node, b.observed(), certificates.tests_digest(node.tests))
    assert not isinstance(binding, str)
    found = certificates.judge(certificate, node.tests, binding, VirtualClock().now())
    return found.valid, found.verdict


@pytest.mark.wire
@pytest.mark.tool
def test_openssl_runs_and_the_spec_judges_what_it_measured(example: Path, spec: Callable[..., Fleet]) -> None:
    fleet = spec(NAMED, ROW)
    certificate = certified(gate_test(), fleet)
    [found] = certificate.results
    assert (found.verdict, found.reasons) == (Verdict.PASS, ())
    assert found.metrics["encrypt_mbps"] > 10
    assert (found.units, found.tool_version.split(".")[0]) == ({"encrypt_mbps": "MB/s"}, "3")
    assert "+F:" in found.printed
    assert admits(certificate, gate_test(Threshold("encrypt_mbps", 10.0, None))) == (True, Verdict.PASS)
    assert admits(certificate, gate_test(Threshold("encrypt_mbps", 1e9, None))) == (False, Verdict.FAIL)


@pytest.mark.wire
@pytest.mark.tool
def test_without_the_package_the_same_test_proves_nothing(example: Path, spec: Callable[..., Fleet]) -> None:
    certificate = certified(gate_test(), spec())
    assert [one.verdict for one in certificate.results] == [Verdict.UNJUDGED]
    assert "no extension that the Fleet names offers the gate tool 'crypto_speed'" in certificate.results[0].reasons[0]
    assert admits(certificate, gate_test())[0] is False


def judged(fleet: Fleet, output: CommandResult, **changes: Any) -> TestResult:
    return tool_of(gate_programs(fleet)).judge(gate_test(**changes), wanted(), SEEN, [output])


@pytest.mark.parametrize(
    ("output", "changes", "verdict", "why"),
    [
        (CommandResult(127, "", "sh: 1: openssl: not found"), {}, Verdict.ERROR, "not installed"),
        (CommandResult(1, PRINTED), {}, Verdict.ERROR, "exit status 1, and not 0"),
        (CommandResult(-1, PRINTED, timed_out=True), {}, Verdict.ERROR, "killed at its timeout"),
        (CommandResult(0, ""), {}, Verdict.UNJUDGED, "did not print its version"),
        (CommandResult(0, PRINTED * 2), {}, Verdict.UNJUDGED, "one rate of the cipher"),
        (CommandResult(0, PRINTED.replace("128", "256")), {}, Verdict.UNJUDGED, "one rate of the cipher"),
        (CommandResult(0, PRINTED.replace("3940220928.00", "1e999")), {}, Verdict.UNJUDGED, "one rate"),
        (CommandResult(0, PRINTED), {"versions": ("1.1",)}, Verdict.UNJUDGED, "version 3.0.19 is not among"),
        (CommandResult(0, PRINTED), {"args": {"metrics": "encrypt_mbps, decrypt_mbps"}}, Verdict.UNJUDGED,
         "does not measure decrypt_mbps"),
        (CommandResult(0, PRINTED), {"args": {"options": "cipher=$(reboot)"}}, Verdict.ERROR, "is no cipher"),
    ],
)  # fmt: skip
def test_what_is_no_evidence_does_not_pass(
    example: Path, spec: Callable[..., Fleet], output: CommandResult, changes: Any, verdict: Verdict, why: str
) -> None:
    fleet = spec(NAMED, ROW)
    assert judged(fleet, CommandResult(0, PRINTED)).verdict is Verdict.PASS
    found = judged(fleet, output, **changes)
    assert found.verdict is verdict, found
    assert why in " ".join(found.reasons)


def raises(*_: Any) -> Any:
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("returned", "verdict", "why"),
    [
        (lambda *_: None, Verdict.ERROR, "returned a NoneType, not Measured"),
        (raises, Verdict.ERROR, "the extension failed: KeyError"),
        (lambda *_: Measured({}), Verdict.UNJUDGED, "does not measure encrypt_mbps"),
        (lambda *_: Measured({"encrypt_mbps": float("nan")}), Verdict.UNJUDGED, "no finite number"),
        (lambda *_: Measured({"encrypt_mbps": True}), Verdict.UNJUDGED, "encrypt_mbps is no finite number"),
        (lambda *_: Measured(None), Verdict.ERROR, "the extension failed"),  # type: ignore[arg-type]
        (lambda *_: Measured({"encrypt_mbps": 9.0}, failed=("core 3 is wrong",)), Verdict.FAIL, "core 3 is wrong"),
    ],
)
def test_a_bug_of_an_extension_admits_nobody(returned: Any, verdict: Verdict, why: str) -> None:
    tool = tool_of({"crypto_speed": Program(lambda _: "true", returned)})
    found = tool.judge(gate_test(), wanted(), SEEN, [CommandResult(0, PRINTED)])
    assert (found.verdict, why in " ".join(found.reasons)) == (verdict, True), found


def test_a_command_that_can_t_be_made_runs_nothing() -> None:
    for command, why in ((raises, "the extension failed: KeyError"), (lambda _: " ", "gave no command line")):
        made = tool_of({"crypto_speed": Program(command, raises)}).commands(gate_test(), wanted(), SEEN)
        assert isinstance(made, str)
        assert why in made


def test_it_is_told_what_the_hardware_has_and_what_the_spec_asks() -> None:
    told: list[Trial] = []

    def command(trial: Trial) -> str:
        told.append(trial)
        return "true"

    tool = tool_of({"crypto_speed": Program(command, raises)})
    options = {"args": {"options": "cipher=aes-128-gcm, threads = 4"}}
    assert tool.commands(gate_test(**options), wanted(), SEEN) == (("env", "LC_ALL=C", "sh", "-c", "true", "sh"),)
    assert told[0].options == {"cipher": "aes-128-gcm", "threads": "4"}
    assert told[0].inventory["gpus"] == 8
    assert isinstance(TOOLS["extension"].commands(gate_test(), wanted(), SEEN), str), "without extensions"


def with_test(tmp_path: Path, use: str) -> Fleet:
    """Have the test in the profile of the worked example of a fleet, which the fixture `spec` has put there."""
    file = tmp_path / "fleet-spec/acceptance.yaml"
    text = (ROOT / "fleet-spec/acceptance.yaml").read_text()
    file.write_text(text.replace(PHASES, PHASES + TEST.replace("crypto_speed", use), 1))
    fleet, problems = check_spec(tmp_path / "fleet-spec", directory="fleet-spec")
    assert fleet is not None, problems
    return fleet


def test_a_test_that_nobody_can_run_is_refused_before_a_node_is_contacted(
    example: Path, spec: Callable[..., Fleet], tmp_path: Path
) -> None:
    spec(NAMED, ROW)
    fleet = with_test(tmp_path, "crypto_speed")
    check_extensions(fleet)
    said = list(examine_extensions(fleet))
    assert all(ok for _, ok, _, _ in said)
    assert any("gate_tools: crypto_speed" in what for _, _, what, _ in said)
    WireFabric(fleet, VirtualClock(), store(tmp_path), None)
    wrong = with_test(tmp_path, "crypto_sped")
    why = "test 'crypto' of .* uses the gate tool 'crypto_sped', which no package .* did you mean 'crypto_speed'"
    with pytest.raises(UsageError, match=why):
        WireFabric(wrong, VirtualClock(), store(tmp_path), None)
    assert [ok for _, ok, _, _ in examine_extensions(wrong)] == [True, False]
    joining = {name: replace(node, endpoints=Endpoints(None, None)) for name, node in wrong.nodes.items()}
    WireFabric(replace(wrong, nodes=joining), VirtualClock(), store(tmp_path), None)  # of a pull request: not contacted
    spec()
    with pytest.raises(UsageError, match="they offer none"):
        check_extensions(with_test(tmp_path, "crypto_speed"))


@pytest.mark.parametrize("statuses", ["0", "()", "(False,)", "[0]"])
def test_statuses_that_are_no_numbers_are_refused_before_a_node_is_drained(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statuses: str
) -> None:
    changed = shutil.copytree(example, tmp_path / "changed", ignore=shutil.ignore_patterns("__pycache__"))
    file = changed / "acme_fleet/crypto.py"
    text = file.read_text()
    assert "GateTool(api=1, " in text
    file.write_text(text.replace("GateTool(api=1, ", f"GateTool(api=1, statuses={statuses}, "))
    monkeypatch.syspath_prepend(str(changed))
    _forget()
    with pytest.raises(ExtensionRefused, match=r"'crypto_speed' in reconciler.gate_tools: statuses=.* no tuple"):
        extensions_of((PIN,)).all(GateTool)
