"""Invariant 14: no secret is in any output, whatever the secret, and whatever those say that we show it to."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import logging
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncssh
import pytest
from aiohttp import web
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.secrets import SecretStore
from reconciler.lab.generate import Addresses, generate_spec
from reconciler.lab.pki import ImageKey, SshAuthority, TlsAuthority, write_private
from reconciler.model.errors import ReconcilerError
from reconciler.spec import load_spec
from tests.cli.shell import reconciler

pytestmark = pytest.mark.wire

USER = "the-user"


@dataclass(frozen=True)
class Secrets:
    """Each has a core of letters and digits that survives every way of quoting, and occurs nowhere by chance."""

    password: str
    token: str
    key: str
    session: str  # what the BMC gives for the password

    @property
    def traces(self) -> list[str]:
        """What must not be seen: cores, and what Basic makes of user and password."""
        cores = [
            core(self.password),
            core(self.token),
            core(self.session),
            *(line[:40] for line in self.key.splitlines()[1:-1]),
        ]
        basic = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        return [trace for trace in (*cores, basic) if trace]


MARK = "Zq7"


def core(text: str) -> str:
    at = text.index(MARK)
    return text[at : at + len(MARK) + 12]


_NASTY = st.text(st.sampled_from("aZ0 \"'\\/@:#?&=%$`{}[]<>|;,!*~äß漢💥"), max_size=8)
_CORES = st.text(st.sampled_from("abcdefghijkmnpqrstuvwxyz23456789"), min_size=12, max_size=12).map(MARK.__add__)


def texts() -> st.SearchStrategy[str]:
    return st.builds(lambda before, middle, after: before + middle + after, _NASTY, _CORES, _NASTY)


@st.composite
def keys(draw: st.DrawFn) -> str:
    """A private key that works, or one that does not and looks like it."""
    if draw(st.booleans()):
        return _private_key()
    body = draw(st.text(st.sampled_from("ABCDEFabcdef0123456789+/"), min_size=70, max_size=70))
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n"


def _private_key() -> str:
    return asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()


SECRETS = st.builds(Secrets, texts(), st.builds(str.__add__, _CORES, st.just("-token")), keys(), _CORES)


# --- those that we talk to -------------------------------------------------------------------------------------------

Echo = Callable[[str], web.StreamResponse]


def _refusal(status: int) -> Echo:
    def answer(heard: str) -> web.Response:
        info = {
            "MessageId": "Base.1.10.ResourceAtUriUnauthorized",
            "Message": f"refused: {heard}",
            "MessageArgs": [heard],
        }
        body = {"error": {"code": heard, "message": heard, "@Message.ExtendedInfo": [info]}}
        return web.json_response(body, status=status)

    return answer


ECHOES: dict[str, Echo] = {
    "400": _refusal(400),
    "401": _refusal(401),
    "403": _refusal(403),
    "404": _refusal(404),
    "500": _refusal(500),
    "503": _refusal(503),
    "redirect": lambda heard: web.Response(status=302, headers={"Location": _header(f"https://127.0.0.1:1/{heard}")}),
    "garbage": lambda heard: web.Response(text=f"<html>you said {heard}</html>", content_type="text/html"),
    "cut off": lambda heard: web.Response(text=f'{{"heard": "{heard}', content_type="application/json"),
    "a list": lambda heard: web.json_response([heard]),
    "a header": lambda heard: web.Response(
        status=418, headers={"WWW-Authenticate": _header(heard)}, reason=_reason(heard)
    ),
}


def _header(text: str) -> str:
    return "".join(char for char in text if char.isascii() and char.isprintable())


def _reason(text: str) -> str:
    return _header(text)[:60] or "x"


@dataclass
class World:
    """A BMC and a Kubernetes API that give back whatever they are told, and a host that hangs up."""

    directory: Path
    spec: Path
    https: int
    heard: list[str] = field(default_factory=list)
    echo: Echo = ECHOES["401"]
    session: str = ""  # the token that a login is answered with; "" = it is refused

    def keep(self, secrets: Secrets) -> dict[str, str]:
        """The secrets in files, as operators keep them. The environment of the command."""
        self.heard.clear()
        credentials = json.dumps({"username": USER, "password": secrets.password})
        write_private(self.directory / "bmc.json", credentials)
        write_private(self.directory / "key", secrets.key)
        cluster = {"server": f"https://127.0.0.1:{self.https}", "insecure-skip-tls-verify": True}
        kubeconfig = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": secrets.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        write_private(self.directory / "kubeconfig", json.dumps(kubeconfig))
        allow = ["127.0.0.0/8"]
        sources = {
            "bmc": {"file": "bmc.json", "allow": allow},
            "ssh": {"file": "key", "allow": allow},
            "kubeconfig": {"file": "kubeconfig"},
        }
        write_private(
            self.directory / "secrets.yaml",
            json.dumps({"secrets": sources, "keys": {"release": {"file": "release.pub"}}}),
        )
        return {"RECONCILER_SECRETS": str(self.directory / "secrets.yaml"), "RECONCILER_ACTOR": "tests"}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """What was ever said to it, in the answer to everything but the root of the tree, unless it lets us in."""
        body = (await request.read()).decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self.heard.append(json.loads(body)["Password"])
        for name in ("Authorization", "X-Auth-Token"):
            if name in request.headers:
                self.heard.append(request.headers[name])
        if self.session and request.method == "POST" and "Sessions" in request.path:
            return web.json_response({}, status=201, headers={"X-Auth-Token": self.session, "Location": request.path})
        if request.path.rstrip("/") == "/redfish/v1":
            root = {"@odata.id": "/redfish/v1/", "Systems": {"@odata.id": "/redfish/v1/Systems"}}
            return web.json_response(
                root | {"Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}}
            )
        return self.echo("nothing" if self.session else " ".join(self.heard))


@contextlib.contextmanager
def served(world: World, context: ssl.SSLContext, sockets: tuple[socket.socket, socket.socket]) -> Iterator[None]:
    """In a thread, since commands run their own loops."""
    loop = asyncio.new_event_loop()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(b"SSH-2.0-nonsense\r\n" + await reader.read(100) + b"\0\0\0\1nonsense")
        writer.close()

    async def start() -> tuple[web.AppRunner, asyncio.Server]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", world.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.SockSite(runner, sockets[0], ssl_context=context).start()
        return runner, await asyncio.start_server(hang_up, sock=sockets[1])

    async def stop() -> None:
        host.close()
        await host.wait_closed()
        await runner.cleanup()

    runner, host = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("secrets")
    tls = TlsAuthority()
    https, ssh = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    port = int(https.getsockname()[1])
    spec = directory / "fleet-spec"
    image_key = ImageKey()
    (directory / "release.pub").write_text(image_key.public_text)
    addresses = Addresses([(port, int(ssh.getsockname()[1]))], 1, 1)
    generate_spec(spec, addresses, tls_ca=tls.pem, ssh_ca=SshAuthority().public_key, image_key=image_key)
    made = World(directory, spec, port)
    with served(made, tls.server_context(directory / "server.pem"), (https, ssh)):
        yield made


# --- the property ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def all_logs() -> Iterator[io.StringIO]:
    """Everything that any library logs, at DEBUG."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s"))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def commands(spec: Path, out: Path) -> list[list[str | Path]]:
    return [
        ["observe", spec, "--out", out],
        ["drift", spec, "--output", "json"],
        ["plan", spec, "--output", "markdown"],
        ["plan", spec, "--output", "json"],
        ["explain", "gpu-0001", spec],
        ["doctor", spec],
        ["report", spec, "--html", out.parent / "page"],
    ]


def all_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # each example is a whole command


@settings(max_examples=30, phases=NO_SHRINKING)
@given(data=st.data())
def test_no_secret_in_any_output(world: World, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Through secrets files, drivers' errors, every renderer and document, logs at DEBUG, and the ledger's bytes."""
    secrets = data.draw(SECRETS, label="secrets")
    world.echo = ECHOES[data.draw(st.sampled_from(sorted(ECHOES)), label="echo")]
    kept = tmp_path_factory.mktemp("kept")
    world.session = secrets.session if data.draw(st.booleans(), label="logged in") else ""
    words = data.draw(st.sampled_from(commands(world.spec, kept / "seen.json")), label="command")
    env = world.keep(secrets)
    with all_logs() as logs:
        done = reconciler(*words, "--ledger", str(kept / "ledger.sqlite"), "--create-ledger", env=env)
    assert any(core(secrets.password) in heard for heard in world.heard), "the password was never sent"
    # Doctor fails where a right of the cluster is missing, or not known.
    assert done.code in ((0, 4, 64) if words[0] == "doctor" else (0, 4)), done.err
    shown = {
        "stdout": done.out,
        "stderr": done.err,
        "logs": logs.getvalue(),
        "files": all_bytes(kept).decode("latin-1"),
    }
    for trace in secrets.traces:
        for where, text in shown.items():
            assert trace not in text, f"{where} of {words[0]} shows a secret"


@settings(max_examples=25, phases=NO_SHRINKING)
@given(secrets=SECRETS)
def test_no_secret_in_a_repr_or_a_traceback(world: World, secrets: Secrets) -> None:
    """Of all that holds one, and of what is raised where one is used."""
    world.keep(secrets)
    store = SecretStore.load(world.directory / "secrets.yaml")
    fleet = load_spec(world.spec, directory=str(world.spec))
    fabric = WireFabric(fleet, RealClock(), store, None)
    [node] = fleet.nodes.values()
    held: list[Any] = [
        store, store.resolve("bmc", "127.0.0.1"), store.credentials("bmc", "127.0.0.1"), fabric, fabric.bmc(node),
        fabric.host(node), fabric.cluster(),
    ]  # fmt: skip
    shown = [f"{thing!r} {thing} {vars(thing) if hasattr(thing, '__dict__') else ''}" for thing in held[:3]]
    shown += [f"{thing!r} {thing}" for thing in held[3:]]
    (world.directory / "bmc.json").write_text(secrets.password)  # no JSON: what is in it may not be quoted
    spoiled = SecretStore.load(world.directory / "secrets.yaml")
    for misuse in (
        lambda: spoiled.credentials("bmc", "127.0.0.1"),
        lambda: store.resolve("bmc", "https://192.0.2.1"),
        lambda: SqlLedger(f"mysql://u:{core(secrets.password)}@h/d"),
        lambda: SqlLedger(f"postgresql://u:{core(secrets.password)}@127.0.0.1:1/d"),
        lambda: SqlLedger(f"postgresql://u@127.0.0.1:1/d?password={quote(secrets.password)}"),
        lambda: SqlLedger(f"postgresql://u:{quote(secrets.password, safe='')}@127.0.0.1:1/d?sslpassword={secrets.key}"),
        lambda: SqlLedger(f"postgresql://u:{secrets.password}@127.0.0.1:1/d"),  # as nobody should write it
        lambda: store.credentials("bmc", f"https://u:{quote(secrets.password)}@192.0.2.1/x?token={secrets.token}"),
    ):
        with pytest.raises(ReconcilerError) as caught:
            misuse()
        shown.append("".join(traceback.format_exception(caught.value)))
    for trace in secrets.traces:
        assert not any(trace in text for text in shown)


@pytest.mark.parametrize("where", ["env", "exec", "inline"])
def test_where_secrets_come_from_is_told_and_not_what_they_are(world: World, where: str, monkeypatch: Any) -> None:
    """A secret that stands in the secrets file itself is refused, and not shown with its line."""
    secret = f"{MARK}9hunter2hunter2"
    env = world.keep(Secrets(secret, secret, _private_key(), secret))
    sources: dict[str, dict[str, Any]] = {
        "env": {"env": "THE_SECRET"}, "exec": {"exec": ["sh", "-c", f"echo {secret}; echo {secret} >&2; exit 3"]},
        "inline": {"password": secret},
    }  # fmt: skip
    source = sources[where]
    document = json.loads((world.directory / "secrets.yaml").read_text())
    document["secrets"]["bmc"] = source | ({} if where == "inline" else {"allow": ["127.0.0.0/8"]})
    write_private(world.directory / "secrets.yaml", json.dumps(document))
    for name in ("drift", "doctor"):
        done = reconciler(
            name,
            world.spec,
            "--ledger",
            str(world.directory / "l.sqlite"),
            "--create-ledger",
            env=env | {"THE_SECRET": secret},
        )
        assert done.code in (4, 64), done.err
        assert secret not in done.out + done.err
