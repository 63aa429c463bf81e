"""Run helm as a child process, and tell from its words why it failed.

Helm 3.13 is the oldest that works: `--dry-run` takes `server` and `client` since. It has no machine-readable errors, so
its messages are matched: those of its own code (pkg/action, pkg/storage/driver), and of client-go below it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reconciler.drivers.children import reap, start
from reconciler.drivers.requests_log import telling
from reconciler.model.errors import DriverError, Failure
from reconciler.model.printable import without_secrets

OLDEST: Final = (3, 13)
INSTALL_HINT: Final = "install Helm 3.13 or newer (https://helm.sh/docs/intro/install/) and have it on PATH"
_STOPS_S: Final = 5.0  # after SIGTERM helm marks its release as failed, and an atomic one is rolled back
_LONGEST_DETAIL: Final = 400
_SHOWN: Final = 200  # characters of a command
_READS: Final = frozenset({"get", "history", "list", "pull", "show", "status", "template", "version"})

_NOT_FOUND: Final = re.compile(r"release: not found")
_MESSAGES: Final = (  # the first match counts
    (Failure.BUSY, re.compile(r"another operation \(install/upgrade/rollback\) is in progress")),
    (Failure.AUTH, re.compile(r"[Ff]orbidden|Unauthorized|must be logged in|provide credentials|x509:|unauthorized")),
    (Failure.TIMEOUT, re.compile(r"timed out waiting|context deadline exceeded|i/o timeout|rate limiter")),
    (
        Failure.UNREACHABLE,
        re.compile(
            r"cluster unreachable|connection refused|no such host|no route to host|EOF|reset by peer|dial "
            r"|TLS handshake|GOAWAY|50\d |context canceled"
        ),
    ),
)


class Helm:
    """helm with fixed access options. `kubeconfig` None: the one that helm finds by itself."""

    def __init__(self, program: str, kubeconfig: Path | None, context: str | None, folder: Path) -> None:
        self._program = program
        self._access: list[str] = []
        if kubeconfig is not None:
            self._access.append(f"--kubeconfig={kubeconfig}")
        if context is not None:
            self._access.append(f"--kube-context={context}")
        # Of a person's own settings only those of registries and repositories are read, which may hold credentials.
        self._environment = {"HELM_CACHE_HOME": str(folder / "cache"), "HELM_DATA_HOME": str(folder / "data")}

    async def run(self, arguments: Sequence[str], *, timeout_s: float, stdin: str = "", cluster: bool = True) -> str:
        """Run a command and return its stdout. `timeout_s`: wall-clock seconds. `cluster`: it reaches the cluster.

        Raise DriverError: AMBIGUOUS when it took too long, as it may have done everything. A release that is not there
        is `NoRelease`.
        """
        reads = arguments[0] in _READS or any(word.startswith("--dry-run") for word in arguments)
        with telling("helm", " ".join(arguments)[:_SHOWN], reads=reads):
            return await self._ended([*arguments, *(self._access if cluster else [])], timeout_s, stdin)

    async def _ended(self, arguments: Sequence[str], timeout_s: float, stdin: str) -> str:
        child = await self._start(arguments)
        try:
            async with asyncio.timeout(timeout_s):
                stdout, stderr = await child.communicate(stdin.encode())
        except TimeoutError:
            raise DriverError(Failure.AMBIGUOUS, f"helm {arguments[0]} did not end within {timeout_s:g} s") from None
        finally:
            await reap(child, patience_s=_STOPS_S)
        if child.returncode != 0:
            raise _failure(stderr.decode(errors="replace"), arguments[0])
        return stdout.decode(errors="replace")

    async def _start(self, arguments: Sequence[str]) -> asyncio.subprocess.Process:
        try:
            return await start(
                self._program, *arguments,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=dict(os.environ) | self._environment,
            )  # fmt: skip
        except (FileNotFoundError, PermissionError) as error:
            detail = f"{self._program}: {error.strerror}; {INSTALL_HINT}"
            raise DriverError(Failure.UNSUPPORTED, detail) from error
        except OSError as error:
            raise DriverError(Failure.UNREACHABLE, f"helm could not be started: {error.strerror}") from error


class NoRelease(DriverError):
    """The release is not there."""


def _failure(stderr: str, verb: str) -> DriverError:
    """Return the error that helm's last words mean. What nothing explains is REJECTED: the chart or its values."""
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    said = without_secrets(" ".join(lines).removeprefix("Error: "))[-_LONGEST_DETAIL:] or f"helm {verb} failed"
    if _NOT_FOUND.search(said):
        return NoRelease(Failure.REJECTED, said)
    kind = next((kind for kind, message in _MESSAGES if message.search(said)), Failure.REJECTED)
    return DriverError(kind, said)
