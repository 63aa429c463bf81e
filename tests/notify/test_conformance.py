"""`reconciler conformance notifier` on a real web server: Apprise passes, and notifiers that err fail."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from reconciler.app import notifier_conformance
from reconciler.app.notifier_conformance import check_channel
from reconciler.cli.commands.conformance import exit_code
from reconciler.drivers.extensions import Notifier
from reconciler.drivers.extensions.notifiers import Chats
from reconciler.drivers.secrets import Secret, SecretStore
from reconciler.drivers.secrets_file import SecretsFile, SecretSource
from reconciler.model.conformance import CheckResult, ConformanceReport
from reconciler.model.errors import UsageError
from reconciler.model.notices import Channel, Message, NotDelivered
from tests.cli.shell import reconciler
from tests.conftest import ROOT
from tests.notify.receivers import Webhook, webhook

pytestmark = pytest.mark.wire
Send = Callable[[Secret, Message], Awaitable[None]]


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


def suite(
    monkeypatch: pytest.MonkeyPatch,
    hook: Webhook,
    receiver: str | None,
    send: Send | None = None,
    *,
    writes: bool = False,
) -> ConformanceReport:
    """Try a channel whose own secret is the web server `hook`. `send`: of an extension, in place of Apprise."""
    channel = Channel("oncall", "oncall-url", via="ours" if send else "")
    offered: Any = SimpleNamespace(one=lambda _kind, _name: Notifier(1, send) if send else None)
    secrets = SecretStore(
        SecretsFile(secrets={channel.url: SecretSource(env="unread")}),
        Path("secrets.yaml"),
        {channel.url: Secret(f"json://{hook.url}/hook")},
    )
    fleet = SimpleNamespace(settings=SimpleNamespace(notifications=(channel,)))
    workspace: Any = SimpleNamespace(fleet=fleet, secrets=secrets)
    monkeypatch.setattr(notifier_conformance, "chats", lambda _: Chats(lambda: secrets, lambda: offered))
    monkeypatch.setattr(notifier_conformance, "loaded", lambda _: offered)
    return check_channel(workspace, "oncall", receiver, writes=writes)


def results(report: ConformanceReport) -> dict[str, str]:
    return {one.check.name: one.result.value for one in report.outcomes}


def details(report: ConformanceReport) -> dict[str, str]:
    return {one.check.name: one.detail for one in report.outcomes}


def test_apprise_passes_and_nobody_gets_a_message(monkeypatch: pytest.MonkeyPatch, hook: Webhook) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    report = suite(monkeypatch, hook, "json://ADDRESS/TOKEN?rto=5")
    assert (results(report).pop("write-message"), hook.posted) == ("not tried", [])
    assert report.counts[CheckResult.PASS] == len(report.outcomes) - 1, details(report)
    assert exit_code(report) == 0


def test_the_channel_itself_is_tried_by_consent_alone(monkeypatch: pytest.MonkeyPatch, hook: Webhook) -> None:
    report = suite(monkeypatch, hook, None, writes=True)
    assert results(report)["write-message"] == "pass"
    assert {one.detail for one in report.outcomes if one.result is CheckResult.NOT_TRIED} == {"needs --receiver"}
    begun, ended = hook.documents()
    assert (begun["thread"], begun["over"], ended["over"]) == (ended["thread"], False, True)
    hook.status = 500
    report = suite(monkeypatch, hook, None, writes=True)
    assert (results(report)["write-message"], exit_code(report)) == ("fail", 7)
    report = suite(monkeypatch, hook, None, blocking, writes=True)
    assert results(report)["write-message"] == "fail"
    assert f"{hook.url}/hook" not in details(report)["write-message"]


async def careless(url: Secret, message: Message) -> None:
    """Post by hand: no escaping, no look at the answer, and no more than the texts."""
    body = f'{{"title": "{message.title}", "text": "{message.body}"}}'
    async with httpx.AsyncClient() as client:
        await client.post(url.reveal(), content=body, headers={"Content-Type": "application/json"}, timeout=10)


async def blocking(url: Secret, message: Message) -> None:
    """Wait for the answer in the event loop, and tell the whole URL."""
    body = json.dumps({"title": message.title, "text": message.body, "key": message.key, "thread": message.thread})
    wanted = urllib.request.Request(url.reveal(), body.encode(), {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(wanted, timeout=2.5).close()  # noqa: ASYNC210 - that is what is wrong with it
    except OSError as error:
        raise NotDelivered(f"{url.reveal()}: {error}") from None


@pytest.mark.parametrize(
    ("send", "wrong", "lacking"),
    [
        (careless, {"refusal", "hostile-text"}, {"key", "thread"}),
        (blocking, {"secret-kept", "deadline"}, set()),
    ],
)
def test_a_notifier_that_errs_fails(
    monkeypatch: pytest.MonkeyPatch, hook: Webhook, send: Send, wrong: set[str], lacking: set[str]
) -> None:
    report = suite(monkeypatch, hook, "http://ADDRESS/TOKEN", send)
    found = results(report)
    assert {name for name, result in found.items() if result == "fail"} == wrong, details(report)
    assert {name for name, result in found.items() if result == "not offered"} == lacking, details(report)
    assert exit_code(report) == 7
    if "deadline" in wrong:
        assert "the service stood still for" in details(report)["deadline"]


def test_what_is_no_channel_or_no_template_is_refused(monkeypatch: pytest.MonkeyPatch, hook: Webhook) -> None:
    done = reconciler("conformance", "notifier", "--spec", ROOT / "fleet-spec", "nobody")
    assert (done.code, "the Fleet" in done.err) == (64, True), done.err
    done = reconciler("conformance", "notifier", "--spec", ROOT / "fleet-spec", "oncall", "--allow-writes")
    assert (done.code, "--confirm 'send to oncall'" in done.err) == (64, True), done.err
    with pytest.raises(UsageError, match="has no ADDRESS and TOKEN, as json://ADDRESS/TOKEN has them"):
        suite(monkeypatch, hook, "json://127.0.0.1/hook")
