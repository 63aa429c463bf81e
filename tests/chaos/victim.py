"""`python -m tests.chaos.victim AIM COMMAND...`: the reconciler's command line, which something befalls where AIM says.

The command runs as it always does, with its own drivers on the wire and its own ledger on disk; it is wired to
subclasses that stand between it and the world, and count. SIGKILL leaves nothing tidied up, as a power cut would.
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
from reconciler.model.ports import Bmc, Cluster, Host
from tests.chaos.misfortune import (
    API_AWAY,
    BMC_AWAY,
    DATABASE_AWAY,
    KILLED,
    LOCK_S,
    POSTGRESQL_AWAY,
    api_away,
    bmc_away,
    database_away,
    postgresql_away,
)

BEFORE_INTENT, AFTER_INTENT, DURING, AFTER, BEFORE_OUTCOME = POINTS = (
    "before intent", "after intent", "during", "after", "before outcome",
)  # fmt: skip
ACTOR = "the victim"
HEARD_S = 0.03  # after bytes were handed to the system: so long until the lab has them

_BMC = frozenset({
    "power", "stage_bios", "clear_bios", "set_secure_boot", "set_boot_order", "boot_once", "insert_media",
    "eject_media", "update_firmware", "reset",
})  # fmt: skip
_HOST = frozenset({"run"})
_CLUSTER = frozenset({"mark", "unmark", "set_labels", "evict", "delete"})


@dataclass(frozen=True)
class Aim:
    """`call`: which of the action's writes it is about, from 1. `log`: file to which all writes go, one per line."""

    point: str = ""
    action: str = ""
    target: str = ""
    call: int = 0
    log: str = ""
    column: str = KILLED

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Assassin:
    """Knows which action is under way, and which of its writes."""

    def __init__(self, aim: Aim, misfortune: Callable[[], None] = die) -> None:
        self.aim = aim
        self._misfortune = misfortune
        self._struck = False
        self.armed = False  # the next bytes that are sent are the last
        self._attempt: int | None = None
        self._calls = 0

    def strike(self, point: str, call: int = 0) -> None:
        if (self.aim.point, self.aim.call) == (point, call):
            self.strike_now()

    def strike_now(self) -> None:
        """Once: a run that goes on may come to the same point again."""
        self.armed = False
        if not self._struck:
            self._struck = True
            self._note("struck")
            self._misfortune()

    def is_meant(self, action: str, target: str) -> bool:
        return (self.aim.action, self.aim.target) == (action, target)

    def began(self, attempt: int, action: str, target: str) -> None:
        self._note(f"{action}:{target}" if target else action)
        if self.is_meant(action, target):
            self._attempt, self._calls = attempt, 0
            self.strike(AFTER_INTENT)

    def ends(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.strike(BEFORE_OUTCOME)
            self._attempt = None

    async def write(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self._note(f"  {what}")
        if self._attempt is None:
            return await call()
        self._calls += 1
        number = self._calls
        self.armed = (self.aim.point, self.aim.call) == (DURING, number)
        answer = await call()
        self.armed = False
        self.strike(AFTER, number)
        return answer

    def _note(self, line: str) -> None:
        if self.aim.log:
            with Path(self.aim.log).open("a") as out:
                out.write(line + "\n")


def told(name: str, arguments: tuple[Any, ...]) -> str:
    """A write in a few words, the same in every run."""
    if name == "run":
        return "run " + " ".join(arguments[0])
    plain = [str(one) for one in arguments if isinstance(one, str | bool)]
    return " ".join([name, *plain]) if name not in ("insert_media", "update_firmware") else name


class Watched:
    """A port that tells of its writes."""

    def __init__(self, port: Any, writes: frozenset[str], assassin: Assassin) -> None:
        self._port = port
        self._writes = writes
        self._assassin = assassin

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in self._writes:
            return found

        async def write(*args: Any, **keys: Any) -> Any:
            return await self._assassin.write(told(name, args), lambda: found(*args, **keys))

        return write


def set_up(assassin: Assassin) -> None:
    """The names under which the command line finds its parts now mean ours."""

    class Ledger(ledgers.SqlLedger):
        def __init__(self, where: str | Path, **keys: Any) -> None:
            patience: dict[str, Any] = {"lock_timeout_s": LOCK_S} if assassin.aim.column == DATABASE_AWAY else {}
            super().__init__(where, **patience, **keys)

        def begin(
            self, run: str, node: str, action: str, target: str, cause: str, intent: Mapping[str, Any], token: int,
            now: datetime,
        ) -> int:  # fmt: skip
            if assassin.is_meant(action, target):
                assassin.strike(BEFORE_INTENT)
            attempt = super().begin(run, node, action, target, cause, intent, token, now)
            assassin.began(attempt, action, target)
            return attempt

        def resume(self, attempt: int, run: str, token: int, now: datetime) -> None:
            [(_, _, action, target, _)] = [found for found in self.unfinished() if found[0] == attempt]
            if assassin.is_meant(action, target):
                assassin.strike(BEFORE_INTENT)
            super().resume(attempt, run, token, now)
            assassin.began(attempt, action, target)

        def finish(self, attempt: int, outcome: str, detail: str, now: datetime) -> None:
            assassin.ends(attempt)
            super().finish(attempt, outcome, detail, now)

    class Fabric(wiring.WireFabric):
        def bmc(self, desired: Desired) -> Bmc | None:
            port: Any = super().bmc(desired)
            return None if port is None else Watched(port, _BMC, assassin)  # a proxy

        def host(self, desired: Desired) -> Host | None:
            port: Any = super().host(desired)
            return None if port is None else Watched(port, _HOST, assassin)  # a proxy

        def cluster(self) -> Cluster | None:
            port: Any = super().cluster()
            return None if port is None else Watched(port, _CLUSTER, assassin)  # a proxy

    ledgers.SqlLedger = Ledger  # type: ignore[misc]  # which is the point of this program
    wiring.WireFabric = Fabric  # type: ignore[misc]
    _listen_to_redfish(assassin)
    _listen_to_ssh(assassin)
    _listen_to_the_cluster(assassin)
    _listen_to_kubectl(assassin)


def _listen_to_redfish(assassin: Assassin) -> None:
    """The BMC has done what it was asked for, and its answer lies unread in our socket."""
    send = requests.adapters.HTTPAdapter.send

    def and_die(self: Any, request: requests.PreparedRequest, *args: Any, **keys: Any) -> requests.Response:
        answer = send(self, request, *args, **keys)
        if assassin.armed and request.method != "GET" and "/SessionService" not in str(request.url):
            assassin.strike_now()
        return answer

    requests.adapters.HTTPAdapter.send = and_die  # type: ignore[method-assign]


def _listen_to_ssh(assassin: Assassin) -> None:
    """The host has agreed to run the command, and has it."""
    feed = Capture.feed

    def and_die(self: Capture, stdin: bytes) -> None:
        feed(self, stdin)
        if assassin.armed:
            asyncio.get_running_loop().call_later(HEARD_S, assassin.strike_now)

    Capture.feed = and_die  # type: ignore[method-assign]


def _listen_to_the_cluster(assassin: Assassin) -> None:
    """The server has done it, and its answer is still to be read."""
    read = aiohttp.ClientResponse.read

    async def and_die(self: aiohttp.ClientResponse) -> bytes:
        if assassin.armed and self.method != "GET":
            assassin.strike_now()
        return await read(self)

    aiohttp.ClientResponse.read = and_die  # type: ignore[method-assign]


def _listen_to_kubectl(assassin: Assassin) -> None:
    """Where there is one for this write alone: it has been told what to do, and lives longer than we do."""
    start = asyncio.create_subprocess_exec

    async def and_die(*words: Any, **keys: Any) -> asyncio.subprocess.Process:
        child = await start(*words, **keys)
        if assassin.armed and {"patch", "create", "delete"} & set(words):
            asyncio.get_running_loop().call_later(HEARD_S, assassin.strike_now)
        return child

    asyncio.create_subprocess_exec = and_die


def misfortune(aim: Aim, words: list[str]) -> Callable[[], None]:
    """What befalls the command."""
    endpoints = Path(words[words.index("--endpoints") + 1])
    if aim.column == API_AWAY:
        kubeconfigs, strike = api_away(endpoints)
        Overlay.kubeconfig = lambda self, cluster: kubeconfigs[cluster]  # type: ignore[method-assign]  # noqa: ARG005
        return strike
    if aim.column == DATABASE_AWAY:
        return database_away(Path(words[words.index("--ledger") + 1]))
    if aim.column == POSTGRESQL_AWAY:
        return postgresql_away(words[words.index("--ledger") + 1])
    if aim.column == BMC_AWAY:
        return bmc_away(endpoints.parent, words[words.index("--limit") + 1])
    return die


def be(aim: Aim, words: list[str], out: str, err: str) -> None:
    """The victim, in a process that was forked for it: its output goes to these files."""
    for number, path in ((1, out), (2, err)):
        with Path(path).open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ["RECONCILER_ACTOR"] = ACTOR
    live(aim, words)


def live(aim: Aim, words: list[str]) -> None:
    set_up(Assassin(aim, misfortune(aim, words)))
    main(words)


if __name__ == "__main__":
    live(Aim(**json.loads(sys.argv[1])), sys.argv[2:])
