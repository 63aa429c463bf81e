"""Addresses that are none are errors in words with the exit code of a usage or spec error, never tracebacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from reconciler.app.clocks import RealClock
from reconciler.cli.exit_codes import ExitCode, exit_code_of
from reconciler.drivers.endpoints import EndpointsError, load_endpoints
from reconciler.drivers.forge.http import Rest
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.remote_git import Remote
from reconciler.model.errors import LedgerError, UsageError
from reconciler.spec.kinds.base import WebUrl
from tests.cli.shell import reconciler

UNREADABLE = ["://[::1", "://h:99999/x", "://h:abc/x", "://h:0/x"]


@pytest.mark.parametrize(
    "where",
    [
        *(f"postgresql{rest}" for rest in UNREADABLE), "sqlite:///", "sqlite://", "://", "foo://x", "mysql://h/x",
        "oracle+cx://h/x", "http://h:99999",
    ],
)  # fmt: skip
def test_a_ledger_that_is_none_is_a_usage_error(where: str) -> None:
    with pytest.raises(LedgerError) as raised:
        SqlLedger(where)
    assert exit_code_of(raised.value) is ExitCode.USAGE
    assert raised.value.__cause__ is None, "it may quote a password"
    for command in (("audit", "verify"), ("lease", "list")):
        done = reconciler(*command, "--ledger", where)
        assert (done.code, done.out) == (64, "")
        assert "Traceback" not in done.err
        assert "the ledger's URL" in done.err or "a ledger can't be kept in" in done.err or "no ledger" in done.err


@pytest.mark.parametrize("rest", UNREADABLE)
def test_a_password_in_an_unreadable_url_is_not_printed(rest: str) -> None:
    with pytest.raises(LedgerError) as raised:
        SqlLedger(f"postgresql{rest.replace('://', '://u:hunter2@')}")
    assert "hunter2" not in str(raised.value)
    with pytest.raises(UsageError) as also:
        Remote.parse(f"https{rest.replace('://', '://u:hunter2@')}")
    assert "hunter2" not in str(also.value)


@pytest.mark.parametrize("url", [*(f"https{rest}" for rest in UNREADABLE), "https://", "ssh://h:abc/x"])
def test_a_repository_or_forge_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="the repository's URL can't be read"):
        Remote.parse(url)
    with pytest.raises(UsageError, match="the API"):
        Rest(url, "token", RealClock())


@pytest.mark.parametrize("url", [f"https{rest}" for rest in UNREADABLE])
def test_urls_of_the_spec_have_a_host_and_a_port(url: str) -> None:
    """Images, firmware, the installer."""
    with pytest.raises(ValidationError, match=r"is not an address|no valid port|is not an IPv6 address"):
        TypeAdapter(WebUrl).validate_python(url)
    TypeAdapter(WebUrl).validate_python("https://images.example.com:8443/a.img?x=1")


@pytest.mark.parametrize("target", [f"https{rest}" for rest in UNREADABLE])
@pytest.mark.parametrize("kind", ["bmc", "ssh"])
def test_endpoints_that_are_none_are_named(tmp_path: Path, kind: str, target: str) -> None:
    found = target if kind == "bmc" else target.removeprefix("https://")
    parts = {"bmc": {}, "ssh": {}, kind: {"x": {"target": found.removesuffix("/x"), "ca": "a", "authority": "a"}}}
    path = tmp_path / "endpoints.json"
    head = {"format_version": "1.0", "time_scale": 1.0, "clusters": {}, "secrets": {}, "keys": {}}
    path.write_text(json.dumps(head | parts))
    with pytest.raises(EndpointsError, match=rf"endpoints.json: {kind}.x.target: "):
        load_endpoints(path)
