"""Names and words of others in what commands print: no line of their own, no control characters, no secrets of URLs."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.secrets import SecretStore
from reconciler.model.errors import ReconcilerError
from tests.cli.shell import reconciler
from tests.conftest import ROOT
from tests.spec.example import changed

EVIL = "a\n::error file=x::pwned ##[error]y\x1b[2J\u202e\u2028\x9b.yaml"
SECRET = "Zq7hunter2hunter2"


def harmless(text: str) -> None:
    assert not re.search(r"(?m)^\s*::", text), text
    assert "##[" not in text
    assert not [char for char in text if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")], text


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    directory = tmp_path / "spec"
    for name, data in changed().items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return directory


@pytest.mark.parametrize("output", ["human", "json", "markdown"])
def test_the_name_of_a_file_starts_no_command(spec: Path, output: str) -> None:
    (spec / EVIL).write_text("kind: Nonsense\n")
    done = reconciler("validate", spec, "--output", output)
    assert done.code == 3
    harmless(done.out + done.err)
    assert "pwned" in done.out
    if output == "json":
        assert any(EVIL in found["at"]["file"] for found in json.loads(done.out)["diagnostics"])
    done = reconciler("plan", spec, "--ledger", spec.parent / "l.sqlite")
    assert done.code == 3
    harmless(done.out + done.err)
    assert "pwned" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["validate", EVIL],
        ["validate", "SPEC", "--rev", EVIL],
        ["plan", "SPEC", "--limit", EVIL],
        ["plan", "SPEC", "--limit", f"pool={EVIL}"],
        ["plan", "SPEC", "--exclude", EVIL],
        ["plan", "SPEC", "--out", f"/no/{EVIL}"],
        ["hold", EVIL, "SPEC", "--reason", "x"],
        ["lease", "release", EVIL, "--ledger", "/no/such"],
        ["stop", "--fleet", EVIL, "--reason", "x"],
        ["show", EVIL],
        ["lab", "matrix", "SPEC", EVIL],
        ["lab", "matrix", "SPEC", "--pool", EVIL],
        [EVIL],
        ["plan", f"--{EVIL}"],
    ],
)
def test_what_was_typed_starts_no_command(spec: Path, words: list[str], tmp_path: Path) -> None:
    """A workflow passes names of branches and inputs on."""
    done = reconciler(
        *(str(spec) if word == "SPEC" else word for word in words), env={"XDG_STATE_HOME": str(tmp_path / "state")}
    )
    assert done.code != 0
    harmless(done.out + done.err)


def test_a_reason_is_one_line(spec: Path, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    for words in (["stop", spec, "--reason", EVIL], ["hold"], ["stop", spec, "--reason", "again"], ["resume", spec]):
        done = reconciler(*words, *([spec] if words == ["hold"] else []), env=state)
        harmless(done.out + done.err)


def test_nothing_else_writes_to_a_stream() -> None:
    """The rule stands in one place, cli/terminal.py, so nobody may go past it."""
    past = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "reconciler" / "cli").rglob("*.py")
        if path.name != "terminal.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"click\.s?echo\(|(?<![\w.])print\(|std(out|err)\.write\(", line)
    ]
    assert past == []


# --- secrets of URLs --------------------------------------------------------------------------------------------------

LEDGERS = [
    f"postgresql://u@127.0.0.1:1/x?password={SECRET}",
    f"postgresql://u:{SECRET}@127.0.0.1:1/x",
    f"postgresql://u:%5A{SECRET}@127.0.0.1:1/x?sslpassword={SECRET}",
    f"postgresql://u@127.0.0.1:1/x?options={SECRET}",
    f"postgresql://u@127.0.0.1:1/x?passfile=/{SECRET}",
    f"postgresql://u@127.0.0.1:1/x?no_such_option={SECRET}",
    f"postgresql://u:p/{SECRET}@127.0.0.1:1/x",
    f"postgresql:/u:{SECRET}@127.0.0.1:1/x",
    f"host=127.0.0.1 user=u password={SECRET}",
    f"mysql://u:{SECRET}@127.0.0.1/x",
]


@pytest.mark.parametrize("url", LEDGERS)
@pytest.mark.parametrize("command", ["doctor", "drift", "ledger", "lease", "hold", "audit", "stop"])
def test_the_ledgers_password_never_prints(spec: Path, url: str, command: str) -> None:
    words: dict[str, list[str | Path]] = {
        "doctor": ["doctor", spec, "--offline"], "drift": ["drift", spec], "ledger": ["ledger", "info"],
        "lease": ["lease"], "hold": ["hold", spec], "audit": ["audit", "verify"], "stop": ["stop", "--reason", "x"],
    }  # fmt: skip
    done = reconciler(*words[command], "--ledger", url)
    assert done.code != 0
    assert SECRET not in done.out + done.err
    harmless(done.out + done.err)


@pytest.mark.parametrize("url", LEDGERS)
def test_a_traceback_shows_no_password(url: str) -> None:
    import traceback

    with pytest.raises(ReconcilerError) as caught:
        SqlLedger(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [f"https://u:{SECRET}@127.0.0.1:1", f"https://127.0.0.1:1/x.git?token={SECRET}", f"https://{SECRET}@127.0.0.1:1/x"],
)
def test_the_name_of_a_clone_and_of_a_secrets_address_hold_no_password(url: str, tmp_path: Path) -> None:
    from reconciler.app.service import _file_name
    from reconciler.drivers.remote_git import Remote

    assert SECRET not in _file_name(url, "main") + str(Remote.parse(url))
    (tmp_path / "secrets.yaml").write_text("secrets:\n  git: {env: X, allow: [example.com]}\n")
    (tmp_path / "secrets.yaml").chmod(0o600)
    with pytest.raises(ReconcilerError) as caught:
        SecretStore.load(tmp_path / "secrets.yaml").credentials("git", url)
    assert SECRET not in str(caught.value)
