"""Run kubectl as a child process.

kubectl 1.20 is the oldest that must work: every flag used here exists there. Measured on 10,000 pods of 6 kB:
`get --raw` costs kubectl 0.1 s of CPU, `get -o json` 15 s, because it decodes and prints every object again. So
reads, and writes that have a raw form, go through `--raw`; that needs no discovery either.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

from reconciler.drivers.children import reap, start
from reconciler.drivers.kube import objects
from reconciler.drivers.kube.failures import KubeFailure, Problem, from_stderr, malformed
from reconciler.drivers.kube.proxy import NoProxy, Proxy
from reconciler.drivers.requests_log import telling
from reconciler.model.errors import Failure

INSTALL_HINT = (
    "install kubectl 1.20 or newer (Debian, Ubuntu: apt-get install kubernetes-client; else "
    "https://kubernetes.io/docs/tasks/tools/#kubectl) and have it on PATH"
)
_ENVIRONMENT = {"KUBERC": "off", "KUBECTL_KUBERC": "false", "LC_ALL": "C"}  # no defaults from a person's kuberc
_SHORT_LIVED = {"GOGC": "400"}  # Go collects garbage at its start: a sixth of the CPU of a run, to save it 2 MB
_AT_ONCE = 8  # children of one cluster: each needs 30 ms of CPU and 50 MB
_LONGEST_LINE = 1 << 24  # an object is at most 3 MiB in etcd
_MOST_STDERR = 1 << 20
_METHODS = {"get": "GET", "create": "POST", "replace": "PUT", "delete": "DELETE"}
_JSON = "application/json"
_VERSION = "/version"
_SHOWN = 200  # characters of a command
_UNAUTHORIZED = 401
_RETRY_S = 300.0
_OTHER_RIGHTS_S = 30.0
_GRACE_S = 1.0  # kubectl's own deadline comes first, as its message tells more
_MANAGER = "kubectl-patch"  # of fields that we set: the name that kubectl gives itself


class Kubectl:
    """kubectl with fixed access options. `kubeconfig=None`: the one that kubectl finds by itself."""

    def __init__(self, program: str, kubeconfig: Path | None, context: str | None, timeout_s: float) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._proxy: Proxy | None = None
        self._retired: list[Proxy] = []
        self._starting = asyncio.Lock()
        self._not_before = 0.0  # when the next proxy may be started
        # -v=4 makes kubectl log the server's Status object (reason, code, causes), and nothing that authenticates us:
        # headers begin at 7. A timeout of "0s" would mean none.
        self._access: list[str] = []
        if kubeconfig is not None:
            self._access.append(f"--kubeconfig={kubeconfig}")  # which overrides KUBECONFIG
        if context is not None:
            self._access.append(f"--context={context}")
        self._common = ["-v=4", f"--request-timeout={max(1, round(timeout_s * 1000))}ms", *self._access]

    # --- requests ------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Send later requests through one `kubectl proxy` that keeps running, if it reaches the same server."""
        loop = asyncio.get_running_loop()
        async with self._starting:
            for old in [old for old in self._retired if old.idle]:
                self._retired.remove(old)
                await old.close()
            if self._proxy is not None and not self._proxy.usable:
                self._retire(self._proxy, 0.0)
            if self._proxy is None and loop.time() >= self._not_before:
                self._not_before = loop.time() + _RETRY_S
                self._proxy = await self._start_proxy()

    async def _start_proxy(self) -> Proxy | None:
        """Start a proxy; None unless it reaches the same server: it ignores a path in the kubeconfig's URL."""
        try:
            proxy = await Proxy.start([self._program, *self._access], _environment())
        except NoProxy:
            return None
        same_server = False
        try:
            with suppress(KubeFailure, NoProxy):
                through = await proxy.ask("GET", _VERSION, b"", _JSON, self._timeout_s)
                same_server = through == await self.run(["get", "--raw", _VERSION])
        finally:
            if not same_server:
                await proxy.close()
        return proxy if same_server else None

    def _retire(self, proxy: Proxy, pause_s: float) -> None:
        """Send no more requests to the proxy, and end it when those under way have their answers."""
        if proxy is self._proxy:
            self._proxy = None
            self._retired.append(proxy)
            self._not_before = asyncio.get_running_loop().time() + pause_s

    async def close(self) -> None:
        """End the proxies."""
        proxies, self._proxy, self._retired = [*self._retired, self._proxy], None, []
        for proxy in proxies:
            if proxy is not None:
                await proxy.close()

    async def raw(self, verb: str, path: str, body: bytes = b"") -> bytes:
        """Send a raw request; return the answer's body. `verb`: get, create, replace or delete."""
        with suppress(NoProxy):
            return await self._through(_METHODS[verb], path, body, _JSON)
        return await self.run([verb, "--raw", path, *(["-f", "-"] if body else [])], body)

    async def patch_node(self, node: str, operations: str) -> str:
        """Apply a JSON patch; return the node's new resourceVersion."""
        path = f"/api/v1/nodes/{quote(node, safe='')}?fieldManager={_MANAGER}"
        try:
            answer = await self._through("PATCH", path, operations.encode(), "application/json-patch+json")
        except NoProxy:
            shown = "--output=jsonpath={.metadata.resourceVersion}"
            answer = await self.run(["patch", f"nodes/{node}", "--type=json", f"--patch={operations}", shown])
            return answer.decode(errors="replace")
        return objects.revision(objects.document(answer, "Node"))

    async def merge(self, path: str, resource: str, namespace: str, patch: str) -> None:
        """Apply a JSON merge patch. `resource`: with the name, as kubectl takes it: "pods/web"."""
        try:
            path = f"{path}?fieldManager={_MANAGER}"
            await self._through("PATCH", path, patch.encode(), "application/merge-patch+json")
        except NoProxy:
            space = [f"--namespace={namespace}"] if namespace else []
            await self.run(["patch", resource, *space, "--type=merge", f"--patch={patch}"])

    async def _through(self, method: str, path: str, body: bytes, media: str) -> bytes:
        """Send a request through the proxy. NoProxy: nothing was sent."""
        proxy = self._proxy
        if proxy is None:
            raise NoProxy
        try:
            with telling("kubernetes", f"{method} {path}", reads=method == "GET"):
                return await proxy.ask(method, path, body, media, self._timeout_s)
        except NoProxy:
            self._retire(proxy, 0.0)
            raise
        except KubeFailure as failure:
            if failure.problem.code == _UNAUTHORIZED:
                self._retire(proxy, _OTHER_RIGHTS_S)  # the next one reads the kubeconfig again
            raise

    # --- children ------------------------------------------------------------------------------------------------

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        """Run a command; return its stdout. KubeFailure otherwise. Cancelling kills the child and its children."""
        with telling("kubectl", " ".join(arguments)[:_SHOWN], reads=arguments[0] in ("get", "version")):
            return await self._ended(arguments, stdin)

    async def _ended(self, arguments: Sequence[str], stdin: bytes) -> bytes:
        async with self._slots:
            child = await self._start(arguments)
            try:
                async with asyncio.timeout(self._timeout_s + _GRACE_S):
                    stdout, stderr = await child.communicate(stdin)
            except TimeoutError:
                detail = f"kubectl gave no answer within {self._timeout_s:g} s and was killed"
                raise KubeFailure(Problem(Failure.TIMEOUT, detail)) from None
            finally:
                await reap(child)
        if child.returncode != 0:
            raise from_stderr(stderr.decode(errors="replace"))
        return stdout

    async def lines(self, arguments: Sequence[str], limit_s: float) -> AsyncGenerator[bytes]:
        """Yield stdout line by line; KubeFailure when the command fails, or has not ended after `limit_s`.

        It takes no slot, as it may run for minutes. Closing the generator kills the child.
        """
        ends = asyncio.get_running_loop().time() + limit_s
        with tempfile.TemporaryFile() as stderr:  # a pipe would have to be read meanwhile
            child = await self._start([*arguments, "--request-timeout=0"], stdin=subprocess.DEVNULL, stderr=stderr)
            assert child.stdout is not None
            try:
                async with asyncio.timeout_at(ends):
                    line = await child.stdout.readline()
                while line:
                    yield line
                    async with asyncio.timeout_at(ends):
                        line = await child.stdout.readline()
                status = await child.wait()
            except TimeoutError:
                detail = f"kubectl did not end within {limit_s:g} s and was killed"
                raise KubeFailure(Problem(Failure.TIMEOUT, detail)) from None
            except ValueError:  # asyncio's error for a line that is too long
                raise malformed("a line without an end") from None
            finally:
                await reap(child)
            if status != 0:
                stderr.seek(0)
                raise from_stderr(stderr.read(_MOST_STDERR).decode(errors="replace"))

    async def _start(
        self, arguments: Sequence[str], *, stdin: int = subprocess.PIPE, stderr: int | IO[bytes] = subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        try:
            return await start(
                self._program,
                *self._common,
                *arguments,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                limit=_LONGEST_LINE,
                env=_SHORT_LIVED | _environment(),
            )
        except (FileNotFoundError, PermissionError) as error:
            detail = f"{self._program}: {error.strerror}; {INSTALL_HINT}"
            raise KubeFailure(Problem(Failure.UNSUPPORTED, detail, never_sent=True)) from error
        except OSError as error:
            detail = f"{self._program} could not be started: {error.strerror}"
            raise KubeFailure(Problem(Failure.UNREACHABLE, detail, never_sent=True)) from error


def _environment() -> dict[str, str]:
    """Return our own environment, for HTTP proxies and credential plugins, with kubectl's settings."""
    return dict(os.environ) | _ENVIRONMENT
