"""No secret gets into a bundle of evidence: each type is known by its form, and declared values whatever their form."""

from __future__ import annotations

import base64
import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.converge.evidence_bundle import LONGEST_PART, bundle_text
from reconciler.drivers.secrets import Secret, SecretStore
from reconciler.drivers.secrets_file import SecretsFile
from reconciler.model.concealment import SHORTEST, TYPES, Forms, conceal

PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
# Type -> texts with HUSH where the secret is.
HUSH = "Tr0ub4dor-3"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJl"
CASES = [
    ("key", f"-----BEGIN RSA PRIVATE KEY-----\n{PEM}\n-----END RSA PRIVATE KEY-----", PEM),
    ("key", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PEM}", PEM),
    ("key", f"{PEM}\n-----END PRIVATE KEY-----\nnext line", PEM),
    ("key", f'{{"key": "-----BEGIN PRIVATE KEY-----\\n{PEM}\\n-----END PRIVATE KEY-----\\n"}}', PEM),
    ("key", "AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", "QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    ("user data", f"#cloud-config\nchpasswd:\n  list: |\n    root:{HUSH}\n", HUSH),
    ("user data", f"Content-Type: multipart/mixed; boundary=x\n\n--x\n#!/bin/sh\necho {HUSH}\n", HUSH),
    ("user data", f"user-data: {base64.b64encode(HUSH.encode()).decode()}", base64.b64encode(HUSH.encode()).decode()),
    ("kubeconfig", f"users:\n- name: admin\n  user:\n    client-key-data: {PEM}\n", PEM),
    ("kubeconfig", f"    token: {HUSH}\n", HUSH),
    ("session", f"X-Auth-Token: {HUSH}", HUSH),
    ("session", f'"X-Auth-Token": "{HUSH}"', HUSH),
    ("session", f"Set-Cookie: sessionKey={HUSH}; Secure", HUSH),
    ("session", f"GET /redfish/v1/SessionService/Sessions/{HUSH} 200", HUSH),
    ("password", f"Authorization: Basic {base64.b64encode(b'root:calvin').decode()}", "cm9vdDpjYWx2aW4"),
    ("password", f"https://admin:{HUSH}@10.0.0.1/redfish/v1", HUSH),
    ("password", f"bmc_password = {HUSH}", HUSH),
    ("password", f'{{"Password": "{HUSH}, and more"}}', HUSH),
    ("password", f"ipmitool -I lanplus -H bmc -U root -P {HUSH} sel list", HUSH),
    ("password", f"--password {HUSH}", HUSH),
    ("password", "root:$6$rounds=4096$saltsalt$hW0ycv1bWqDv1QSo:19000:0", "hW0ycv1bWqDv1QSo"),
    ("token", f"Authorization:\nBearer {JWT}", JWT),
    ("token", "remote: ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912E7710c838347Ae178B4a"),
    ("token", "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef", "0123456789abcdef"),
    ("token", "NGC_API=nvapi-JYNl2aXw5mJBcJNKmPwlTDuBWBm", "JYNl2aXw5mJBcJNKmPwlTDuBWBm"),
    ("token", "AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    ("token", f"HF_TOKEN={HUSH}", HUSH),
    ("e-mail", "reported by jane.doe+hpc@example.co.uk today", "jane.doe"),
]


def kept(parts: dict[str, Any], conceal_values: Any = str) -> str:
    return bundle_text({"node": "n0"}, parts, {"nvidia-smi": "not there"}, conceal_values)


@pytest.mark.parametrize(("kind", "text", "secret"), CASES)
def test_a_secret_of_each_type_is_taken_out_and_its_type_stays(kind: str, text: str, secret: str) -> None:
    line = "mlx5_core 0000:5e:00.0: Port module event[error]: module 0"
    for part in (text, {"events": [{"message": text}]}, {text: "as a key"}):
        bundle = kept({"kernel log": part, "beside": line})
        assert secret not in bundle, bundle
        assert "«" in bundle
        assert line in bundle
    assert kind in {known.name for known in TYPES}


def test_every_type_has_a_case() -> None:
    assert {kind for kind, _, _ in CASES} == {known.name for known in TYPES}


EVIDENCE = """\
NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: GPU Board Serial Number: 1654922006536
EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)
mlx5_core 0000:5e:00.0: poll_health:174: device's health compromised - reached miss count.
Command line: BOOT_IMAGE=/vmlinuz-6.8.0 root=UUID=0b3c-11 ro console=ttyS0 iommu=pt
usb 1-1: New USB device found, idVendor=046b, idProduct=ff01, bcdDevice= 1.00
GPU-5b2a6e1c-0a3b-7d37-8d6c-ffb3a0ad5cf5 at 00000000:1B:00.0
"""


def test_what_a_vendor_needs_stays() -> None:
    assert conceal(EVIDENCE) == EVIDENCE


WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789+/=-_.!$&%", min_size=4, max_size=24)
TEXTS = st.text(max_size=40)


@given(secrets=st.lists(WORDS, min_size=1, max_size=3), parts=st.lists(st.tuples(TEXTS, st.integers(0, 2), TEXTS)))
def test_a_declared_secret_never_appears_in_a_bundle(secrets: list[str], parts: list[tuple[str, int, str]]) -> None:
    """In no text of it, in none of its keys, neither plain nor as JSON or base64 write it."""
    typed = {f"s{at}": Secret(json.dumps({"username": "x", "password": one})) for at, one in enumerate(secrets)}
    store = SecretStore(SecretsFile(), Path("none"), typed)
    texts = [before + secrets[at % len(secrets)] + after for before, at, after in parts]
    nested = {text: [text, {"inner": base64.b64encode(secrets[0].encode()).decode()}] for text in texts}
    bundle = json.loads(kept({"log": "\n".join(texts), "facts": nested}, store.conceal))
    assert {"log", "facts"} == {*bundle["parts"]}
    for text in _texts(bundle["parts"]):
        for secret in secrets:
            assert secret not in text
            assert base64.b64encode(secret.encode()).decode().rstrip("=") not in text


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *_texts(item))]
    return []


@given(st.lists(st.text(min_size=1, max_size=30), max_size=40), st.integers(1, 40_000))
def test_no_part_is_longer_than_its_limit_and_what_is_cut_is_named(texts: list[str], times: int) -> None:
    log = "".join(texts) * times + "the newest"
    events = [{"id": at, "message": text * 2000} for at, text in enumerate(texts)]
    bundle = json.loads(kept({"log": log, "BMC": {"events": events, "serial": "SN"}}))
    for name, part in bundle["parts"].items():
        assert len(json.dumps(part, ensure_ascii=False, indent=1)) <= LONGEST_PART
        whole = part == log or (isinstance(part, dict) and len(part["events"]) == len(events))
        assert whole is (name not in bundle["cut"])
    assert bundle["parts"]["log"].endswith("the newest")
    assert bundle["parts"]["BMC"]["serial"] == "SN"
    if bundle["parts"]["BMC"]["events"]:
        assert bundle["parts"]["BMC"]["events"][-1] == events[-1]


def test_a_secret_is_taken_out_before_its_text_is_cut() -> None:
    """The limit falls amid the key, whose rest has no form."""
    lines = "\n".join([PEM] * 9000)
    bundle = kept({"log": f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\nlast"})
    assert PEM not in bundle
    assert "last" in bundle


def test_a_long_log_is_searched_in_time() -> None:
    """No form goes back and forth: a megabyte of what begins like secrets takes no longer than a second or two."""
    import time

    began = time.process_time()
    for text in ("password" * 30_000, "a" * 300_000, "token.secret-" * 20_000, "x@" * 100_000, " -" * 100_000):
        conceal(text)
    assert time.process_time() - began < 10.0


def test_a_secret_that_is_read_or_changed_later_is_taken_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked for is kept between texts, and must not outlast the secrets that it is made of."""
    source = tmp_path / "bmc"
    source.write_text("first-value")
    source.chmod(0o600)
    store = SecretStore(
        SecretsFile.model_validate({"secrets": {"bmc": {"file": str(source), "allow": ("x",)}}}), tmp_path
    )
    told = "first-value, then other-value"
    assert store.conceal(told) == told, "nobody has read it yet"
    store.resolve("bmc", "https://x")
    assert store.conceal(told) == "«», then other-value"
    source.write_text("other-value")
    monkeypatch.setattr("reconciler.drivers.secrets.REREAD_S", -1.0)
    store.resolve("bmc", "https://x", fresh=True)
    assert store.conceal(told) == "first-value, then «»"


def test_the_forms_of_a_secret_are_made_once_for_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle has a thousand texts: that made a third of the controller's CPU as twenty nodes were treated at once."""
    made: list[str] = []

    def values_of(secret: str) -> list[str]:
        made.append(secret)
        return [secret]

    monkeypatch.setattr("reconciler.drivers.secrets.values_of", values_of)
    store = SecretStore(SecretsFile(), Path("none"), {"bmc": Secret("first-value")})
    assert [store.conceal(text) for text in ("a first-value", "b", "first-value c")] == ["a «»", "b", "«» c"]
    assert made == ["first-value"]


@given(st.from_regex(r"\A[A-Za-z0-9_]{0,19}\Z"))
@example("gho_aaaaaaaaaaaaaaa")
def test_no_form_is_a_short_word(text: str) -> None:
    """So that words are passed over, of which documents are full."""
    assert not any(kind.form.search(text) for kind in TYPES)


@given(
    st.lists(st.text("ab«»", min_size=SHORTEST, max_size=6), max_size=6),
    st.lists(st.text("ab«» ", max_size=8), max_size=8),
)
def test_no_value_is_left_whatever_a_replacement_joins(values: list[str], parts: list[str]) -> None:
    text = "".join(one for pair in zip_longest(parts, values, fillvalue="") for one in pair)
    told = Forms(values).without(text)
    assert not any(value in told for value in values)
    assert told == text or any(value in text for value in values)


def test_a_text_is_looked_through_once_for_all_values() -> None:
    """With the passwords of ten thousand BMCs, a bundle held the loop up for half a minute."""

    looked: list[object] = []

    class Text(str):
        __slots__ = ()

        def __contains__(self, form: object) -> bool:
            looked.append(form)
            return False

    forms = Forms(f"{at:05d}-password" for at in range(1000))
    text = Text("00999-passport")
    assert forms.without(text) == text
    assert 0 < len(looked) < 100
