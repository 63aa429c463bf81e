"""The control socket of a running lab: JSON lines over a Unix socket in its directory.

    {"do": "fault", "node": "gpu-a001", "kind": "xid_79", "parameters": {"gpu": "3"}}
    {"do": "clear", "node": "gpu-a001", "kind": null}
    {"do": "exchange", "node": "gpu-a001", "part": "dimm", "index": 2}
    {"do": "slurm", "argv": ["squeue"], "user": "ada"}
    {"do": "state"}      {"do": "events", "node": "gpu-a001"}      {"do": "down"}

The answer is {"ok": true, "value": ...} or {"ok": false, "error": "..."}.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reconciler.lab.fleet import Lab
from reconciler.lab.hardware.faults import FaultValue
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.slurm_commands import SlurmCommands
from reconciler.model.errors import UsageError
from reconciler.model.gate import CommandResult

_LONGEST_SOCKET_PATH = 100  # sockaddr_un holds 107 bytes
_TIMEOUT_S = 30.0
_LIMIT = 2**20


class NoLab(UsageError):
    """No lab runs in this directory."""


def socket_path(directory: Path) -> Path:
    """Return the path in the lab's directory, or in the temporary directory where it would be too long."""
    path = directory.resolve() / "control.sock"
    if len(str(path)) <= _LONGEST_SOCKET_PATH:
        return path
    name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"reconciler-lab-{name}.sock"


# --- the lab's side ----------------------------------------------------------------------------------------------


class ControlServer:
    """Answers requests to the lab. It calls `down` on a request to end the lab.

    It uses plain sockets, because asyncio's Server leaks a connection that arrives while it closes.
    """

    def __init__(self, lab: Lab, down: Callable[[], None], slurm: SlurmCommands | None = None) -> None:
        self._lab = lab
        self._slurm = slurm
        self._down = down
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._talking: set[asyncio.Task[None]] = set()

    async def start(self, directory: Path) -> None:
        path = socket_path(directory)
        path.unlink(missing_ok=True)
        self._listener.setblocking(False)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for task in self._talking:
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has disconnected
        connection.setblocking(False)
        task = asyncio.create_task(self._serve(connection))
        self._talking.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, connection))

    def _ended(self, task: asyncio.Task[None], connection: socket.socket) -> None:
        self._talking.discard(task)
        connection.close()
        if not task.cancelled():
            task.result()  # an error here is a bug: it goes to the loop's handler

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):  # the client has disconnected
            line = b""
            while not line.endswith(b"\n") and len(line) < _LIMIT:
                line += (received := await loop.sock_recv(connection, _LIMIT))
                if not received:
                    return
            answer: dict[str, Any]
            try:
                answer = {"ok": True, "value": self._answer(json.loads(line))}
            except (ValueError, UsageError) as error:
                answer = {"ok": False, "error": str(error)}
            await loop.sock_sendall(connection, json.dumps(answer).encode() + b"\n")

    def _answer(self, request: Mapping[str, Any]) -> Any:
        match request:
            case {"do": "state"}:
                return self._lab.dump()
            case {"do": "events", "node": str(node)}:
                return self._lab.node_events(node)
            case {"do": "slurm", "argv": [*argv], "user": str(user)}:
                if self._slurm is None:
                    raise UsageError("the spec of this lab has no Slurm")
                ran = self._slurm.run([str(word) for word in argv], user)
                return {"exit_status": ran.exit_status, "stdout": ran.stdout, "stderr": ran.stderr}
            case {"do": "down"}:
                self._down()
                return None
            case {"do": "fault", "node": str(node), "kind": str(kind), "parameters": dict(parameters)}:
                self._machine(node).inject(kind, **parameters)
                return None
            case {"do": "exchange", "node": str(node), "part": str(part), "index": int(index)}:
                self._machine(node).exchange(part, index)
                return None
            case {"do": "clear", "node": str(node), "kind": str() | None as kind}:
                self._machine(node).clear(kind)
                return None
        raise ValueError("not a request of this protocol")

    def _machine(self, node: str) -> Machine:
        return self._lab.machine(node)


# --- the caller's side -------------------------------------------------------------------------------------------


def inject_fault(directory: Path, node: str, kind: str, parameters: Mapping[str, FaultValue]) -> None:
    _ask(directory, {"do": "fault", "node": node, "kind": kind, "parameters": dict(parameters)})


def clear_fault(directory: Path, node: str, kind: str | None = None) -> None:
    _ask(directory, {"do": "clear", "node": node, "kind": kind})


def exchange_part(directory: Path, node: str, part: str, index: int) -> None:
    _ask(directory, {"do": "exchange", "node": node, "part": part, "index": index})


def read_state(directory: Path) -> dict[str, Any]:
    """Return the state of every machine and of the cluster."""
    found: dict[str, Any] = _ask(directory, {"do": "state"})
    return found


def read_node_events(directory: Path, node: str) -> dict[str, Any]:
    """Return the events of a node: {"now", "cluster": events of the node object and its pods, "bmc": its event log}."""
    found: dict[str, Any] = _ask(directory, {"do": "events", "node": node})
    return found


def run_slurm(directory: Path, argv: Sequence[str], user: str) -> CommandResult:
    """Run a command of Slurm, as this user."""
    found = _ask(directory, {"do": "slurm", "argv": list(argv), "user": user})
    return CommandResult(found["exit_status"], found["stdout"], found["stderr"])


def shut_down(directory: Path) -> None:
    _ask(directory, {"do": "down"})


def is_running(directory: Path) -> bool:
    try:
        with _connected(directory):
            return True
    except NoLab:
        return False


def _ask(directory: Path, request: Mapping[str, Any]) -> Any:
    """Send a request. Raise UsageError with the lab's message when it refuses, NoLab when none runs."""
    with _connected(directory) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answer:
            line = answer.readline()
    if not line:
        raise NoLab(f"the lab in {directory} ended meanwhile")
    found = json.loads(line)
    if not found["ok"]:
        raise UsageError(found["error"])
    return found["value"]


def _connected(directory: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_TIMEOUT_S)
    try:
        connection.connect(str(socket_path(directory)))
    except OSError as error:
        connection.close()
        raise NoLab(f"no lab runs in {directory}: {error.strerror}") from error
    return connection
