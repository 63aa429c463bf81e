"""Run a test between two nodes over SSH: a server on the one, the client on the other."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from reconciler.converge.gate_command import run_alone
from reconciler.converge.group_run import SERVES_S, Side, error, run_group
from reconciler.converge.observe import io_seconds
from reconciler.gate.lock import unlocked
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import GateTest
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import INTERFACE, SERVER
from reconciler.model.ports import Clock

_LOOK_S: Final = 15.0
_HEAD_START_S: Final = 2.0  # of a server before its client, which tries again for a while


async def run_pair(
    test: GateTest, client: Side, server: Side, clock: Clock, outputs: list[CommandResult]
) -> TestResult:
    """Run the test between two nodes, and put what it printed into `outputs`. Its server is ended however that goes.

    A DriverError is raised where the client was lost.
    """
    tool = TOOLS[test.tool]
    if tool.launch is not None:
        return await run_group(test, (client, server), clock, outputs)
    assert tool.serve is not None, "the spec takes partners of no other tool"
    try:
        address = await _address(test, server, io_seconds(clock, _LOOK_S))
    except DriverError as lost:
        return error(test, f"the partner was lost: {lost}")
    if address is None:
        return error(test, f"the partner has no address on {test.args.get(INTERFACE, 'record')}")
    test = replace(test, args={**test.args, SERVER: address})
    commands = tool.commands(test, client.desired, client.observed)
    assert not isinstance(commands, str)
    timeout = io_seconds(clock, test.timeout_s)
    serving = timeout * len(commands) + io_seconds(clock, SERVES_S)
    task = asyncio.create_task(run_alone(tool.serve(test), server.host, serving))
    printed: list[CommandResult] = []
    try:
        await clock.sleep(_HEAD_START_S)
        for argv in commands:
            output = unlocked(await run_alone(argv, client.host, timeout))
            if isinstance(output, str):
                return error(test, output)
            printed.append(output)
    finally:
        served = await _end(task)
        outputs += printed
    result = tool.judge(test, client.desired, client.observed, printed)
    return replace(result, reasons=(*result.reasons, f"its partner: {served}")) if served else result


async def _end(task: asyncio.Task[CommandResult]) -> str:
    """End a server; return why it had ended before, "" when it had not."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})  # whose end is told by no exception: one here is of whoever cancels us
        return ""
    if isinstance(lost := task.exception(), DriverError):
        return f"was lost: {lost}"
    output = unlocked(task.result())
    return output if isinstance(output, str) else f"its server ended: {(output.stderr or output.stdout).strip()[-200:]}"


async def _address(test: GateTest, server: Side, timeout: float) -> str | None:
    """Return the address of a partner: that of the interface which the test names, or where the spec reaches it."""
    interface = test.args.get(INTERFACE)
    if interface is None:
        host = server.desired.endpoints.host or ""
        bracketed = host.startswith("[")
        return (host[1:].partition("]")[0] if bracketed else host.partition(":")[0]) or None
    output = await server.host.run(("ip", "-j", "addr", "show", "dev", str(interface)), timeout=timeout)
    with suppress(ValueError, KeyError, TypeError, IndexError, AttributeError):  # what is no such list has no address
        rows: list[dict[str, Any]] = json.loads(output.stdout)[0]["addr_info"]
        return next((str(row["local"]) for row in rows if row.get("scope") == "global"), None)
    return None
