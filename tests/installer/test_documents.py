"""The init reads exactly what the models of the contract write, and refuses what they refuse."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

import pytest
from hypothesis import given
from pydantic import BaseModel

from reconciler.installer import attempt, documents
from reconciler.installer.slots import version_key
from reconciler.model import install as contract
from tests.installer.test_contract import INSTALLS

PAIRS = [
    (documents.Attempt, contract.AttemptCredential),
    (documents.Document, contract.InstallDocument),
    (documents.EraseDocument, contract.EraseDocument),
    (documents.Challenge, contract.AttestationChallenge),
]


def shape(kind: Any) -> Any:
    """Return the fields of a document, with their defaults, as plain values."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {
            field.name: (shape(hints[field.name]), default(field.default, dataclasses.MISSING))
            for field in dataclasses.fields(kind)
        }
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {
            name: (shape(field.annotation), default(field.default, None) if not field.is_required() else "required")
            for name, field in kind.model_fields.items()
        }
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return ("optional", *(shape(one) for one in typing.get_args(kind) if one is not types.NoneType))
    if typing.get_origin(kind) is tuple:
        return ("list", shape(typing.get_args(kind)[0]))
    return str if isinstance(kind, type) and issubclass(kind, str) else kind


def default(value: Any, missing: Any) -> Any:
    if value is missing and missing is dataclasses.MISSING:
        return "required"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value.model_dump() if isinstance(value, BaseModel) else value


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_the_init_knows_the_fields_of_the_contract(ours: type, theirs: type) -> None:
    assert shape(ours) == shape(theirs)


@given(INSTALLS)
def test_what_the_contract_writes_the_init_reads(document: contract.InstallDocument) -> None:
    read = documents.load(documents.Document, contract.dump_contract(document).encode())
    assert json.loads(json.dumps(dataclasses.asdict(read))) == document.model_dump(mode="json")


def test_the_placeholder_is_the_contracts() -> None:
    assert (attempt.MARKER, attempt.SIZE) == (contract.MARKER, contract.CREDENTIAL_SIZE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "not JSON"),
        (b"[]", "the document: not an object"),
        (b'{"url":1}', "url: not of type str"),
        (b'{"url":"u","vlan":true}', "vlan: not of type int"),
        (b'{"url":"u","dns":["1",2]}', "dns.1: not of type str"),
        (b'{"url":"u","dns":"1"}', "dns: not a list"),
        (b'{"url":"u","more":1}', "more: this installer does not know this key"),
        (b'{"mac":null}', "url: it is missing"),
        (b'{"url":"u","format":"2.0"}', "format: this installer reads 1.x, and not 2.0"),
    ],
)
def test_what_is_no_document_is_refused_with_its_key(text: bytes, problem: str) -> None:
    with pytest.raises(documents.Malformed, match=problem):
        documents.load(documents.Attempt, text)


def test_versions_sort_as_in_the_boot_menu() -> None:
    """The order in which systemd-analyze compare-versions puts them."""
    ordered = ["122.1~rc", "122.1", "122.1-2", "122.1^1", "122.1.0", "123~rc1-1", "123", "123-a", "123-a.1", "123-1",
               "123-1.1", "123^post1", "123.a-1", "123.1-1", "123a-1", "124-1"]  # fmt: skip
    mixed = [*ordered[::2], *ordered[1::2]]
    assert sorted(mixed, key=version_key) == ordered
