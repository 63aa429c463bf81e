"""The commands and the service, with Apprise, a web server and a mail server, and a lab on the wire."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import LabDirectory, ended, reconciler, running_lab, started, until
from tests.cli.test_run import free_port
from tests.notify.receivers import Webhook, mail_server, webhook

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("notify"), "--scenario", "clean", nodes=3) as found:
        yield found


def declare(lab: LabDirectory, **urls: str) -> None:
    """Let the spec name a channel for each URL, and the lab know their secrets."""
    contents = json.loads(lab.endpoints.read_text())
    lines = ["  notifications:"]
    for name, url in urls.items():
        path = lab.path / "secrets" / f"{name}.url"
        path.write_text(url)
        path.chmod(0o600)
        contents["secrets"][f"{name}-url"] = str(path)
        lines.append(f"  - {{name: {name}, url: {name}-url}}")
    lab.endpoints.write_text(json.dumps(contents))
    fleet = lab.spec / "fleet.yaml"
    before, found, after = fleet.read_text().partition("  notifications:\n")
    kept = [line for line in after.splitlines() if not line.startswith("  - {name: ")] if found else []
    documents = before.split("\n---\n", 1)
    if found:
        fleet.write_text(before + "\n".join([*lines, *kept]) + "\n")
    else:
        rest = f"\n---\n{documents[1]}" if len(documents) > 1 else ""
        fleet.write_text(documents[0].rstrip("\n") + "\n" + "\n".join(lines) + "\n" + rest)


def test_channels_are_tried_and_doctor_names_those_that_can_not_be_loaded(lab: LabDirectory) -> None:
    with webhook() as hook, mail_server() as mail:
        smtp = f"mailto://127.0.0.1:{mail.port}?from=fleet@example.com&to=ops@example.com&mode=insecure"
        declare(lab, hook=f"json://{hook.url}/hook", mail=smtp, wrong="nonsense://127.0.0.1/T0KEN1234567")
        done = _notify(lab)
        assert done.splitlines()[:2] == ["ok   hook", "ok   mail"]
        assert "FAIL wrong: the secret holds no URL that Apprise can load" in done
        assert "T0KEN" not in done
        assert len(hook.posted) == len(mail.mails) == 1
        assert mail.mails[0]["Subject"].endswith("test of the channel mail")
        assert _notify(lab, "--channel", "hook") == "ok   hook\n"
        examined = lab.run("doctor", "--offline").out
    assert "ok   channel hook: JSON" in examined
    assert "FAIL channel wrong: the secret holds no URL that Apprise can load" in examined
    assert "T0KEN" not in examined


def _notify(lab: LabDirectory, *words: str) -> str:
    done = reconciler("notify", "test", "--spec", lab.spec, *words, "--endpoints", lab.endpoints)
    assert done.code == (4 if "FAIL" in done.out else 0), done
    return done.out


def test_a_service_tells_a_webhook_and_goes_on_after_a_kill(lab: LabDirectory) -> None:
    """The web server refuses at first. The service is killed, and the next one tells what the first has decided."""
    with webhook() as hook:
        hook.status = 503
        declare(lab, hook=f"json://{hook.url}/hook")
        lab.fault("gpu-0002", "xid_79", gpu=1, persistent=True)
        first = _serve(lab)
        until(lambda: "was not told" in first[1].read_text(), 90)
        page = urllib.request.urlopen(f"http://127.0.0.1:{first[2]}/metrics", timeout=5).read().decode()
        assert 'reconciler_notifications_failing{channel="hook"} 1.0' in page
        ready = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{first[2]}/readyz", timeout=5).read())
        assert "503" in ready["channels"]["hook"]
        first[0].send_signal(signal.SIGKILL)
        ended(first[0])
        assert hook.posted == []
        hook.status = 200
        second = _serve(lab)
        until(lambda: bool(hook.posted), 90)
        second[0].send_signal(signal.SIGTERM)
        assert ended(second[0]).code == 0
    _is_told_once(hook)


def _is_told_once(hook: Webhook) -> None:
    assert len(set(hook.keys())) == len(hook.posted)
    told = [document["title"] for document in hook.documents()]
    assert any("gpu-0002" in title for title in told), told


def _serve(lab: LabDirectory) -> tuple[subprocess.Popen[str], Path, int]:
    port = free_port()
    log = lab.path / f"service-{port}.log"
    words = [*lab.words("run"), "--listen", f"127.0.0.1:{port}", "--log", "json", "--interval", "1m"]
    with log.open("w") as err:
        return started(*words, stderr=err), log, port
