"""The generated pages of the reference name all that there is, and every page that wants one gets it."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType

import pytest

from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.main import COMMANDS
from reconciler.drivers.redfish.conformance import all_checks
from reconciler.drivers.redfish.quirks import packaged
from reconciler.health.table import health_table
from reconciler.model.gate_tools import TOOLS as GATE_TOOLS
from reconciler.planner.node.actions import ACTIONS
from tests.conftest import ROOT
from tests.docs.pages import DOCS, pages, text


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    found = importlib.util.spec_from_file_location("generated", DOCS / "generated.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_each_generated_page_is_used_once(generated: ModuleType) -> None:
    marks = [mark for path in pages() for mark in re.findall(r"^<!-- generated: (\w+) -->$", text(path), re.MULTILINE)]
    assert sorted(marks) == sorted(generated.PAGES)


def test_a_mark_is_replaced_by_what_it_names(generated: ModuleType) -> None:
    whole = generated.fill("before\n\n<!-- generated: exit_codes -->\n\nafter\n")
    assert whole.startswith("before\n\n| exit code | meaning |")
    assert "generated:" not in whole


def test_it_names_all_that_there_is(generated: ModuleType) -> None:
    told = {page: write() for page, write in generated.PAGES.items()}
    assert [name for name in COMMANDS if f"\n## reconciler {name}\n" not in "\n" + told["commands"]] == []
    assert [code for code in ExitCode if f"| {int(code)} | " not in told["exit_codes"]] == []
    assert [name for name in ACTIONS if f"| `{name}" not in told["actions"]] == []
    assert [name for name in GATE_TOOLS if f"| `{name}` |" not in told["gate_tools"]] == []
    assert [name for name in health_table().rules if f"| `{name}" not in told["signals"]] == []
    assert told["quirks"].count("\n") - 2 == sum(len(entry.behaviours.given()) for entry in packaged().entries)
    assert [check.name for check in all_checks() if f"| `{check.name}` |" not in told["conformance"]] == []
    assert "| `tool-proves-nothing` |" in told["conformance_extension"]
    assert "| `early-host-key` |" in told["conformance_installer"]
    assert "| `write-eviction` |" in told["conformance_kubernetes"]
    assert "| `secret-kept` |" in told["conformance_notifier"]
    assert "| `write-close` |" in told["conformance_tickets"]
    assert "`reconciler_storm_brake`" in told["metrics"]
    assert "`reconciler_watch_deaf_since_timestamp_seconds`" in told["metrics"]


def test_every_field_of_the_spec_has_a_row_that_says_something(generated: ModuleType) -> None:
    kinds = generated.kinds()
    for path in (ROOT / "schemas").glob("*.json"):
        schema = json.loads(path.read_text())
        if "kind" in schema.get("properties", {}):
            assert f"\n## {schema['properties']['kind']['const']}\n" in kinds
            for definition in schema["$defs"].values():
                for field in definition.get("properties", {}):
                    assert f"| `{field}` |" in kinds or definition.get("title") == "Metadata", field
    silent = [row for row in kinds.splitlines() if row.startswith("| `") and row.endswith("| - |")]
    assert silent == []
