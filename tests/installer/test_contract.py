"""The documents of the install contract: what is written is read back, by others by the published schema too."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.install import (
    CREDENTIAL_SIZE,
    MARKER,
    AttemptCredential,
    ContractDocument,
    ContractError,
    InstallDocument,
    InstallImage,
    InstallPhase,
    InstallStatus,
    Layout,
    Link,
    MachineIdentity,
    Network,
    RootDisk,
    dump_contract,
    empty_credential,
    fill_credential,
    load_contract,
)
from reconciler.model.vocab import ImageFormat

WORDS = st.text(max_size=8)
SIZES = st.integers(min_value=1, max_value=1 << 40)
STATUSES = st.builds(InstallStatus, phase=st.sampled_from(InstallPhase), detail=WORDS, percent=st.integers(0, 100))
LINKS = st.builds(Link, name=WORDS, mac=WORDS, addresses=st.lists(WORDS, max_size=2).map(tuple))
INSTALLS = st.builds(
    InstallDocument,
    node=WORDS,
    hostname=WORDS,
    nonce=WORDS,
    machine=st.builds(MachineIdentity, serial=st.none() | WORDS, uuid=st.none() | WORDS),
    image=st.builds(
        InstallImage, name=WORDS, version=WORDS, url=WORDS, sha256=WORDS, format=st.sampled_from(ImageFormat)
    ),
    root_disk=st.builds(RootDisk, serial=st.none() | WORDS, wwn=st.none() | WORDS),
    layout=st.none() | st.builds(Layout, esp=SIZES, root=SIZES, state=SIZES, data=st.booleans()),
    network=st.none() | st.builds(Network, links=st.lists(LINKS, max_size=2).map(tuple)),
)


@given(STATUSES | INSTALLS)
def test_what_is_written_is_read_back_and_fits_its_schema(document: ContractDocument) -> None:
    text = dump_contract(document)
    assert load_contract(type(document), text) == document
    jsonschema.validate(json.loads(text), type(document).model_json_schema())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"phase":"done"}', "phase: Input should be 'started'"),
        ('{"phase":"failed","percent":101}', "percent: Input should be less than or equal to 100"),
        ('{"phase":"failed","reason":"x"}', "reason: Extra inputs are not permitted"),
        ("[]", "the document: Input should be an object"),
        ("{", "the document: Invalid JSON"),
    ],
)
def test_what_is_no_status_is_refused_with_its_key(text: str, problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        load_contract(InstallStatus, text)


def test_another_major_version_is_refused() -> None:
    with pytest.raises(ContractError, match=r"format: 2\.0 is not readable here"):
        load_contract(AttemptCredential, '{"url":"https://a/b","format":"2.0"}')


def test_an_attempt_fills_the_placeholder_to_its_last_byte() -> None:
    attempt = AttemptCredential(url="https://10.0.0.1:8443/" + "a" * 32, mac="02:00:00:00:00:01")
    filled = fill_credential(attempt)
    assert len(filled) == len(empty_credential()) == CREDENTIAL_SIZE
    assert MARKER not in filled
    assert load_contract(AttemptCredential, filled) == attempt


def test_an_attempt_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ContractError, match="room for 4096"):
        fill_credential(AttemptCredential(url="https://a/" + "b" * CREDENTIAL_SIZE))
