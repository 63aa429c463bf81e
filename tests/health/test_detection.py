"""Precision and recall of signals on recordings of real tools: `pytest -s` prints the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.redfish import events
from reconciler.drivers.ssh.facts import host_facts
from reconciler.health.signals import signals
from reconciler.health.table import Effect, health_table
from reconciler.model.desired import DesiredInventory
from reconciler.model.gate import CommandResult
from tests import builders as b

SOURCES: list[Mapping[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("recordings.yaml"))
# Settings of a machine that was recorded, and no illness: a recording says nothing of what its owner wanted.
SETTINGS = frozenset({"persistence_off"})
HEADS = {
    "disks": "== /dev/sda\n",
    "nvme": "== /dev/nvme0 S M\n",
    "modules": "== eno1\n",
}  # as our command prints it before the tool's own output


@cache
def recorded(samples: Path) -> tuple[tuple[str, frozenset[str], frozenset[str], bool], ...]:
    """Rows of recording, the signals that it should give, those that it gives, and whether a miss is known."""
    return tuple(row for source in SOURCES for row in _of_source(samples, source))


def _of_source(samples: Path, source: Mapping[str, Any]) -> Iterator[tuple[str, frozenset[str], frozenset[str], bool]]:
    ill, missed = source.get("ill", {}), source.get("missed", {})
    paths = sorted(samples.joinpath(source["folder"]).iterdir())
    names = set()
    for path in paths:
        text = path.read_text(errors="replace")
        if path.suffix in (".src", ".stderr", ".tsv", ".xlsx") or source.get("only", "") not in path.name:
            continue
        if not _is_of(text, source.get("device", "")):
            continue
        name = next((known for known in ill if path.name.startswith(f"{known}.") or path.name == known), path.name)
        names.add(name)
        found = _signals(source["fact"], text) - SETTINGS
        yield f"{source['folder']}/{path.name}", frozenset(ill.get(name, ())), found, name in missed
    assert set(ill) <= names, "a recording that is not there"
    assert set(missed) <= set(ill)


def _is_of(text: str, protocols: str) -> bool:
    """Whether the report of smartctl is about a device of one of these protocols; "" for all recordings."""
    if not protocols:
        return True
    device = json.loads(text).get("device", {})
    return device.get("protocol") in protocols.split()


def _of_log(text: str) -> frozenset[str]:
    """The signals of a BMC's log, as if it had been written just now."""
    found = tuple(replace(events.event(entry), age_s=60.0) for entry in json.loads(text)["Members"])
    seen = b.observed(inventory=b.inventory(events=found))
    return frozenset(signal.name for signal in signals(b.profile(), seen))


def _signals(fact: str, text: str) -> frozenset[str]:
    if fact == "bmc_log":
        return _of_log(text)
    facts = host_facts({fact: CommandResult(0, HEADS.get(fact, "") + text)})
    inventory = DesiredInventory(gpus=len(facts.gpus) if facts.gpus else None)
    return frozenset(signal.name for signal in signals(b.profile(inventory=inventory), b.observed(host=facts)))


def test_no_recording_gives_a_signal_that_its_source_does_not_tell(samples: Path) -> None:
    """Precision is 1 for every signal, whatever it leads to."""
    assert [(name, sorted(found - wanted)) for name, wanted, found, _ in recorded(samples) if found - wanted] == []


def test_each_illness_that_a_recording_shows_is_told_but_for_those_that_are_known_to_be_missed(samples: Path) -> None:
    silent = [(name, sorted(wanted - found)) for name, wanted, found, known in recorded(samples) if wanted - found]
    assert silent == [
        ("nvidia-smi-xml/mocknvml_h100_gpu3_hw_thermal.xml", ["thermal_slowdown"]),
        ("syslog-ib/azurehpc_1dev_6flap_syslog", ["port_flap"]),
    ]
    assert all(known for name, wanted, found, known in recorded(samples) if wanted - found)
    assert not [name for name, wanted, found, known in recorded(samples) if known and wanted <= found], (
        "no miss any more"
    )


def test_the_table_of_detection(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = recorded(samples)
    true = Counter(name for _, wanted, found, _ in rows for name in wanted & found)
    false = Counter(name for _, wanted, found, _ in rows for name in found - wanted)
    missed = Counter(name for _, wanted, found, _ in rows for name in wanted - found)
    with capsys.disabled():
        print(f"\n{len(rows)} recordings\n{'signal':24} {'told':>5} {'wrong':>6} {'missed':>7} precision recall")
        for name in sorted(true | false | missed):
            told, wrong, silent = true[name], false[name], missed[name]
            precision = f"{told / (told + wrong):9.2f}" if told + wrong else f"{'-':>9}"
            print(f"{name:24} {told:5} {wrong:6} {silent:7} {precision} {told / (told + silent):6.2f}")
    acted = [name for name in true | false if health_table().effect_of(name) is not Effect.REPORTS]
    assert len(rows) >= 80
    assert sum(false[name] for name in acted) == 0
    assert sum(missed.values()) == 2
    assert {"gpu_missing", "row_remap_failed", "xid_79", "disk_failing"} <= {*acted}


def test_most_recordings_are_of_healthy_parts_and_none_of_those_is_acted_upon(samples: Path) -> None:
    well = [(name, found) for name, wanted, found, _ in recorded(samples) if not wanted]
    assert len(well) >= 60
    assert [name for name, found in well if found] == []
