"""A process of its own that changes the password of one BMC, and that SIGKILL ends at one of its calls, if any.

python -m tests.converge.rotating_process URL CA SECRETS [CALL before|after]. It prints how the action ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.actions import FUNCTIONS
from reconciler.converge.actions.context import ActionContext, carry_out
from reconciler.converge.guarded_ports import GuardedBmc
from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.secrets import SecretStore
from reconciler.model import desired as d
from reconciler.model.access import TlsPolicy
from reconciler.model.outcome import outcome_word
from reconciler.model.records import NodeRecord
from tests import builders as b
from tests.lab.redfish_bench import Clock, make_machine

ACTION = "rotate_bmc_password"
CALLS = ("stage_password", "change_password", "is_password_proved", "keep_password", "put_password_back")


def killed_at(name: str, *, after: bool) -> None:
    """Let SIGKILL end this process at that call."""
    real = getattr(RedfishBmc, name)

    async def call(self: RedfishBmc) -> Any:
        if after:
            await real(self)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(RedfishBmc, name, call)


def desired_at(url: str) -> d.Desired:
    machine = make_machine(Clock()).state
    return b.node("n0", endpoints=d.Endpoints(url, None), serial=machine.serial, uuid=machine.uuid)


async def rotate(url: str, tls: TlsPolicy, store: SecretStore) -> str:
    """Run the action as an apply does: through the fabric, and the guard that proves whose BMC it is."""
    desired, clock = desired_at(url), RealClock()
    settings = replace(b.SETTINGS, tls=tls, cluster=None, installer=None)
    fleet = d.Fleet(settings, d.SpecSource("spec", "c0ffee"), {"n0": desired}, "digest")
    fabric = WireFabric(fleet, clock, store, None)
    bmc = fabric.bmc(desired)
    assert bmc is not None
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    lease: Any = SimpleNamespace(take=nothing, prove_bmc=nothing, give_back=nothing)
    unused: Any = None
    context = ActionContext(
        action=unused, desired=desired, observed=unused, record=NodeRecord("n0"), drift=(), comparer=unused,
        settings=settings, bmc_port=GuardedBmc(bmc, desired, None, NodeRecord("n0"), clock, settings, lease),
        host_port=None, cluster_port=None, installer_port=None, firmware_files=unused, gate=unused, ledger=unused,
        clock=clock, attempt=1, intent={}, resumed={}, plan="plan", step=nothing,
    )  # fmt: skip
    act: Callable[[ActionContext], Awaitable[Any]] = FUNCTIONS[ACTION]
    outcome = await carry_out(act, context)
    await fabric.close()
    return f"{outcome_word(outcome)}: {outcome.detail}"


if __name__ == "__main__":
    if len(sys.argv) > 4:
        killed_at(sys.argv[4], after=sys.argv[5] == "after")
    url, ca, secrets = sys.argv[1:4]
    print(asyncio.run(rotate(url, TlsPolicy(Path(ca).read_text()), SecretStore.load(Path(secrets)))))
