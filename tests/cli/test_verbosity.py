"""`-v`: every command tells what it sends to nodes and clusters, and no secret of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import click
import pytest

from reconciler.cli.main import COMMANDS, cli
from tests.cli.shell import LabDirectory, ended, running_lab, started

_swappiness = count(17)
pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("verbosity"), "--scenario", "clean", nodes=2) as found:
        yield found


def secrets(lab: LabDirectory) -> list[str]:
    """The passwords of the lab, and the lines of its keys."""
    own = [
        path for path in (lab.path / "secrets").iterdir() if path.is_file() and path.name != "bmc-login"
    ]  # a program
    files = [path.read_text() for path in own]
    passwords = [found for text in files for found in re.findall(r'"password": "([^"]+)"', text)]
    keys = [line for text in files for line in text.splitlines() if len(line) > 40 and " " not in line]
    assert passwords
    assert keys
    return [*passwords, *keys]


def test_reads_are_told_at_the_second_level_alone(lab: LabDirectory) -> None:
    assert ended(started(*lab.words("drift"))).err.count("GET /redfish") == 0
    some = ended(started(*lab.words("drift", "-v"))).err
    assert "POST /redfish/v1/SessionService/Sessions: 201 (" in some
    assert "GET /redfish" not in some
    told = ended(started(*lab.words("drift", "-vv"))).err
    assert "GET /redfish/v1/Systems/1: 200 (" in told
    assert "  facts: done (" in told
    for secret in secrets(lab):
        assert secret not in told


def test_what_is_done_to_nodes_is_told_with_how_it_ended(lab: LabDirectory, tmp_path: Path) -> None:
    personas = lab.spec / "personas.yaml"
    wanted = f"vm.swappiness: '{next(_swappiness)}'"
    personas.write_text(re.sub(r"vm\.swappiness: '\d+'", wanted, personas.read_text()))
    plan = tmp_path / "plan.json"
    assert ended(started(*lab.words("plan", "--out", plan))).code in (0, 4)
    done = ended(started(*lab.words("apply", "--plan", plan, "--yes", "-v")), 300)
    assert ": exit status 0 (" in done.err, done.err
    for secret in secrets(lab):
        assert secret not in done.err


def test_redacted_output_has_no_requests(lab: LabDirectory) -> None:
    done = ended(started(*lab.words("drift", "-vv", "--redact")))
    assert "redfish" not in done.err
    assert "127.0.0.1" not in done.err


def test_logs_for_machines_have_them_as_objects(lab: LabDirectory) -> None:
    words = lab.words("run", "-v", "--log", "json", "--listen", "off")
    process = started(*words)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            said = json.loads(line)
            if said["event"] == "request":
                break
        assert "POST /redfish/v1/SessionService/Sessions: 201" in said["message"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_every_command_takes_it() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        for one in command.commands.values() if isinstance(command, click.Group) else [command]:
            assert [param.name for param in one.params].count("verbose") == 1, (name, one.name)
