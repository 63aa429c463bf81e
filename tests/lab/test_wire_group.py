"""A collective over several lab machines, by the reconciler's own SSH driver: what a lab over the wire plays of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import asyncssh
import pytest

from reconciler.app.clocks import RealClock
from reconciler.converge.group_run import Side, run_group
from reconciler.converge.pair_run import run_pair
from reconciler.drivers.ssh import SshHost
from reconciler.gate.certificate import judge_test
from reconciler.lab.fleet import Lab
from reconciler.lab.wire.ssh import SshServer
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.gate import TestResult, Verdict
from tests.gate.cases import SEEN
from tests.lab.machines import Time, example_fleet, example_lab

pytestmark = pytest.mark.wire

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
GROUP = GateTest(
    "nccl", "nccl-tests", {"group": 4, "interface": "ib0", "minBytes": "1G", "maxBytes": "1G"},
    (Threshold("busbw_peak", min=300.0),), 60.0,
)  # fmt: skip
SITE = GateTest(
    "site", "command",
    {
        "partners": 2, "interface": "ib0", "metrics": "busbw",
        "run": "torchrun --nnodes=2 --node-rank=1 --master-addr=$PARTNER --master-port=29500 all_reduce.py",
        "serve": "torchrun --nnodes=2 --node-rank=0 --master-addr=$PARTNER --master-port=29500 all_reduce.py",
    },
    (Threshold("busbw", min=350.0),), 60.0,
)  # fmt: skip


async def _nap(seconds: float) -> None:
    await asyncio.sleep(seconds / 50)


async def _server(stack: AsyncExitStack, lab: Lab, name: str, login: asyncssh.SSHKey) -> SshHost:
    host_key, authority = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    server = SshServer(
        lab.machines[name],
        host_key=host_key.export_private_key().decode(),
        host_certificate=authority.generate_host_certificate(host_key, name, principals=[name])
        .export_certificate()
        .decode(),
        authorized_key=login.export_public_key().decode(),
        epoch=NOW,
        sleep=_nap,
        poll_s=0.05,
    )
    port = await server.start()
    stack.push_async_callback(server.stop)
    host = SshHost(
        name, "127.0.0.1", port=port, user="root", private_key=login.export_private_key().decode(),
        authorities=(authority.export_public_key().decode(),), connect_timeout=20, now=lambda: NOW,
    )  # fmt: skip
    stack.push_async_callback(host.close)
    return host


def run(lab: Lab, test: GateTest, names: Sequence[str]) -> TestResult:
    fleet = example_fleet()

    async def work() -> TestResult:
        login = asyncssh.generate_private_key("ssh-ed25519")
        async with AsyncExitStack() as stack:
            sides = [Side(fleet.nodes[name], SEEN, await _server(stack, lab, name, login)) for name in names]
            if test is SITE:
                return await run_pair(test, sides[0], sides[1], RealClock(), [])
            return await run_group(test, sides, RealClock(), [])

    return asyncio.run(work())


def test_a_group_runs_over_lab_machines_and_the_slowest_of_them_sets_its_pace() -> None:
    lab = example_lab("clean", Time())
    names = [name for name in lab.machines if name.startswith("gpu-a")][:4]
    result = run(lab, GROUP, names)
    assert judge_test(GROUP, result)[0] is Verdict.PASS, result
    assert all(f" on {name} device" in result.evidence for name in names)
    lab.machines[names[2]].inject("low_nccl", busbw=120.0)
    verdict, why = judge_test(GROUP, run(lab, GROUP, names))
    assert verdict is Verdict.FAIL, why
    assert lab.network.launched == {}


def test_a_program_of_the_site_runs_over_two_lab_machines() -> None:
    lab = example_lab("clean", Time())
    names = [name for name in lab.machines if name.startswith("gpu-a")][:2]
    assert judge_test(SITE, run(lab, SITE, names))[0] is Verdict.PASS
    lab.machines[names[0]].inject("low_nccl", busbw=120.0)
    assert judge_test(SITE, run(lab, SITE, names))[0] is Verdict.FAIL
    assert lab.network.serving == frozenset()
