"""Real Apprise, to a real web server and a real mail server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from reconciler.drivers.messenger import AppriseMessenger, _load, _without_parts
from reconciler.drivers.secrets import Secret, SecretError, SecretStore
from reconciler.model.notices import Channel, Message, NotDelivered, Severity
from tests.notify.receivers import mail_server, webhook

pytestmark = pytest.mark.wire
HOSTILE = "GPU 3 <!channel> @everyone **bold** <b>&amp; ::error:: [x](http://evil)"
MESSAGE = Message("k" * 32, "oncall", "t" * 32, Severity.CRITICAL, False, "demo: gpu-001 needs a repair", HOSTILE)
OVER = Message("l" * 32, "oncall", "t" * 32, Severity.INFO, True, "demo: ended: gpu-001 needs a repair", "Since now")
CHANNEL = Channel("oncall", "pager")


def messenger(tmp_path: Path, url: str, **more: float) -> AppriseMessenger:
    (tmp_path / "url").write_text(url)
    (tmp_path / "url").chmod(0o600)
    (tmp_path / "secrets.yaml").write_text("secrets: {pager: {file: url}}\n")
    store = SecretStore.load(tmp_path / "secrets.yaml")
    return AppriseMessenger(lambda: store, **more)


def send(sender: AppriseMessenger, *messages: Message) -> None:
    async def work() -> None:
        for message in messages:
            await sender.send(CHANNEL, message)

    asyncio.run(work())


def test_a_webhook_gets_the_text_the_severity_and_a_key(tmp_path: Path) -> None:
    with webhook() as server:
        send(messenger(tmp_path, f"json://{server.url}/hook"), MESSAGE, OVER)
    (path, headers, document), (_, _, last) = server.posted
    assert path == "/hook"
    assert headers["idempotency-key"] == "k" * 32
    assert document["title"] == "demo: gpu-001 needs a repair"
    assert document["message"] == HOSTILE
    assert {key: document[key] for key in ("type", "key", "thread", "severity", "over")} == {
        "type": "failure", "key": "k" * 32, "thread": "t" * 32, "severity": "critical", "over": False,
    }  # fmt: skip
    assert (last["type"], last["over"], last["thread"]) == ("success", True, "t" * 32)


def test_a_mail_is_plain_text_in_one_thread(tmp_path: Path) -> None:
    with mail_server() as server:
        url = f"mailto://127.0.0.1:{server.port}?from=fleet@example.com&to=ops@example.com&mode=insecure"
        send(messenger(tmp_path, url), MESSAGE, OVER)
    first, second = server.mails
    assert server.recipients == ["ops@example.com"] * 2
    assert first["Subject"] == "demo: gpu-001 needs a repair"
    assert first["References"] == second["References"] == f"<{'t' * 32}@reconciler>"
    assert first["Idempotency-Key"] == "k" * 32
    assert first.get_content_type() == "text/plain"
    assert HOSTILE in first.get_content()


def test_a_chat_calls_nobody_for_what_a_machine_said(tmp_path: Path) -> None:
    with webhook() as server:
        send(messenger(tmp_path, f"mmost://{server.url}/token0123456789"), MESSAGE)
    (document,) = server.documents()
    assert "@everyone" not in document["text"]
    assert "@\u200beveryone" in document["text"]
    assert "<!channel>" not in document["text"], "Mattermost calls everybody for Slack's word, too"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general",
         {"[x](y) &lt;·!here&gt; gpu_lost", "a &amp; b **c** [x](y) &lt;·!channel&gt; @·all"}),
        ("workflows://prod-01.westeurope.logic.azure.com:443/3fd4b1d1c1e84a2ba6b7a0e9f1a2b3c4/643a9876bcDEFGHIJ_sign/",
         {r"\[x\](y) <·!here\> gpu\_lost", r"a & b \*\*c\*\* \[x\]\(y\) <·\!channel\> @·all"}),
        ("discord://123456789012345678/AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
         {"\\[x\\](y) <·!here\\> gpu\\_lost\r\na & b \\*\\*c\\*\\* \\[x\\](y) <·!channel\\> @·all"}),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/",
         {"<b>[x](y) &lt;·!here&gt; gpu_lost</b>\r\na &amp; b **c** [x](y) &lt;·!channel&gt; @·all"}),
    ],
    ids=["slack", "teams", "discord", "telegram"],
)  # fmt: skip
def test_each_chat_shows_what_a_machine_said_and_formats_none_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, shown: set[str]
) -> None:
    """What Apprise posts to the chats, once it has escaped its part: neither too little nor twice."""
    posted: list[str] = []

    def post(*_: object, **given: Any) -> requests.Response:
        posted.append(given["data"])
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"ok"
        return answer

    monkeypatch.setattr(requests, "post", post)
    monkeypatch.setattr(requests, "request", post)
    said = Message("k", "oncall", "t", Severity.INFO, False, "[x](y) <!here> gpu_lost",
                   "a & b **c** [x](y) <!channel> @all")  # fmt: skip
    send(messenger(tmp_path, url), said)
    assert shown <= {text.replace("\u200b", "·") for text in _strings(json.loads(posted[0]))}


def _strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    for one in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from _strings(one)


def test_a_pager_gets_one_incident_that_the_last_message_resolves() -> None:
    from reconciler.drivers.messenger import _identify

    pager = _load(Secret("pagerduty://integrationkey0123456789@apikey0123456789"))
    _identify(pager, OVER)
    assert (pager.dedup, pager.action) == ("t" * 32, "map")  # type: ignore[attr-defined]  # PagerDuty's own


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_refusal_is_told_without_the_secret(tmp_path: Path, status: int) -> None:
    with webhook() as server:
        server.status = status
        sender = messenger(tmp_path, f"json://user:topsecret@{server.url}/T0KEN1234567")
        with pytest.raises(NotDelivered) as met:
            send(sender, MESSAGE)
    assert str(status) in str(met.value)
    for part in ("topsecret", "T0KEN1234567", server.url):
        assert part not in str(met.value)


def test_a_mail_server_that_refuses_or_is_away_is_told(tmp_path: Path) -> None:
    with mail_server() as server:
        server.refuses = True
        sender = messenger(tmp_path, f"mailto://127.0.0.1:{server.port}?from=a@example.com&to=b@example.com")
        with pytest.raises(NotDelivered):
            send(sender, MESSAGE)
        assert server.mails == []
    with pytest.raises(NotDelivered):
        send(sender, MESSAGE)


def test_a_server_that_hangs_costs_the_deadline_and_no_second_thread(tmp_path: Path) -> None:
    with webhook() as server:
        server.gate.clear()
        sender = messenger(tmp_path, f"json://{server.url}/hook?rto=20", deadline_s=0.3)
        began = time.monotonic()
        with pytest.raises(NotDelivered, match="no answer within"):
            send(sender, MESSAGE)
        with pytest.raises(NotDelivered, match="still hangs"):
            send(sender, MESSAGE)
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("url", ["", "slack://", "nonsense", "json://", "file:///etc/passwd"])
def test_a_url_that_can_not_be_loaded_is_told(tmp_path: Path, url: str) -> None:
    with pytest.raises(NotDelivered, match="no URL that Apprise can load"):
        messenger(tmp_path, url).check(CHANNEL)


def test_a_secret_that_is_missing_is_told_and_a_corrected_one_is_used(tmp_path: Path) -> None:
    sender = messenger(tmp_path, "json://127.0.0.1/hook")
    assert sender.check(CHANNEL) == "JSON"
    with pytest.raises(NotDelivered, match="the spec names secret 'chat'"):
        sender.check(Channel("chat", "chat"))


def test_no_part_of_a_url_is_shown() -> None:
    url = Secret("mailto://me%40x:p%C3%A4ss@smtp.example.com/ops?token=abcdef")
    shown = _without_parts("päss of me@x for abcdef at smtp.example.com failed", url)
    for part in ("päss", "abcdef", "smtp.example.com"):
        assert part not in shown


def test_a_url_goes_only_where_its_allow_list_says(tmp_path: Path) -> None:
    """A lab's secrets are for loopback, whatever they say."""
    for url, fits in (
        ("json://127.0.0.1:8080/hook", True),
        ("mailto://user:p%40ss@127.0.0.1:25?to=ops@example.com", True),
        ("json://hooks.example.com/hook", False),
        ("json://127.0.0.1@hooks.example.com/hook", False),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", False),
    ):
        (tmp_path / "url").write_text(url)
        (tmp_path / "url").chmod(0o600)
        (tmp_path / "secrets.yaml").write_text('secrets: {pager: {file: url, allow: ["127.0.0.0/8"]}}\n')
        store = SecretStore.load(tmp_path / "secrets.yaml")
        if fits:
            assert store.url("pager").reveal() == url
        else:
            with pytest.raises(SecretError, match="as allow says") as met:
                store.url("pager")
            assert "hook" not in str(met.value)


def test_a_python_without_apprise_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(NotDelivered, match=r"pip install '\.\[notifications\]'"):
        messenger(tmp_path, "json://127.0.0.1/hook").check(CHANNEL)


def test_who_tells_nobody_does_not_wait_for_apprise() -> None:
    program = "import sys, reconciler.app.service, reconciler.app.doctor; sys.exit('apprise' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
