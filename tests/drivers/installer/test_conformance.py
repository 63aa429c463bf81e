"""`reconciler conformance installer` on the packaged server; and what servers that err fail."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from reconciler.app.installer_conformance import _refuse_while_machines_install
from reconciler.drivers.installer import HttpInstaller
from reconciler.drivers.installer.calls import Calls
from reconciler.drivers.installer.conformance import Bench, check_server
from reconciler.drivers.installer.medium import Medium
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.conformance import CheckResult, ConformanceReport
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.install_progress import InstallAttempt, digest_of
from tests.cli.shell import reconciler
from tests.conftest import ROOT
from tests.drivers.installer.conftest import Site

pytestmark = pytest.mark.wire
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def suite(site: Site, *, writes: bool = True, **changes: Any) -> ConformanceReport:
    async def run() -> ConformanceReport:
        async with site.serving(**changes) as installer:
            return await check_server(Bench(installer, ssl.create_default_context()), "installer", writes=writes)

    return asyncio.run(run())


def failed(report: ConformanceReport) -> dict[str, str]:
    return {one.check.name: one.detail for one in report.outcomes if one.result is not CheckResult.PASS}


def test_the_packaged_server_passes_and_serves_nothing_afterwards(site: Site) -> None:
    assert failed(suite(site)) == {}
    assert failed(suite(site, writes=False)) == {"host-key": "needs --allow-writes"}
    without = failed(suite(site, host_ca=None))
    assert set(without) == {"early-host-key", "host-key"}
    assert all(detail.startswith("there is no host CA") for detail in without.values())


def test_a_server_that_errs_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes any report, answers to withdrawn tokens, forgets what was reported, and knows no ranges."""
    publish = HttpInstaller.publish

    async def forgets(self: Any, token: str, document: Any, attempt: Any, *, pxe: bool = False) -> str:
        self._store._attempts.pop(next(iter(self._store._attempts), ""), None)
        return await publish(self, token, document, attempt, pxe=pxe)

    async def keeps(self: Any, token: str) -> None:
        pass

    async def any_report(self: Any, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def whole(self: Any, request: web.Request) -> web.Response:
        return web.Response(body=b"medium")

    monkeypatch.setattr(HttpInstaller, "publish", forgets)
    monkeypatch.setattr(HttpInstaller, "withdraw", keeps)
    monkeypatch.setattr(Calls, "_status", any_report)
    monkeypatch.setattr(Calls, "_boot_medium", whole)
    wrong = failed(suite(site))
    assert set(wrong) == {"other-tokens", "boot-medium", "refusals", "reports", "host-key", "withdraw"}, wrong
    assert wrong["boot-medium"] == "a range of boot.iso is answered with 200 in place of 206"
    assert wrong["withdraw"] == "install.json of an attempt that was withdrawn is answered with 200 in place of 404"


def test_without_a_server_nothing_more_is_tried(site: Site) -> None:
    report = suite(site, iso=str(site.folder / "missing.iso"))
    assert [one.result for one in report.outcomes] == [
        CheckResult.FAIL, *[CheckResult.NOT_TRIED] * (len(report.outcomes) - 1)
    ]  # fmt: skip
    done = reconciler("conformance", "installer", "--spec", ROOT / "fleet-spec", "--allow-writes")
    assert (done.code, "--confirm 'certify conformance'" in done.err) == (64, True), done.err


def test_a_medium_without_the_credentials_of_the_attempt_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Medium, "read", lambda self, begin, end, _: os.pread(self.file, end - begin, begin))
    assert failed(suite(site)) == {"boot-medium": "boot.iso has no attempt.cred with the URL of this attempt"}


def test_a_server_that_is_down_is_reported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_words: Any, **_options: Any) -> Any:
        raise DriverError(Failure.UNREACHABLE, "nobody listens")

    monkeypatch.setattr(HttpInstaller, "publish", down)
    monkeypatch.setattr(HttpInstaller, "withdraw", down)
    assert "nobody listens" in failed(suite(site))["publish"]


def test_it_does_not_listen_while_a_machine_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqlLedger(tmp_path / "ledger.sqlite")) as ledger:
        begun = InstallAttempt(digest_of("t1"), "gpu-a001", "{}", "", NOW, token="t1")
        ledger.save_install(begun, NOW)
        ledger.save_install(replace(begun, digest=digest_of("t2"), node="gpu-a002", closed_at=NOW), NOW)
        workspace: Any = SimpleNamespace(present_ledger=lambda: nullcontext(ledger))
        with pytest.raises(UsageError, match="installs of gpu-a001 are under way"):
            _refuse_while_machines_install(workspace)
