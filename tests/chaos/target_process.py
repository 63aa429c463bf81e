"""`python -m tests.chaos.target_process POINT COMMAND...`: the reconciler's command line with a fault at a given point.

The command uses its own drivers on the wire and its own ledger on disk. Subclasses of them count writes and trigger
the fault. SIGKILL allows no cleanup, like a power cut.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import requests.adapters

from reconciler.app import wire_fabric as wiring
from reconciler.cli.main import main
from reconciler.drivers import ledger as ledgers
from reconciler.drivers.endpoints import Overlay
from reconciler.drivers.ssh.session import Capture
from reconciler.model.desired import Desired
from reconciler.model.ports import Bmc, Host
from tests.chaos.outages import (
    API_AWAY,
    BMC_AWAY,
    DATABASE_AWAY,
    KILLED,
    LOCK_S,
    POSTGRESQL_AWAY,
    api_outage,
    bmc_outage,
    database_outage,
    postgresql_outage,
)

BEFORE_INTENT, AFTER_INTENT, DURING, AFTER, BEFORE_OUTCOME = POINTS = (
    "before intent", "after intent", "during", "after", "before outcome",
)  # fmt: skip
ACTOR = "chaos target"
HEARD_S = 0.03  # from sending bytes until the lab has them

_BMC = frozenset({
    "power", "stage_bios", "clear_bios", "set_secure_boot", "set_boot_order", "boot_once", "insert_media",
    "eject_media", "update_firmware", "reset",
})  # fmt: skip
_HOST = frozenset({"run"})
_CLUSTER = frozenset({"mark", "unmark", "set_labels", "evict", "delete"})


@dataclass(frozen=True)
class FaultPoint:
    """Where the fault happens. `call`: number of the action's write, from 1. `log`: file for all writes, as lines."""

    point: str = ""
    action: str = ""
    target: str = ""
    call: int = 0
    log: str = ""
    column: str = KILLED

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FaultInjector:
    """Follows the running action and its writes, and triggers the fault at its point."""

    def __init__(self, point: FaultPoint, fault: Callable[[], None] = kill_self) -> None:
        self.point = point
        self._fault = fault
        self._triggered = False
        self.armed = False  # trigger after the next bytes that are sent
        self._attempt: int | None = None
        self._calls = 0

    def trigger_at(self, point: str, call: int = 0) -> None:
        if (self.point.point, self.point.call) == (point, call):
            self.trigger()

    def trigger(self) -> None:
        """Trigger the fault, once: a surviving run may reach the same point again."""
        self.armed = False
        if not self._triggered:
            self._triggered = True
            self._note("triggered")
            self._fault()

    def matches(self, action: str, target: str) -> bool:
        return (self.point.action, self.point.target) == (action, target)

    def action_started(self, attempt: int, action: str, target: str) -> None:
        self._note(f"{action}:{target}" if target else action)
        if self.matches(action, target):
            self._attempt, self._calls = attempt, 0
            self.trigger_at(AFTER_INTENT)

    def action_ends(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.trigger_at(BEFORE_OUTCOME)
            self._attempt = None

    async def write(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self._note(f"  {what}")
        if self._attempt is None:
            return await call()
        self._calls += 1
        number = self._calls
        self.armed = (self.point.point, self.point.call) == (DURING, number)
        answer = await call()
        self.armed = False
        self.trigger_at(AFTER, number)
        return answer

    def _note(self, line: str) -> None:
        if self.point.log:
            with Path(self.point.log).open("a") as out:
                out.write(line + "\n")


def describe(name: str, arguments: tuple[Any, ...]) -> str:
    """Return a short description of a write, the same in every run."""
    if name == "run":
        return "run " + " ".join(arguments[0])
    plain = [str(one) for one in arguments if isinstance(one, str | bool)]
    return " ".join([name, *plain]) if name not in ("insert_media", "update_firmware") else name


class InterceptedPort:
    """A port whose writes go through the fault injector."""

    def __init__(self, port: Any, writes: frozenset[str], injector: FaultInjector) -> None:
        self._port = port
        self._writes = writes
        self._injector = injector

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in self._writes:
            return found

        async def write(*args: Any, **keys: Any) -> Any:
            return await self._injector.write(describe(name, args), lambda: found(*args, **keys))

        return write


def install_hooks(injector: FaultInjector) -> None:
    """Replace the ledger and the ports of the command line by subclasses that report to `injector`."""

    class Ledger(ledgers.SqlLedger):
        def __init__(self, where: str | Path, **keys: Any) -> None:
            patience: dict[str, Any] = {"lock_timeout_s": LOCK_S} if injector.point.column == DATABASE_AWAY else {}
            super().__init__(where, **patience, **keys)

        def begin(
            self, run: str, node: str, action: str, target: str, cause: str, intent: Mapping[str, Any], token: int,
            now: datetime,
        ) -> int:  # fmt: skip
            if injector.matches(action, target):
                injector.trigger_at(BEFORE_INTENT)
            attempt = super().begin(run, node, action, target, cause, intent, token, now)
            injector.action_started(attempt, action, target)
            return attempt

        def resume(self, attempt: int, run: str, token: int, now: datetime) -> None:
            [(_, _, action, target, _)] = [found for found in self.unfinished() if found[0] == attempt]
            if injector.matches(action, target):
                injector.trigger_at(BEFORE_INTENT)
            super().resume(attempt, run, token, now)
            injector.action_started(attempt, action, target)

        def finish(self, attempt: int, outcome: str, detail: str, now: datetime) -> None:
            injector.action_ends(attempt)
            super().finish(attempt, outcome, detail, now)

    class Fabric(wiring.WireFabric):
        def bmc(self, desired: Desired) -> Bmc | None:
            port: Any = super().bmc(desired)
            return None if port is None else InterceptedPort(port, _BMC, injector)  # a proxy

        def host(self, desired: Desired) -> Host | None:
            port: Any = super().host(desired)
            return None if port is None else InterceptedPort(port, _HOST, injector)  # a proxy

        def cluster(self) -> Any:
            port: Any = super().cluster()
            return None if port is None else InterceptedPort(port, _CLUSTER, injector)  # a proxy

    ledgers.SqlLedger = Ledger  # type: ignore[misc]  # the purpose of this program
    wiring.WireFabric = Fabric  # type: ignore[misc]
    _hook_redfish(injector)
    _hook_ssh(injector)
    _hook_cluster(injector)
    _hook_kubectl(injector)


def _hook_redfish(injector: FaultInjector) -> None:
    """Trigger when the BMC has done the write and its answer is not read yet."""
    send = requests.adapters.HTTPAdapter.send

    def hooked(self: Any, request: requests.PreparedRequest, *args: Any, **keys: Any) -> requests.Response:
        answer = send(self, request, *args, **keys)
        if injector.armed and request.method != "GET" and "/SessionService" not in str(request.url):
            injector.trigger()
        return answer

    requests.adapters.HTTPAdapter.send = hooked  # type: ignore[method-assign]


def _hook_ssh(injector: FaultInjector) -> None:
    """Trigger when the host has received the command."""
    feed = Capture.feed

    def hooked(self: Capture, stdin: bytes) -> None:
        feed(self, stdin)
        if injector.armed:
            asyncio.get_running_loop().call_later(HEARD_S, injector.trigger)

    Capture.feed = hooked  # type: ignore[method-assign]


def _hook_cluster(injector: FaultInjector) -> None:
    """Trigger when the API server has done the write and its answer is not read yet."""
    read = aiohttp.ClientResponse.read

    async def hooked(self: aiohttp.ClientResponse) -> bytes:
        if injector.armed and self.method != "GET":
            injector.trigger()
        return await read(self)

    aiohttp.ClientResponse.read = hooked  # type: ignore[method-assign]


def _hook_kubectl(injector: FaultInjector) -> None:
    """Trigger when a kubectl for this write has started; it outlives this process."""
    start = asyncio.create_subprocess_exec

    async def hooked(*words: Any, **keys: Any) -> asyncio.subprocess.Process:
        child = await start(*words, **keys)
        if injector.armed and {"patch", "create", "delete"} & set(words):
            asyncio.get_running_loop().call_later(HEARD_S, injector.trigger)
        return child

    asyncio.create_subprocess_exec = hooked


def fault_for(point: FaultPoint, words: list[str]) -> Callable[[], None]:
    """Return the function that makes the fault happen: an outage, or the kill of this process."""
    endpoints = Path(words[words.index("--endpoints") + 1])
    if point.column == API_AWAY:
        kubeconfigs, begin = api_outage(endpoints)
        Overlay.kubeconfig = lambda self, cluster: kubeconfigs[cluster]  # type: ignore[method-assign]  # noqa: ARG005
        return begin
    if point.column == DATABASE_AWAY:
        return database_outage(Path(words[words.index("--ledger") + 1]))
    if point.column == POSTGRESQL_AWAY:
        return postgresql_outage(words[words.index("--ledger") + 1])
    if point.column == BMC_AWAY:
        return bmc_outage(endpoints.parent, words[words.index("--limit") + 1])
    return kill_self


def run_forked(point: FaultPoint, words: list[str], out: str, err: str) -> None:
    """Run the command in a forked process and write its output to these files."""
    for number, path in ((1, out), (2, err)):
        with Path(path).open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ["RECONCILER_ACTOR"] = ACTOR
    run(point, words)


def run(point: FaultPoint, words: list[str]) -> None:
    install_hooks(FaultInjector(point, fault_for(point, words)))
    main(words)


if __name__ == "__main__":
    run(FaultPoint(**json.loads(sys.argv[1])), sys.argv[2:])
