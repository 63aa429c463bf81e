"""The filter of nvidia-smi's document, run by the shells and awks that nodes have: no parser can tell that it ran."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.ssh.facts import host_facts
from reconciler.drivers.ssh.facts.smi_filter import filtered
from reconciler.model.gate import CommandResult
from tests.facts.test_mutations import NO_VALUES, XML, load

AWKS = {"mawk": "mawk", "gawk": "gawk --posix", "busybox": "busybox awk", "original-awk": "original-awk"}
LARGEST = 0.25  # of a document of eight GPUs

Filter = Callable[[str], CommandResult]


def run(text: str, path: str, command: str = "cat") -> CommandResult:
    """Run the filter on a text, as the facts program does: by sh, in the C locale."""
    done = subprocess.run(
        ["sh", "-c", filtered(command)], input=text.encode(), capture_output=True, env={"PATH": path, "LC_ALL": "C"}
    )
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module", params=[name for name in AWKS if shutil.which(name)])
def awk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filter:
    """The filter with one of the awks that are installed here."""
    own = tmp_path_factory.mktemp(request.param)
    (own / "awk").write_text(f'#!/bin/sh\nexec {AWKS[request.param]} "$@"\n')
    (own / "awk").chmod(0o755)
    return lambda text: run(text, f"{own}:{os.environ['PATH']}")


def facts(text: str, status: int = 0) -> object:
    found = host_facts({"nvidia_smi": CommandResult(status, text)})
    told = {name: re.sub(r"line \d+, column \d+", "somewhere", why) for name, why in found.unknown.items()}
    return found.gpus, found.driver, found.smi, found.gpu_counters, told


def recordings(samples: Path) -> list[str]:
    found = [path.read_text() for path in sorted((samples / "nvidia-smi-xml").glob("*.xml"))]
    assert found
    return found


def test_no_parser_can_tell_that_it_ran(awk: Filter, samples: Path) -> None:
    for text in recordings(samples):
        passed = awk(text)
        assert (passed.exit_status, passed.stderr) == (0, "")
        assert facts(passed.stdout) == facts(text)
        assert text.count("<gpu id=") < 8 or len(passed.stdout) < LARGEST * len(text)
        assert awk(passed.stdout).stdout == passed.stdout, "what is left out once is left out"


def test_a_total_passes_of_what_is_read_alone(awk: Filter) -> None:
    """Before 450, uncorrectable errors are the total of double_bit; memory has totals, too."""
    memory = "<fb_memory_usage>\n<total>81920 MiB</total>\n</fb_memory_usage>\n"
    errors = "<double_bit>\n<device_memory>0</device_memory>\n<total>3</total>\n</double_bit>\n"
    within = "<ecc_errors>\n<volatile>\n{}</volatile>\n</ecc_errors>\n"
    document = '<nvidia_smi_log>\n<gpu id="0">\n{}</gpu>\n</nvidia_smi_log>\n'
    passed = awk(document.format(memory + within.format(errors))).stdout
    assert passed == document.format(within.format(errors.replace("<device_memory>0</device_memory>\n", "")))
    nested = "<double_bit>\n<texture_memory>\n</texture_memory>\n<total>3</total>\n</double_bit>\n"
    assert "<total>3</total>" in awk(document.format(within.format(nested))).stdout


@given(name=st.sampled_from(XML), data=st.data())
def test_whatever_a_cell_says(samples: Path, name: str, data: st.DataObject) -> None:
    """A cell is blanked, says that its GPU is lost, or is damaged; or lines are lost; or the end is."""
    text = load(samples / "nvidia-smi-xml" / f"{name}.xml")
    cells = [match.span(1) for match in re.finditer(r">([^<>\n]+)</", text)]
    start, end = data.draw(st.sampled_from(cells))
    cell = data.draw(
        st.sampled_from([*NO_VALUES, "GPU has fallen off the bus", "a & b", "<", "</serial>", "<b>", "\x01"])
    )
    changed = text[:start] + cell + text[end:]
    lines = changed.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines)))
    changed = data.draw(st.sampled_from([changed, "".join(lines[:at]), "".join(lines[:at] + lines[at + 1 :])]))
    assert facts(run(changed, os.environ["PATH"]).stdout) == facts(changed)


@given(name=st.sampled_from(XML), share=st.floats(0, 1))
def test_a_document_that_is_cut_stays_cut(samples: Path, name: str, share: float) -> None:
    text = load(samples / "nvidia-smi-xml" / f"{name}.xml")
    cut = text[: int(share * text.rindex("</nvidia_smi_log>"))]
    passed = host_facts({"nvidia_smi": run(cut, os.environ["PATH"])})
    assert passed.gpus is None
    assert passed.unknown["gpus"]


@pytest.mark.parametrize(
    "line",
    ["<display_mode>On</serial>", "<display_mode>a & b</display_mode>", "<display_mode>On<</display_mode>", "<x>"],
)
def test_a_line_that_damages_a_document_passes(awk: Filter, line: str) -> None:
    whole = "<nvidia_smi_log>\n<driver_version>570</driver_version>\n{}</nvidia_smi_log>\n"
    assert facts(whole.format("")) == facts(awk(whole.format("<display_mode>On</display_mode>\n")).stdout)
    passed = awk(whole.format(f"{line}\n")).stdout
    assert line in passed
    assert host_facts({"nvidia_smi": CommandResult(0, passed)}).unknown["gpus"].startswith("malformed")


def test_errors_and_exit_statuses_pass() -> None:
    said = run("", os.environ["PATH"], "{ echo 'No devices were found'; echo why >&2; (exit 6); }")
    assert said == CommandResult(6, "No devices were found\n", "why\n")


def test_without_awk_everything_passes(tmp_path: Path) -> None:
    for tool in ("cat", "sh"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    text = "<gpu>\n<serial>1</serial>\n<display_mode>Disabled</display_mode>\n</gpu>\n"
    assert run(text, str(tmp_path)) == CommandResult(0, text, "")
    assert run(text, os.environ["PATH"]).stdout == "<gpu>\n<serial>1</serial>\n</gpu>\n"


def test_a_document_of_any_depth_is_read() -> None:
    deep = "<x>" * 20_000 + "</x>" * 20_000
    document = f"<nvidia_smi_log><gpu id='00000000:1A:00.0'>{deep}<uuid>GPU-1</uuid></gpu></nvidia_smi_log>"
    found = host_facts({"nvidia_smi": CommandResult(0, document)})
    assert found.gpus is not None, found.unknown
    assert found.gpus[0].uuid == "GPU-1"
