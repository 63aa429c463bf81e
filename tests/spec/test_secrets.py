"""Secrets: where they come from, where they may go, and that they show nowhere."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.secrets import Credentials, Secret, SecretError, SecretStore
from reconciler.model.errors import UsageError

VALUE = "hunter2-Zb9"
KEY = "RWQv3CgBSQ17mwuc/T+z/W+jXVakvKm6aGjhz38M86CoZ8gjW2Gq0g9e"
COSIGN = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEjlM7b6C/e0YluzBmfAH7YH75+Lio
D+9bMAYocDGHsqNz6x294DMYNm0Gn4Om9ZAAU8c2M8sEGyHFXhqGwfQAtA==
-----END PUBLIC KEY-----
"""


def store(folder: Path, text: str) -> SecretStore:
    path = folder / "secrets.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return SecretStore.load(path)


def private(folder: Path, name: str, text: str, mode: int = 0o600) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return path


# --- one of each node, and its writer ---

PROGRAM = """#!/bin/sh
[ "$1" = put ] && { cat > "$RECONCILER_NODE.new" && mv "$RECONCILER_NODE.new" "$RECONCILER_NODE.json"; exit; }
cat "$RECONCILER_NODE.json"
"""
WRITTEN = "secrets: {bmc: {exec: [./program, get], write: [./program, put], allow: [10.0.0.0/8]}}"


def of_each(folder: Path, *nodes: str, program: str = PROGRAM) -> SecretStore:
    """A store with a secret of each node, which has the node's name as its password."""
    (folder / "program").write_text(program)
    (folder / "program").chmod(0o700)
    for node in nodes:
        (folder / f"{node}.json").write_text(json.dumps({"username": "root", "password": f"{VALUE} of {node}"}))
    return store(folder, WRITTEN)


def test_each_node_has_its_own_and_no_other(tmp_path: Path) -> None:
    secrets = of_each(tmp_path, "n1", "n2")
    for node in ("n1", "n2", "n1"):
        assert secrets.credentials("bmc", "10.0.0.1", node=node).password.reveal() == f"{VALUE} of {node}"
    with pytest.raises(SecretError, match="each node has its own"):
        secrets.credentials("bmc", "10.0.0.1")
    with pytest.raises(SecretError, match="ended with status"):
        secrets.credentials("bmc", "10.0.0.1", node="n3")
    with pytest.raises(SecretError, match="may not be sent to"):
        secrets.credentials("bmc", "192.0.2.1", node="n1")


def test_what_replaces_one_is_read_back_and_the_others_stay(tmp_path: Path) -> None:
    secrets = of_each(tmp_path, "n1", "n2")
    before = secrets.credentials("bmc", "10.0.0.1", node="n1")
    secrets.replace("bmc", "10.0.0.1", "n1", Credentials("root", Secret("new-Zb7"), before.password), before=before)
    found = secrets.credentials("bmc", "10.0.0.1", node="n1")
    assert found.document() == {"username": "root", "password": "new-Zb7", "previous": f"{VALUE} of n1"}
    assert secrets.credentials("bmc", "10.0.0.1", node="n2").previous is None
    secrets.replace("bmc", "10.0.0.1", "n1", Credentials("root", found.password), before=found)
    told = secrets.conceal(f"new-Zb7 and {VALUE} of n1")
    assert "Zb" not in told, "what is replaced is concealed as long as this process lives"
    assert of_each(tmp_path).credentials("bmc", "10.0.0.1", node="n1").document() == {
        "username": "root", "password": "new-Zb7",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("put", "problem"),
    [
        ("cat >/dev/null; exit 0", "`write` ended well for n1, and `exec` prints another secret"),
        ("cat >&2; exit 3", "ended with status 3"),
        ("exit 0", "prints another secret"),  # it does not even read it
    ],
)
def test_a_writer_that_keeps_nothing_is_told_without_what_it_was_given(tmp_path: Path, put: str, problem: str) -> None:
    secrets = of_each(tmp_path, "n1", program=f'#!/bin/sh\n[ "$1" = put ] && {{ {put}; }}\n{PROGRAM}')
    new = Credentials("root", Secret("new-Zb7"))
    with pytest.raises(SecretError) as caught:
        secrets.replace("bmc", "10.0.0.1", "n1", new, before=secrets.credentials("bmc", "10.0.0.1", node="n1"))
    assert problem in str(caught.value)
    assert "new-Zb7" not in "".join(traceback.format_exception(caught.value))
    assert secrets.credentials("bmc", "10.0.0.1", node="n1").password.reveal() == f"{VALUE} of n1"


def test_a_secret_of_all_nodes_has_no_writer(tmp_path: Path) -> None:
    private(tmp_path, "x", json.dumps({"username": "root", "password": VALUE}))
    secrets = store(tmp_path, "secrets: {bmc: {file: x, allow: [10.0.0.0/8]}}")
    assert not secrets.is_of_each_node("bmc")
    before = secrets.credentials("bmc", "10.0.0.1")
    with pytest.raises(SecretError, match="has no `write`"):
        secrets.replace("bmc", "10.0.0.1", "n1", before, before=before)
    with pytest.raises(SecretError, match="write goes with exec"):
        store(tmp_path, "secrets: {bmc: {file: x, write: [program]}}")


# --- where they come from ------------------------------------------------------------------------------------------


def test_a_file_beside_the_store_or_elsewhere(tmp_path: Path) -> None:
    path = private(tmp_path, "x", VALUE)
    secrets = store(tmp_path, f"secrets:\n  near: {{file: x}}\n  far: {{file: {path}}}\n")
    assert secrets.resolve("near").reveal() == secrets.resolve("far").reveal() == VALUE
    assert secrets.file("near") == path


def test_an_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMC_SECRET", VALUE)
    secrets = store(tmp_path, "secrets:\n  bmc: {env: BMC_SECRET}\n  gone: {env: NOT_SET}\n")
    assert secrets.resolve("bmc").reveal() == VALUE
    with pytest.raises(SecretError) as caught:
        secrets.resolve("gone")
    assert str(caught.value) == f"{tmp_path}/secrets.yaml secrets.gone: environment variable NOT_SET is not set"


@pytest.mark.parametrize("program", ["./tell", "sub/../tell"])
@pytest.mark.parametrize("named", ["{ours}/secrets.yaml", "../ours/secrets.yaml"])
def test_a_relative_path_is_beside_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, named: str
) -> None:
    """Not in the current directory, which may be a checkout of anybody's."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, says in ((ours, VALUE), (theirs, "another")):
        (folder / "sub").mkdir(parents=True)
        private(folder, "tell", f"#!/bin/sh\nprintf {says}\n", 0o700)
        private(folder, "told", says)
    store(ours, f"secrets:\n  run: {{exec: [{program}]}}\n  read: {{file: told}}\n")
    monkeypatch.chdir(theirs)
    secrets = SecretStore.load(Path(named.format(ours=ours)))
    assert secrets.resolve("run").reveal() == secrets.resolve("read").reveal() == VALUE


def test_a_store_in_the_current_directory_runs_what_is_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./tell` beside `secrets.yaml` is no name to look for on the PATH."""
    private(tmp_path, "tell", f"#!/bin/sh\nprintf {VALUE}\n", 0o700)
    store(tmp_path, "secrets:\n  run: {exec: [./tell]}\n")
    monkeypatch.chdir(tmp_path)
    assert SecretStore.load(Path("secrets.yaml")).resolve("run").reveal() == VALUE


@pytest.mark.parametrize("argv", ["sh, ./tell", "sh, tell", "sh, -c, '. ./tell'"])
def test_what_a_program_is_given_is_beside_the_store_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: str
) -> None:
    """An interpreter's script: in a CI job the current directory is the checkout of a pull request."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, text in ((ours, VALUE), (theirs, "stolen")):
        folder.mkdir()
        (folder / "tell").write_text(f"printf '%s' '{text}'\n")
    monkeypatch.chdir(theirs)
    assert store(ours, f"secrets:\n  run: {{exec: [{argv}]}}\n").resolve("run").reveal() == VALUE


def test_a_program_without_a_slash_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(tmp_path, "tell", "#!/bin/sh\nprintf another\n", 0o700)
    found = tmp_path / "bin"
    found.mkdir()
    private(found, "tell", f"#!/bin/sh\nprintf {VALUE}\n", 0o700)
    monkeypatch.setenv("PATH", str(found))
    monkeypatch.chdir(tmp_path)
    assert store(tmp_path, "secrets:\n  bmc: {exec: [tell]}\n").resolve("bmc").reveal() == VALUE


def test_a_program_is_run_once_without_a_shell(tmp_path: Path) -> None:
    script = private(tmp_path, "tell", f"#!/bin/sh\necho run >> {tmp_path}/runs\nprintf '%s\\n' \"$1\"\n", 0o700)
    secrets = store(tmp_path, f"secrets:\n  bmc: {{exec: [{script}, '$HOME `id`']}}\n")
    assert secrets.resolve("bmc").reveal() == secrets.resolve("bmc").reveal() == "$HOME `id`"
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (f"echo {VALUE}; echo {VALUE} >&2; exit 3", "ended with status 3"),
        ("head -c 2000000 /dev/zero", "is not UTF-8 text of at most 1 MiB"),
        (r"printf '\377'", "is not UTF-8 text of at most 1 MiB"),
    ],
)
def test_a_program_that_fails_tells_its_name_and_not_its_output(tmp_path: Path, script: str, problem: str) -> None:
    secrets = store(tmp_path, f"secrets:\n  bmc: {{exec: [sh, -c, {script!r}]}}\n")
    with pytest.raises(SecretError, match=problem) as caught:
        secrets.resolve("bmc")
    assert VALUE not in "".join(traceback.format_exception(caught.value))


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    secrets = store(tmp_path, "secrets:\n  bmc: {exec: [/no/such/program]}\n")
    with pytest.raises(SecretError, match=r"secrets.bmc: /no/such/program No such file or directory"):
        secrets.resolve("bmc")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = private(tmp_path, "x", VALUE, mode)
    secrets = store(tmp_path, "secrets:\n  bmc: {file: x}\n")
    for use in (secrets.resolve, secrets.file):
        with pytest.raises(SecretError) as caught:
            use("bmc")
        assert f"secrets.bmc: {path} is open to others (mode {mode:o}); chmod 600 {path}" in str(caught.value)


@pytest.mark.parametrize(("mode", "accepted"), [(0o440, True), (0o400, True), (0o460, False), (0o444, False)])
def test_credentials_of_systemd_have_an_acl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, accepted: bool
) -> None:
    """Its mask is seen as the right of a group to read. Elsewhere that right is one, and refused."""
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    private(credentials, "bmc", VALUE, mode)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert _accepted(store(tmp_path, "secrets:\n  bmc: {file: credentials/bmc}\n")) is accepted
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))  # a folder of it is as much the service's alone
    assert _accepted(store(tmp_path, "secrets:\n  bmc: {file: credentials/bmc}\n")) is accepted
    for elsewhere in (tmp_path / "other", credentials / "other", tmp_path / "cred"):
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(elsewhere))
        assert _accepted(store(tmp_path, "secrets:\n  bmc: {file: credentials/bmc}\n")) is (mode == 0o400)
    (credentials / "other").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials / "other"))
    assert _accepted(store(tmp_path, "secrets:\n  bmc: {file: credentials/other/../bmc}\n")) is (mode == 0o400)


def _accepted(secrets: SecretStore) -> bool:
    try:
        return secrets.resolve("bmc").reveal() == VALUE
    except SecretError:
        return False


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    secrets = store(tmp_path, "secrets:\n  gone: {file: nothing}\n  folder: {file: .}\n  env: {env: X}\n")
    with pytest.raises(SecretError, match=r"secrets.gone: .*/nothing: No such file or directory"):
        secrets.resolve("gone")
    with pytest.raises(SecretError, match=r"secrets.folder: .* is not a file"):
        secrets.resolve("folder")
    with pytest.raises(SecretError, match=r"secrets.env: must be a file"):
        secrets.file("env")


def test_credentials(tmp_path: Path) -> None:
    private(tmp_path, "good", f'{{"username": "admin", "password": "{VALUE}"}}')
    private(tmp_path, "bad", f'{{"username": "admin", "password": {VALUE}}}')
    private(tmp_path, "odd", f'{{"user": "admin", "password": "{VALUE}"}}')
    secrets = store(
        tmp_path, "\n  ".join(["secrets:", *(f"{n}: {{file: {n}, allow: [10.0.0.1]}}" for n in ("good", "bad", "odd"))])
    )
    found = secrets.credentials("good", "https://10.0.0.1")
    assert (found.username, found.password.reveal()) == ("admin", VALUE)
    assert VALUE not in repr(found)
    for name in ("bad", "odd"):
        with pytest.raises(SecretError, match=f"secrets.{name}: is not JSON with username and password") as caught:
            secrets.credentials(name, "https://10.0.0.1")
        assert caught.value.__context__ is None, "a JSONDecodeError carries the text"


def test_a_secret_is_read_anew_for_those_who_ask_and_not_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that prints it may be slow, and a fleet of BMCs asks at once."""
    count = 'echo x >> count; printf \'{"username": "u", "password": "%s"}\' $(wc -l < count)'
    secrets = store(
        tmp_path, f"secrets:\n  bmc: {{exec: [sh, -c, '{count.replace(chr(39), chr(39) * 2)}'], allow: [h]}}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert secrets.credentials("bmc", "h").password.reveal() == "1"
    assert [secrets.credentials("bmc", "h", fresh=True).password.reveal() for _ in range(3)] == ["1"] * 3
    monkeypatch.setattr("reconciler.drivers.secrets.REREAD_S", 0.0)
    assert secrets.credentials("bmc", "h").password.reveal() == "1"
    assert secrets.credentials("bmc", "h", fresh=True).password.reveal() == "2"
    assert secrets.credentials("bmc", "h").password.reveal() == "2"


# --- where they may go ---------------------------------------------------------------------------------------------

ALLOWED = ["10.20.0.0/16", "192.0.2.7", "*.bmc.example.com", "fd00::/64"]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("https://10.20.3.4", True),
        ("https://10.20.3.4:8443/redfish/v1", True),
        ("10.20.3.4:22", True),
        ("192.0.2.7", True),
        ("https://n1.BMC.example.com", True),
        ("https://[fd00::1]:443", True),
        ("https://10.21.0.1", False),
        ("192.0.2.70", False),
        ("https://bmc.example.com", False),
        ("https://n1.bmc.example.com.evil.org", False),
        ("https://10.20.3.4@evil.org", False),
        ("https://evil.org#10.20.3.4", False),
        ("https://evil.org/10.20.3.4", False),
        ("https://010.20.3.4", False),
        ("", False),
    ],
)
def test_a_secret_goes_only_where_it_may(tmp_path: Path, address: str, allowed: bool) -> None:
    private(tmp_path, "x", VALUE)
    secrets = store(tmp_path, f"secrets:\n  bmc: {{file: x, allow: {ALLOWED}}}\n")
    if allowed:
        assert secrets.resolve("bmc", address).reveal() == VALUE
    else:
        with pytest.raises(SecretError, match="may not be sent to"):
            secrets.resolve("bmc", address)


@pytest.mark.parametrize(
    ("pattern", "address", "allowed"),
    [
        ("10.20.*", "https://10.20.3.4:8443", True),
        ("10.20.*", "10.20.255.255:22", True),
        ("10.20.*.*", "10.20.1.1", True),
        ("10.*", "10.1.2.3", True),
        ("10.20.*", "https://[::ffff:10.20.3.4]", True),  # the same host
        ("10.20.0.0/16", "https://[::ffff:a14:304]", True),
        ("10.20.*", "10.200.3.4", False),
        ("10.20.*", "https://10.20.evil.example", False),
        ("10.20.*", "https://10.20.evil.example:443", False),
        ("10.20.*", "https://10.20.3.4.evil.example", False),
        ("10.20.*", "https://10.20.3.4@evil.example", False),
        ("10.20.*", "https://[::10.20.3.4]", False),
        ("10.20.*", "10.20.01.1", False),  # octal to some
        ("10.20.*", "10.20.257", False),
        ("10.20.*", "10.20.0x0a.1", False),
        ("10.20.*", "0x0a.20.1.1", False),
        ("10.20.*", "10.20.1.1.", False),
        ("*", "https://bmc.example.com", True),
        ("*", "0x0a.20.1.0x1", False),  # no name: a resolver makes an address of it
        ("*", "0x0a140101", False),
        ("*", "169090600", False),
        ("*", "10.20.3.4", False),
        ("*.example.com", "https://a.EXAMPLE.com", True),
        ("*.EXAMPLE.com", "https://a.example.com:8443/x", True),
        ("*.example.com", "https://a.example.com@evil.org", False),
        ("*.example.com", "https://evil.org?.example.com", False),
        ("*.example.com", "https://evil.org#.example.com", False),
        ("*.example.com", "https://evil.org\\.example.com", False),
        ("*.example.com", "https://evil.org\n.example.com", False),
        ("*.example.com", "https://aexample.com", False),
        ("fd00::/64", "https://[FD00:0::1]", True),
        ("fd00::/64", "https://[fd00:0:0:1::1]", False),
        ("fd00::/64", "https://[fd00::1%eth0]", False),
    ],
)
def test_networks_are_for_addresses_and_patterns_for_names(
    tmp_path: Path, pattern: str, address: str, allowed: bool
) -> None:
    """The pattern 10.20.* let a secret go to a name that anybody may register."""
    private(tmp_path, "x", VALUE)
    secrets = store(tmp_path, f"secrets:\n  bmc: {{file: x, allow: ['{pattern}']}}\n")
    if allowed:
        assert secrets.resolve("bmc", address).reveal() == VALUE
    else:
        with pytest.raises(SecretError, match="may not be sent to"):
            secrets.resolve("bmc", address)


@pytest.mark.parametrize(
    "pattern", ["10.2?.1.1", "*.1", "10.20.?*", "1*", "10.20", "300.*", "a.example.com.", "10-20*"]
)
def test_a_pattern_that_is_neither_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(SecretError, match="is not an address, a network like"):
        store(tmp_path, f"secrets:\n  bmc: {{file: x, allow: ['{pattern}']}}\n")


def test_without_a_list_a_secret_goes_nowhere(tmp_path: Path) -> None:
    private(tmp_path, "x", VALUE)
    secrets = store(tmp_path, "secrets:\n  open: {file: x}\n  bound: {file: x, allow: [10.0.0.1]}\n")
    with pytest.raises(SecretError, match=r"secrets.open: may not be sent to https://10.0.0.1; allow lists none"):
        secrets.resolve("open", "https://10.0.0.1")
    with pytest.raises(SecretError, match=r"secrets.bound: is for 10.0.0.1 alone"):
        secrets.resolve("bound")


def test_nothing_is_read_before_the_address_is_checked(tmp_path: Path) -> None:
    secrets = store(tmp_path, f"secrets:\n  bmc: {{exec: [touch, {tmp_path}/ran], allow: [10.0.0.1]}}\n")
    with pytest.raises(SecretError):
        secrets.resolve("bmc", "https://10.0.0.2")
    assert not (tmp_path / "ran").exists()


# --- that they show nowhere ----------------------------------------------------------------------------------------


@given(st.text(min_size=8))
def test_a_secret_shows_only_when_revealed(text: str) -> None:
    secret = Secret(text)
    assert secret.reveal() == text
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret!s:>20}".strip(), "%s" % (secret,), repr([secret])):  # noqa: UP031 - a way to show it
        assert shown.strip("[]") == "Secret(***)"
    assert not hasattr(secret, "__dict__")
    for leak in (lambda: pickle.dumps(secret), lambda: copy.deepcopy(secret)):
        with pytest.raises(TypeError, match="not serialised"):
            leak()


# --- the file itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("secrets:\n  bmc: {fiel: x}\n", "2:9 secrets.bmc: unknown key 'fiel' (did you mean 'file'?)"),
        ("secrets:\n  bmc: {file: x, env: Y}\n", "2:8 secrets.bmc: give exactly one of file, env and exec"),
        ("secrets:\n  bmc: {}\n", "2:8 secrets.bmc: give exactly one of file, env and exec"),
        ("secrets:\n  bmc: {exec: ls}\n", "2:15 secrets.bmc.exec: must be a list, not 'ls'"),
        ("secrets:\n  bmc: {file: x, allow: [10.20.0.0/99]}\n", "'10.20.0.0/99' is not an address, a network"),
        ("secrets:\n  bmc: {file: x, allow: ['https://x']}\n", "'https://x' is not an address, a network"),
        ("secrets:\n  bmc: {file: x}\n  bmc: {file: y}\n", "3:3: key 'bmc' is set twice (first in line 2)"),
        ("screts: {}\n", "1:1: unknown key 'screts' (did you mean 'secrets'?)"),
        ("a: [", "1:5: not YAML"),
        ("", "the file is empty"),
        ("secrets: {}\n---\nsecrets: {}\n", "holds 2 documents, not one"),
    ],
)
def test_a_bad_file_names_the_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SecretError) as caught:
        store(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/secrets.yaml")
    assert problem in str(caught.value)
    assert isinstance(caught.value, UsageError)


def test_unknown_names(tmp_path: Path) -> None:
    secrets = store(tmp_path, "secrets: {}\n")
    with pytest.raises(SecretError) as caught:
        secrets.resolve("bmc", "https://10.0.0.1")
    assert str(caught.value) == f"the spec names secret 'bmc', and {tmp_path}/secrets.yaml does not define it"
    assert secrets.public_key("release") is None


def test_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECONCILER_SECRETS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(SecretError, match=r"/reconciler/secrets.yaml does not define it \(there is no such file; "):
        SecretStore.load().resolve("bmc")
    (tmp_path / "reconciler").mkdir()
    private(tmp_path / "reconciler", "secrets.yaml", f"keys: {{release: {KEY}}}\n")
    assert SecretStore.load().public_key("release") == KEY
    monkeypatch.setenv("RECONCILER_SECRETS", str(tmp_path / "nothing"))
    with pytest.raises(SecretError, match=r"/nothing: no such file"):
        SecretStore.load()


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path, "secrets.yaml", "secrets: {}\n", 0o666)
    with pytest.raises(SecretError, match="others may write it"):
        SecretStore.load(path)


def test_public_keys(tmp_path: Path) -> None:
    private(tmp_path, "release.pub", f"untrusted comment: minisign public key\n{KEY}\n", 0o644)
    private(tmp_path, "bad.pub", "untrusted comment: x\nRWQ\n", 0o644)
    private(tmp_path, "cosign.pub", COSIGN, 0o644)
    secrets = store(
        tmp_path,
        f"keys:\n  literal: {KEY}\n  file: {{file: release.pub}}\n  bad: {{file: bad.pub}}\n  gone: {{file: x}}\n"
        "  cosign: {file: cosign.pub}\n",
    )
    assert secrets.public_key("literal") == secrets.public_key("file") == KEY
    assert secrets.public_key("cosign") == COSIGN
    with pytest.raises(SecretError, match=r"keys.bad: not a public key of minisign, nor one of cosign in PEM"):
        secrets.public_key("bad")
    with pytest.raises(SecretError, match=r"keys.gone: x: No such file or directory"):
        secrets.public_key("gone")


def test_the_key_of_the_example_images_is_one(tmp_path: Path) -> None:
    released = Path(__file__).resolve().parents[1] / "fixtures" / "keys" / "release.pub"
    assert store(tmp_path, f"keys: {{release: {{file: {released}}}}}\n").public_key("release") == KEY
