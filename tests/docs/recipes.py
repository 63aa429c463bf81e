"""What each recipe of CONTRIBUTING has somebody change, as edits that a test makes in a copy of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Edit:
    """Insert `text` after the first line of `file` that contains `anchor`; without an anchor, at its end.

    `instead`: in place of that line.
    """

    file: str
    text: str
    anchor: str = ""
    instead: bool = False

    def make(self, root: Path) -> None:
        """Raise LookupError when the line is not there."""
        path = root / self.file
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if self.anchor:
            at = next((at for at, line in enumerate(lines) if self.anchor in line), None)
            if at is None:
                raise LookupError(f"{self.file} has no line with {self.anchor!r}")
        else:
            at = len(lines)
        path.write_text("".join([*lines[: at + (not self.instead)], self.text, *lines[at + 1 :]]))


@dataclass(frozen=True)
class Recipe:
    """`title`: of its section in CONTRIBUTING. `checks`: tests that pass when the recipe was followed."""

    title: str
    edits: tuple[Edit, ...]
    checks: tuple[str, ...]
    schemas: bool = False  # they are written anew


FACT = Recipe(
    "A fact of the host",
    (
        Edit("reconciler/model/observed.py", "    machine_id: str | None = None\n", "kernel_events: tuple[KernelEvent"),
        Edit(
            "reconciler/drivers/ssh/facts/system.py",
            'MACHINE_ID = Fact("machine_id", "cat /etc/machine-id", parse_line, ("machine_id",))\n',
        ),
        Edit("reconciler/drivers/ssh/facts/__init__.py", "    system.MACHINE_ID,\n", "    system.BOOT_ID,"),
        Edit(
            "reconciler/drivers/ssh/facts/__init__.py",
            "        machine_id=reader.read(system.MACHINE_ID),\n",
            "boot_id=reader.read(",
        ),
        Edit(
            "reconciler/lab/wire/facts/system.py",
            "\n\ndef machine_id(asked: Question) -> CommandResult:\n"
            '    return CommandResult(0, asked.state.uuid.lower().replace("-", "") + "\\n")\n',
        ),
        Edit("reconciler/lab/wire/facts/__init__.py", '    "machine_id": system.machine_id,\n', '"boot_id": '),
        Edit(
            "reconciler/lab/inprocess/facts.py",
            '        machine_id=state.uuid.lower().replace("-", ""),\n',
            "boot_id=system.boot_id",
        ),
        Edit(
            "tests/facts/cases/system.yaml",
            '\n- {name: machine id, fact: machine_id, output: "0a1b\\n", expect: {machine_id: 0a1b}, unknown: {}}\n'
            '- {name: no machine id, fact: machine_id, output: "a b\\n", expect: {machine_id: null}, '
            "unknown: {machine_id: not one word}}\n",
        ),
    ),
    (
        "tests/facts/test_cases.py",
        "tests/lab/test_wire_ssh_end_to_end.py::test_wire_and_in_process_facts_are_equal[nothing]",
    ),
    schemas=True,
)

SIGNAL = Recipe(
    "A health signal",
    (
        Edit(
            "reconciler/health/signals.yaml",
            "\n  nvme_media:\n    fact: host.nvme\n    scope: drive\n    class: persistent\n    first: report\n"
            "    healedBy: [new_serial]\n    because: a count over the life of the drive\n"
            "    source: NVMe base specification 2.0, Media and Data Integrity Errors\n",
            "Health Information, Critical Warning bit 1",
        ),
        Edit(
            "reconciler/health/parts.py",
            '    if drive.media_errors:\n        yield "nvme_media", f"{drive.media_errors} media errors"\n',
            "warning = drive.critical_warning or 0",
        ),
        Edit(
            "tests/health/test_health.py",
            '    ("nvme_media", drive(media_errors=7), Effect.REPORTS),\n',
            '("nvme_hot", drive(',
        ),
    ),
    ("tests/health/test_health.py",),
)

QUIRK = Recipe(
    "A vendor quirk",
    (
        Edit(
            "reconciler/drivers/redfish/quirks.yaml",
            "\n  - name: Acme\n    match: {vendors: [acme]}\n    behaviours:\n      serialProperty:\n        is: SKU\n"
            "        pitfall: A13\n        source: acme/bmc#1\n        because: SerialNumber is the board's\n",
        ),
        Edit(
            "tests/drivers/redfish/test_quirks.py",
            '    "serial_property": (\n        Case("Dell Inc.", DELL, serial_is_that_of_dmi),\n'
            '        Case("Acme", DELL, serial_is_that_of_dmi),\n    ),\n',
            '    "serial_property": (Case(',
            instead=True,
        ),
    ),
    (
        "tests/drivers/redfish/test_quirks.py::test_every_entry_of_the_table_has_a_case",
        "tests/drivers/redfish/test_quirks.py::test_every_quirk_cites_a_pitfall_that_there_is",
        "tests/drivers/redfish/test_quirks.py::test_without_the_quirk_it_goes_wrong_and_with_it_well[serial_property-1]",
    ),
)

FIELD = Recipe(
    "A field of the spec",
    (
        Edit(
            "reconciler/spec/kinds/persona.py",
            '    pause: PositiveDuration = Field(default="1s", description="How long a node rests.")\n',
            'description="How long a drain may take."',
        ),
        Edit("reconciler/model/drain.py", "    pause_s: float = 0.0\n", "command: tuple[str, ...] = ()  # provider"),
        Edit(
            "reconciler/spec/policies.py",
            "        pause_s=parse_duration(spec.pause),\n",
            "timeout_s=parse_duration(spec",
        ),
        Edit("reconciler/spec/policy_positions.py", '    "pause_s": "pause",\n', "_DRAIN: Final = {"),
        Edit(
            "tests/spec/test_resolve.py",
            "\n\ndef test_the_pause_after_a_drain() -> None:\n"
            '    assert load().nodes["gpu-a001"].profile.drain.pause_s == 1.0\n',
        ),
    ),
    ("tests/spec/test_resolve.py", "tests/properties/test_approval.py"),
    schemas=True,
)

TOOL = Recipe(
    "A test tool of the gate",
    (
        Edit(
            "reconciler/model/gate_tools.py",
            '    ToolRow("mprime", "Main memory holds what is written.", "loops", "loops", required=("loops",)),\n',
            "_ROWS: Final = (",
        ),
        Edit(
            "reconciler/gate/tools/mprime.py",
            '''"""mprime: one loop over 64 MiB of main memory, to its closing line."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.gate.tools.common import Tool
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.observed import Observed


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return (("mprime", "64M", "1"),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    (output,) = outputs
    lines = output.stdout.splitlines()
    version = lines[0].partition("version ")[2].partition(" ")[0] if lines else ""
    loops = float(sum(line.startswith("Loop ") for line in lines))
    if output.exit_status != 0 and "FAILURE" in output.stdout:
        verdict, reasons = Verdict.FAIL, ("memory holds other values than were written",)
    elif output.exit_status != 0 or lines[-1:] != ["Done."] or not loops or not version:
        verdict, reasons = Verdict.ERROR, ("it did not run to its end",)
    else:
        verdict, reasons = Verdict.PASS, ()
    return TestResult(test.name, test.tool, verdict, reasons, {"loops": loops}, version, output.stdout[:4000])


TOOL = Tool(_commands, _judge)
''',
        ),
        Edit("reconciler/gate/tools/__init__.py", "from reconciler.gate.tools import mprime\n", "from __future__"),
        Edit("reconciler/gate/tools/__init__.py", '    "mprime": mprime.TOOL,\n', "TOOLS: dict[str, Tool] = {"),
        Edit(
            "reconciler/lab/hardware/tools/mprime.py",
            '''"""mprime as it prints: a version, a line per loop, and Done."""

from __future__ import annotations

from reconciler.lab.hardware.tools.call import Call, Ran, done


def mprime(call: Call) -> Ran:
    return done("mprime version 4.6.0 (64-bit)\\nLoop 1/1:\\n  Stuck Address       : ok\\nDone.\\n", seconds=20)
''',
        ),
        Edit(
            "reconciler/lab/hardware/commands.py",
            "from reconciler.lab.hardware.tools.mprime import mprime\n",
            "from reconciler.lab.hardware.tools.fio import",
        ),
        Edit("reconciler/lab/hardware/commands.py", '    "mprime": mprime,\n', '    "fio": fio,'),
        Edit(
            "tests/gate/test_mprime.py",
            '''"""mprime: the lab's passes, and whatever is cut from it does not."""

from __future__ import annotations

from reconciler.gate.tools import TOOLS
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.tools.call import Call
from reconciler.lab.hardware.tools.mprime import mprime
from reconciler.model.gate import CommandResult, Verdict
from tests.gate.cases import SEEN, gate_test, wanted


def verdict(text: str, status: int = 0) -> Verdict:
    found = TOOLS["mprime"].judge(gate_test("mprime"), wanted(), SEEN, [CommandResult(status, text)])
    assert "loops" in found.metrics
    return found.verdict


def test_only_a_whole_document_passes() -> None:
    machine: Machine = None  # type: ignore[assignment]  # it does not look at one
    text = mprime(Call(machine, "mprime", ("64M", "1"))).result.stdout
    assert verdict(text) is Verdict.PASS
    assert {verdict(text[:at]) for at in range(len(text) - 1)} == {Verdict.ERROR}
    assert verdict(text.replace(": ok", ": FAILURE"), 4) is Verdict.FAIL
''',
        ),
    ),
    ("tests/gate/test_mprime.py", "tests/spec/test_tools.py"),
    schemas=True,
)

RECIPES = (FACT, TOOL, FIELD, QUIRK, SIGNAL)
