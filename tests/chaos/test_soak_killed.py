"""A soak whose reconciler is killed, on the wire: a real process, SIGKILL, and another process that goes on with it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import asyncssh
import pytest

from reconciler.model.records import JournalEntry
from tests.chaos.cases import Case
from tests.chaos.target_process import FaultPoint
from tests.chaos.world import PATIENCE, Bench, World, node_of, running
from tests.cli.shell import reconciler, until

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("chaos")]

EVENTS = ("nothing", "reboot", "kill")
SOAK = "3h"
SCALE = 600.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cases = [Case(event, "run_gate") for event in EVENTS]
    with running(tmp_path_factory.mktemp("soak"), cases, SCALE) as found:
        profile = found.spec / "acceptance.yaml"
        profile.write_text(profile.read_text().replace("  validity: 90d\n", f"  validity: 90d\n  soak: {SOAK}\n"))
        yield found


def percents(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"soak: (\d+) %", text)]


def soak_of(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = bench.machine["soak"]
    return found


def killed_at(bench: Bench, percent: int) -> list[int]:
    """Apply in a process, kill it as soon as its soak is so far, and return how far it told that it was."""
    plan, _ = bench.plan()
    progress = bench.place / "progress.txt"
    with progress.open("w") as err:
        process = bench.start_target(FaultPoint(), plan, err=err)
    try:
        until(
            lambda: max(percents(progress.read_text()), default=0) >= percent or process.poll() is not None, seconds=120
        )
        assert process.poll() is None, progress.read_text()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGKILL
    return percents(progress.read_text())


async def on_host(bench: Bench, *argv: str) -> None:
    """Run a command on the node, as somebody does who is not the reconciler."""
    lab = bench.world.directory / "lab"
    endpoints = json.loads((lab / "endpoints.json").read_text())
    spec = (bench.world.spec / "pools").glob("*.yaml")
    nodes = {node["name"]: node for file in spec for node in json.loads(file.read_text())["spec"]["nodes"]}
    address = nodes[bench.node]["host"] + ":22"
    host, _, port = endpoints["ssh"][address]["target"].rpartition(":")
    key = str(lab / "secrets/ssh_ed25519")
    async with asyncssh.connect(host, int(port), username="root", client_keys=[key], known_hosts=None) as connection:
        await connection.run(" ".join(argv))


def gates(bench: Bench) -> Sequence[JournalEntry]:
    with bench.ledger() as ledger:
        return [entry for entry in ledger.history(bench.node, 1000) if entry.action == "run_gate"]


@pytest.mark.parametrize("event", EVENTS)
def test_the_next_reconciler_goes_on_with_the_soak_of_one_that_was_killed(world: World, event: str) -> None:
    bench = Bench(world, node_of(EVENTS.index(event)))
    before = killed_at(bench, 20)
    begun = soak_of(bench)
    said = reconciler("explain", bench.node, world.spec, *bench.where, "--output", "json").json["waiting"]["under_way"]
    assert re.match(r"soak: .+ of 3h00m and no bad sign when last looked at .+ ago; ends about ", said), said
    if event == "reboot":
        asyncio.run(on_host(bench, "systemctl", "reboot"))
    elif event == "kill":
        asyncio.run(on_host(bench, "systemctl", "kill", "--signal=KILL", f"reconciler-soak-{begun['id']}.service"))
    bench.release_lease()

    for _ in range(PATIENCE):  # a node that boots has to answer first
        again = bench.apply(bench.plan()[0])
        found = [entry for entry in gates(bench) if entry.event == "outcome"]
        if found:
            break
    assert found, again.out + again.err
    ended = found[0]
    if event == "nothing":
        assert again.code == 0, again.err
        assert min(percents(again.err)) >= before[-1] > 0, "it goes on from where it was"
        assert [entry.event for entry in gates(bench)].count("intent") == 1
        assert bench.plan()[1] == 0
        assert soak_of(bench) is None
    elif event == "reboot":
        assert again.code != 0
        assert "booted in the middle of the soak" in ended.detail
        with bench.ledger() as ledger:
            assert not [entry for entry in ledger.history(bench.node, 1000) if entry.action == "admit"]
            assert ledger.unfinished() == []
    else:
        assert "its unit ended before its time (" in ended.detail, ended
        assert "Result=signal" in ended.detail
        assert again.code == 0, again.err
        assert min(percents(again.err)) == 0 < before[-1], "another soak, from its beginning"
        assert [entry.event for entry in gates(bench)].count("intent") == 2
