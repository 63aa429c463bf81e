"""A `kubectl proxy` that keeps running, for callers with many requests: a kubectl per request takes 50 times as long.

It listens on a socket in a directory that no other user may enter, and like every kubectl finds the server, logs in and
renews credentials. It ends with this process, however that ends: its shell waits for the end of our pipe.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.drivers.children import reap
from reconciler.drivers.kube.failures import KubeFailure, Problem, from_response
from reconciler.model.errors import Failure

if TYPE_CHECKING:
    import aiohttp  # imported on first use: it takes 0.2 s
    import yarl

_GUARDED = 'own=$1; shift; "$@" & cat >/dev/null; kill $!; rm -rf "$own"'
_STARTS_S = 5.0
_OLD_S = 600.0  # a new proxy reads a kubeconfig that has changed, and gets rights that were granted meanwhile
_AT_ONCE = 32


class NoProxy(Exception):
    """Raised when there is no proxy; nothing was sent."""


class Proxy:
    """A running proxy. Created by `start`; it belongs to the event loop that created it."""

    def __init__(self, child: Process, directory: Path, session: aiohttp.ClientSession) -> None:
        self._child = child
        self._directory = directory
        self._session = session
        self._ends = asyncio.get_running_loop().time() + _OLD_S
        self._in_flight = 0

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Proxy:
        """Start a proxy. `command`: kubectl with its options. NoProxy when it does not serve within seconds."""
        import aiohttp

        directory = Path(tempfile.mkdtemp(prefix="reconciler-kubectl-"))  # with mode 700
        socket, child, serves = directory / "socket", None, False
        try:
            child = await asyncio.create_subprocess_exec(
                "sh",
                "-c",
                _GUARDED,
                "sh",
                str(directory),
                *command,
                "proxy",
                f"--unix-socket={socket}",
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=environment,
                start_new_session=True,
            )
            assert child.stdout is not None
            with suppress(TimeoutError):
                async with asyncio.timeout(_STARTS_S):
                    serves = (await child.stdout.readline()).startswith(b"Starting to serve")
        except OSError as error:
            raise NoProxy from error
        finally:
            if not serves:
                await _end(child, directory)
        if child is None or not serves:
            raise NoProxy
        connector = aiohttp.UnixConnector(str(socket), limit=_AT_ONCE)
        return cls(child, directory, aiohttp.ClientSession(connector=connector))

    @property
    def usable(self) -> bool:
        return self._child.returncode is None and asyncio.get_running_loop().time() < self._ends

    @property
    def idle(self) -> bool:
        return self._in_flight == 0

    async def ask(self, method: str, path: str, body: bytes, media: str, timeout_s: float) -> bytes:
        """Send a request; return the answer's body. KubeFailure without success. NoProxy: nothing was sent."""
        import aiohttp

        self._in_flight += 1
        headers = {"Host": "localhost", "Content-Type": media, "Accept": "application/json"}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, _address(path), data=body or None, headers=headers, allow_redirects=False
                ) as answer,
            ):
                content = await answer.read()
        except TimeoutError:
            raise KubeFailure(Problem(Failure.TIMEOUT, f"no answer within {timeout_s:g} s")) from None
        except aiohttp.ClientConnectorError:
            raise NoProxy from None
        except aiohttp.ClientError as error:
            raise KubeFailure(Problem(Failure.UNREACHABLE, f"kubectl proxy: {type(error).__name__}")) from None
        finally:
            self._in_flight -= 1
        if not 200 <= answer.status < 300:
            raise from_response(answer.status, content)
        return content

    async def close(self) -> None:
        await self._session.close()
        await _end(self._child, self._directory)


def _address(path: str) -> yarl.URL:
    import yarl

    return yarl.URL(f"http://localhost{path}", encoded=True)  # the caller has quoted it


async def _end(child: Process | None, directory: Path) -> None:
    if child is not None:
        await reap(child)
    with suppress(OSError):
        await asyncio.to_thread(shutil.rmtree, directory)
