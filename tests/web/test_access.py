"""Who is let in: by address, token, proxy, host, origin and role, and where the service does not even start."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.web import server
from reconciler.drivers.web.access import Access, AccessRefusedError, Asked, WebOptions
from reconciler.model.access_role import AccessRole
from reconciler.model.errors import UsageError
from tests.cli.shell import until
from tests.web.conftest import TOKENS, Live, secret_store, serving, token

GROUPS = {"gpu-viewers": AccessRole.VIEWER, "gpu-ops": AccessRole.OPERATOR}
PEM = Path("some.pem")  # only its being given counts


# --- where it starts --------------------------------------------------------------------------------------------------

TLS: dict[str, Any] = {"tls_cert": PEM, "tls_key": PEM}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (WebOptions(":8090"), "can be reached from other machines, which takes --tls-cert"),
        (WebOptions("0.0.0.0:8090", tokens=TOKENS), "takes --tls-cert"),
        (WebOptions("10.0.0.1:8090", **TLS), "say who may ask, with --token"),
        (WebOptions("[::]:8090", tls_cert=PEM), "both --tls-cert and --tls-key"),
        (WebOptions("127.0.0.1:8090", proxy_roles=GROUPS), "headers that anybody could send"),
        (WebOptions("10.0.0.1:8090", **TLS, proxy_roles=GROUPS), "headers that anybody could send"),
        (WebOptions("127.0.0.1:8090", tls_client_ca=PEM), "takes --tls-cert and --tls-key"),
        (WebOptions("box.example.com:8090"), "takes --tls-cert"),
    ],
)
def test_where_others_could_come_in_it_does_not_start(options: WebOptions, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Access(options)


@pytest.mark.parametrize(
    "options",
    [
        WebOptions("127.0.0.1:8090"),
        WebOptions("127.8.8.8:1"),
        WebOptions("[::1]:8090"),
        WebOptions("localhost:8090"),
        WebOptions("unix:/run/reconciler.sock", proxy_roles=GROUPS),
        WebOptions("10.0.0.1:8090", **TLS, tls_client_ca=PEM, proxy_roles=GROUPS),
    ],
)
def test_where_it_starts(options: WebOptions) -> None:
    Access(options)


def test_a_token_that_can_be_guessed_is_refused(store: SecretStore) -> None:
    with pytest.raises(UsageError, match="'short' is too short for a token: 24 characters"):
        Access(WebOptions(tokens={"short": AccessRole.ADMIN}), store)
    with pytest.raises(UsageError, match="nobody"):
        Access(WebOptions(tokens={"nobody": AccessRole.ADMIN}), store)


# --- who is let in ----------------------------------------------------------------------------------------------------

HERE = {"host": "127.0.0.1:8090"}
JSON = {"content-type": "application/json"}
LOCAL = WebOptions("127.0.0.1:8090", tokens=TOKENS)
REMOTE = WebOptions("10.0.0.1:8090", **TLS, tokens=TOKENS)
PROXY = WebOptions("unix:/run/reconciler.sock", proxy_roles=GROUPS)
V, O, A = AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN  # noqa: E741


def user(name: str, groups: str) -> dict[str, str]:
    return {"x-forwarded-user": name, "x-forwarded-groups": groups}


@pytest.mark.parametrize(
    ("options", "method", "headers", "needed", "who"),
    [
        # On this machine whoever is there may read, and writes authenticate.
        (LOCAL, "GET", HERE, V, ""),
        (LOCAL, "GET", {"host": "localhost:8090"}, V, ""),
        (LOCAL, "GET", {"host": "[::1]:8090"}, V, ""),
        (LOCAL, "POST", HERE | JSON, O, 401),
        (WebOptions("127.0.0.1:8090"), "POST", HERE | JSON, O, 401),
        (LOCAL, "POST", HERE | JSON | token("bob"), O, "bob"),
        (LOCAL, "DELETE", HERE | token("bob"), O, "bob"),
        (LOCAL, "POST", HERE | JSON | token("ann"), O, 403),
        (LOCAL, "POST", HERE | JSON | token("bob"), A, 403),
        (LOCAL, "POST", HERE | JSON | token("eve"), A, "eve"),
        (LOCAL, "GET", HERE | {"authorization": "Bearer wrong"}, V, 401),
        (LOCAL, "POST", HERE | JSON | {"authorization": "Basic Ym9iOmJvYg=="}, O, 401),
        # A name that a page elsewhere made resolve to this machine.
        (LOCAL, "GET", {"host": "evil.example.com:8090"}, V, 403),
        (LOCAL, "GET", {"host": "evil.example.com"}, V, 403),
        (LOCAL, "GET", {}, V, 403),
        # A write that a page of another origin sends.
        (LOCAL, "POST", HERE | JSON | token("bob") | {"origin": "http://127.0.0.1:8090"}, O, "bob"),
        (LOCAL, "POST", HERE | JSON | token("bob") | {"origin": "https://evil.example.com"}, O, 403),
        (LOCAL, "POST", HERE | JSON | token("bob") | {"origin": "null"}, O, 403),
        (LOCAL, "POST", HERE | JSON | token("bob") | {"sec-fetch-site": "cross-site"}, O, 403),
        (LOCAL, "POST", HERE | JSON | token("bob") | {"sec-fetch-site": "same-site"}, O, 403),
        (LOCAL, "POST", HERE | JSON | token("bob") | {"sec-fetch-site": "same-origin"}, O, "bob"),
        (LOCAL, "DELETE", HERE | token("bob") | {"origin": "https://evil.example.com"}, O, 403),
        (LOCAL, "POST", HERE | token("bob") | {"content-type": "text/plain"}, O, 403),
        (LOCAL, "POST", HERE | token("bob"), O, 403),
        # From elsewhere a token for everything.
        (REMOTE, "GET", {"host": "box:8090"}, V, 401),
        (REMOTE, "GET", {"host": "box:8090"} | token("ann"), V, "ann"),
        (REMOTE, "GET", {"host": "box:8090"} | user("mallory", "gpu-ops"), V, 401),
        # Behind a proxy the user that it names.
        (PROXY, "GET", {"host": "fleet.example.com"}, V, 401),
        (PROXY, "GET", {"host": "fleet.example.com"} | user("ann", "gpu-viewers,staff"), V, "ann"),
        (PROXY, "GET", {"host": "fleet.example.com"} | user("mallory", "staff"), V, 403),
        (PROXY, "GET", {"host": "fleet.example.com"} | user("mallory", ""), V, 403),
        (PROXY, "POST", {"host": "fleet.example.com"} | JSON | user("ann", "gpu-viewers"), O, 403),
        # The CSRF token is missing.
        (PROXY, "POST", {"host": "fleet.example.com"} | JSON | user("bob", "gpu-ops"), O, 403),
    ],
)  # fmt: skip
def test_who_is_let_in(
    store: SecretStore, options: WebOptions, method: str, headers: Mapping[str, str], needed: AccessRole, who: str | int
) -> None:
    access = Access(options, store)
    try:
        found: str | int = access.caller(Asked(method, headers), needed).name
    except AccessRefusedError as refused:
        found = refused.status
    assert found == who


@pytest.mark.parametrize("now", ["", "\n", "x" * 23])
def test_a_token_whose_file_is_being_written_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str
) -> None:
    kept = secret_store(tmp_path)
    access, where = Access(WebOptions("127.0.0.1:0", tokens=TOKENS), kept), {"host": "localhost"}
    assert access.caller(Asked("GET", where | token("eve")), AccessRole.ADMIN).name == "eve"
    (tmp_path / "eve").write_text(now)
    monkeypatch.setattr("reconciler.drivers.secrets.REREAD_S", -1.0)
    for given in ("", now.strip()):
        with pytest.raises(AccessRefusedError, match="not known"):
            access.caller(Asked("GET", where | {"authorization": f"Bearer {given}"}), AccessRole.VIEWER)
    assert access.caller(Asked("GET", where | token("bob")), AccessRole.OPERATOR).name == "bob"


def test_behind_a_proxy_a_write_carries_the_csrf_token_of_its_own_user() -> None:
    access, where = Access(PROXY), {"host": "fleet.example.com"}
    bob, ann = (access.caller(Asked("GET", where | user(n, "gpu-ops")), V) for n in ("bob", "ann"))

    def write(csrf: str) -> str:
        headers = where | JSON | user("bob", "gpu-ops") | {"x-csrf-token": csrf}
        return access.caller(Asked("POST", headers), O).name

    assert write(access.csrf(bob)) == "bob"
    for wrong in (access.csrf(ann), "", Access(PROXY).csrf(bob)):
        with pytest.raises(AccessRefusedError, match="X-CSRF-Token"):
            write(wrong)


# --- over the wire ----------------------------------------------------------------------------------------------------


def certificate(directory: Path, name: str, issuer: str = "") -> tuple[Path, Path]:
    """A key and a certificate, signed by itself or by an issuer made before."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, by = key, subject
    if issuer:
        signer = serialization.load_pem_private_key((directory / f"{issuer}.key").read_bytes(), None)  # type: ignore[assignment]
        by = x509.load_pem_x509_certificate((directory / f"{issuer}.pem").read_bytes()).subject
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=not issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(signer, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (directory / f"{name}.key").write_bytes(pem)
    (directory / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return directory / f"{name}.pem", directory / f"{name}.key"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ca")
    certificate(directory, "ca")
    for name in ("server", "proxy"):
        certificate(directory, name, "ca")
    certificate(directory, "stranger")
    return directory


def tls(ca: Path, client: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(ca / "ca.pem"))
    if client:
        made.load_cert_chain(ca / f"{client}.pem", ca / f"{client}.key")
    return made


@pytest.mark.wire
def test_from_elsewhere_it_takes_tls_and_a_token(live: Live, store: SecretStore, ca: Path) -> None:
    options = WebOptions("0.0.0.0:0", ca / "server.pem", ca / "server.key", tokens=TOKENS)
    with serving(live, options, store=store) as url:
        base = url.replace("0.0.0.0", "localhost")
        assert base.startswith("https://")
        with httpx.Client(base_url=base, verify=tls(ca)) as client:
            answer = client.get("/api/v1/run")
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert client.get("/api/v1/openapi.json").status_code == 401
            assert client.get("/metrics").status_code == 401
            assert client.get("/healthz").text == "ok\n"
            assert client.get("/readyz").json().keys() == {"ready", "why", "role"}, "no names of nodes for probes"
            client.headers.update(token("ann"))
            assert client.get("/api/v1/run").status_code == 200
            assert client.get("/api/v1/session").json()["role"] == "viewer"
            assert client.get("/metrics").status_code == 200
            assert "acting" in client.get("/readyz").json()


@pytest.mark.wire
def test_a_proxy_proves_itself_by_its_certificate(live: Live, ca: Path) -> None:
    options = WebOptions(
        "0.0.0.0:0", ca / "server.pem", ca / "server.key", tls_client_ca=ca / "ca.pem", proxy_roles=GROUPS
    )
    with serving(live, options) as url:
        base = url.replace("0.0.0.0", "localhost")
        with httpx.Client(base_url=base, verify=tls(ca, "proxy"), headers=user("ann", "gpu-viewers")) as proxy:
            assert proxy.get("/api/v1/session").json()["name"] == "ann"
        for stranger in ("", "stranger"):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{base}/api/v1/session", verify=tls(ca, stranger), headers=user("ann", "gpu-ops"))


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.mark.wire
def test_a_unix_socket_is_its_owners_alone_and_a_dead_one_is_replaced(live: Live, socket_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_path))
    options = WebOptions(f"unix:{socket_path}", proxy_roles=GROUPS)
    with serving(live, options):
        assert socket_path.stat().st_mode & 0o777 == 0o660
        transport = httpx.HTTPTransport(uds=str(socket_path))
        with httpx.Client(transport=transport, base_url="http://fleet.example.com") as client:
            assert client.get("/api/v1/run").status_code == 401
            assert client.get("/api/v1/run", headers=user("ann", "gpu-viewers")).status_code == 200
        with pytest.raises(UsageError, match="in use"), serving(live, options):
            pass
    assert not socket_path.exists()


@pytest.mark.wire
def test_a_key_that_is_none_is_a_clear_error(live: Live, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing\n")
    options = WebOptions("127.0.0.1:0", tmp_path / "bad.pem", tmp_path / "bad.pem")
    with pytest.raises(UsageError, match=r"can't serve TLS with .*bad\.pem"), serving(live, options):
        pass


@pytest.mark.wire
def test_a_renewed_certificate_is_served_without_a_restart(
    live: Live, store: SecretStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_RENEW_S", 0.05)
    certificate(tmp_path, "ca")
    pem, key = certificate(tmp_path, "server", "ca")
    options = WebOptions("127.0.0.1:0", pem, key, tokens=TOKENS)
    with serving(live, options, store=store) as url:
        port = int(url.rpartition(":")[2])

        def served() -> bytes:
            with (
                socket.create_connection(("127.0.0.1", port), 10) as plain,
                tls(tmp_path).wrap_socket(plain, server_hostname="localhost") as found,
            ):
                return found.getpeercert(binary_form=True) or b""

        first = served()
        pem.write_text("half of a file")
        time.sleep(0.3)
        assert served() == first, "one that can't be used leaves that of before"
        certificate(tmp_path, "server", "ca")
        until(lambda: served() != first, seconds=20)


@pytest.mark.wire
def test_connections_that_ask_nothing_do_not_keep_the_probes_out(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_FIRST_S", 0.3)
    monkeypatch.setattr(server, "_AT_ONCE", 8)
    with serving(live) as url:
        port = int(url.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(10)]
        idle[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")  # and never the rest
        until(lambda: httpx.get(f"{url}/healthz").status_code == 200, seconds=20)
        for one in idle:
            one.settimeout(10)
            assert one.recv(1) == b"", "closed"
            one.close()
